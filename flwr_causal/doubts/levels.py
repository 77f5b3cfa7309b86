"""Levels of parties, or of series, that differ: in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.levels import deviations
from flwr_causal.core.ties import as_ranked
from flwr_causal.core.words import some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray

#: How many columns a warning names.
NAMED = 5


def levels_in_words(names: Sequence[str], shares: FloatArray, differ: BoolArray) -> str:
    """Return the variables whose levels differ, the largest differences first.

    Parameters
    ----------
    names : sequence of str
        The variable of each column.
    shares : ndarray of shape (m,)
        The share of a column's variance that is between units.
    differ : ndarray of bool, shape (m,)
    """
    sizes, found = deviations(shares), dict[str, float]()
    for j in np.argsort(-as_ranked(shares), kind="stable"):
        if differ[j]:
            found.setdefault(names[j], sizes[j])
    return some((f"{name!r} by {size:.2g}" for name, size in found.items()), NAMED)


def differing_levels(
    names: Sequence[str],
    shares: FloatArray,
    differ: BoolArray,
    flat: Sequence[str],
    whose: str,
) -> str:
    """Return the warning of levels that differ.

    Parameters
    ----------
    names, shares, differ
        As of :func:`levels_in_words`.
    flat : sequence of str
        The columns that vary between units only. With such columns levels are not taken out.
    whose : str
        The units: "parties" or "series".
    """
    listed = levels_in_words(names, shares, differ)
    if flat:
        return (
            f"The levels of the {whose} differ (in standard deviations: {listed}) beyond what the "
            f"columns say that vary between the {whose} only, {some(map(repr, flat), NAMED)}. "
            f"Differences between the {whose} count as effects here: leave these columns out, and "
            f"effects are those within the {whose}."
        )
    return (
        f"The levels of the {whose} differ (in standard deviations: {listed}). Effects are those "
        f"within the {whose}, as with an intercept for each; center='global' takes differences "
        "between them for effects too."
    )

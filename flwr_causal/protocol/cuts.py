"""The exchange in which parties agree on cut points of numeric columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.core.discrete.cut_points import most_thresholds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.contract import ReplyContext
    from flwr_causal.protocol.setup import Setup


def _decreasing(arrays: Arrays, known: ReplyContext) -> str:
    """Return whether fewer rows lie below a higher threshold."""
    order = np.argsort(known.sent["thresholds"], axis=1)
    counts = np.take_along_axis(arrays["counts"].astype(np.int64), order, axis=1)
    return "fewer rows lie below a higher threshold" if (np.diff(counts) < 0).any() else ""


def sizes_of_cuts(setup: Setup) -> dict[str, int]:
    """Return how many columns are cut, and the number that numbers of cut points are below."""
    return {"cut": len(setup.continuous), "intervals": max(setup.handling.discretize, 1)}


def _more_thresholds(sent: Mapping[str, Any], setup: Setup) -> str:
    """Return whether there are more thresholds than a search of the cut points needs, in words."""
    most = most_thresholds(setup.handling.discretize)
    found = sent["thresholds"].shape[1]
    return f"has {found} thresholds of a column, more than {most}" if found > most else ""


CUTS = Exchange(
    "cuts",
    "cut points that divide columns into equally full intervals, by narrowing brackets",
    sends=(
        # Exact, so that parties and server compare with the same numbers.
        Sent("thresholds", "numbers to compare with", ("cut", "thresholds"), exact=True),
    ),
    returns=(
        Disclosure(
            "counts",
            "number of the party's rows at or below each threshold",
            ("cut", "thresholds"),
            "count",
            "sum",
            cumulative=True,
        ),
    ),
    contradiction=_decreasing,
    unfitting=_more_thresholds,
    same_parties=True,
    timing="before the training, if numeric columns are cut into intervals",
)

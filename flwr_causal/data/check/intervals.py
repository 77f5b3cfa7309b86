"""Intervals between cut points: their names as states, and the interval of each value."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.discrete.discrete import state_name

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.discrete.discrete import Codes

#: The one state of a column that no cut point divides.
UNDIVIDED = "any value"


def interval_names(cuts: FloatArray) -> tuple[str, ...]:
    """Name the intervals between cut points: "<= 3.2", "3.2 to 7.1", "> 7.1".

    An interval holds its upper cut point and not its lower one. A cut point just below a short
    number, where that number goes with those above it, reads "< 7", "under 7" or ">= 7".

    Parameters
    ----------
    cuts : float64 array of shape (k,)
        Ascending and different.

    Returns
    -------
    tuple of k + 1 str
    """
    ends = [_end(cut) for cut in cuts.tolist()]
    if not ends:
        return (UNDIVIDED,)
    inner = [f"{low} to {'under ' * under}{high}" for (low, _), (high, under) in pairwise(ends)]
    (first, first_under), (last, last_under) = ends[0], ends[-1]
    return (f"<{'=' * (not first_under)} {first}", *inner, f">{'=' * last_under} {last}")


def _end(cut: float) -> tuple[str, bool]:
    """Return how to write a cut point, and whether it lies just below what is written."""
    written, next_one = state_name(cut), state_name(math.nextafter(cut, math.inf))
    under = len(next_one) + 2 < len(written)
    return (next_one, True) if under else (written, False)


def apply_cuts(values: FloatArray, cuts: FloatArray) -> Codes:
    """Return the interval of each value: the number of cut points below it.

    Parameters
    ----------
    values : float64 array of shape (n,)
        Finite numbers.
    cuts : float64 array of shape (k,)
        Ascending, k at most 255.

    Returns
    -------
    uint8 array of shape (n,)
    """
    return np.searchsorted(cuts, values, side="left").astype(np.uint8)

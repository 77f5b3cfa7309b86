"""Discretisation of tables: which columns, the names of the intervals, and the codes."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.discrete import cut_points
from flwr_causal.core.discrete.discrete import state_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from flwr_causal.core.discrete.cut_points import CutState, FloatArray
    from flwr_causal.core.discrete.discrete import Codes
    from flwr_causal.data.check.checks import Agreement

__all__ = ["apply_cuts", "interval_names", "start_cuts", "to_discretize", "with_cuts"]

#: The one state of a column that no cut point divides.
UNDIVIDED = "any value"


def to_discretize(agreement: Agreement) -> npt.NDArray[np.intp]:
    """Return the positions, among the agreed names, of the columns that are to be discretised.

    With ``Policy.discretize`` bins these are the columns of numbers that over all parties have
    more than ``max_states`` different values, or that hold numbers which are not whole and more
    different values than bins. A column of few whole numbers thus stays as it is (codes of
    categories are often numbers), and so does one with no more values than there would be bins.
    Which columns these are depends on the rows of all parties together, not on who has which.
    """
    chosen = set(agreement.continuous)
    return np.array([k for k, name in enumerate(agreement.names) if name in chosen], dtype=np.intp)


def start_cuts(
    agreement: Agreement, num_bins: int, num_rows: npt.NDArray[np.int64] | None = None
) -> CutState:
    """Return the state before the first exchange on the cut points of :func:`to_discretize`.

    Parameters
    ----------
    agreement : Agreement
        Of reports with sums.
    num_bins : int
        Intervals for each column, at least 2 (``Policy.discretize``).
    num_rows : int64 array, optional
        Rows that have a value of each of these columns. Default: all rows.

    Raises
    ------
    DataError
        The reports had no sums.
    """
    chosen = to_discretize(agreement)
    whole = np.array([name in agreement.whole for name in agreement.continuous], dtype=np.bool_)
    mean, variance = agreement.mean[chosen], agreement.variance[chosen]
    rows = agreement.n if num_rows is None else num_rows
    return cut_points.init(mean, variance, num_bins, rows, whole)


def with_cuts(agreement: Agreement, cuts: Mapping[str, FloatArray]) -> Agreement:
    """Return the agreement with the states of the discretised columns filled in."""
    named = zip(agreement.names, agreement.states, strict=True)
    states = tuple(interval_names(cuts[name]) if name in cuts else old for name, old in named)
    return replace(agreement, states=states)


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

"""The exchanges in which parties agree on cut points of numeric columns: the server's side.

Methods on categories, and trees, need cut points.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.discrete import cut_points
from flwr_causal.data.check.agreement import start_cuts
from flwr_causal.protocol.cuts import CUTS
from flwr_causal.runtime.algorithm import Ask, Note

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.algorithm import Step


class AgreedCuts(NamedTuple):
    """The cut points of numeric columns.

    Attributes
    ----------
    cuts : tuple of ndarray
        The cut points of each column.
    inside : tuple of tuple of (float, float)
        Mean and standard deviation of the numbers in each interval of each column.
    taken : int
        Exchanges.
    """

    cuts: tuple[FloatArray, ...]
    inside: tuple[tuple[tuple[float, float], ...], ...]
    taken: int


def agreed_cuts(
    agreement: Agreement,
    num_bins: int,
    present: Mapping[str, NDArray[np.int64]] | None = None,
    *,
    spreading: bool = False,
) -> Generator[Step, Any, AgreedCuts]:
    """Agree on cut points, by numbers of rows up to thresholds; replicates share the exchanges.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances.
    num_bins : int
        Number of intervals of a column.
    present : mapping of str to ndarray of int64, shape (d,), optional
        By party, the number of its rows with a value in each column. Default: all rows.
    spreading : bool, default False
        Whether a value that many rows share is found exactly and gets an interval of its own, and
        the other rows are divided equally.
    """
    rows = _rows_of(agreement, present, agreement.rows)
    state = start_cuts(agreement, num_bins, rows, apart=spreading)
    for taken in itertools.count(1):
        replies = yield Ask(CUTS, {"thresholds": cut_points.thresholds(state)}, shared=True)
        rows = _rows_of(agreement, present, replies.parties, replies.rows)
        state = cut_points.step(state, replies["counts"], num_rows=rows)
        yield Note({"columns": len(state.centre)})
        if not cut_points.finished(state):
            continue
        if spreading and (again := cut_points.second_search(state)) is not None:
            state, spreading = again, False
            continue
        chosen = [agreement.names.index(name) for name in agreement.continuous]
        mean, variance = agreement.mean[chosen], agreement.variance[chosen]
        inside = cut_points.inside(state, mean, variance)
        return AgreedCuts(cut_points.cut_points(state), inside, taken)
    raise AssertionError("unreachable")


def _rows_of(
    agreement: Agreement,
    present: Mapping[str, NDArray[np.int64]] | None,
    parties: Iterable[str],
    summed: int | None = None,
) -> NDArray[np.int64]:
    """Return the number of rows with a value in each column, of some parties together, (d,)."""
    if present is None:
        rows = agreement.rows_of(parties) if summed is None else summed
        return np.full(len(agreement.continuous), rows, dtype=np.int64)
    total: IntArray = np.sum([present[party] for party in parties], axis=0)
    return total

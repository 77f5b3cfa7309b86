"""The exchanges in which parties agree on cut points of numeric columns: the server's side.

Methods on categories, and trees, need cut points.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.discrete import cut_points
from flwr_causal.data.check.agreement import start_cuts
from flwr_causal.protocol.cuts import CUTS
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.runtime.method import Request

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step


class CutStep(NamedTuple):
    """The result of an exchange of counts.

    Attributes
    ----------
    stage : CutStage or None
        The next exchange; None when the cut points are known.
    info : dict
        Diagnostics for the history.
    cuts : tuple of ndarray
        The cut points of each column; () before they are known.
    inside : tuple of tuple of (float, float)
        Mean and standard deviation of the numbers in each interval of each column.
    """

    stage: CutStage | None
    info: dict[str, Any]
    cuts: tuple[FloatArray, ...] = ()
    inside: tuple[tuple[tuple[float, float], ...], ...] = ()


@dataclass(frozen=True, eq=False)
class CutStage:
    """One exchange of the numbers of rows up to each threshold.

    Parameters
    ----------
    state : CutState
        Brackets of the cut points.
    agreement : Agreement
    present : mapping of str to ndarray of int64, shape (d,), or None
        By party, the number of its rows with a value in each column; None: all have one.
    spreading : bool
        Whether a value that many rows share is found exactly and gets an interval of its own, and
        the other rows are divided equally.
    """

    state: cut_points.CutState
    agreement: Agreement
    present: Mapping[str, NDArray[np.int64]] | None = None
    spreading: bool = False

    @classmethod
    def of(
        cls,
        agreement: Agreement,
        num_bins: int,
        present: Mapping[str, NDArray[np.int64]] | None = None,
        *,
        spreading: bool = False,
    ) -> CutStage:
        """Return the first exchange for the numeric columns of an agreement.

        Parameters
        ----------
        agreement : Agreement
            Columns, rows, means and variances.
        num_bins : int
            Number of intervals of a column.
        present : mapping of str to ndarray of int64, shape (d,), optional
            By party, the number of its rows with a value in each column. Default: all rows.
        spreading : bool, default False
            See the class.
        """
        rows = _rows_of(agreement, present, agreement.rows)
        start = start_cuts(agreement, num_bins, rows, apart=spreading)
        return cls(start, agreement, present, spreading)

    def request(self) -> Request:
        """Request the numbers of rows up to each threshold."""
        return Request(CUTS, {"thresholds": cut_points.thresholds(self.state)})

    def close(self, replies: Replies) -> CutStep:
        """Narrow the brackets; if they are narrow enough, spread the bins or return cut points."""
        rows = _rows_of(self.agreement, self.present, replies.parties, replies.rows)
        after = cut_points.step(self.state, replies["counts"], num_rows=rows)
        info = {"columns": len(after.centre)}
        if not cut_points.finished(after):
            return CutStep(replace(self, state=after), info)
        if self.spreading and (again := cut_points.second_search(after)) is not None:
            return CutStep(replace(self, state=again, spreading=False), info)
        chosen = [self.agreement.names.index(name) for name in self.agreement.continuous]
        mean, variance = self.agreement.mean[chosen], self.agreement.variance[chosen]
        inside = cut_points.inside(after, mean, variance)
        return CutStep(None, info, cut_points.cut_points(after), inside)


def agreed_cuts(
    agreement: Agreement,
    num_bins: int,
    present: Mapping[str, NDArray[np.int64]] | None = None,
    *,
    spreading: bool = False,
) -> Generator[Step, Any, tuple[CutStep, int]]:
    """Agree on the cut points; return them, and the number of exchanges, which replicates share.

    Parameters are those of :meth:`CutStage.of`.
    """
    stage = CutStage.of(agreement, num_bins, present, spreading=spreading)
    for taken in itertools.count(1):
        request = stage.request()
        replies = yield Ask(request.exchange, request.values, shared=True)
        step = stage.close(replies)
        yield Note(step.info)
        if step.stage is None:
            return step, taken
        stage = step.stage
    raise AssertionError("unreachable")


def _rows_of(
    agreement: Agreement,
    present: Mapping[str, NDArray[np.int64]] | None,
    parties: Iterable[str],
    summed: int | None = None,
) -> NDArray[np.int64]:
    """Return how many rows of some parties together have a value in each column, shape (d,)."""
    if present is None:
        rows = agreement.rows_of(parties) if summed is None else summed
        return np.full(len(agreement.continuous), rows, dtype=np.int64)
    total: IntArray = np.sum([present[party] for party in parties], axis=0)
    return total

"""The exchanges in which parties agree on cut points of numeric columns: the server's side.

Methods on categories, and trees, need cut points.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.discrete import cut_points
from flwr_causal.data.check.agreement import start_cuts
from flwr_causal.protocol.cuts import CUTS
from flwr_causal.runtime.method import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies


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
    """

    stage: CutStage | None
    info: dict[str, Any]
    cuts: tuple[FloatArray, ...] = ()


@dataclass(frozen=True, eq=False)
class CutStage:
    """One exchange of the numbers of rows up to each threshold.

    Parameters
    ----------
    state : CutState
        Brackets of the cut points.
    rows : mapping of str to ndarray of int64, shape (d,)
        By party, the number of its rows with a value in each column.
    spreading : bool
        Whether a value that many rows share gets an interval of its own, and the other rows are
        divided equally.
    """

    state: cut_points.CutState
    rows: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
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
        total = None if present is None else np.sum(list(present.values()), axis=0)
        d = len(agreement.continuous)
        rows = present or {
            party: np.full(d, count, dtype=np.int64) for party, count in agreement.rows.items()
        }
        return cls(start_cuts(agreement, num_bins, total), rows, spreading)

    def request(self) -> Request:
        """Request the numbers of rows up to each threshold."""
        return Request(CUTS, {"thresholds": cut_points.thresholds(self.state)})

    def close(self, replies: Replies) -> CutStep:
        """Narrow the brackets; if they are narrow enough, spread the bins or return cut points."""
        num_rows = np.sum([self.rows[party] for party in replies.parties], axis=0)
        after = cut_points.step(self.state, replies["counts"], num_rows=num_rows)
        info = {"columns": len(after.centre)}
        if not cut_points.finished(after):
            return CutStep(CutStage(after, self.rows, self.spreading), info)
        if self.spreading and (again := cut_points.second_search(after)) is not None:
            return CutStep(CutStage(again, self.rows), info)
        return CutStep(None, info, cut_points.cut_points(after))

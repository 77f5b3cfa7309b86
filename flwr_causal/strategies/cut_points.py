"""Agreeing on cut points of columns of numbers, as methods on categories and trees need them."""

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
    """What follows an exchange of counts.

    Attributes
    ----------
    stage : CutStage or None
        The next exchange; None once the cut points are known.
    info : dict
        Diagnostics for the history.
    cuts : tuple of ndarray
        The cut points of each column once they are known, else ().
    """

    stage: CutStage | None
    info: dict[str, Any]
    cuts: tuple[FloatArray, ...] = ()


@dataclass(frozen=True, eq=False)
class CutStage:
    """One exchange of counts of rows up to thresholds.

    Parameters
    ----------
    state : CutState
    rows : mapping of str to ndarray of int64, shape (d,)
        By party how many of its rows have a value of each column.
    spreading : bool
        Whether a value that many rows share gets an interval apart, and the other rows equal ones.
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
        num_bins : int
        present : mapping of str to ndarray of int64, shape (d,), optional
            By party how many of its rows have a value of each column. Default: all of them.
        spreading : bool, default False
        """
        total = None if present is None else np.sum(list(present.values()), axis=0)
        d = len(agreement.continuous)
        rows = present or {
            party: np.full(d, count, dtype=np.int64) for party, count in agreement.rows.items()
        }
        return cls(start_cuts(agreement, num_bins, total), rows, spreading)

    def request(self) -> Request:
        """Ask for the rows up to each threshold."""
        return Request(CUTS, {"thresholds": cut_points.thresholds(self.state)})

    def close(self, replies: Replies) -> CutStep:
        """Narrow the brackets; over once they are narrow enough, and bins are spread if asked."""
        num_rows = np.sum([self.rows[party] for party in replies.parties], axis=0)
        after = cut_points.step(self.state, replies["counts"], num_rows=num_rows)
        info = {"columns": len(after.centre)}
        if not cut_points.finished(after):
            return CutStep(CutStage(after, self.rows, self.spreading), info)
        if self.spreading and (again := cut_points.second_search(after)) is not None:
            return CutStep(CutStage(again, self.rows), info)
        return CutStep(None, info, cut_points.cut_points(after))

"""Stages of FedGES: a run is one after another, each a few exchanges with one purpose.

A stage says what the parties are sent, folds their replies and says what comes next. It is never
changed: folding returns a new one. All numbers of variables are those of their names' order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from flwr_causal.core.discrete import cut_points
from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.discrete.contingency_tables import (
    Counts,
    Sets,
    num_cells,
    sets_of,
    summed,
    tables_of,
)
from flwr_causal.core.discrete.cut_points import spread
from flwr_causal.core.graphs.edge_lists import families_of
from flwr_causal.data.check.agreement import start_cuts
from flwr_causal.strategies.exchange import Reply, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.runtime.federation import Party

    BoolMatrix = NDArray[np.bool_]
    FloatArray = NDArray[np.float64]


#: A variable's table of probabilities with more entries than this is not worth having.
MOST_CELLS = 10**6


class Found(NamedTuple):
    """What a search has come to.

    Attributes
    ----------
    marks : ndarray of bool, shape (d, d)
        The class.
    dag : ndarray of bool, shape (d, d)
        A member of it.
    reason : str
        Why the search is over, in words.
    support : ndarray of float64, shape (d, d), or None
        The share of the parties whose graph has each edge.
    """

    marks: BoolMatrix
    dag: BoolMatrix
    reason: str
    support: FloatArray | None = None


class Step(NamedTuple):
    """What follows an exchange.

    Attributes
    ----------
    stage : Stage or None
        The next one; None where the purpose is fulfilled.
    info : dict
        Diagnostics for the history.
    found : Found or None
        The result so far.
    """

    stage: Stage | None
    info: dict[str, Any]
    found: Found | None = None


class Stage(Protocol):
    """One kind of exchange."""

    phase: ClassVar[str]

    def request(self, party: Party) -> Request:
        """Return what a party is sent."""

    def fold(self, reply: Reply) -> Self:
        """Return the stage with one more reply, as they come in the parties' order."""

    def close(self) -> Step:
        """Return what follows from the replies."""


@dataclass(frozen=True)
class CutStage:
    """Agreeing on the cut points of numeric columns, by counts of rows below thresholds.

    Parameters
    ----------
    state : CutState
    counts : ndarray of int64 or None
        Sum of the answers so far.
    num_rows : int or ndarray of int64, shape (d,)
        Rows of the parties that answered, of each column those with a value.
    present : mapping of str to ndarray of int64, shape (d,), optional
        By party how many of its rows have a value of each column. Default: all of them.
    spreading : bool
        Whether a value that many rows share gets an interval apart, and the other rows equal ones.
    """

    phase: ClassVar[str] = "cuts"

    state: cut_points.CutState
    counts: NDArray[np.int64] | None = None
    num_rows: int | NDArray[np.int64] = 0
    present: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
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
        """Return the first exchange for the numeric columns of an agreement."""
        rows = None if present is None else np.sum(list(present.values()), axis=0)
        start = start_cuts(agreement, num_bins, rows)
        return cls(start, present=present or {}, spreading=spreading)

    def request(self, party: Party) -> Request:
        """Ask for the rows up to each threshold."""
        # As float64 whatever the precision: the parties must compare with the server's numbers.
        asked = cut_points.thresholds(self.state)
        return Request({"thresholds": asked}, {})

    def fold(self, reply: Reply) -> CutStage:
        """Add a party's counts."""
        counts = reply.arrays["counts"]
        total = counts if self.counts is None else self.counts + counts
        rows = self.present.get(reply.party.name, reply.party.num_rows)
        return replace(self, counts=total, num_rows=self.num_rows + rows)

    def close(self) -> Step:
        """Narrow the brackets; over once they are narrow enough, and bins are spread if asked."""
        info = {"columns": len(self._after.centre)}
        again: cut_points.CutState | None = self._after
        spreading = self.spreading
        if cut_points.finished(self._after):
            again, spreading = spread(self._after) if spreading else None, False
        if again is None:
            return Step(None, info)
        return Step(CutStage(again, present=self.present, spreading=spreading), info)

    def cuts(self) -> tuple[FloatArray, ...]:
        """Return the cut points of each column after the last exchange."""
        return cut_points.cut_points(self._after)

    @cached_property
    def _after(self) -> cut_points.CutState:
        assert self.counts is not None
        return cut_points.step(self.state, self.counts, num_rows=self.num_rows)


@dataclass(frozen=True)
class FitStage:
    """The last exchange: what the tables of probabilities and the confidence need.

    Parameters
    ----------
    dag : ndarray of bool, shape (d, d)
    sets : Sets
        Each variable with its parents.
    minimum_count : int
        Cells of fewer rows are counted for the user's attention.
    tables : tuple of Counts
        What came in.
    votes : tuple of ndarray
        For each edge, by child and then by parent, whether a party's own score agrees.
    """

    phase: ClassVar[str] = "fit"

    dag: BoolMatrix
    sets: Sets
    minimum_count: int
    tables: tuple[Counts, ...] = ()
    votes: tuple[NDArray[np.uint8], ...] = ()
    small_cells: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, agreement: Agreement, found: Found, minimum_count: int) -> FitStage | None:
        """Return the exchange for a graph; None if one of its tables would be too large."""
        sets = sets_of([[*parents, y] for y, parents in families_of(found.dag)])
        too_large = num_cells(sets, cardinalities_of(agreement)).max() > MOST_CELLS
        return None if too_large else cls(found.dag, sets, minimum_count)

    def request(self, party: Party) -> Request:
        """Ask for the tables of the families, and for votes on the edges."""
        edges = np.argwhere(self.dag).astype(np.uint16)
        return Request({"sizes": self.sets.sizes, "members": self.sets.members, "edges": edges}, {})

    def fold(self, reply: Reply) -> FitStage:
        """Keep a party's tables and votes."""
        counts = counts_of(reply)
        small = {**self.small_cells, reply.party.name: small_cells(counts, self.minimum_count)}
        votes = (*self.votes, reply.arrays["votes"])
        return replace(self, tables=(*self.tables, counts), votes=votes, small_cells=small)

    def close(self) -> Step:
        """Nothing follows: see `counts` and `support`."""
        return Step(None, {"num_edges": int(self.dag.sum())})

    def counts(self) -> Counts:
        """Return the tables of all rows."""
        return summed(self.tables)

    def support(self) -> FloatArray:
        """Return the share of the parties that agree with each edge of the DAG, shape (d, d)."""
        share = np.zeros(self.dag.shape)
        children, parents = np.nonzero(self.dag.T)
        share[parents, children] = np.mean(self.votes, axis=0)
        return share


def counts_of(reply: Reply) -> Counts:
    """Return the contingency tables that a party sent."""
    return Counts(*(reply.arrays[name] for name in Counts._fields))


def small_cells(counts: Counts, minimum: int) -> int:
    """Return how many cells tell of some rows, but of fewer than the minimum."""
    return sum(
        int(((values > 0) & (values < minimum)).sum()) for values in (counts.dense, counts.values)
    )


def by_name(names: Sequence[str]) -> list[int]:
    """Return the positions of the names in their sorted order."""
    return sorted(range(len(names)), key=names.__getitem__)


def cardinalities_of(agreement: Agreement) -> NDArray[np.int64]:
    """Return the numbers of states, the variables in the order of their names."""
    order = by_name(agreement.names)
    return np.array([len(agreement.states[k]) for k in order], dtype=np.int64)


def network_of(agreement: Agreement, fitted: FitStage, sample_size: float) -> BayesianNetwork:
    """Return the Bayesian network of the summed tables, its variables in the agreed order.

    Parameters
    ----------
    agreement : Agreement
    fitted : FitStage
        With the parties' tables.
    sample_size : float
        Weight of the prior in rows.
    """
    order = by_name(agreement.names)
    tables = tables_of(fitted.sets, fitted.counts(), cardinalities_of(agreement))
    counts: dict[int, NDArray[np.int64]] = {}
    parents: dict[int, tuple[int, ...]] = {}
    for (y, own), table in zip(families_of(fitted.dag), tables, strict=True):
        # The table's axes go by name; a network's go by column, and the child comes last.
        axes = sorted((*own, y))
        wanted = [*sorted(own, key=order.__getitem__), y]
        counts[order[y]] = table.transpose([axes.index(k) for k in wanted])
        parents[order[y]] = tuple(order[k] for k in wanted[:-1])
    return BayesianNetwork.from_counts(
        agreement.names,
        agreement.states,
        [parents[k] for k in range(len(order))],
        [counts[k] for k in range(len(order))],
        equivalent_sample_size=sample_size,
    )

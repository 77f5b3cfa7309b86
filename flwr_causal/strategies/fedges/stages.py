"""Stages of FedGES on sums: the search on scores or counts, and the last exchange."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.discrete.contingency_tables import Counts, Sets, num_cells, sets_of, tables_of
from flwr_causal.core.discrete.scores import KINDS, terms_of
from flwr_causal.core.ges.counted_gains import CountedGains
from flwr_causal.core.ges.ges import prepared_search
from flwr_causal.core.ges.speculative_search import Questions, SpeculativeGains
from flwr_causal.core.graphs.edge_lists import families_of
from flwr_causal.protocol.fedges import COUNTS, FIT, SCORES
from flwr_causal.runtime.method import Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.exchange import Exchange
    from flwr_causal.protocol.replies import Replies


class Found(NamedTuple):
    """The result of a search.

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

    marks: BoolArray
    dag: BoolArray
    reason: str
    support: FloatArray | None = None


class Step(NamedTuple):
    """The step that follows an exchange.

    Attributes
    ----------
    stage : Stage or None
        The next exchange; None at the end of the search.
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

    def request(self) -> Request:
        """Return what the parties are sent."""

    def close(self, replies: Replies) -> Step:
        """Return the step that follows from the replies."""


def by_name(names: Sequence[str]) -> list[int]:
    """Return the positions of the names in their sorted order."""
    return sorted(range(len(names)), key=names.__getitem__)


def cardinalities_of(agreement: Agreement) -> IntArray:
    """Return the numbers of states, the variables in the order of their names."""
    order = by_name(agreement.names)
    return np.array([len(agreement.states[k]) for k in order], dtype=np.int64)


#: Largest number of entries of a variable's table of probabilities.
MOST_CELLS = 10**6


@dataclass(frozen=True, eq=False)
class Fitted:
    """The results of the last exchange.

    Parameters
    ----------
    counts : Counts
        The contingency table of each variable with its parents, over all rows.
    support : ndarray of float64, shape (d, d)
        The share of the parties whose own score agrees with each edge of the DAG.
    small : mapping of str to int
        By party, the number of cells with few rows that it has sent.
    """

    counts: Counts
    support: FloatArray
    small: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FitStage:
    """The last exchange: the tables of the final graph, and votes on its edges.

    Parameters
    ----------
    dag : ndarray of bool, shape (d, d)
    sets : Sets
        Each variable with its parents.
    """

    dag: BoolArray
    sets: Sets

    @classmethod
    def of(cls, agreement: Agreement, found: Found) -> FitStage | None:
        """Return the exchange for a graph; None if one of its tables would be too large."""
        sets = sets_of([[*parents, y] for y, parents in families_of(found.dag)])
        too_large = num_cells(sets, cardinalities_of(agreement)).max() > MOST_CELLS
        return None if too_large else cls(found.dag, sets)

    def request(self) -> Request:
        """Ask for the tables of the families, and for votes on the edges."""
        edges = np.argwhere(self.dag).astype(np.uint16)
        return Request(FIT, {**self.sets._asdict(), "edges": edges})

    def close(self, replies: Replies) -> Step:
        """Return the end of the run; :meth:`fitted` returns the results."""
        return Step(None, {"num_edges": int(self.dag.sum())})

    def fitted(self, replies: Replies) -> Fitted:
        """Return the sums of the parties' tables, and the share of them that agrees."""
        support = np.zeros(self.dag.shape)
        # The votes are ordered by child, then by parent.
        children, parents = np.nonzero(self.dag.T)
        support[parents, children] = replies["votes"] / len(replies.parties)
        return Fitted(summed_counts(replies), support, small_cells(replies))


def summed_counts(replies: Replies) -> Counts:
    """Return the contingency tables of all parties together."""
    sparse = ("cells", "values", "lengths")
    parties = [[arrays[name] for name in sparse] for arrays in replies.by_party.values()]
    return Counts.summed(replies["dense"], parties)


def small_cells(replies: Replies) -> dict[str, int]:
    """Return by party how many cells with few rows it has sent."""
    return {party: int(count) for party, count in replies.of("small").items()}


def network_of(
    agreement: Agreement, dag: BoolArray, counts: Counts, sample_size: float
) -> BayesianNetwork:
    """Return the Bayesian network of the summed tables, its variables in the agreed order.

    Parameters
    ----------
    agreement : Agreement
    dag : ndarray of bool, shape (d, d)
        Variables in the order of their names.
    counts : Counts
        Of each variable with its parents.
    sample_size : float
        Weight of the prior in rows.
    """
    order = by_name(agreement.names)
    families = list(families_of(dag))
    sets = sets_of([[*own, y] for y, own in families])
    tables: dict[int, IntArray] = {}
    parents: dict[int, tuple[int, ...]] = {}
    by_family = tables_of(sets, counts, cardinalities_of(agreement))
    for (y, own), table in zip(families, by_family, strict=True):
        # A table's axes are in the order of the names; a network's are in the order of the columns,
        # with the child last.
        axes = sorted((*own, y))
        wanted = [*sorted(own, key=order.__getitem__), y]
        tables[order[y]] = table.transpose([axes.index(k) for k in wanted])
        parents[order[y]] = tuple(order[k] for k in wanted[:-1])
    return BayesianNetwork.from_counts(
        agreement.names,
        agreement.states,
        [parents[k] for k in range(len(order))],
        [tables[k] for k in range(len(order))],
        equivalent_sample_size=sample_size,
    )


@dataclass(frozen=True)
class Problem:
    """The variables and options of a search.

    Parameters
    ----------
    names : tuple of str
        The variables, sorted.
    cardinalities : ndarray of int64, shape (d,)
    rows : mapping of str to int
        Each party's number of rows.
    score : str
    equivalent_sample_size : float
    knowledge : Knowledge or None
    max_parents : int or None
    turn : bool
    look_ahead : int or None
        How many operators a search applies after the first unknown gain; None: to the end.
    """

    names: tuple[str, ...]
    cardinalities: NDArray[np.int64]
    rows: Mapping[str, int]
    score: str
    equivalent_sample_size: float
    knowledge: Knowledge | None
    max_parents: int | None
    turn: bool
    look_ahead: int | None


@dataclass(frozen=True)
class ScoreStage:
    """An exchange of gains of the parties' own scores (``mode="scores"``).

    Parameters
    ----------
    problem : Problem
    source : SpeculativeGains
        The known gains; the only field that is changed in place.
    question : NamedTuple of ndarray
        The gains that the search lacked; the same for every party.
    small : mapping of str to int
        By party, the number of cells with few rows that it has sent.
    """

    exchange: ClassVar[Exchange] = SCORES

    problem: Problem
    source: SpeculativeGains
    question: Any = None
    small: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, problem: Problem) -> ScoreStage:
        """Return the stage in which no gain is known."""
        rows, num_parties = sum(problem.rows.values()), len(problem.rows)
        # The sum has a penalty for every party, which depends on the party's number of rows.
        price = 0.5 * num_parties * float(np.log(max(rows / num_parties, 2.0)))
        return cls(problem, SpeculativeGains(problem.cardinalities, price, problem.look_ahead))

    def advanced(self) -> Step:
        """Run the search; return the next exchange, or the result if every gain was known."""
        problem, source = self.problem, self.source
        search = prepared_search(
            source,
            problem.names,
            start=np.zeros((len(problem.names),) * 2, dtype=np.bool_),
            knowledge=problem.knowledge,
            max_parents=problem.max_parents,
        )
        source.start_again()
        search.families = source.families
        search.run(turn=problem.turn)
        source.take_back(search.families)
        info = {"num_edges": int(search.graph.dag.sum()), "questions": len(source.asked)}
        reason = "no insertion or deletion improves the score"
        found = Found(search.marks, search.dag, reason)
        if len(source.asked) == 0:
            return Step(None, info, found)
        onward = replace(self, question=self._question())
        return Step(onward, info, found)

    def _question(self) -> Questions | Sets:
        return self.source.questions()

    def cut_short(self) -> Found:
        """Return the graph that the search reaches with known gains only."""
        source = self.source
        depth, source.depth = source.depth, 0
        found = self.advanced().found
        source.depth = depth
        assert found is not None
        return found._replace(reason="the exchanges were used up before the search had ended")

    def request(self) -> Request:
        """Ask for the gains that the search lacked."""
        return Request(self.exchange, self.question._asdict())

    def close(self, replies: Replies) -> Step:
        """Store the sums of the replies and run the search again."""
        after = self.noted(replies)
        after._learn(replies)
        return after.advanced()

    def noted(self, replies: Replies) -> Self:
        """Return the stage with the cells of few rows that the parties have sent."""
        return self

    def _learn(self, replies: Replies) -> None:
        self.source.learn(replies["gains"])


@dataclass(frozen=True)
class CountStage(ScoreStage):
    """An exchange of contingency tables (``mode="exact"``): the search on the pooled rows."""

    exchange: ClassVar[Exchange] = COUNTS

    source: CountedGains

    @classmethod
    def of(cls, problem: Problem) -> CountStage:
        """Return the stage in which no count is known."""
        rows = sum(problem.rows.values())
        terms = terms_of(KINDS[problem.score], problem.equivalent_sample_size, rows)
        price = 0.5 * float(np.log(max(rows, 2)))
        source = CountedGains(problem.cardinalities, terms, price, problem.look_ahead)
        return cls(problem, source)

    def _question(self) -> Sets:
        return self.source.sets()

    def noted(self, replies: Replies) -> Self:
        """Return the stage with the cells of few rows that the parties have sent."""
        cells = small_cells(replies)
        both = {name: self.small.get(name, 0) + count for name, count in cells.items()}
        return replace(self, small={**self.small, **both})

    def _learn(self, replies: Replies) -> None:
        self.source.learn_counts(self.question, summed_counts(replies))

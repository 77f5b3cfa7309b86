"""Stages of FedGES on sums: the search on scores or counts, and the last exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from flwr_causal.core.discrete.bayesian_network import BayesianNetwork
from flwr_causal.core.discrete.contingency_tables import Counts, Sets, num_cells, sets_of, tables_of
from flwr_causal.core.discrete.mixed_moments import FlatSums, restored, sizes_of
from flwr_causal.core.discrete.mixed_network import MixedNetwork
from flwr_causal.core.discrete.probabilities import held_out_log_likelihood
from flwr_causal.core.discrete.scores import KINDS, Terms, terms_of
from flwr_causal.core.ges.counted_gains import CountedGains, lacking_sets
from flwr_causal.core.ges.ges import prepared_search
from flwr_causal.core.ges.mixed_gains import SummedMixedGains
from flwr_causal.core.ges.speculative_search import Questions, SpeculativeGains
from flwr_causal.core.ges.summed_gains import NOISE, SCREENING_NOISE, SummedGains
from flwr_causal.core.graphs.edge_lists import edges_of, families_of, parents_of
from flwr_causal.core.ties import first_largest
from flwr_causal.errors import FederationError
from flwr_causal.protocol.fedges import (
    COUNTS,
    FIT,
    LIKELIHOODS,
    MOMENTS,
    POOLED_COUNTS,
    POOLED_FIT,
    POOLED_MOMENTS,
    SCORES,
)
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
    score : str
        The score of the search, where the server computes it from sums.
    """

    marks: BoolArray
    dag: BoolArray
    reason: str
    support: FloatArray | None = None
    score: str = ""


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
    others : tuple of Found
        Results by other scores, among which the last exchange chooses.
    """

    stage: Stage | None
    info: dict[str, Any]
    found: Found | None = None
    others: tuple[Found, ...] = ()


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
#: Largest number of cells that parties send in one secure sum.
MOST_POOLED = 2**24
#: Cost of an edge in a search on counts that refines a graph, in units of log(d), as in the
#: extended BIC with gamma = 0.5 (Foygel & Drton 2010): of many pairs some gain by chance.
EDGE_COST = 0.5
USED_UP = "the exchanges were used up before the search had ended"


@dataclass(frozen=True, eq=False)
class Fitted:
    """The results of the last exchange.

    Parameters
    ----------
    found : Found
        The graph with the highest held-out log-likelihood.
    tables : mapping of tuple of int to ndarray of int64
        By ascending members, the contingency tables over all rows of each variable with its
        parents.
    support : ndarray of float64, shape (d, d), or None
        The share of the parties whose own score agrees with each edge of the DAG; None where no
        party holds all columns.
    held_out : tuple of float
        The held-out log-likelihood of each graph, in nats a row.
    """

    found: Found
    tables: Mapping[tuple[int, ...], IntArray]
    support: FloatArray | None
    held_out: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class FitStage:
    """The last exchange: tables of the graphs, the choice among them, and votes on their edges.

    Parameters
    ----------
    graphs : tuple of Found
        The graphs that were found, by different scores.
    sets : Sets
        Each variable with its parents, of all graphs.
    cardinalities : ndarray of int64, shape (d,)
    sample_size : float
        Weight of the prior in rows.
    pooled : bool
        Whether the parties' tables are added up securely.
    """

    graphs: tuple[Found, ...]
    sets: Sets
    cardinalities: IntArray
    sample_size: float
    pooled: bool

    @classmethod
    def of(
        cls, agreement: Agreement, graphs: Sequence[Found], sample_size: float, *, pooled: bool
    ) -> FitStage | None:
        """Return the exchange for the graphs whose tables are small enough; None without any."""
        cardinalities = cardinalities_of(agreement)
        fitting: list[Found] = []
        sets: dict[tuple[int, ...], None] = {}
        for found in graphs:
            own = family_sets(found.dag)
            if num_cells(sets_of(own), cardinalities).max() <= MOST_CELLS:
                fitting.append(found)
                sets |= dict.fromkeys(own)
        if not fitting:
            return None
        return cls(tuple(fitting), sets_of(list(sets)), cardinalities, sample_size, pooled)

    def request(self) -> Request:
        """Ask for the tables of the families, and for votes on the edges."""
        edges = [edges_of(found.dag) for found in self.graphs]
        lengths = np.array([len(own) for own in edges], dtype=np.int64)
        values = {**self.sets._asdict(), "edges": np.concatenate(edges), "lengths": lengths}
        if self.pooled:
            return Request(POOLED_FIT, values | all_cells(self.sets, self.cardinalities))
        return Request(FIT, values)

    def close(self, replies: Replies) -> Step:
        """Return the end of the run; :meth:`fitted` returns the results."""
        fitted = self.fitted(replies)
        info: dict[str, Any] = {"num_edges": int(fitted.found.dag.sum())}
        if fitted.found.score:
            info["score"] = fitted.found.score
            info["held_out"] = {
                found.score: value
                for found, value in zip(self.graphs, fitted.held_out, strict=True)
            }
        return Step(None, info, fitted.found)

    def fitted(self, replies: Replies) -> Fitted:
        """Sum the parties' tables, choose a graph, and count who agrees with its edges."""
        counts = summed_counts(replies, self.sets, self.cardinalities)
        tables = tables_of(self.sets, counts, self.cardinalities)
        by_set = dict(zip(map(tuple, self.sets.lists()), tables, strict=True))
        held_out = [self._held_out(found.dag, by_set) for found in self.graphs]
        best = int(first_largest(held_out))
        found = self.graphs[best]
        first = sum(int(other.dag.sum()) for other in self.graphs[:best])
        support = np.zeros(found.dag.shape)
        # The votes are ordered by child, then by parent.
        children, parents = np.nonzero(found.dag.T)
        votes = replies["votes"][first : first + len(children)]
        support[parents, children] = votes / len(replies.answered)
        return Fitted(found, by_set, support, tuple(held_out))

    def _held_out(self, dag: BoolArray, tables: Mapping[tuple[int, ...], IntArray]) -> float:
        """Return the mean log-likelihood of a row under the tables of all other rows."""
        total = 0.0
        for y, parents in families_of(dag):
            members = sorted((*parents, y))
            table = tables[tuple(members)]
            total += held_out_log_likelihood(
                np.moveaxis(table, members.index(y), -1), self.sample_size
            )
        return total / int(table.sum())


def family_sets(dag: BoolArray) -> list[tuple[int, ...]]:
    """Return each variable of a DAG with its parents, ascending."""
    return [tuple(sorted((*parents, y))) for y, parents in families_of(dag)]


def all_cells(sets: Sets, cardinalities: IntArray) -> dict[str, int]:
    """Return the number of all cells of some tables, which a secure sum sends.

    Raises
    ------
    FederationError
        If there are too many.
    """
    number = num_cells(sets, cardinalities).sum()
    if number > MOST_POOLED:
        raise FederationError(
            f"Contingency tables have {number:.3g} cells, and with secure_aggregation parties send "
            f"all of them, empty ones too, at most {MOST_POOLED}: limit the families with the "
            "option 'max_parents', or join rare states."
        )
    return {"num_cells": int(number)}


def summed_counts(replies: Replies, sets: Sets, cardinalities: IntArray) -> Counts:
    """Return the contingency tables of all parties together."""
    if "counts" in replies:
        return Counts.of_whole(replies["counts"], sets, cardinalities)
    sparse = ("cells", "values", "lengths")
    parties = [[arrays[name] for name in sparse] for arrays in replies.by_party.values()]
    return Counts.summed(replies["dense"], parties)


def small_cells(replies: Replies) -> dict[str, int]:
    """Return by party how many cells with few rows it has sent."""
    return {party: int(count) for party, count in replies.of("small").items()}


def network_of(
    agreement: Agreement, fitted: Fitted, sample_size: float, cuts: Mapping[str, FloatArray]
) -> BayesianNetwork:
    """Return the Bayesian network of the summed tables, its variables in the agreed order.

    Parameters
    ----------
    agreement : Agreement
    fitted : Fitted
        Variables in the order of their names.
    sample_size : float
        Weight of the prior in rows.
    cuts : mapping of str to ndarray
        Cut points of the columns that were discretised.
    """
    order = by_name(agreement.names)
    back = np.argsort(order)
    tables: dict[int, IntArray] = {}
    parents: dict[int, tuple[int, ...]] = {}
    for y, own in families_of(fitted.found.dag):
        # A table's axes are in the order of the names; a network's are in the order of the columns,
        # with the child last.
        axes = sorted((*own, y))
        wanted = [*sorted(own, key=order.__getitem__), y]
        tables[order[y]] = fitted.tables[tuple(axes)].transpose([axes.index(k) for k in wanted])
        parents[order[y]] = tuple(order[k] for k in wanted[:-1])
    return BayesianNetwork.from_counts(
        agreement.names,
        agreement.labels,
        [parents[k] for k in range(len(order))],
        [tables[k] for k in range(len(order))],
        equivalent_sample_size=sample_size,
        marks=fitted.found.marks[np.ix_(back, back)],
        cuts=cuts,
    )


@dataclass(frozen=True)
class Problem:
    """The variables and options of a search.

    Parameters
    ----------
    names : tuple of str
        The variables, sorted.
    cardinalities : ndarray of int64, shape (d,)
    num_rows, num_parties : int
        Rows of all parties together, and how many parties there are.
    score : str
        The score by which the server searches.
    refined_by : tuple of str
        The scores of the search on counts that follows a search on likelihoods; empty: none.
    equivalent_sample_size : float
    knowledge : Knowledge or None
    max_parents : int or None
    turn : bool
    look_ahead : int or None
        How many operators a search applies after the first unknown gain; None: to the end.
    pooled : bool
        Whether the parties' tables are added up securely.
    withheld : bool, default False
        Whether parties withhold counts, so that tables count different rows.
    """

    names: tuple[str, ...]
    cardinalities: NDArray[np.int64]
    num_rows: int
    num_parties: int
    score: str
    refined_by: tuple[str, ...]
    equivalent_sample_size: float
    knowledge: Knowledge | None
    max_parents: int | None
    turn: bool
    look_ahead: int | None
    pooled: bool
    withheld: bool = False

    def terms(self, score: str) -> Terms:
        """Return a score of the rows of all parties."""
        return terms_of(KINDS[score], self.equivalent_sample_size, self.num_rows)

    def counted(self, score: str, edge_cost: float = 0.0) -> CountedGains:
        """Return a source of gains from counts, of which none is known."""
        price = 0.5 * float(np.log(max(self.num_rows, 2)))
        terms = self.terms(score)
        return CountedGains(
            self.cardinalities,
            terms,
            price,
            self.look_ahead,
            edge_cost,
            own_margins=self.withheld,
        )

    def search(
        self,
        source: SpeculativeGains,
        score: str,
        start: BoolArray | None = None,
        pairs: BoolArray | None = None,
    ) -> Found:
        """Run a search with the known gains, and estimates of the others.

        Parameters
        ----------
        source : SpeculativeGains
        score : str
            The score that the gains are of.
        start : ndarray of bool, shape (d, d), optional
            The DAG from which the search starts. Default: no edges.
        pairs : ndarray of bool, shape (d, d), optional
            The pairs that an edge may join, symmetric. Default: all.
        """
        source.start_again()
        d = len(self.names)
        search = prepared_search(
            source,
            self.names,
            start=np.zeros((d, d), dtype=np.bool_) if start is None else start,
            knowledge=self.knowledge,
            max_parents=self.max_parents,
            pairs=pairs,
        )
        search.families = source.families
        search.run(turn=self.turn)
        source.take_back(search.families)
        reason = "no insertion or deletion improves the score"
        return Found(search.marks, search.dag, reason, score=score)

    def cut_short(
        self,
        source: SpeculativeGains,
        score: str,
        start: BoolArray | None = None,
        pairs: BoolArray | None = None,
    ) -> Found:
        """Return the graph that :meth:`search` reaches with known gains only."""
        depth, source.depth = source.depth, 0
        found = self.search(source, score, start, pairs)
        source.depth = depth
        return found._replace(reason=USED_UP)


@dataclass(frozen=True)
class ScoreStage:
    """An exchange of gains of the parties' own scores (``mode="scores"``).

    Parameters
    ----------
    problem : Problem
    source : SpeculativeGains
        The known gains; the only field that is changed in place.
    question : Questions or None
        The gains that the search lacked; the same for every party.
    """

    exchange: ClassVar[Exchange] = SCORES

    problem: Problem
    source: SpeculativeGains
    question: Questions | None = None

    @classmethod
    def of(cls, problem: Problem) -> ScoreStage:
        """Return the stage in which no gain is known."""
        rows, num_parties = problem.num_rows, problem.num_parties
        # The sum has a penalty for every party, which depends on the party's number of rows.
        price = 0.5 * num_parties * float(np.log(max(rows / num_parties, 2.0)))
        return cls(problem, SpeculativeGains(problem.cardinalities, price, problem.look_ahead))

    def advanced(self) -> Step:
        """Search; return the next exchange, or the result if no gain was unknown."""
        found = self.problem.search(self.source, self.problem.score)
        asked = len(self.source.in_order())
        info = {"num_edges": int(found.dag.sum()), "questions": asked}
        stage = replace(self, question=self.source.questions()) if asked else None
        return Step(stage, info, found)

    def cut_short(self) -> Found:
        """Return the graph that the search reaches with known gains only."""
        return self.problem.cut_short(self.source, self.problem.score)

    def request(self) -> Request:
        """Ask for the gains that the search lacked."""
        assert self.question is not None
        return Request(self.exchange, self.question._asdict())

    def close(self, replies: Replies) -> Step:
        """Store the sums of the replies and run the search again."""
        self._learn(replies)
        return self.advanced()

    def _learn(self, replies: Replies) -> None:
        self.source.learn(replies["gains"])


@dataclass(frozen=True)
class LikelihoodStage(ScoreStage):
    """An exchange of gains of the log-likelihood: the server subtracts one penalty from their sums.

    A search on counts among the edges that were found follows.
    """

    exchange: ClassVar[Exchange] = LIKELIHOODS

    source: SummedGains

    @classmethod
    def of(cls, problem: Problem) -> LikelihoodStage:
        """Return the stage in which no gain is known."""
        source = SummedGains(
            problem.cardinalities,
            problem.terms(problem.score),
            problem.num_parties,
            problem.look_ahead,
            SCREENING_NOISE if problem.refined_by else NOISE,
        )
        return cls(problem, source)

    def advanced(self) -> Step:
        """Search; return the next exchange, or the first one on counts."""
        step = super().advanced()
        if step.stage is None and self.problem.refined_by:
            assert step.found is not None
            return CountStage.refining(self.problem, step.found).advanced()
        return step

    def _learn(self, replies: Replies) -> None:
        self.source.learn_sums(replies["gains"], replies["means"])


@dataclass(frozen=True, eq=False)
class CountStage:
    """An exchange of contingency tables: a search on the pooled rows.

    In ``mode="exact"`` it is the only search. In ``mode="scores"`` it refines the graph that was
    found from sums of likelihoods, by several scores, without further adjacencies.

    Parameters
    ----------
    problem : Problem
    sources : tuple of CountedGains
        The known gains, by score; the only field that is changed in place.
    scores : tuple of str
    start : ndarray of bool, shape (d, d), or None
        The DAG from which the searches start; None: no edges.
    pairs : ndarray of bool, shape (d, d), or None
        The pairs that an edge may join, symmetric; None: all.
    question : Sets or None
        The sets whose tables the searches lacked; the same for every party.
    """

    problem: Problem
    sources: tuple[CountedGains, ...]
    scores: tuple[str, ...]
    start: BoolArray | None = None
    pairs: BoolArray | None = None
    question: Sets | None = None

    @classmethod
    def of(cls, problem: Problem) -> CountStage:
        """Return the stage of ``mode="exact"`` in which no count is known."""
        return cls(problem, (problem.counted(problem.score),), (problem.score,))

    @classmethod
    def refining(cls, problem: Problem, found: Found) -> CountStage:
        """Return the stage that refines a graph, in which no count is known."""
        edge_cost = EDGE_COST * float(np.log(len(problem.names)))
        sources = tuple(problem.counted(score, edge_cost) for score in problem.refined_by)
        pairs = found.dag | found.dag.T
        return cls(problem, sources, problem.refined_by, found.dag, pairs)

    def advanced(self) -> Step:
        """Search by each score; return the next exchange, or the results if no gain was unknown."""
        found = [
            self.problem.search(source, score, self.start, self.pairs)
            for source, score in zip(self.sources, self.scores, strict=True)
        ]
        sets = lacking_sets(self.sources)
        info = {"num_edges": int(found[0].dag.sum()), "questions": len(sets.sizes)}
        if len(sets.sizes):
            return Step(replace(self, question=sets), info, found[0])
        return Step(None, info, found[0], tuple(found[1:]))

    def cut_short(self) -> Found:
        """Return the graph that the search reaches with known gains only."""
        return self.problem.cut_short(self.sources[0], self.scores[0], self.start, self.pairs)

    def request(self) -> Request:
        """Ask for the tables that the searches lacked."""
        assert self.question is not None
        sets, values = self.question, self.question._asdict()
        if self.problem.pooled:
            cells = all_cells(sets, self.problem.cardinalities)
            return Request(POOLED_COUNTS, values | cells)
        return Request(COUNTS, values)

    def close(self, replies: Replies) -> Step:
        """Store the sums of the tables and run the searches again."""
        assert self.question is not None
        counts = summed_counts(replies, self.question, self.problem.cardinalities)
        for source in self.sources:
            source.learn_counts(self.question, counts)
        return self.advanced()


@dataclass(frozen=True)
class MomentStage:
    """An exchange of counts and moments by configuration: the search on numbers and categories.

    Parameters
    ----------
    problem : Problem
        Numbers have the cardinality 0.
    source : SummedMixedGains
        The known gains; the only field that is changed in place.
    question : Sets or None
        The sets whose moments the search lacked; the same for every party.
    """

    problem: Problem
    source: SummedMixedGains
    question: Sets | None = None

    @classmethod
    def of(cls, problem: Problem) -> MomentStage:
        """Return the stage in which no moment is known."""
        source = SummedMixedGains(
            problem.cardinalities,
            problem.num_rows,
            problem.look_ahead,
            own_margins=problem.withheld,
        )
        return cls(problem, source)

    def advanced(self) -> Step:
        """Search; return the next exchange, or the result if no gain was unknown."""
        problem, source = self.problem, self.source
        found = problem.search(source, problem.score)
        sets = lacking_sets([source])
        if not len(sets.sizes):
            # Isolated variables, and families that the last run did not need.
            lacking = [own for own in family_sets(found.dag) if source.moments(own) is None]
            sets = sets_of(lacking)
        info = {"num_edges": int(found.dag.sum()), "questions": len(sets.sizes)}
        return Step(replace(self, question=sets) if len(sets.sizes) else None, info, found)

    def cut_short(self) -> Found:
        """Return the graph that the search reaches with known gains only."""
        return self.problem.cut_short(self.source, self.problem.score)

    def request(self) -> Request:
        """Ask for the moments that the search lacked."""
        assert self.question is not None
        lists = [members.tolist() for members in self.question.lists()]
        sizes = sizes_of(self.problem.cardinalities, lists).sum(axis=0).tolist()
        numbers = {f"num_{name}": n for name, n in zip(FlatSums._fields, sizes, strict=True)}
        exchange = POOLED_MOMENTS if self.problem.pooled else MOMENTS
        return Request(exchange, {**self.question._asdict(), **numbers})

    def close(self, replies: Replies) -> Step:
        """Store the sums of the moments and run the search again."""
        assert self.question is not None
        flat = FlatSums(*(replies[name] for name in FlatSums._fields))
        lists = [members.tolist() for members in self.question.lists()]
        self.source.learn_moments(restored(flat, self.problem.cardinalities, lists))
        return self.advanced()

    def network(
        self, agreement: Agreement, found: Found, sample_size: float
    ) -> MixedNetwork | None:
        """Return the network of a graph, its variables by name; None if moments are missing."""
        families = [self.source.moments(own) for own in family_sets(found.dag)]
        if any(part is None for part in families):
            return None
        order = by_name(agreement.names)
        number = self.problem.cardinalities == 0
        mean, variance = agreement.mean[order], agreement.variance[order]
        return MixedNetwork.from_sums(
            self.problem.names,
            [agreement.labels[k] for k in order],
            parents_of(edges_of(found.dag), len(order)),
            [part for part in families if part is not None],
            location=np.where(number, mean, 0.0),
            scale=np.sqrt(np.where(number, variance, 1.0)),
            equivalent_sample_size=sample_size,
        )

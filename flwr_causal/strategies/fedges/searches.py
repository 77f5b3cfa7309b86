"""FedGES's searches on sums over the parties, and the choice among the graphs that they find.

A search is a generator. The server searches with the gains that it knows and estimates of the
others, asks the parties for what the search lacked, and searches again until nothing was unknown
(`searched`). Gains are sums of the parties' own (`AskedGains`: of likelihoods, or of BDeu scores),
or follow from contingency tables (`GainsFromTables`: BIC, qNML, BDeu, also with a cost of edges).
The last exchange, `fit`, is for tables of the graphs, the choice among them, and votes on edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.discrete.contingency_tables import num_cells, sets_of, tables_of
from flwr_causal.core.discrete.probabilities import held_out_log_likelihood
from flwr_causal.core.ges import speculative_search
from flwr_causal.core.ges.counted_pag import SeparationTests
from flwr_causal.core.ges.greedy_search import prepared_search
from flwr_causal.core.ges.speculative_search import (
    NOISE,
    SCREENING_NOISE,
    SpeculativeGains,
    SummedGains,
    lacking_sets,
)
from flwr_causal.core.graphs.edge_lists import edges_of, families_of
from flwr_causal.core.parts import Part, all_but
from flwr_causal.core.ties import first_largest
from flwr_causal.protocol.fedges import LIKELIHOODS, SCORES
from flwr_causal.runtime.algorithm import Ask, Note, Step
from flwr_causal.strategies.fedges.problem import (
    ENDED,
    MOST_CELLS,
    USED_UP,
    Fitted,
    Found,
    GraphSearch,
    Searched,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.runtime.algorithm import Result
    from flwr_causal.strategies.fedges.problem import Problem

#: Cost of an edge in a search on counts that refines a graph, in units of log(d), as in the
#: extended BIC with gamma = 1/4 (Foygel & Drton 2010): of many pairs some gain by chance.
EDGE_COST = 0.5


# -- gains -----------------------------------------------------------------------------------------


class AskedGains:
    """Sums of gains that the parties compute.

    Parameters
    ----------
    score : str
        Of the search.
    gains : SpeculativeGains
    exchange : Exchange
        Asks the parties for gains.
    learn : callable
        Stores the sums that the exchange returns, in their order.
    """

    def __init__(
        self,
        score: str,
        gains: SpeculativeGains,
        exchange: Exchange,
        learn: Callable[..., None],
    ) -> None:
        self.by_score = {score: gains}
        self._gains, self._exchange, self._learn = gains, exchange, learn

    def num_lacking(self) -> int:
        """Return the number of gains that the last search lacked."""
        return len(self._gains.unknown())

    def ask(self, so_far: Callable[[], Result]) -> Generator[Step, Any, None]:
        """Ask for these gains."""
        replies = yield Ask(self._exchange, self._gains.questions()._asdict(), so_far=so_far)
        self._learn(*(replies[one.name] for one in self._exchange.returns))


class GainsFromTables:
    """Gains by one or several scores, from the same contingency tables.

    Parameters
    ----------
    problem : Problem
    scores : sequence of str
    edge_cost : float, default 0
        What each edge costs beside the score.
    """

    def __init__(self, problem: Problem, scores: Sequence[str], edge_cost: float = 0.0) -> None:
        # The BIC's penalty of a cell, for estimates of gains that are not known yet.
        price = 0.5 * float(np.log(max(problem.num_rows, 2)))
        self.by_score = {
            score: speculative_search.CountedGains(
                problem.cardinalities,
                problem.terms(score),
                price,
                edge_cost,
                # Margins must be of the same table: tables may count different rows.
                own_margins=problem.seen or problem.withheld,
            )
            for score in scores
        }
        self._problem, self._sets = problem, sets_of([])

    def num_lacking(self) -> int:
        """Return the number of tables that the last searches lacked."""
        self._sets = lacking_sets(tuple(self.by_score.values()))
        return len(self._sets.sizes)

    def ask(self, so_far: Callable[[], Result]) -> Generator[Step, Any, None]:
        """Ask for these tables."""
        problem, sets = self._problem, self._sets
        counts, _ = yield from problem.counts.ask(sets, so_far)
        if problem.seen:
            # As of equally many rows, so that gains of different tables can be compared.
            counts = counts.scaled(sets, problem.cardinalities, problem.num_rows)
        for gains in self.by_score.values():
            gains.learn_counts(sets, counts)


def likelihoods(problem: Problem, score: str, noise: float) -> AskedGains:
    """Return the gains that are asked of the parties as log-likelihoods, with one penalty."""
    terms, parties = problem.terms(score), problem.num_parties
    gains = SummedGains(problem.cardinalities, terms, parties, noise)
    return AskedGains(score, gains, LIKELIHOODS, gains.learn_sums)


def own_scores(problem: Problem, score: str) -> AskedGains:
    """Return the gains that are asked of the parties as their own scores."""
    rows, parties = problem.num_rows, problem.num_parties
    # The sum has a penalty for every party, which depends on the party's number of rows.
    price = 0.5 * parties * float(np.log(max(rows / parties, 2.0)))
    gains = SpeculativeGains(problem.cardinalities, price)
    return AskedGains(score, gains, SCORES, gains.learn)


# -- searches --------------------------------------------------------------------------------------


def searched(
    problem: Problem,
    gains: AskedGains | GainsFromTables,
    most: int,
    start: BoolArray | None = None,
    pairs: BoolArray | None = None,
) -> Generator[Step, Any, Searched]:
    """Search by each score until no gain is unknown.

    Parameters
    ----------
    problem : Problem
    gains : AskedGains or GainsFromTables
    most : int
        Largest number of exchanges.
    start, pairs
        As of :func:`search_of`.
    """
    for taken in range(most + 1):
        found = tuple(
            search_of(problem, own, score, start, pairs) for score, own in gains.by_score.items()
        )
        lacking = gains.num_lacking()
        # A note belongs to the exchange before it, which only a search with a start has.
        if taken or start is not None:
            yield Note({"num_edges": int(found[0].dag.sum()), "questions": lacking})
        if not lacking:
            return found, taken
        if taken < most:
            yield from gains.ask(partial(problem.result, found[0]))
    score, first = next(iter(gains.by_score.items()))
    return (search_of(problem, first, score, start, pairs, known_only=True),), most


def search_of(
    problem: Problem,
    gains: SpeculativeGains,
    score: str,
    start: BoolArray | None = None,
    pairs: BoolArray | None = None,
    *,
    known_only: bool = False,
) -> Found:
    """Run a search with the known gains, and estimates of the others.

    Parameters
    ----------
    problem : Problem
    gains : SpeculativeGains
    score : str
        The score that the gains are of.
    start : ndarray of bool, shape (d, d), optional
        The DAG from which the search starts. Default: no edges.
    pairs : ndarray of bool, shape (d, d), optional
        The pairs that an edge may join, symmetric. Default: all.
    known_only : bool, default False
        Whether the search stops where it needs an unknown gain.
    """
    gains.start_again()
    gains.known_only = known_only
    d = len(problem.names)
    search = prepared_search(
        gains,
        problem.names,
        start=np.zeros((d, d), dtype=np.bool_) if start is None else start,
        knowledge=problem.edge_limits,
        max_parents=problem.max_parents,
        pairs=pairs,
    )
    search.families = gains.families
    search.run(turn=problem.turns_edges)
    gains.take_back(search.families)
    return Found(search.marks, search.dag, USED_UP if known_only else ENDED, score=score)


@dataclass(frozen=True, kw_only=True)
class ScoredSearch(GraphSearch):
    """Gains of edges, as sums over the parties.

    After a search on likelihoods one on counts refines the graph, without further adjacencies.

    Parameters
    ----------
    chosen_score : str
        Of the first search; "bdeu": the sum of the parties' own scores.
    refined_by : tuple of str
        The scores of the search on counts; empty: there is none.
    """

    text = "mode='scores', whose sums are over all parties"
    remedies: ClassVar[tuple[tuple[str, str], ...]] = (("pooled", "mode='exact'"),)
    gives = all_but("pooled", "sample")

    chosen_score: str
    refined_by: tuple[str, ...]

    def run(self, problem: Problem, most: int) -> Generator[Step, Any, Searched]:
        """Search on sums of the parties' gains."""
        if self.chosen_score == "bdeu":
            return (yield from searched(problem, own_scores(problem, self.chosen_score), most))
        gains = likelihoods(
            problem, self.chosen_score, SCREENING_NOISE if self.refined_by else NOISE
        )
        (found,), taken = yield from searched(problem, gains, most)
        if found.reason != ENDED or not self.refined_by or problem.seen:
            return (found,), taken
        edge_cost = EDGE_COST * float(np.log(len(problem.names)))
        refining = GainsFromTables(problem, self.refined_by, edge_cost)
        pairs = found.dag | found.dag.T
        graphs, further = yield from searched(problem, refining, most - taken, found.dag, pairs)
        return graphs, taken + further


@dataclass(frozen=True, kw_only=True)
class PooledSearch(GraphSearch):
    """GES on contingency tables of the rows of all parties.

    Parameters
    ----------
    chosen_score : str
        Of the search.
    """

    text = "mode='exact', whose sums are over all parties"
    gives = all_but("sample")

    chosen_score: str

    def run(self, problem: Problem, most: int) -> Generator[Step, Any, Searched]:
        """Search on contingency tables."""
        return (yield from searched(problem, GainsFromTables(problem, (self.chosen_score,)), most))


# -- hidden common causes ------------------------------------------------------------------------

#: Largest number of cells of the tables of one exchange, where each table has fewer.
MOST_TESTED = 2**22


class HiddenStates(Part):
    """A partial ancestral graph of categories, by tests of all counts.

    After a search without hidden causes the server asks for the tables of tests of independence, of
    all pairs of variables (:mod:`flwr_causal.core.ges.counted_pag`): those given one variable at
    most in one exchange, those given more, of pairs that are still open, in another one. Where
    tables have very many cells an exchange is for a part of them.
    """

    text = "hidden_causes=True"
    gives = all_but("graph alone", "ids", "small counts", "tables")
    remedies: ClassVar[tuple[tuple[str, str], ...]] = (
        ("ids", "'moments' with text_columns='keep'"),
    )

    def run(
        self, problem: Problem, found: Found, most: int, replicate: int
    ) -> Generator[Step, Any, Found]:
        """Ask for the tables of the tests, and return the graph of their results.

        Parameters
        ----------
        problem : Problem
        found : Found
            The graph of the score.
        most : int
            Largest number of exchanges.
        replicate : int
            0, or the number of a replicate, whose rows are drawn from the parties' rows.
        """
        tests, taken = separation_tests(problem, found, drawn=replicate > 0), 0

        def so_far() -> Result:
            return problem.result(found._replace(pag=tests.graph()))

        while wanted := tests.next_level():
            for part in _parts(problem, wanted):
                if taken == most:
                    return found._replace(pag=tests.graph(), reason=USED_UP)
                sets = sets_of(part)
                counts, _ = yield from problem.counts.ask(sets, so_far)
                tables = tables_of(sets, counts, problem.cardinalities)
                for members, table in zip(part, tables, strict=True):
                    tests.learn(members, table)
                taken += 1
                yield Note({"tables": len(part)})
        return found._replace(pag=tests.graph())


def separation_tests(problem: Problem, found: Found, *, drawn: bool) -> SeparationTests:
    """Return the tests of a graph that was found without hidden causes, none of them made.

    ``drawn`` says whether the rows are drawn from the parties' rows.
    """
    return SeparationTests(
        problem.names,
        found.dag,
        problem.cardinalities,
        problem.num_rows,
        problem.knowledge,
        drawn=drawn,
    )


def _parts(problem: Problem, wanted: Sequence[tuple[int, ...]]) -> list[Sequence[tuple[int, ...]]]:
    """Split tables so that those of an exchange have MOST_TESTED together, or are one."""
    cells = num_cells(sets_of(wanted), problem.cardinalities)
    numbers = ((np.cumsum(cells) - 1) // MOST_TESTED).astype(np.int64)
    edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(wanted)]
    return [wanted[i:j] for i, j in pairwise(edges)]


# -- the tables of the graphs that were found ------------------------------------------------------


def fit(problem: Problem, graphs: Sequence[Found]) -> Generator[Step, Any, Fitted | None]:
    """Ask for the tables of the graphs' families, and choose the graph that predicts best.

    Parameters
    ----------
    problem : Problem
    graphs : sequence of Found
        By different scores.

    Returns
    -------
    Fitted or None
        None, without an exchange, if every graph has tables that are too large.
    """
    fitting: list[Found] = []
    families: dict[tuple[int, ...], None] = {}
    for found in graphs:
        own = family_sets(found.dag)
        if num_cells(sets_of(own), problem.cardinalities).max() <= MOST_CELLS:
            fitting.append(found)
            families |= dict.fromkeys(own)
    if not fitting:
        return None
    sets = sets_of(list(families))
    edges = [edges_of(found.dag) for found in fitting]
    lengths = np.array([len(own) for own in edges], dtype=np.int64)
    sent = {"edges": np.concatenate(edges), "lengths": lengths}
    so_far = partial(problem.result, graphs[0])
    counts, replies = yield from problem.counts.ask(sets, so_far, sent)
    tables = dict(zip(families, tables_of(sets, counts, problem.cardinalities), strict=True))
    shares = replies["votes"] / len(replies.answered)
    fitted = chosen(fitting, tables, shares, problem.sample_size)
    info: dict[str, Any] = {"num_edges": int(fitted.found.dag.sum())}
    if fitted.found.score:
        info["score"] = fitted.found.score
        values_of = zip(fitting, fitted.held_out, strict=True)
        info["held_out"] = {found.score: value for found, value in values_of}
    yield Note(info)
    return fitted


def chosen(
    graphs: Sequence[Found],
    tables: Mapping[tuple[int, ...], IntArray],
    shares: FloatArray,
    sample_size: float,
) -> Fitted:
    """Choose a graph by its held-out log-likelihood.

    Parameters
    ----------
    graphs : sequence of Found
    tables : mapping of tuple of int to ndarray
        By ascending members, of each variable with its parents, of all graphs.
    shares : ndarray of float64
        Of the parties that agree with each edge of the graphs: by graph, child and parent.
    sample_size : float
        Weight of the prior of probabilities, in rows.
    """
    held_out = [_held_out(found.dag, tables, sample_size) for found in graphs]
    best = int(first_largest(held_out))
    found = graphs[best]
    offset = sum(int(other.dag.sum()) for other in graphs[:best])
    support = np.zeros(found.dag.shape)
    children, parents = np.nonzero(found.dag.T)
    support[parents, children] = shares[offset : offset + len(children)]
    return Fitted(found, tables, support, tuple(held_out))


def _held_out(
    dag: BoolArray, tables: Mapping[tuple[int, ...], IntArray], sample_size: float
) -> float:
    """Return the mean log-likelihood of a row under the tables of all other rows.

    The log-likelihood of each family is divided by the rows of its own table.
    """
    sums, rows = [], []
    for y, parents in families_of(dag):
        members = sorted((*parents, y))
        table = np.moveaxis(tables[tuple(members)], members.index(y), -1)
        sums.append(held_out_log_likelihood(table, sample_size))
        rows.append(max(int(table.sum()), 1))
    # Where all tables count the same rows the factors are exactly 1.
    return sum(one * (rows[-1] / n) for one, n in zip(sums, rows, strict=True)) / rows[-1]


def family_sets(dag: BoolArray) -> list[tuple[int, ...]]:
    """Return each variable of a DAG with its parents, ascending."""
    return [tuple(sorted((*parents, y))) for y, parents in families_of(dag)]

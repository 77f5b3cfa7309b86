"""FedGES's searches on sums: by the parties' scores, likelihoods or counts.

Each search is a generator. The server searches with the gains that it knows and estimates of the
others, asks the parties for what the search lacked, and searches again until nothing was unknown.
The last exchange, `fit`, is for tables of the graphs, the choice among them, and votes on edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from flwr_causal.core.discrete.contingency_tables import (
    ContingencyCounts,
    Sets,
    num_cells,
    sets_of,
    tables_of,
)
from flwr_causal.core.discrete.probabilities import held_out_log_likelihood
from flwr_causal.core.discrete.scores import KINDS, ScoreTerms, terms_of
from flwr_causal.core.ges.greedy_search import prepared_search
from flwr_causal.core.ges.speculative_search import (
    NOISE,
    SCREENING_NOISE,
    CountedGains,
    SpeculativeGains,
    SummedGains,
    lacking_sets,
)
from flwr_causal.core.graphs.edge_lists import edges_of, families_of
from flwr_causal.core.graphs.pag.rules import Ancestry
from flwr_causal.core.ties import first_largest
from flwr_causal.core.words import by_name
from flwr_causal.errors import FederationError
from flwr_causal.protocol.fedges import (
    COUNTS,
    FIT,
    LIKELIHOODS,
    POOLED_COUNTS,
    POOLED_FIT,
    SCORES,
)
from flwr_causal.runtime.algorithm import Ask, Note, Step
from flwr_causal.strategies.fedges.results import MOST_CELLS, Fitted, Found

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.strategies.fedges.options import FedGESOptions
    from flwr_causal.strategies.fedges.results import Standing

#: The graphs of a search, one for each score in their order, and the number of its exchanges.
Searched: TypeAlias = tuple[tuple[Found, ...], int]
ENDED = "no insertion or deletion improves the score"
USED_UP = "the exchanges were used up before the search had ended"
#: Largest number of cells that parties send in one secure sum.
MOST_POOLED = 2**24
#: Cost of an edge in a search on counts that refines a graph, in units of log(d), as in the
#: extended BIC with gamma = 1/4 (Foygel & Drton 2010): of many pairs some gain by chance.
EDGE_COST = 0.5


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
    options : FedGESOptions
    seen : bool, default False
        Whether parties count the rows in which the columns of a set are seen, instead of all. A
        search on likelihoods is then not refined on counts.
    """

    names: tuple[str, ...]
    cardinalities: NDArray[np.int64]
    num_rows: int
    num_parties: int
    options: FedGESOptions
    seen: bool = False

    @property
    def withheld(self) -> bool:
        """Whether parties withhold counts, so that tables count different rows."""
        return self.options.small_counts == "suppress"

    @property
    def known(self) -> EdgeMasks | None:
        """What is known of the edges of a graph without hidden common causes."""
        if self.options.known is None:
            return None
        masks = self.options.known.masks(self.names)
        if self.options.hidden_causes:
            # A forbidden edge may stand for an effect through others.
            return Ancestry.of(self.options.known, self.names).edges(masks.required)
        return masks

    def terms(self, score: str) -> ScoreTerms:
        """Return a score of the rows of all parties."""
        return terms_of(KINDS[score], self.options.equivalent_sample_size, self.num_rows)

    def counted(self, score: str, edge_cost: float = 0.0) -> CountedGains:
        """Return a source of gains from counts, of which none is known."""
        # The BIC's penalty of a cell, for estimates of gains that are not known yet.
        price = 0.5 * float(np.log(max(self.num_rows, 2)))
        terms = self.terms(score)
        return CountedGains(
            self.cardinalities,
            terms,
            price,
            edge_cost,
            own_margins=self.withheld or self.seen,
        )

    def search(
        self,
        source: SpeculativeGains,
        score: str,
        start: BoolArray | None = None,
        pairs: BoolArray | None = None,
        *,
        known_only: bool = False,
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
        known_only : bool, default False
            Whether the search stops where it needs an unknown gain.
        """
        source.start_again()
        source.known_only = known_only
        d = len(self.names)
        search = prepared_search(
            source,
            self.names,
            start=np.zeros((d, d), dtype=np.bool_) if start is None else start,
            knowledge=self.known,
            max_parents=self.options.max_parents,
            pairs=pairs,
        )
        search.families = source.families
        search.run(turn=self.options.turn)
        source.take_back(search.families)
        return Found(search.marks, search.dag, USED_UP if known_only else ENDED, score=score)


def cardinalities_of(agreement: Agreement) -> IntArray:
    """Return the numbers of states, the variables in the order of their names."""
    column_of = by_name(agreement.names)
    return np.array([len(agreement.states[k]) for k in column_of], dtype=np.int64)


# -- the searches ----------------------------------------------------------------------------------


def search_on_likelihoods(
    problem: Problem, most: int, standing: Standing
) -> Generator[Step, Any, Searched]:
    """Search by sums of the parties' log-likelihoods, with one penalty; then on counts.

    The search on counts refines the graph by several scores, without further adjacencies.

    Parameters
    ----------
    problem : Problem
    most : int
        Largest number of exchanges.
    standing : callable
        Returns what stands if the run ends with a graph so far.
    """
    source = SummedGains(
        problem.cardinalities,
        problem.terms(problem.options.chosen_score),
        problem.num_parties,
        SCREENING_NOISE if problem.options.refined_by else NOISE,
    )

    def learn(replies: Replies) -> None:
        source.learn_sums(replies["gains"], replies["means"])

    found, taken, ended = yield from _by_gains(problem, source, LIKELIHOODS, learn, most, standing)
    if not ended or not problem.options.refined_by or problem.seen:
        return (found,), taken
    graphs, further = yield from refined(problem, found, most - taken, standing)
    return graphs, taken + further


def search_on_scores(
    problem: Problem, most: int, standing: Standing
) -> Generator[Step, Any, Searched]:
    """Search by the sum of the parties' own scores.

    Parameters are those of :func:`search_on_likelihoods`.
    """
    rows, num_parties = problem.num_rows, problem.num_parties
    # The sum has a penalty for every party, which depends on the party's number of rows.
    price = 0.5 * num_parties * float(np.log(max(rows / num_parties, 2.0)))
    source = SpeculativeGains(problem.cardinalities, price)

    def learn(replies: Replies) -> None:
        source.learn(replies["gains"])

    found, taken, _ = yield from _by_gains(problem, source, SCORES, learn, most, standing)
    return (found,), taken


def _by_gains(
    problem: Problem,
    source: SpeculativeGains,
    exchange: Exchange,
    learn: Callable[[Replies], None],
    most: int,
    standing: Standing,
) -> Generator[Step, Any, tuple[Found, int, bool]]:
    """Search until no gain is unknown.

    Parameters
    ----------
    problem, most, standing
        As of :func:`search_on_likelihoods`.
    source : SpeculativeGains
    exchange : Exchange
        Asks the parties for gains.
    learn : callable
        Gives their replies to the source.

    Returns
    -------
    found : Found
    taken : int
        How many exchanges it has taken.
    ended : bool
        Whether the search ended before the exchanges were used up.
    """
    for taken in range(most + 1):
        found = problem.search(source, problem.options.chosen_score)
        num_unknown = len(source.unknown())
        if taken:
            yield Note({"num_edges": int(found.dag.sum()), "questions": num_unknown})
        if not num_unknown:
            return found, taken, True
        if taken < most:
            values = source.questions()._asdict()
            learn((yield Ask(exchange, values, so_far=partial(standing, found))))
    return problem.search(source, problem.options.chosen_score, known_only=True), most, False


def refined(
    problem: Problem, found: Found, most: int, standing: Standing
) -> Generator[Step, Any, Searched]:
    """Search on counts from a graph, by several scores, without further adjacencies.

    Further parameters are those of :func:`search_on_likelihoods`.
    """
    edge_cost = EDGE_COST * float(np.log(len(problem.names)))
    sources = {score: problem.counted(score, edge_cost) for score in problem.options.refined_by}
    pairs = found.dag | found.dag.T
    return (yield from _counted(problem, sources, most, standing, found.dag, pairs))


def search_on_counts(
    problem: Problem, most: int, standing: Standing
) -> Generator[Step, Any, Searched]:
    """Search by a score of the pooled rows, from their contingency tables.

    Parameters are those of :func:`search_on_likelihoods`.
    """
    sources = {problem.options.chosen_score: problem.counted(problem.options.chosen_score)}
    return (yield from _counted(problem, sources, most, standing))


def _counted(
    problem: Problem,
    sources: dict[str, CountedGains],
    most: int,
    standing: Standing,
    start: BoolArray | None = None,
    pairs: BoolArray | None = None,
) -> Generator[Step, Any, Searched]:
    """Search by each score until no table is unknown; ``start`` and ``pairs`` as of `search`."""
    for taken in range(most + 1):
        found = tuple(
            problem.search(source, score, start, pairs) for score, source in sources.items()
        )
        sets = lacking_sets(tuple(sources.values()))
        # A note is about the exchange before: a search from a start had one, that gave the start.
        if taken or start is not None:
            yield Note({"num_edges": int(found[0].dag.sum()), "questions": len(sets.sizes)})
        if not len(sets.sizes):
            return found, taken
        if taken < most:
            exchange, values = asked_tables(problem, sets)
            replies = yield Ask(exchange, values, so_far=partial(standing, found[0]))
            counts = summed_counts(replies, sets, problem.cardinalities)
            if problem.seen:
                # Tables count different rows; as of equally many their gains can be compared.
                counts = counts.scaled(sets, problem.cardinalities, problem.num_rows)
            for source in sources.values():
                source.learn_counts(sets, counts)
    score, source = next(iter(sources.items()))
    return (problem.search(source, score, start, pairs, known_only=True),), most


# -- the tables of the graphs that were found ------------------------------------------------------


def fit(
    problem: Problem, graphs: Sequence[Found], standing: Standing
) -> Generator[Step, Any, Fitted | None]:
    """Ask for the tables of the graphs' families, and choose the graph that predicts best.

    Parameters
    ----------
    problem : Problem
    graphs : sequence of Found
        By different scores.
    standing : callable
        Returns what stands if the run ends with a graph so far.

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
    values = {**sets._asdict(), "edges": np.concatenate(edges), "lengths": lengths}
    exchange = FIT
    if problem.options.secure_aggregation:
        values, exchange = values | all_cells(sets, problem.cardinalities), POOLED_FIT
    replies = yield Ask(exchange, values, so_far=partial(standing, graphs[0]))
    fitted = chosen(problem, fitting, sets, replies)
    info: dict[str, Any] = {"num_edges": int(fitted.found.dag.sum())}
    if fitted.found.score:
        info["score"] = fitted.found.score
        values_of = zip(fitting, fitted.held_out, strict=True)
        info["held_out"] = {found.score: value for found, value in values_of}
    yield Note(info)
    return fitted


def chosen(problem: Problem, graphs: Sequence[Found], sets: Sets, replies: Replies) -> Fitted:
    """Sum the parties' tables, choose a graph, and count who agrees with its edges.

    Parameters
    ----------
    problem : Problem
    graphs : sequence of Found
    sets : Sets
        Each variable with its parents, of all graphs.
    replies : Replies
        Tables of the sets, and votes on the graphs' edges.
    """
    counts = summed_counts(replies, sets, problem.cardinalities)
    tables = tables_of(sets, counts, problem.cardinalities)
    by_set = dict(zip(map(tuple, sets.lists()), tables, strict=True))
    sample_size = problem.options.equivalent_sample_size
    held_out = [_held_out(found.dag, by_set, sample_size) for found in graphs]
    best = int(first_largest(held_out))
    found = graphs[best]
    offset = sum(int(other.dag.sum()) for other in graphs[:best])
    support = np.zeros(found.dag.shape)
    # The votes are ordered by graph, then by child, then by parent.
    children, parents = np.nonzero(found.dag.T)
    votes = replies["votes"][offset : offset + len(children)]
    support[parents, children] = votes / len(replies.answered)
    return Fitted(found, by_set, support, tuple(held_out))


def _held_out(
    dag: BoolArray, tables: Mapping[tuple[int, ...], IntArray], sample_size: float
) -> float:
    """Return the mean log-likelihood of a row under the tables of all other rows.

    Tables may count different rows: the mean is over the rows of each.
    """
    sums, rows = [], []
    for y, parents in families_of(dag):
        members = sorted((*parents, y))
        table = np.moveaxis(tables[tuple(members)], members.index(y), -1)
        sums.append(held_out_log_likelihood(table, sample_size))
        rows.append(max(int(table.sum()), 1))
    # Where all tables count the same rows the factors are exactly 1.
    return sum(one * (rows[-1] / n) for one, n in zip(sums, rows, strict=True)) / rows[-1]


# -- sets of variables, and their tables -----------------------------------------------------------


def family_sets(dag: BoolArray) -> list[tuple[int, ...]]:
    """Return each variable of a DAG with its parents, ascending."""
    return [tuple(sorted((*parents, y))) for y, parents in families_of(dag)]


def asked_tables(problem: Problem, sets: Sets) -> tuple[Exchange, dict[str, Any]]:
    """Return the exchange that asks for contingency tables, and what it sends."""
    if problem.options.secure_aggregation:
        return POOLED_COUNTS, {**sets._asdict(), **all_cells(sets, problem.cardinalities)}
    return COUNTS, dict(sets._asdict())


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


def summed_counts(replies: Replies, sets: Sets, cardinalities: IntArray) -> ContingencyCounts:
    """Return the contingency tables of all parties together."""
    if "counts" in replies:
        return ContingencyCounts.of_whole(replies["counts"], sets, cardinalities)
    sparse = ("cells", "values", "lengths")
    parties = [[arrays[name] for name in sparse] for arrays in replies.by_party.values()]
    return ContingencyCounts.summed(replies["dense"], parties)

"""FedGES's searches on sums: by the parties' scores, likelihoods, counts or moments.

Each search is a generator. The server searches with the gains that it knows and estimates of the
others, asks the parties for what the search lacked, and searches again until nothing was unknown.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.discrete.contingency_tables import ContingencyCounts, Sets, num_cells, sets_of
from flwr_causal.core.discrete.mixed_moments import FlatSums, restored, sizes_of
from flwr_causal.core.discrete.mixed_network import MixedNetwork
from flwr_causal.core.ges.mixed_gains import SummedMixedGains
from flwr_causal.core.ges.speculative_search import (
    NOISE,
    SCREENING_NOISE,
    CountedGains,
    SpeculativeGains,
    SummedGains,
    lacking_sets,
)
from flwr_causal.core.graphs.edge_lists import edges_of, families_of, parents_of
from flwr_causal.errors import FederationError
from flwr_causal.protocol.fedges import (
    COUNTS,
    LIKELIHOODS,
    MOMENTS,
    POOLED_COUNTS,
    POOLED_MOMENTS,
    SCORES,
)
from flwr_causal.runtime.algorithm import Ask, Note, Step
from flwr_causal.strategies.fedges.problem import (
    Found,
    Problem,
    Searched,
    Standing,
    by_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies


#: Largest number of cells that parties send in one secure sum.
MOST_POOLED = 2**24
#: Cost of an edge in a search on counts that refines a graph, in units of log(d), as in the
#: extended BIC with gamma = 1/4 (Foygel & Drton 2010): of many pairs some gain by chance.
EDGE_COST = 0.5


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


def summed_counts(replies: Replies, sets: Sets, cardinalities: IntArray) -> ContingencyCounts:
    """Return the contingency tables of all parties together."""
    if "counts" in replies:
        return ContingencyCounts.of_whole(replies["counts"], sets, cardinalities)
    sparse = ("cells", "values", "lengths")
    parties = [[arrays[name] for name in sparse] for arrays in replies.by_party.values()]
    return ContingencyCounts.summed(replies["dense"], parties)


def small_cells(replies: Replies) -> dict[str, int]:
    """Return by party how many cells with few rows it has sent."""
    return {party: int(count) for party, count in replies.of("small").items()}


def search_on_scores(
    problem: Problem, most: int, standing: Standing
) -> Generator[Step, Any, Searched]:
    """Search by the sum of the parties' own scores.

    Parameters
    ----------
    problem : Problem
    most : int
        The most exchanges.
    standing : callable
        Returns what stands if the run ends with a graph so far.
    """
    rows, num_parties = problem.num_rows, problem.num_parties
    # The sum has a penalty for every party, which depends on the party's number of rows.
    price = 0.5 * num_parties * float(np.log(max(rows / num_parties, 2.0)))
    source = SpeculativeGains(problem.cardinalities, price)

    def learn(replies: Replies) -> None:
        source.learn(replies["gains"])

    found, taken, _ = yield from _by_gains(problem, source, SCORES, learn, most, standing)
    return (found,), taken


def search_on_likelihoods(
    problem: Problem, most: int, standing: Standing
) -> Generator[Step, Any, Searched]:
    """Search by sums of the parties' log-likelihoods, with one penalty; then on counts.

    The search on counts refines the graph by several scores, without further adjacencies.
    Parameters are those of :func:`search_on_scores`.
    """
    source = SummedGains(
        problem.cardinalities,
        problem.terms(problem.score),
        problem.num_parties,
        SCREENING_NOISE if problem.refined_by else NOISE,
    )

    def learn(replies: Replies) -> None:
        source.learn_sums(replies["gains"], replies["means"])

    found, taken, ended = yield from _by_gains(problem, source, LIKELIHOODS, learn, most, standing)
    if not ended or not problem.refined_by:
        return (found,), taken
    graphs, further = yield from refined(problem, found, most - taken, standing)
    return graphs, taken + further


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
        As of :func:`search_on_scores`.
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
        found = problem.search(source, problem.score)
        num_unknown = len(source.in_order())
        if taken:
            yield Note({"num_edges": int(found.dag.sum()), "questions": num_unknown})
        if not num_unknown:
            return found, taken, True
        if taken < most:
            values = source.questions()._asdict()
            learn((yield Ask(exchange, values, so_far=partial(standing, found))))
    return problem.cut_short(source, problem.score), most, False


def search_on_counts(
    problem: Problem, most: int, standing: Standing
) -> Generator[Step, Any, Searched]:
    """Search by a score of the pooled rows, from their contingency tables.

    Parameters are those of :func:`search_on_scores`.
    """
    sources = {problem.score: problem.counted(problem.score)}
    return (yield from _counted(problem, sources, most, standing))


def refined(
    problem: Problem, found: Found, most: int, standing: Standing
) -> Generator[Step, Any, Searched]:
    """Search on counts from a graph, by several scores, without further adjacencies.

    Further parameters are those of :func:`search_on_scores`.
    """
    edge_cost = EDGE_COST * float(np.log(len(problem.names)))
    sources = {score: problem.counted(score, edge_cost) for score in problem.refined_by}
    pairs = found.dag | found.dag.T
    return (yield from _counted(problem, sources, most, standing, found.dag, pairs))


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
        if taken or start is not None:
            yield Note({"num_edges": int(found[0].dag.sum()), "questions": len(sets.sizes)})
        if not len(sets.sizes):
            return found, taken
        if taken < most:
            values, exchange = sets._asdict(), COUNTS
            if problem.pooled:
                values, exchange = values | all_cells(sets, problem.cardinalities), POOLED_COUNTS
            replies = yield Ask(exchange, values, so_far=partial(standing, found[0]))
            counts = summed_counts(replies, sets, problem.cardinalities)
            for source in sources.values():
                source.learn_counts(sets, counts)
    score, source = next(iter(sources.items()))
    return (problem.cut_short(source, score, start, pairs),), most


def search_on_moments(
    problem: Problem, most: int, standing: Standing
) -> Generator[Step, Any, tuple[Found, SummedMixedGains]]:
    """Search over numbers (of cardinality 0) and categories, from moments by configuration.

    Parameters are those of :func:`search_on_scores`.

    Returns
    -------
    found : Found
    source : SummedMixedGains
        With the moments of the graph's families, unless the exchanges were used up.
    """
    source = SummedMixedGains(
        problem.cardinalities,
        problem.num_rows,
        own_margins=problem.withheld,
    )
    for taken in range(most + 1):
        found = problem.search(source, problem.score)
        sets = lacking_sets([source])
        if not len(sets.sizes):
            # Isolated variables, and families that the last run did not need.
            lacking = [own for own in family_sets(found.dag) if source.moments(own) is None]
            sets = sets_of(lacking)
        if taken:
            yield Note({"num_edges": int(found.dag.sum()), "questions": len(sets.sizes)})
        if not len(sets.sizes):
            return found, source
        if taken < most:
            lists = [members.tolist() for members in sets.lists()]
            sizes = sizes_of(problem.cardinalities, lists).sum(axis=0).tolist()
            numbers = {f"num_{name}": n for name, n in zip(FlatSums._fields, sizes, strict=True)}
            replies = yield Ask(
                POOLED_MOMENTS if problem.pooled else MOMENTS,
                {**sets._asdict(), **numbers},
                so_far=partial(standing, found),
            )
            flat = FlatSums(*(replies[name] for name in FlatSums._fields))
            source.learn_moments(restored(flat, problem.cardinalities, lists))
    return problem.cut_short(source, problem.score), source


def mixed_network(
    problem: Problem,
    source: SummedMixedGains,
    agreement: Agreement,
    dag: BoolArray,
) -> MixedNetwork | None:
    """Return the network of a DAG, its variables by name; None if moments are missing."""
    families = [source.moments(own) for own in family_sets(dag)]
    if any(part is None for part in families):
        return None
    order = by_name(agreement.names)
    number = problem.cardinalities == 0
    mean, variance = agreement.mean[order], agreement.variance[order]
    return MixedNetwork.from_sums(
        problem.names,
        [agreement.labels[k] for k in order],
        parents_of(edges_of(dag), len(order)),
        [part for part in families if part is not None],
        location=np.where(number, mean, 0.0),
        scale=np.sqrt(np.where(number, variance, 1.0)),
        equivalent_sample_size=problem.equivalent_sample_size,
    )

"""Which of several graphs of nearly the same Gaussian score has the best likelihood.

Where there are categories, the Gaussian score of blocks (:mod:`core.blocks.search`) takes their
columns for normal ones, and graphs are often closer to each other than what this costs. Here a
family, a variable with its causes, is scored by the BIC of its own conditional likelihood: of a
number that of least squares, of a category that of its logistic regression
(:mod:`core.blocks.logistic`). The cost of an edge is that of the search. Only families of graphs
that are near the best Gaussian score are scored, and any graph that is made of them may be chosen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.blocks.design import Category
from flwr_causal.core.compiled import compiled_in_place, compiled_inside
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.limits import MOST_STEPS, steps
from flwr_causal.core.linear.moments import columns_of, moments_of_variables
from flwr_causal.core.linear.order_search import log_pivots, moved
from flwr_causal.core.ties import TIE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.blocks.logistic import Members
    from flwr_causal.core.linear.moments import SampleMoments


# Searches from the best order with three variables moved.
NUM_MOVES = 30


def scores_of(
    variables: Sequence[Variable],
    moments: SampleMoments | Sequence[SampleMoments],
    families: Sequence[Sequence[tuple[int, ...]]],
    costs: FloatArray,
    log_likelihoods: Mapping[Members, float],
) -> list[FloatArray]:
    """Return the scores of families, up to a constant of each child; higher is better.

    Parameters
    ----------
    variables : sequence of Number or Category
    moments : SampleMoments or sequence of SampleMoments
        Of all columns; or one for each variable, of the rows in which it is no target.
    families : sequence of sequence of tuple of int
        Of each child the sets of causes.
    costs : ndarray of shape (d, d)
        Of the edge from each variable to each.
    log_likelihoods : mapping
        Of each category with causes, the sum over these rows.
    """
    columns = columns_of([one.width for one in variables])
    of_variables = moments_of_variables(moments, len(variables))
    correlations = {id(one): one.correlations for one in of_variables}

    def fit(child: int, causes: tuple[int, ...]) -> float:
        own, told = columns[child], of_variables[child]
        if not isinstance(variables[child], Category):
            given = np.concatenate([own[:0], *[columns[k] for k in causes]])
            pivots = log_pivots(correlations[id(told)], np.concatenate([given, own]))
            return -0.5 * told.n * float(pivots[len(given) :].sum())
        if causes:
            return log_likelihoods[child, causes]
        shares = told.mean[own]
        shares = np.append(shares, 1.0 - shares.sum())
        seen = shares[shares > 0]
        return told.n * float(seen @ np.log(seen))

    return [
        np.array([fit(j, own) - float(costs[list(own), j].sum()) for own in sets])
        for j, sets in enumerate(families)
    ]


def best_dag(
    families: Sequence[Sequence[tuple[int, ...]]], scores: Sequence[FloatArray], start: BoolArray
) -> BoolArray:
    """Return the DAG of highest score that a search over orders makes of given families.

    Parameters
    ----------
    families : sequence of sequence of tuple of int
        Of each of d variables the sets of causes.
    scores : sequence of ndarray
        Of these.
    start : ndarray of bool, shape (d, d)
        A DAG made of the families: the search begins with its order.

    Returns
    -------
    ndarray of bool, shape (d, d)
    """
    d, most = len(families), max(len(own) for sets in families for own in sets)
    tie = TIE * max(1.0, sum(float(np.abs(own).max()) for own in scores))
    ranked = [np.argsort(-np.round(own / tie), kind="stable") for own in scores]
    begin = np.cumsum([0, *[len(own) for own in families]])
    values = np.concatenate([own[rank] for own, rank in zip(scores, ranked, strict=True)])
    causes = np.full((len(values), most), -1, dtype=np.int64)
    lists = [sets[k] for sets, rank in zip(families, ranked, strict=True) for k in rank]
    for row, own in enumerate(lists):
        causes[row, : len(own)] = own
    place, chosen = np.empty(d, dtype=np.int64), np.empty(d, dtype=np.int64)

    def climbed(order: IntArray) -> float:
        for _ in steps("The search over causal orders", MOST_STEPS):
            if not _sweep(begin, causes, values, order, place, chosen, tie):
                break
        return float(_along(begin, causes, values, order, place, chosen))

    best = np.array(topological_order(start), dtype=np.int64)
    score, rng = climbed(best), np.random.default_rng(0)
    for _ in range(NUM_MOVES if d > 2 else 0):
        order = np.array(moved(best.tolist(), rng), dtype=np.int64)
        now = climbed(order)
        if now > score + tie:
            best, score = order, now
    climbed(best)
    dag = np.zeros((d, d), dtype=np.bool_)
    for j, row in enumerate(chosen.tolist()):
        dag[list(lists[row]), j] = True
    return dag


@compiled_in_place
def _along(
    begin: IntArray,
    causes: IntArray,
    values: FloatArray,
    order: IntArray,
    place: IntArray,
    chosen: IntArray,
) -> float:
    """Choose of each variable the best family whose causes are before it; return their score."""
    total = 0.0
    for at in range(len(order)):
        place[order[at]] = at
    for child in range(len(order)):
        chosen[child] = -1
        for row in range(begin[child], begin[child + 1]):
            fits = True
            for k in range(causes.shape[1]):
                cause = causes[row, k]
                if cause >= 0 and place[cause] > place[child]:
                    fits = False
                    break
            if fits:
                chosen[child] = row
                total += values[row]
                break
        if chosen[child] < 0:
            return -np.inf
    return total


@compiled_inside
def _shift(order: IntArray, at: int, to: int) -> None:
    """Move the variable at one position to another."""
    step, x = (1 if to > at else -1), order[at]
    while at != to:
        order[at] = order[at + step]
        at += step
    order[to] = x


@compiled_in_place
def _sweep(
    begin: IntArray,
    causes: IntArray,
    values: FloatArray,
    order: IntArray,
    place: IntArray,
    chosen: IntArray,
    tie: float,
) -> bool:
    """Move each variable to its best place; return whether any moved.

    ``order`` is changed in place. A place is better if the score is by more than ``tie``.
    """
    d, moved_any = len(order), False
    now = _along(begin, causes, values, order, place, chosen)
    for x in range(d):
        here = 0
        while order[here] != x:
            here += 1
        goal, best, at = here, now, here
        for to in range(d):
            _shift(order, at, to)
            at = to
            score = _along(begin, causes, values, order, place, chosen)
            if score > best + tie:
                goal, best = to, score
        _shift(order, at, goal)
        if goal != here:
            now, moved_any = best, True
    return moved_any

"""Fusion by minimum cuts: edges of a fusion that few of the fused DAGs need are deleted.

Two variables of a DAG are d-separated given a set S if and only if S separates them in the moral
graph of their ancestors and those of S (Lauritzen et al. 1990). The minimum cut of two variables
given S is the smallest number of edges of this graph that must go for that. An edge x -> y of the
fusion, given y's other parents in it, has in each DAG a minimum cut; its total says how much of the
DAGs would be lost with the edge. The edge of the smallest total is deleted, and the cut with it
from the DAGs, until every total is large enough.

References
----------
Torrijos, P., Puerta, J. M., Gamez, J. A. & Aledo, J. A. (2025). Informed greedy algorithm for
scalable Bayesian network fusion via minimum cut analysis. arXiv:2504.00467.
Lauritzen, S. L., Dawid, A. P., Larsen, B. N. & Leimer, H.-G. (1990). Independence properties of
directed Markov fields. Networks 20.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.compiled import compiled_in_place, compiled_inside
from flwr_causal.core.graphs.edge_lists import matrix_of
from flwr_causal.core.limits import check_deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.core.ges.fusion import Edges, Fusion


def supported_by_cuts(fusion: Fusion, dags: Sequence[Edges]) -> Fusion:
    """Return a fusion whose support of an edge is the total of minimum cuts at which it is deleted.

    ``keep(share)`` of it are the edges that are left when every total is ``needed(share, K)`` or
    more: those of the greedy deletion with this threshold. Of equal totals the first edge is
    deleted.

    Parameters
    ----------
    fusion : Fusion
        Of the DAGs.
    dags : sequence of ndarray of shape (m, 2)
        The K DAGs, rows ``[cause, effect]``.

    Returns
    -------
    Fusion
        The same edges; their support is from 0 to K. Edges that would be deleted at a larger total
        have K.
    """
    edges, size, count = fusion.edges.astype(np.int64), len(fusion.order), len(dags)
    left = [matrix_of(dag, size) for dag in dags]
    given = np.zeros((len(edges), size), dtype=np.bool_)  # the other parents of each edge's effect
    for k, (cause, effect) in enumerate(edges):
        given[k, edges[edges[:, 1] == effect, 0]] = True
        given[k, cause] = False
    room = (np.zeros((size, size), np.int64), np.zeros((4, size), np.int64))
    cut = np.empty((size * size, 2), np.int64)
    totals = np.zeros((count, len(edges)), np.int64)
    ancestors = np.zeros((count, *given.shape), np.bool_)

    def cut_in(g: int, k: int) -> int:
        x, y = edges[k]
        return minimum_cut(left[g], x, y, given[k], ancestors[g, k], cut, *room)

    stale = np.ones((count, len(edges)), dtype=np.bool_)
    present, support, level = np.ones(len(edges), dtype=np.bool_), np.full(len(edges), count), 0
    while present.any():
        check_deadline()
        for g, k in np.argwhere(stale & present).tolist():
            totals[g, k] = cut_in(g, k)
        stale[:, present] = False
        cost = np.where(present, totals.sum(axis=0), np.iinfo(np.int64).max)
        worst = int(cost.argmin())
        level = max(level, int(cost[worst]))
        if level >= count:
            break
        support[worst], present[worst] = level, False
        for g in np.flatnonzero(totals[:, worst]).tolist():
            _take_away(left[g], cut[: cut_in(g, worst)], ancestors[g], stale[g])
        siblings = edges[:, 1] == edges[worst, 1]
        given[siblings, edges[worst, 0]] = False
        stale[:, siblings] = True
    return replace(fusion, support=support)


def _take_away(dag: BoolArray, cut: IntArray, ancestors: BoolArray, stale: BoolArray) -> None:
    """Remove the edges of a cut from a DAG; mark the edges of the fusion whose cuts may change."""
    for i, j in cut:
        for cause, effect in ((i, j), (j, i)):
            if dag[cause, effect]:  # else a pair of parents
                dag[cause, effect] = False
                stale |= ancestors[:, effect]


@compiled_in_place
def minimum_cut(
    dag: BoolArray,
    x: int,
    y: int,
    given: BoolArray,
    ancestors: BoolArray,
    cut: IntArray,
    capacity: IntArray,
    work: IntArray,
) -> int:
    """Find the minimum cut of x and y given a set, of all such cuts the one nearest to y.

    Parameters
    ----------
    dag : ndarray of bool, shape (d, d)
    x, y : int
    given : ndarray of bool, shape (d,)
        The set, without x and y.
    ancestors : ndarray of bool, shape (d,)
        Written: the variables of the moral graph.
    cut : ndarray of int64, shape (m, 2)
        Written: the pairs of the cut; with room for all pairs of variables.
    capacity : ndarray of int64, shape (d, d)
        Room.
    work : ndarray of int64, shape (4, d)
        Room.

    Returns
    -------
    int
        The number of pairs in the cut.
    """
    _moralize(dag, x, y, given, ancestors, capacity, work)
    flow, before = 0, work[0]
    while _reach(y, x, given, ancestors, capacity, work):
        node = x
        while node != y:  # one more path from y to x
            capacity[before[node], node] -= 1
            capacity[node, before[node]] += 1
            node = before[node]
        flow += 1
    found = 0
    for u in range(len(dag)):
        if before[u] < 0:
            continue
        for v in range(len(dag)):
            # From what y reaches to what it does not reach, an edge of the cut carries flow.
            if before[v] < 0 and capacity[v, u] == 2:
                cut[found, 0] = u
                cut[found, 1] = v
                found += 1
    return flow


@compiled_inside
def _moralize(
    dag: BoolArray,
    x: int,
    y: int,
    given: BoolArray,
    ancestors: BoolArray,
    capacity: IntArray,
    work: IntArray,
) -> None:
    """Write the moral graph of x, y, the set and their ancestors; every edge has capacity 1."""
    size, open_nodes, parents = len(dag), work[1], work[2]
    end = 0
    for v in range(size):
        ancestors[v] = given[v] or v in (x, y)
        if ancestors[v]:
            open_nodes[end] = v
            end += 1
        for u in range(size):
            capacity[v, u] = 0
    while end:
        end -= 1
        v, count = open_nodes[end], 0
        for u in range(size):
            if dag[u, v]:
                parents[count] = u
                count += 1
                if not ancestors[u]:
                    ancestors[u] = True
                    open_nodes[end] = u
                    end += 1
        for a in range(count):
            capacity[parents[a], v] = 1
            capacity[v, parents[a]] = 1
            for b in range(a):
                capacity[parents[a], parents[b]] = 1
                capacity[parents[b], parents[a]] = 1


@compiled_inside
def _reach(
    start: int, end: int, given: BoolArray, ancestors: BoolArray, capacity: IntArray, work: IntArray
) -> bool:
    """Write the node before each node on shortest paths, -1 where none leads; whether one ends."""
    before, queue = work[0], work[3]
    size, first, last = len(before), 0, 1
    for v in range(size):
        before[v] = -1
    before[start] = start
    queue[0] = start
    while first < last:
        u = queue[first]
        first += 1
        for v in range(size):
            if ancestors[v] and capacity[u, v] > 0 and before[v] < 0 and not given[v]:
                before[v] = u
                if v == end:
                    return True
                queue[last] = v
                last += 1
    return False

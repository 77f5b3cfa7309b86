"""Structural intervention distance: how many causal effects an estimated graph gets wrong.

References
----------
Peters & Buhlmann (2015). Structural intervention distance for evaluating causal graphs. Neural
Computation 27. This module computes Proposition 6, with condition (*) of Lemma 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.metrics import aligned
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.graphs.metrics import GraphLike


def sid(truth: GraphLike, estimate: GraphLike) -> int:
    """Count the ordered pairs (i, j) whose effect p(x_j | do(x_i)) the estimate gets wrong.

    The effect is computed by adjusting for the parents of i in the estimate. An acyclic estimate
    that contains all true edges has distance 0, whatever other edges it has. The distance is not
    symmetric.

    Parameters
    ----------
    truth, estimate : CausalGraph or array_like, shape (d, d)
        Two DAGs (instantaneous edges).

    Returns
    -------
    int
        From 0 to d (d - 1).

    Raises
    ------
    DataError
        If a graph is no DAG, or the variables differ.
    """
    true, found = aligned(truth, estimate)
    for graph, role in ((true, "truth"), (found, "estimate")):
        if graph.kind == "cpdag":
            raise DataError(f"the {role} is a CPDAG: SID needs a DAG, call to_dag() first")
        if not graph.is_acyclic():
            raise DataError(f"the {role} has cycles: SID needs a DAG, call threshold() first")
    adjacency, estimated = true.adjacency, found.adjacency
    descends = ancestors(adjacency)  # [i, j]: j is a descendant of i
    reaches = descends | np.eye(len(adjacency), dtype=bool)
    return sum(
        int(_wrong_effects(adjacency, descends, reaches, cause, estimated[:, cause]).sum())
        for cause in range(len(adjacency))
    )


def _wrong_effects(
    adjacency: BoolArray, descends: BoolArray, reaches: BoolArray, cause: int, adjusted: BoolArray
) -> BoolArray:
    """Return the variables on which adjustment gets the effect of ``cause`` wrong, shape (d,).

    Parameters
    ----------
    adjacency, descends, reaches : ndarray of bool, shape (d, d)
        The true DAG; its descendants; the same with every variable its own descendant.
    cause : int
        The variable that is intervened on.
    adjusted : ndarray of bool, shape (d,)
        The parents of the cause in the estimate.
    """
    # Part 1 of (*): no adjusted variable is a descendant of a variable on a directed path from the
    # cause to the effect.
    spoiled = np.flatnonzero(descends[cause] & reaches[:, adjusted].any(axis=1))
    wrong: BoolArray = np.asarray(reaches[spoiled].any(axis=0))
    # Part 2: the adjusted variables block every path that is not directed.
    wrong |= _reached_by_open_backdoor(adjacency, reaches, cause, adjusted)
    # By the estimate, the intervention does not change the parents of the cause.
    wrong[adjusted] = descends[cause, adjusted]
    wrong[cause] = False
    return wrong


def _reached_by_open_backdoor(
    adjacency: BoolArray, reaches: BoolArray, cause: int, adjusted: BoolArray
) -> BoolArray:
    """Return the ends of open paths from ``cause`` that are not directed, shape (d,).

    A search over walks, as in the Bayes ball algorithm. A position of the search is a node, whether
    the last edge points at the node, and whether all edges of the walk so far point forwards. Walks
    do not return to the cause. A walk may visit a node twice, which a path may not. This adds no
    wrong result: such a walk leaves the cause by a directed path and turns at a collider, it is
    open only if an adjusted variable descends from the collider, and then part 1 of the condition
    has already marked its effects as wrong.
    """
    parents = [np.flatnonzero(adjacency[:, k]).tolist() for k in range(len(adjacency))]
    children = [np.flatnonzero(adjacency[k]).tolist() for k in range(len(adjacency))]
    open_collider = np.asarray(reaches[:, adjusted].any(axis=1))
    reached = np.zeros(len(adjacency), dtype=bool)
    pending = [(node, False, False) for node in parents[cause]]
    pending += [(node, True, True) for node in children[cause]]
    seen = set(pending)
    while pending:
        node, pointed_at, directed = pending.pop()
        if not directed:
            reached[node] = True
        onward: list[tuple[int, bool, bool]] = []
        if not adjusted[node]:
            onward += [(child, True, directed) for child in children[node]]
        if open_collider[node] if pointed_at else not adjusted[node]:
            onward += [(parent, False, False) for parent in parents[node]]
        for position in onward:
            if position[0] != cause and position not in seen:
                seen.add(position)
                pending.append(position)
    return reached

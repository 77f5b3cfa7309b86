"""Structural intervention distance: how many causal effects an estimated graph gets wrong.

References
----------
Peters & Buhlmann (2015). Structural intervention distance for evaluating causal graphs. Neural
Computation 27. Proposition 6 and condition (*) of Lemma 5 are what is computed here.
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

    The estimate's answer is adjustment for its parents of i. A graph with edges too many (a
    supergraph of the truth) has distance 0; the distance is not symmetric.

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
        The true DAG, its descendants, and those with every variable its own descendant.
    cause : int
        Where the intervention is.
    adjusted : ndarray of bool, shape (d,)
        The estimate's parents of the cause.
    """
    # Part 1 of (*): no adjusted variable may descend from one on a directed path to the effect.
    spoiled = np.flatnonzero(descends[cause] & reaches[:, adjusted].any(axis=1))
    wrong: BoolArray = np.asarray(reaches[spoiled].any(axis=0))
    # Part 2: every path that is not directed must be blocked.
    wrong |= _reached_by_open_backdoor(adjacency, reaches, cause, adjusted)
    # A variable that the estimate takes for a parent of the cause is not changed, it says.
    wrong[adjusted] = descends[cause, adjusted]
    wrong[cause] = False
    return wrong


def _reached_by_open_backdoor(
    adjacency: BoolArray, reaches: BoolArray, cause: int, adjusted: BoolArray
) -> BoolArray:
    """Return the ends of open paths from ``cause`` that are not directed, shape (d,).

    A walk as in the Bayes ball algorithm, whose state is the node, whether the last edge pointed
    at it, and whether the walk has been directed so far. It does not come back to the cause. A
    walk that leaves by a directed path and turns at a collider is only open if an adjusted
    variable descends from there, so that taking walks for paths can only add effects that part 1
    of the condition has found wrong already.
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
        for state in onward:
            if state[0] != cause and state not in seen:
                seen.add(state)
                pending.append(state)
    return reached

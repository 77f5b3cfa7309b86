"""Structural intervention distance: how many causal effects an estimated graph gets wrong.

References
----------
Peters & Buhlmann (2015). Structural intervention distance for evaluating causal graphs. Neural
Computation 27. This module computes Proposition 6, with condition (*) of Lemma 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse.csgraph import connected_components

from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.metrics import aligned
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.metrics import GraphLike

#: The most DAGs of a component that are compared one by one.
MOST_DAGS = 20_000


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
    _check(true, "truth")
    _check(found, "estimate")
    wrong = _counter(true.adjacency)
    return sum(wrong(cause, found.adjacency[:, cause]) for cause in range(len(true.names)))


def sid_bounds(truth: GraphLike, estimate: GraphLike) -> tuple[int, int]:
    """Return the least and the largest `sid` of a DAG of the estimated class.

    The parents that a variable has in a DAG of the class follow from the directions within its
    chain component, and these do not depend on those in others: each component gives a least and a
    largest number (Peters & Buhlmann 2015, section 2.4.3).

    Parameters
    ----------
    truth : CausalGraph or array_like, shape (d, d)
        A DAG.
    estimate : CausalGraph or array_like, shape (d, d)
        A CPDAG, also with edges that background knowledge has directed; a DAG is a class of one.

    Raises
    ------
    DataError
        If the truth is no DAG, the estimate has directed cycles, the variables differ, or a
        component has more than 20,000 DAGs.
    """
    true, found = aligned(truth, estimate)
    _check(true, "truth")
    if found.kind != "cpdag":
        _check(found, "estimate")
    wrong, marks = _counter(true.adjacency), found.adjacency
    least = most = 0
    for component in _components(equivalence.undirected_part(marks)):
        sums = {
            sum(wrong(cause, dag[:, cause]) for cause in component)
            for dag in _directed(marks, component)
        }
        if not sums:
            raise DataError("the estimate is the class of no DAG: give a CPDAG")
        least, most = least + min(sums), most + max(sums)
    return least, most


def _check(graph: CausalGraph, role: str) -> None:
    if graph.marks is not None:
        raise DataError(f"the {role} is a PAG: SID needs a DAG without hidden causes")
    if graph.kind == "cpdag":
        raise DataError(f"the {role} is a CPDAG: SID needs a DAG, call to_dag() first")
    if not graph.is_acyclic():
        raise DataError(f"the {role} has cycles: SID needs a DAG, call threshold() first")


def _counter(adjacency: BoolArray) -> Callable[[int, BoolArray], int]:
    """Return the function that counts the wrong effects of a cause, given its parents."""
    descends = ancestors(adjacency)  # [i, j]: j is a descendant of i
    reaches = descends | np.eye(len(adjacency), dtype=bool)
    known: dict[tuple[int, bytes], int] = {}

    def wrong(cause: int, parents: BoolArray) -> int:
        key = cause, parents.tobytes()
        if key not in known:
            found = _wrong_effects(adjacency, descends, reaches, cause, parents)
            known[key] = int(found.sum())
        return known[key]

    return wrong


def _components(linked: BoolArray) -> list[list[int]]:
    """Return the connected components of a symmetric matrix."""
    number, labels = connected_components(linked, directed=False)
    return [np.flatnonzero(labels == k).tolist() for k in range(number)]


def _directed(marks: BoolArray, component: list[int]) -> Iterator[BoolArray]:
    """Yield the class with each set of directions that its DAGs have within a component."""
    todo, found = [marks], 0
    while todo:
        current = todo.pop()
        among = np.ix_(component, component)
        open_edges = np.argwhere(np.triu(equivalence.undirected_part(current)[among]))
        if len(open_edges):
            i, j = (component[k] for k in open_edges[0])
            for cause, effect in ((i, j), (j, i)):
                oriented = current.copy()
                oriented[effect, cause] = False
                oriented = equivalence.meek(oriented)
                if equivalence.consistent_extension(oriented) is not None:
                    todo.append(oriented)
            continue
        found += 1
        if found > MOST_DAGS:
            raise DataError(
                f"{len(component)} variables whose edges are undirected form more than {MOST_DAGS} "
                "DAGs: bounds of SID cannot be had; compare a member, call to_dag()"
            )
        yield current


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

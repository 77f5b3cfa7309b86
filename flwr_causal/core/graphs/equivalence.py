"""Markov equivalence of DAGs on boolean matrices: CPDAGs, Meek's rules, consistent extensions.

A partially directed graph is one boolean matrix ``marks`` of shape ``(d, d)``: ``marks[i, j]``
alone is the directed edge i -> j, ``marks[i, j]`` and ``marks[j, i]`` together are the undirected
edge i - j.

Two DAGs are equivalent if and only if they share skeleton and v-structures (Verma & Pearl, 1990).

References
----------
Chickering, D. M. (1995). A transformational characterization of equivalent Bayesian network
structures. UAI.
Meek, C. (1995). Causal inference and causal explanation with background knowledge. UAI.
Dor, D. & Tarsi, M. (1992). A simple algorithm to construct a consistent extension of a partially
oriented graph. Technical report R-185, UCLA.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.limits import check_deadline
from flwr_causal.core.words import by_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray


def directed_part(marks: BoolArray) -> BoolArray:
    """Return the directed edges of ``marks``, shape ``(d, d)``."""
    return marks & ~marks.T


def undirected_part(marks: BoolArray) -> BoolArray:
    """Return the undirected edges of ``marks``, shape ``(d, d)``, symmetric."""
    return marks & marks.T


def skeleton(marks: BoolArray) -> BoolArray:
    """Return which pairs are adjacent (joined by any edge), shape ``(d, d)``, symmetric."""
    return marks | marks.T


def moralize(marks: BoolArray) -> BoolArray:
    """Return the moral graph: the parents of every common child joined, all directions dropped.

    In a CPDAG only parents by directed edges are joined. Every v-structure of a CPDAG is directed,
    and the parents of any other collider are adjacent already. Therefore a CPDAG has the same moral
    graph as every DAG of its class.

    Parameters
    ----------
    marks : ndarray of bool, shape (d, d)
        A directed graph or a CPDAG.

    Returns
    -------
    ndarray of bool, shape (d, d)
        Symmetric, False on the diagonal.
    """
    directed = directed_part(marks).astype(np.float64)
    moral: BoolArray = skeleton(marks) | (directed @ directed.T > 0)
    np.fill_diagonal(moral, False)
    return moral


def meek(marks: BoolArray) -> BoolArray:
    """Orient every undirected edge that Meek's four rules decide.

    Parameters
    ----------
    marks : ndarray of bool, shape (d, d)
        A partially directed graph whose v-structures (and background knowledge, if any) are
        directed.

    Returns
    -------
    ndarray of bool, shape (d, d)
        The same skeleton, closed under the rules.
    """
    marks = marks.copy()
    joined = skeleton(marks)
    apart = ~joined
    np.fill_diagonal(apart, False)
    while True:
        check_deadline()
        forced = _first_and_second_rule(marks, apart)
        if not forced.any():
            forced = _third_and_fourth_rule(marks, joined)
        if not forced.any():
            return marks
        # The rules direct an edge both ways only for contradictory input. Keeping the direction
        # from the smaller index makes the loop end for every input.
        forced &= ~np.tril(forced.T)
        marks &= ~forced.T


def _first_and_second_rule(marks: BoolArray, apart: BoolArray) -> BoolArray:
    """R1: a -> b - c, a and c apart: b -> c.  R2: a -> b -> c, a - c: a -> c."""
    directed = directed_part(marks).astype(np.float32)
    away_from_collider = directed.T @ apart.astype(np.float32) > 0
    away_from_cycle = directed @ directed > 0
    forced: BoolArray = undirected_part(marks) & (away_from_collider | away_from_cycle)
    return forced


def _third_and_fourth_rule(marks: BoolArray, joined: BoolArray) -> BoolArray:
    """Return the edges a -> b that follow from R3 or R4, the rules over four nodes.

    R3: a - c -> b, a - e -> b, c and e apart.  R4: a - c -> e -> b, c and b apart, a and e joined.
    """
    directed, undirected = directed_part(marks), undirected_part(marks)
    forced = np.zeros_like(marks)
    for a, b in np.argwhere(undirected):
        into_b = directed[:, b]
        middle = np.flatnonzero(undirected[a] & into_b)
        third = any(not joined[c, e] for c, e in combinations(middle, 2))
        outer = undirected[a] & ~joined[b]
        outer[b] = False
        fourth = bool(directed[np.ix_(outer, into_b & joined[a])].any())
        forced[a, b] = third or fourth
    return forced


def cpdag(adjacency: BoolArray) -> BoolArray:
    """Return the CPDAG of a DAG: its v-structures, closed under Meek's rules.

    Chickering's (1995) labelling of compelled edges needs one pass through the variables, whereas
    Meek's rules may need as many sweeps as the longest path has edges.

    Parameters
    ----------
    adjacency : ndarray of bool, shape (d, d)
        A directed acyclic graph.

    Returns
    -------
    ndarray of bool, shape (d, d)
        Directed where all DAGs of the equivalence class agree, True both ways elsewhere.

    Raises
    ------
    ValueError
        If there is a directed cycle.
    """
    parents = [set(np.flatnonzero(column).tolist()) for column in adjacency.T]
    order = topological_order(adjacency)
    place = {node: position for position, node in enumerate(order)}
    compelled: list[set[int]] = [set() for _ in parents]
    for child in order:
        own = parents[child]
        if own:
            nearest = max(own, key=place.__getitem__)
            # `nearest` is the parent that comes last in the topological order. All edges into the
            # child are compelled if a compelled edge w -> nearest exists with w not adjacent to the
            # child, or if the child has another parent that is not adjacent to `nearest`.
            # Otherwise w -> child is compelled exactly where w -> nearest is.
            forced = compelled[nearest] - own or own - parents[nearest] - {nearest}
            compelled[child] = own if forced else compelled[nearest]
    marks = skeleton(adjacency)
    for child, causes in enumerate(compelled):
        marks[child, list(causes)] = False
    return marks


def informed_class(adjacency: BoolArray, allowed: BoolArray) -> BoolArray:
    """Return the class of a DAG in which edges are directed whose opposite may not stand.

    Parameters and errors are those of `reversible`.

    Returns
    -------
    ndarray of bool, shape (d, d)
        Marks, closed under Meek's rules.
    """
    marks = cpdag(adjacency)
    decided = marks & adjacency.T & ~allowed
    return meek(marks & ~decided) if decided.any() else marks


def reversible(adjacency: BoolArray, allowed: BoolArray) -> BoolArray:
    """Return the edges of a DAG whose direction neither its class nor background knowledge decides.

    Parameters
    ----------
    adjacency : ndarray of bool, shape (d, d)
        A directed acyclic graph.
    allowed : ndarray of bool, shape (d, d)
        Edges that may stand: an edge whose opposite may not is decided.

    Returns
    -------
    ndarray of bool, shape (d, d)
        A subset of ``adjacency``.

    Raises
    ------
    ValueError
        If there is a directed cycle.
    """
    return adjacency & informed_class(adjacency, allowed).T


def with_edge_turned(
    adjacency: BoolArray, marks: BoolArray, cause: int, effect: int, order: Sequence[int]
) -> BoolArray:
    """Return the member of a DAG's class in which an edge is turned, and few others are.

    Parameters
    ----------
    adjacency : ndarray of bool, shape (d, d)
        A directed acyclic graph.
    marks : ndarray of bool, shape (d, d)
        Its :func:`informed_class`.
    cause, effect : int
        An edge of ``adjacency`` that is undirected in ``marks``.
    order : sequence of int
        A causal order of the DAG: the first edges in it keep their direction, if they can.

    Returns
    -------
    ndarray of bool, shape (d, d)
    """
    turned = marks.copy()
    turned[cause, effect] = False
    turned = meek(turned)
    for first in order:
        for second in order:
            if adjacency[first, second] and turned[first, second] and turned[second, first]:
                # Any direction that Meek's rules leave open can stand (Meek 1995, theorem 4).
                turned[second, first] = False
                turned = meek(turned)
    return turned


def consistent_extension(marks: BoolArray) -> BoolArray | None:
    """Direct the undirected edges without a cycle and without a new v-structure (Dor & Tarsi).

    Among several possible sinks the one with the largest index is chosen, so that causes tend to
    have smaller indices than effects.

    Parameters
    ----------
    marks : ndarray of bool, shape (d, d)
        A partially directed graph.

    Returns
    -------
    ndarray of bool, shape (d, d), or None
        A DAG with the same skeleton, directed edges and v-structures, or None if no such DAG
        exists.
    """
    directed, undirected, joined = directed_part(marks), undirected_part(marks), skeleton(marks)
    result = directed.copy()
    num_children = directed.sum(axis=1)
    left = np.ones(len(marks), dtype=bool)
    while left.any():
        candidates = np.flatnonzero(left & (num_children == 0))[::-1]
        sink = next((int(k) for k in candidates if _removable(int(k), undirected, joined)), None)
        if sink is None:
            return None
        result[:, sink] |= undirected[:, sink]
        num_children -= directed[:, sink]
        for matrix in (undirected, joined):
            matrix[sink] = matrix[:, sink] = False
        left[sink] = False
    return result


def _removable(node: int, undirected: BoolArray, joined: BoolArray) -> bool:
    """Whether directing every undirected edge into ``node`` creates no v-structure there.

    This holds if each neighbour is adjacent to all other nodes that are adjacent to ``node``.
    """
    adjacent, neighbours = np.flatnonzero(joined[node]), np.flatnonzero(undirected[node])
    reached = joined[np.ix_(neighbours, adjacent)].sum(axis=1)
    return bool((reached == len(adjacent) - 1).all())


def member_of(names: Sequence[str], marks: BoolArray) -> BoolArray:
    """Return a DAG of a class, the same for any order of the columns."""
    order = by_name(names)
    found = consistent_extension(marks[np.ix_(order, order)])
    assert found is not None
    back = np.argsort(order)
    return np.asarray(found[np.ix_(back, back)])

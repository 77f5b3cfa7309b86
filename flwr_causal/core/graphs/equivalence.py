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

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray

    pass


def directed_part(marks: BoolArray) -> BoolArray:
    """Return the directed edges of ``marks``, shape ``(d, d)``."""
    return marks & ~marks.T


def undirected_part(marks: BoolArray) -> BoolArray:
    """Return the undirected edges of ``marks``, shape ``(d, d)``, symmetric."""
    return marks & marks.T


def skeleton(marks: BoolArray) -> BoolArray:
    """Return which pairs are joined by an edge of any kind, shape ``(d, d)``, symmetric."""
    return marks | marks.T


def moralize(marks: BoolArray) -> BoolArray:
    """Join the parents of every common child and drop all directions.

    In a CPDAG only the directed edges marry: each v-structure is directed there, and the parents
    that any other collider could join are adjacent already, so that a CPDAG has the moral graph
    of every DAG in its class.

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
        forced = _first_and_second_rule(marks, apart)
        if not forced.any():
            forced = _third_and_fourth_rule(marks, joined)
        if not forced.any():
            return marks
        # Two opposite conclusions can only come from contradictory input: keep the first of the
        # two by index, so that the loop ends whatever it was given.
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
    """Return the edges a -> b of the two rules that look at four nodes.

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

    Found by the labelling of Chickering (1995), in one pass through the variables; closing under
    the rules by sweeps would take as many as the longest path has edges.

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
            # The nearest parent decides: a compelled edge into it that does not shield the child,
            # or a parent of the child that is not adjacent to it, compels all; otherwise compelled
            # are the edges that must go along with those into it.
            forced = compelled[nearest] - own or own - parents[nearest] - {nearest}
            compelled[child] = own if forced else compelled[nearest]
    marks = skeleton(adjacency)
    for child, causes in enumerate(compelled):
        marks[child, list(causes)] = False
    return marks


def consistent_extension(marks: BoolArray) -> BoolArray | None:
    """Direct the undirected edges without a cycle and without a new v-structure (Dor & Tarsi).

    Among the possible sinks the last by index is taken, so that causes tend to come first.

    Parameters
    ----------
    marks : ndarray of bool, shape (d, d)
        A partially directed graph.

    Returns
    -------
    ndarray of bool, shape (d, d), or None
        A DAG with the same skeleton, directed edges and v-structures; None where there is none.
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
    """Whether directing every neighbour -> node shields each pair of the node's parents."""
    adjacent, neighbours = np.flatnonzero(joined[node]), np.flatnonzero(undirected[node])
    reached = joined[np.ix_(neighbours, adjacent)].sum(axis=1)
    return bool((reached == len(adjacent) - 1).all())

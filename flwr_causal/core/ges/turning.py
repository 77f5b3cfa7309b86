"""The turning operators of GES: one edge of a member of the class is reversed.

A search that only inserts and deletes edges may stand at a class that reversing one edge improves;
Hauser & Bühlmann (2012) therefore add a third phase. For a node y of a CPDAG, ``Pa_y`` are its
parents, ``ne(y)`` its undirected neighbours and ``NA_yx`` those of them that are adjacent to x.

Turn(x, y, C) makes x -> y of an edge y -> x or x - y, where C, a clique among ``ne(y) - x``, are
the neighbours that point into y. It is valid

- for y -> x (Proposition 34) if C holds all of ``NA_yx``, and every semi-directed path from y to x
  but that edge meets ``C + ne(x)``; it gains
  ``s(y | Pa_y + C + x) - s(y | Pa_y + C) - s(x | Pa_x) + s(x | Pa_x - y)``;
- for x - y (Proposition 31, with the third condition of Algorithm 5) if C holds a node that is not
  adjacent to x, and x and y separate C from the rest of ``NA_yx`` among the nodes that undirected
  paths join; it gains ``s(y | Pa_y + C + x) - s(y | Pa_y + C) - s(x | D + y) + s(x | D)`` with
  ``D = Pa_x + (C and NA_yx)``.

References
----------
Hauser, A. & Bühlmann, P. (2012). Characterization and greedy learning of interventional Markov
equivalence classes of directed acyclic graphs. JMLR 13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.discrete.families import Families, row_of
from flwr_causal.core.ges.class_kernels import open_path
from flwr_causal.core.ges.search_state import Graph, around, cliques, graph_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    BoolMatrix = NDArray[np.bool_]
    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


class Turn(NamedTuple):
    """One operator.

    Attributes
    ----------
    x, y : int
        x -> y is made.
    clique : tuple of int
        C, ascending.
    row_y : int
        The family (y, Pa_y + C), which gains x.
    row_x : int
        The family of x that loses y, without y.
    """

    x: int
    y: int
    clique: tuple[int, ...]
    row_y: int
    row_x: int


def possible_turns(
    graph: Graph, families: Families, max_parents: int
) -> tuple[list[Turn], Families]:
    """Return the operators that are valid but for open paths, and the table with their families.

    They are ordered by y, then by size and nodes of the clique, then by x.
    """
    found = []
    parents = [around(graph, node)[0].tolist() for node in range(len(graph.degrees))]
    for y in range(len(graph.degrees)):
        for clique, x in _cliques_and_causes(graph, y):
            into_y = parents[y] + list(clique)
            if len(into_y) + 1 > max_parents:
                continue
            into_x = [node for node in parents[x] if node != y]
            if graph.marks[x, y]:
                into_x += [node for node in clique if _adjacent(graph, x, node)]
            families, row_y = row_of(families, y, into_y)
            families, row_x = row_of(families, x, into_x)
            found.append(Turn(x, y, clique, row_y, row_x))
    return found, families


def unknown_gains(families: Families, turns: Sequence[Turn]) -> tuple[Ints, BoolMatrix]:
    """Return the families, shape (m,), and which of their gains, (m, d), turns need and lack."""
    wanted: dict[int, set[int]] = {}
    for turn in turns:
        for row, node in ((turn.row_y, turn.x), (turn.row_x, turn.y)):
            if np.isnan(families.gains[row, node]):
                wanted.setdefault(row, set()).add(node)
    mask = np.zeros((len(wanted), families.gains.shape[1]), dtype=np.bool_)
    for k, nodes in enumerate(wanted.values()):
        mask[k, list(nodes)] = True
    return np.array(list(wanted), dtype=np.int64), mask


def turn_gains(families: Families, turns: Sequence[Turn]) -> Floats:
    """Return what each operator gains, shape (m,); the gains of its families are known."""
    pairs = [
        families.gains[turn.row_y, turn.x] - families.gains[turn.row_x, turn.y] for turn in turns
    ]
    return np.array(pairs, dtype=np.float64)


def is_valid(graph: Graph, turn: Turn) -> bool:
    """Whether no open path forbids one of the :func:`possible_turns`."""
    if graph.marks[turn.x, turn.y]:
        return _separated(graph, turn)
    closed = graph.marks[turn.x] & graph.marks[:, turn.x]
    closed[list(turn.clique)] = True
    marks = graph.marks.copy()
    marks[turn.y, turn.x] = False
    return not open_path(marks, graph.lists, graph.degrees, turn.y, turn.x, closed)


def turned(graph: Graph, turn: Turn) -> Graph:
    """Return the class after a valid operator; the given graph stays as it is."""
    marks = graph.marks.copy()
    marks[turn.y, [turn.x, *turn.clique]] = False
    marks[turn.x, turn.y] = True
    result = graph_of(marks)
    if result is None:
        raise AssertionError(f"Turn of {turn.x} and {turn.y} left a graph without an extension")
    return result


def _cliques_and_causes(graph: Graph, y: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield C and x of every operator at y that meets the conditions on cliques."""
    _, neighbours = around(graph, y)
    sets, sizes = cliques(graph.marks, neighbours, len(neighbours))
    beside = graph.lists[y, : graph.degrees[y]].tolist()
    causes = [x for x in beside if graph.marks[y, x]]
    common = {x: {z for z in neighbours.tolist() if _adjacent(graph, x, z)} for x in causes}
    for members, size in zip(sets.tolist(), sizes.tolist(), strict=True):
        clique = tuple(members[:size])
        for x in causes:
            shared = common[x].intersection(clique)
            if graph.marks[x, y]:
                possible = x not in clique and len(shared) < size
            else:
                possible = len(shared) == len(common[x])
            if possible:
                yield clique, x


def _separated(graph: Graph, turn: Turn) -> bool:
    """Whether x and y separate C from the rest of NA_yx along undirected edges."""
    undirected = graph.marks & graph.marks.T
    rest = {
        int(node)
        for node in np.flatnonzero(undirected[turn.y])
        if _adjacent(graph, turn.x, int(node)) and node not in turn.clique
    }
    seen = {turn.x, turn.y, *turn.clique}
    left = list(turn.clique)
    while left and rest:
        for node in np.flatnonzero(undirected[left.pop()]).tolist():
            if node in rest:
                return False
            if node not in seen:
                seen.add(node)
                left.append(node)
    return True


def _adjacent(graph: Graph, one: int, two: int) -> bool:
    return bool(graph.marks[one, two] or graph.marks[two, one])

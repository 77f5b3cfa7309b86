"""Ancestral graphs: marginals of DAGs with hidden variables.

A mixed graph is one matrix of integers ``marks`` of shape ``(d, d)``: ``marks[i, j]`` is the mark
at j of the edge between i and j, and ``marks[j, i]`` the mark at i.

====================  ============  ============
edge                  marks[i, j]   marks[j, i]
====================  ============  ============
none                  NONE          NONE
i -> j                ARROW         TAIL
i <-> j               ARROW         ARROW
i o-> j               ARROW         CIRCLE
i o-o j               CIRCLE        CIRCLE
====================  ============  ============

In a maximal ancestral graph (MAG) two variables are adjacent if no set of the others separates
them. A tail at i means that i is a cause of j, directly or through others; an arrowhead at i that
it is none. There is no selection: nothing that was observed decided which rows are in the data.
Therefore no edge has two tails.

References
----------
Richardson, T. & Spirtes, P. (2002). Ancestral graph Markov models. Annals of Statistics 30.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, IntArray

NONE: Final = 0
TAIL: Final = 1
ARROW: Final = 2
CIRCLE: Final = 3


def directed_edges(marks: IntArray) -> BoolArray:
    """Return the edges i -> j of a mixed graph, shape (d, d)."""
    return np.asarray((marks == ARROW) & (marks.T == TAIL))


def forward(marks: IntArray) -> BoolArray:
    """Return each edge once, shape (d, d): i -> j, i o-> j, and all other edges at i < j."""
    alike = np.triu((marks == marks.T) & (marks != NONE))
    return np.asarray(alike | ((marks == ARROW) & (marks.T != ARROW)))


def edge_symbol(at_start: int, at_end: int) -> str:
    """Return an edge as text, from its marks: "->", "o->", "<->", "o-o", "<-" or "<-o"."""
    start = {TAIL: "", ARROW: "<", CIRCLE: "o"}[at_start]
    end = {TAIL: "", ARROW: ">", CIRCLE: "o"}[at_end]
    return f"{start}-{end}"


def checked_marks(given: ArrayLike, names: Sequence[str]) -> IntArray:
    """Return a read-only copy of the marks of a PAG, shape (d, d).

    Raises
    ------
    DataError
        If they have another shape, or hold something else; the message names the edge.
    """
    marks = np.array(given, dtype=np.int64)
    if marks.shape != (len(names), len(names)):
        raise DataError(f"marks have shape {marks.shape}, expected {(len(names), len(names))}")
    possible = np.isin(marks, (NONE, TAIL, ARROW, CIRCLE)) & ((marks == NONE) == (marks.T == NONE))
    # Of an edge with a tail the other end has an arrowhead: there is no selection.
    possible &= (marks != TAIL) | (marks.T == ARROW)
    possible &= ~np.eye(len(marks), dtype=bool) | (marks == NONE)
    for i, j in np.argwhere(~possible):
        raise DataError(
            f"the edge between {names[i]} and {names[j]} has the marks {marks[j, i]} and "
            f"{marks[i, j]}: expected 1 (tail) with 2 (arrowhead), or 2 and 3 (circle) in any order"
        )
    marks.setflags(write=False)
    return marks


def marks_of_dag(adjacency: BoolArray) -> IntArray:
    """Return the marks of a directed graph; ``adjacency[i, j]`` is i -> j."""
    return np.where(adjacency, ARROW, np.where(adjacency.T, TAIL, NONE))


def marks_of_class(adjacency: BoolArray) -> IntArray:
    """Return the marks of a DAG or CPDAG, whose edges both ways have circles at their ends."""
    return np.where(adjacency & adjacency.T, CIRCLE, marks_of_dag(adjacency))


def is_ancestral(marks: IntArray) -> bool:
    """Whether no directed edges form a cycle, and none lead from one end of i <-> j to the other.

    Parameters
    ----------
    marks : ndarray of int, shape (d, d)
        Without circles.
    """
    above = ancestors(directed_edges(marks))
    return not (above.diagonal().any() or (above & (marks == ARROW) & (marks.T == ARROW)).any())


def m_separated(marks: IntArray, i: int, j: int, given: Iterable[int]) -> bool:
    """Whether a set of vertices separates two others in a graph of tails and arrowheads.

    In a DAG this is d-separation.

    Parameters
    ----------
    marks : ndarray of int, shape (d, d)
        Without circles.
    i, j : int
        Two vertices outside of ``given``.
    given : iterable of int
    """
    known = np.zeros(len(marks), dtype=np.bool_)
    known[list(given)] = True
    opened = known | ancestors(directed_edges(marks))[:, known].any(axis=1)
    # Each step: a vertex, and whether the path came into it by an arrowhead.
    waiting = [(int(v), bool(marks[i, v] == ARROW)) for v in np.flatnonzero(marks[i])]
    seen = set(waiting)
    while waiting:
        v, into = waiting.pop()
        if v == j:
            return False
        for w in np.flatnonzero(marks[v]):
            collider = into and marks[w, v] == ARROW
            step = (int(w), bool(marks[v, w] == ARROW))
            if step not in seen and (opened[v] if collider else not known[v]):
                seen.add(step)
                waiting.append(step)
    return True


def ancestral_separators(marks: IntArray) -> BoolArray:
    """Return for each pair its ancestors, which separate it if anything does.

    Parameters
    ----------
    marks : ndarray of int, shape (d, d)
        Of a DAG or a MAG.

    Returns
    -------
    ndarray of bool, shape (d, d, d)
        ``[i, j, k]``: k is another vertex that is an ancestor of i or of j.
    """
    above = ancestors(directed_edges(marks)).T
    found: BoolArray = above[:, None] | above[None]
    places = np.arange(len(marks))
    found[places, :, places] = False
    found[:, places, places] = False
    return found


def mag(adjacency: BoolArray, seen: Sequence[int]) -> IntArray:
    """Return the MAG of a DAG over the variables that are seen.

    Parameters
    ----------
    adjacency : ndarray of bool, shape (D, D)
        The DAG over all variables.
    seen : sequence of int
        The d variables of the result, in their order.

    Returns
    -------
    ndarray of int, shape (d, d)
        Marks.
    """
    full, above = marks_of_dag(adjacency), ancestors(adjacency)
    separators = ancestral_separators(full)
    marks = np.zeros((len(seen), len(seen)), dtype=np.int64)
    for a, i in enumerate(seen):
        for b, j in enumerate(seen[:a]):
            given = [k for k in seen if separators[i, j, k]]
            if not m_separated(full, i, j, given):
                marks[a, b] = TAIL if above[j, i] else ARROW
                marks[b, a] = TAIL if above[i, j] else ARROW
    return marks

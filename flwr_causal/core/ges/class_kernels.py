"""Equivalence classes in compiled code: what a search over CPDAGs does after every operator.

The mathematics is that of :mod:`core.graphs.equivalence`; here it works on adjacency
lists and changes arrays in place, so that one operator on a graph of a thousand variables takes
microseconds.

A graph is three arrays: ``marks`` bool ``(d, d)`` (``[i, j]`` alone is i -> j, both ways is i - j),
``lists`` int32 ``(d, d)`` and ``degrees`` int64 ``(d,)``: the nodes adjacent to i are
``lists[i, :degrees[i]]``.

References
----------
Chickering, D. M. (1995). A transformational characterization of equivalent Bayesian network
structures. UAI. (From a DAG to its class.)
Dor, D. & Tarsi, M. (1992). A simple algorithm to construct a consistent extension of a partially
oriented graph. Technical report R-185, UCLA. (From a class to a DAG.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.compiled import compiled

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.core.discrete.families import Members


@compiled
def adjacency_lists(marks: BoolArray) -> tuple[Members, IntArray]:
    """Return ``lists`` and ``degrees`` of a graph, neighbours in ascending order."""
    d = marks.shape[0]
    lists = np.empty((d, d), dtype=np.int32)
    degrees = np.zeros(d, dtype=np.int64)
    for i in range(d):
        for j in range(d):
            if marks[i, j] or marks[j, i]:
                lists[i, degrees[i]] = j
                degrees[i] += 1
    return lists, degrees


@compiled
def join(lists: Members, degrees: IntArray, i: int, j: int) -> None:
    """Make i and j adjacent, keeping the lists in ascending order."""
    for one, two in ((i, j), (j, i)):
        k = degrees[one]
        while k > 0 and lists[one, k - 1] > two:
            lists[one, k] = lists[one, k - 1]
            k -= 1
        lists[one, k] = two
        degrees[one] += 1


@compiled
def part(lists: Members, degrees: IntArray, i: int, j: int) -> None:
    """Make i and j no longer adjacent, keeping the lists in ascending order."""
    for one, two in ((i, j), (j, i)):
        k = 0
        while lists[one, k] != two:
            k += 1
        degrees[one] -= 1
        while k < degrees[one]:
            lists[one, k] = lists[one, k + 1]
            k += 1


@compiled
def extend(
    marks: BoolArray, lists: Members, degrees: IntArray, dag: BoolArray
) -> tuple[bool, IntArray]:
    """Direct every edge without a new v-structure or cycle (Dor & Tarsi), into ``dag``.

    Only the entries of ``dag`` between adjacent nodes are written.

    Returns
    -------
    found : bool
        Whether the graph has such an extension.
    order : ndarray of int64, shape (d,)
        The nodes with every cause before its effects.
    """
    d = marks.shape[0]
    present = np.ones(d, dtype=np.bool_)
    queued = np.ones(d, dtype=np.bool_)
    queue = np.empty(d, dtype=np.int64)
    order = np.empty(d, dtype=np.int64)
    first, length, left = 0, d, d
    for i in range(d):
        queue[i] = i
        for k in range(degrees[i]):
            j = lists[i, k]
            dag[i, j] = marks[i, j] and not marks[j, i]
    while length > 0:
        x = queue[first]
        first = (first + 1) % d
        length -= 1
        queued[x] = False
        if not _can_be_last(marks, lists, degrees, present, x):
            continue
        present[x] = False
        left -= 1
        order[left] = x
        for k in range(degrees[x]):
            y = lists[x, k]
            if not present[y]:
                continue
            if marks[x, y]:
                dag[y, x] = True
                dag[x, y] = False
            # Only nodes next to x can have become removable.
            if not queued[y]:
                queued[y] = True
                queue[(first + length) % d] = y
                length += 1
    return left == 0, order


@compiled
def _can_be_last(
    marks: BoolArray, lists: Members, degrees: IntArray, present: BoolArray, x: int
) -> bool:
    """Whether x has no child left, and each undirected neighbour is adjacent to all others of x."""
    for k in range(degrees[x]):
        y = lists[x, k]
        if present[y] and marks[x, y] and not marks[y, x]:
            return False
    for k in range(degrees[x]):
        y = lists[x, k]
        if not present[y] or not marks[x, y]:
            continue
        for m in range(degrees[x]):
            z = lists[x, m]
            if z != y and present[z] and not (marks[y, z] or marks[z, y]):
                return False
    return True


@compiled
def complete(
    dag: BoolArray, lists: Members, degrees: IntArray, order: IntArray, marks: BoolArray
) -> None:
    """Write the CPDAG of a DAG into ``marks`` (Chickering 1995, "label edges").

    Only entries between adjacent nodes are read and written; ``order`` is a causal order.
    """
    d = dag.shape[0]
    position = np.empty(d, dtype=np.int64)
    for k in range(d):
        position[order[k]] = k
    for i in range(d):
        for k in range(degrees[i]):
            marks[i, lists[i, k]] = False
    # While the edges into y are labelled, marks[x, y] says "labelled", marks[y, x] "reversible".
    parents = np.empty(d, dtype=np.int64)
    for y in order:
        num = 0
        for k in range(degrees[y]):
            x = lists[y, k]
            if dag[x, y]:
                slot = num
                while slot > 0 and position[parents[slot - 1]] < position[x]:
                    parents[slot] = parents[slot - 1]
                    slot -= 1
                parents[slot] = x
                num += 1
        for k in range(num):
            x = parents[k]
            if not marks[x, y]:
                _label(dag, lists, degrees, parents[:num], x, y, marks)


@compiled
def _label(
    dag: BoolArray,
    lists: Members,
    degrees: IntArray,
    parents: IntArray,
    x: int,
    y: int,
    marks: BoolArray,
) -> None:
    """Label x -> y and what follows from it among the edges into y."""
    for k in range(degrees[x]):
        w = lists[x, k]
        if not (dag[w, x] and marks[w, x] and not marks[x, w]):
            continue
        # w -> x is compelled.
        if not dag[w, y]:
            for z in parents:
                marks[z, y] = True
                marks[y, z] = False
            return
        marks[w, y] = True
        marks[y, w] = False
    compelled = False
    for z in parents:
        if z != x and not dag[z, x]:
            compelled = True
            break
    for z in parents:
        if not marks[z, y]:
            marks[z, y] = True
            marks[y, z] = not compelled


@compiled
def open_path(
    marks: BoolArray,
    lists: Members,
    degrees: IntArray,
    start: int,
    end: int,
    blocked: BoolArray,
) -> bool:
    """Whether a semi-directed path leads from ``start`` to ``end`` past the blocked nodes.

    A semi-directed path follows directed edges forwards and undirected ones either way.
    """
    d = marks.shape[0]
    seen = blocked.copy()
    queue = np.empty(d, dtype=np.int64)
    queue[0] = start
    seen[start] = True
    first, last = 0, 1
    while first < last:
        u = queue[first]
        first += 1
        for k in range(degrees[u]):
            v = lists[u, k]
            if not marks[u, v] or seen[v]:
                continue
            if v == end:
                return True
            seen[v] = True
            queue[last] = v
            last += 1
    return False


def class_of(dag: BoolArray) -> BoolArray:
    """Return the CPDAG of an acyclic matrix; :func:`equivalence.cpdag` for large graphs."""
    lists, degrees = adjacency_lists(dag)
    marks = np.zeros_like(dag)
    _, order = extend(dag, lists, degrees, np.zeros_like(dag))
    complete(dag, lists, degrees, order, marks)
    return marks


def member_of(marks: BoolArray) -> BoolArray | None:
    """Return a DAG of a class, None if there is none; :func:`equivalence.consistent_extension`."""
    lists, degrees = adjacency_lists(marks)
    dag = np.zeros_like(marks)
    found, _ = extend(marks, lists, degrees, dag)
    return dag if found else None

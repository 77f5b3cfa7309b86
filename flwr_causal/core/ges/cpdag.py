"""The present equivalence class of a search, and its update after an operator.

The mathematics is that of :mod:`flwr_causal.core.graphs.equivalence`; here it works on adjacency
lists and changes arrays in place, so that one operator on a graph of a thousand variables takes
microseconds.

Some pairs of variables may be *distinguished*: an edge between them has a direction in every class,
because an intervention acts on one of them and not on the other, or because one precedes the other.
Two DAGs are then equivalent if they also agree on these directions. The classes are those of
interventions (Hauser & Bühlmann 2012, Theorem 10): an edge is directed if its pair is
distinguished, if it is part of a v-structure, or if it follows from directed edges (Meek's rules).

References
----------
Chickering, D. M. (1995). A transformational characterization of equivalent Bayesian network
structures. UAI. (From a DAG to its class.)
Dor, D. & Tarsi, M. (1992). A simple algorithm to construct a consistent extension of a partially
oriented graph. Technical report R-185, UCLA. (From a class to a DAG.)
Hauser, A. & Bühlmann, P. (2012). Characterization and greedy learning of interventional Markov
equivalence classes of directed acyclic graphs. JMLR 13.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.compiled import compiled_in_place, compiled_inside

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, IntArray, Integer


class Graph(NamedTuple):
    """A CPDAG with one of its members.

    Attributes
    ----------
    marks : ndarray of bool, shape (d, d)
        ``[i, j]`` alone is i -> j, both ways is i - j.
    before : ndarray of bool, shape (d, d)
        ``marks`` after the last operator, with which the next one is compared.
    dag : ndarray of bool, shape (d, d)
        A consistent extension.
    lists : ndarray of int64, shape (d, d)
        The nodes adjacent to i are ``lists[i, :degrees[i]]``, ascending.
    degrees : ndarray of int64, shape (d,)
    distinguished : ndarray of bool, shape (d, d) or (0, 0)
        Pairs whose edge is always directed, symmetric; (0, 0) if there are none.
    work : ndarray of int64, shape (7, d)
        Scratch space of the compiled functions.
    """

    marks: BoolArray
    before: BoolArray
    dag: BoolArray
    lists: IntArray
    degrees: IntArray
    distinguished: BoolArray
    work: IntArray

    def copy(self) -> Graph:
        """Return a graph that shares no memory with this one."""
        return Graph._make(array.copy() for array in self)


#: No pair is distinguished.
NO_PAIRS: BoolArray = np.zeros((0, 0), dtype=np.bool_)


def graph_of(marks: BoolArray, distinguished: BoolArray = NO_PAIRS) -> Graph | None:
    """Return the search's graph for the class of a DAG or CPDAG; None if there is no such class."""
    d = len(marks)
    pairs = np.array(distinguished if distinguished.any() else NO_PAIRS, dtype=np.bool_, order="C")
    joined = marks | marks.T
    degrees = joined.sum(axis=1, dtype=np.int64)
    lists = np.zeros((d, d), dtype=np.int64)
    lists[np.arange(d) < degrees[:, None]] = np.nonzero(joined)[1]
    own = np.array(marks, dtype=np.bool_, order="C")
    work = np.zeros((7, d), dtype=np.int64)
    graph = Graph(own, own.copy(), np.zeros_like(own), lists, degrees, pairs, work)
    return graph if d == 0 or recomplete(graph, 0, 0) else None


def class_of(dag: BoolArray, distinguished: BoolArray = NO_PAIRS) -> BoolArray:
    """Return the CPDAG of an acyclic matrix, as :func:`equivalence.cpdag`; faster if d is large."""
    graph = graph_of(dag, distinguished)
    assert graph is not None
    return graph.marks


def member_of(marks: BoolArray) -> BoolArray | None:
    """Return a DAG of a class, None if there is none; see :func:`equivalence.consistent_extension`.

    This one is faster for large graphs.
    """
    graph = graph_of(marks)
    return None if graph is None else graph.dag


def join(graph: Graph, i: int, j: int) -> None:
    """Make i and j adjacent in the adjacency lists."""
    for one, two in ((i, j), (j, i)):
        degree = int(graph.degrees[one])
        beside = graph.lists[one]
        place = int(beside[:degree].searchsorted(two))
        beside[place + 1 : degree + 1] = beside[place:degree]
        beside[place] = two
        graph.degrees[one] += 1


def part(graph: Graph, i: int, j: int) -> None:
    """Make i and j non-adjacent in the adjacency lists."""
    for one, two in ((i, j), (j, i)):
        degree = int(graph.degrees[one])
        beside = graph.lists[one]
        place = int(beside[:degree].searchsorted(two))
        beside[place : degree - 1] = beside[place + 1 : degree]
        graph.degrees[one] -= 1


def affected(graph: Graph) -> IntArray:
    """Return the nodes whose operators may have changed with the last one, ascending.

    These are the operator's x and y, the nodes that are or were undirected neighbours of x or y,
    and every node at which a mark has changed.
    """
    nodes: IntArray = np.flatnonzero(graph.work[6])
    return nodes


def recomplete(graph: Graph, x: int, y: int) -> bool:
    """Turn the marks after an operator on x and y into a CPDAG; False if they have no extension.

    First ``dag`` becomes a consistent extension (Dor & Tarsi), then ``marks`` its class (Chickering
    1995, "label edges"; with distinguished pairs by Meek's rules). Only the entries between
    adjacent nodes are read and written. Then the :func:`affected` nodes are marked in ``work[6]``,
    and ``before`` becomes equal to ``marks``.
    """
    if not _extend(graph):
        return False
    # Called from here, so that the one that a search does not need is not compiled.
    if len(graph.distinguished) > 0:
        _direct_edges(graph)
    else:
        _label_edges(graph)
    _note_changes(graph, x, y)
    return True


@compiled_in_place
def _extend(graph: Graph) -> bool:
    """Turn ``dag`` into a consistent extension of the marks; False if they have none.

    ``work[3]`` becomes a causal order.
    """
    marks, dag, work = graph.marks, graph.dag, graph.work
    lists, degrees = graph.lists, graph.degrees
    d = len(degrees)
    # present: the node has not been removed; queued: it is in the queue; order: a causal order.
    present, queued, queue, order = work[0], work[1], work[2], work[3]
    first, length, left = 0, d, d
    for i in range(d):
        present[i] = 1
        queued[i] = 1
        queue[i] = i
        for k in range(degrees[i]):
            j = lists[i, k]
            dag[i, j] = marks[i, j] and not marks[j, i]
    while length > 0:
        node = queue[first]
        first = (first + 1) % d
        length -= 1
        queued[node] = 0
        # node can be the last of the nodes that are left if it has no child among them, and each
        # undirected neighbour is adjacent to all others that are adjacent to node.
        last = True
        for k in range(degrees[node]):
            other = lists[node, k]
            if not (last and present[other] and marks[node, other]):
                continue
            if not marks[other, node]:
                last = False
                break
            for m in range(degrees[node]):
                third = lists[node, m]
                if (
                    third != other
                    and present[third]
                    and not (marks[other, third] or marks[third, other])
                ):
                    last = False
                    break
        if not last:
            continue
        present[node] = 0
        left -= 1
        order[left] = node
        for k in range(degrees[node]):
            other = lists[node, k]
            if not present[other]:
                continue
            if marks[node, other]:
                dag[other, node] = True
                dag[node, other] = False
            # Only nodes next to node can have become removable.
            if not queued[other]:
                queued[other] = 1
                queue[(first + length) % d] = other
                length += 1
    return left == 0


@compiled_in_place
def _note_changes(graph: Graph, x: int, y: int) -> None:
    """Mark the :func:`affected` nodes in ``work[6]``; ``before`` becomes equal to ``marks``."""
    marks, before, dirty = graph.marks, graph.before, graph.work[6]
    lists, degrees = graph.lists, graph.degrees
    d = len(degrees)
    for i in range(d):
        joined = (marks[x, i] and marks[i, x]) or (marks[y, i] and marks[i, y])
        was_joined = (before[x, i] and before[i, x]) or (before[y, i] and before[i, y])
        dirty[i] = joined or was_joined
    dirty[x] = 1
    dirty[y] = 1
    for i in range(d):
        for k in range(degrees[i]):
            j = lists[i, k]
            if marks[i, j] != before[i, j]:
                dirty[i] = 1
                dirty[j] = 1
                before[i, j] = marks[i, j]
    before[x, y] = marks[x, y]
    before[y, x] = marks[y, x]


@compiled_in_place
def _label_edges(graph: Graph) -> None:
    """Write the class of ``dag`` into ``marks``; ``work[3]`` holds a causal order."""
    marks, dag, work = graph.marks, graph.dag, graph.work
    lists, degrees = graph.lists, graph.degrees
    d = len(degrees)
    order, position, parents = work[3], work[4], work[5]
    for k in range(d):
        position[order[k]] = k
    for i in range(d):
        for k in range(degrees[i]):
            marks[i, lists[i, k]] = False
    # While the edges into y are labelled, marks[x, y] says "labelled", marks[y, x] "reversible".
    for step in range(d):
        y = order[step]
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
            if marks[x, y]:
                continue
            # Label x -> y, and what follows from it among the edges into y.
            compelled = False
            for m in range(degrees[x]):
                w = lists[x, m]
                if dag[w, x] and marks[w, x] and not marks[x, w]:
                    # w -> x is compelled.
                    if not dag[w, y]:
                        compelled = True
                        break
                    marks[w, y] = True
                    marks[y, w] = False
            everything = compelled
            if not compelled:
                for m in range(num):
                    z = parents[m]
                    if z != x and not dag[z, x]:
                        compelled = True
                        break
            for m in range(num):
                z = parents[m]
                if everything or not marks[z, y]:
                    marks[z, y] = True
                    marks[y, z] = not compelled


@compiled_in_place
def _direct_edges(graph: Graph) -> None:
    """Write the class of ``dag`` into ``marks`` where pairs are distinguished."""
    marks, dag, distinguished = graph.marks, graph.dag, graph.distinguished
    lists, degrees = graph.lists, graph.degrees
    for y in range(len(degrees)):
        for k in range(degrees[y]):
            x = lists[y, k]
            if not dag[x, y]:
                continue
            directed = distinguished[x, y]
            for m in range(degrees[y]):
                z = lists[y, m]
                if dag[z, y] and z != x and not (dag[z, x] or dag[x, z]):
                    directed = True
            marks[x, y] = True
            marks[y, x] = not directed
    changed = True
    while changed:
        changed = False
        for y in range(len(degrees)):
            for k in range(degrees[y]):
                x = lists[y, k]
                if dag[x, y] and marks[y, x] and _follows(graph, x, y):
                    marks[y, x] = False
                    changed = True


@compiled_inside
def _follows(graph: Graph, x: Integer, y: Integer) -> bool:
    """Whether one of Meek's first three rules directs x - y as x -> y."""
    marks, lists, degrees = graph.marks, graph.lists, graph.degrees
    for k in range(degrees[x]):
        z = lists[x, k]
        if z == y:
            continue
        beside_y = marks[z, y] or marks[y, z]
        if marks[z, x] and not marks[x, z] and not beside_y:
            return True
        if not (marks[z, y] and not marks[y, z]):
            continue
        # z -> y
        if not marks[z, x]:
            return True
        for m in range(k):
            w = lists[x, m]
            into_y = marks[w, y] and not marks[y, w]
            both_open = marks[z, x] and marks[x, z] and marks[w, x] and marks[x, w]
            if into_y and both_open and not (marks[w, z] or marks[z, w]):
                return True
    return False


@compiled_in_place
def open_path(graph: Graph, start: int, end: int) -> bool:
    """Whether a semi-directed path leads from ``start`` to ``end`` and visits no closed node.

    A semi-directed path follows directed edges forwards and undirected ones either way.
    ``graph.work[0]`` is not 0 at closed nodes, and is changed.
    """
    marks, lists, degrees = graph.marks, graph.lists, graph.degrees
    closed, queue = graph.work[0], graph.work[1]
    closed[start] = 1
    queue[0] = start
    first, last = 0, 1
    while first < last:
        u = queue[first]
        first += 1
        for k in range(degrees[u]):
            v = lists[u, k]
            if not marks[u, v] or closed[v]:
                continue
            if v == end:
                return True
            closed[v] = 1
            queue[last] = v
            last += 1
    return False

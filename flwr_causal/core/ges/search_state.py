"""The operators of GES in compiled code: which there are, which is best, and what they do.

Names are those of Chickering (2002). For a node y of a CPDAG, ``Pa`` are its parents and ``NA_yx``
the nodes joined to y by an undirected edge and adjacent to x.

- Insert(x, y, T), Theorem 15: x and y not adjacent, T among the undirected neighbours of y that are
  not adjacent to x. Valid if ``K = NA_yx + T`` is a clique and every semi-directed path from y to x
  meets it. Gains ``s(y | Pa + K + x) - s(y | Pa + K)`` (Corollary 16).
- Delete(x, y, H), Theorem 17: x -> y or x - y, H a subset of ``NA_yx``. Valid if ``C = NA_yx - H``
  is a clique. Gains ``s(y | Pa + C - x) - s(y | Pa + C + x)`` (Corollary 18).

Since the gain depends on K (or C) only, operators are enumerated by cliques.

Equal gains, as equivalent operators have, are told apart by the numbers of the nodes: the smallest
y first, then the smallest clique, then the smallest x (of Deletes x, then the clique). Gains count
as equal within TOLERANCE, since the same score summed in another order differs in its last digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.compiled import compiled
from flwr_causal.core.ges.class_kernels import adjacency_lists, complete, extend

if TYPE_CHECKING:
    from flwr_causal.core.discrete.families import Floats, Ints, Members

BoolMatrix = NDArray[np.bool_]

TOLERANCE = 1e-7
# A node with more operators of one kind than this cannot be searched: their number doubles with
# each further neighbour.
MOST_CLIQUES = 1 << 20
#: What a kernel returns that has found too little room for its answer.
OVERFLOW = -3


class Graph(NamedTuple):
    """A CPDAG with one of its members.

    Attributes
    ----------
    marks : ndarray of bool, shape (d, d)
    before : ndarray of bool, shape (d, d)
        ``marks`` before the last operator.
    dag : ndarray of bool, shape (d, d)
        A consistent extension.
    lists : ndarray of int32, shape (d, d)
    degrees : ndarray of int64, shape (d,)
    """

    marks: BoolMatrix
    before: BoolMatrix
    dag: BoolMatrix
    lists: Members
    degrees: Ints


class Best(NamedTuple):
    """The best operator at each node y, as far as it is known.

    Attributes
    ----------
    gains : ndarray of float64, shape (d,)
        0: no operator improves.
    others : ndarray of int64, shape (d,)
        x.
    rows : ndarray of int64, shape (d,)
        The family (y, Pa + K), or (y, Pa + C).
    blocked : ndarray of int64, shape (d, B, 2)
        Inserts (row, x) that are not valid because a semi-directed path is open. They never become
        valid by further Inserts: the path says that x and y depend on each other given S in the
        present class, Inserts take no dependence away, and a valid one would need x and y to be
        independent given S.
    num_blocked : ndarray of int64, shape (d,)
    """

    gains: Floats
    others: Ints
    rows: Ints
    blocked: Ints
    num_blocked: Ints


def graph_of(marks: BoolMatrix) -> Graph | None:
    """Return the search's graph for the class of a DAG or CPDAG; None if there is no such class."""
    marks = np.ascontiguousarray(marks, dtype=np.bool_)
    lists, degrees = adjacency_lists(marks)
    dag = np.zeros_like(marks)
    found, order = extend(marks, lists, degrees, dag)
    if not found:
        return None
    completed = marks.copy()
    complete(dag, lists, degrees, order, completed)
    return Graph(completed, completed.copy(), dag, lists, degrees)


def nothing_best(num_variables: int, room: int = 16) -> Best:
    """Return the state in which no operator is known."""
    return Best(
        np.zeros(num_variables),
        np.zeros(num_variables, dtype=np.int64),
        np.zeros(num_variables, dtype=np.int64),
        np.zeros((num_variables, room, 2), dtype=np.int64),
        np.zeros(num_variables, dtype=np.int64),
    )


def with_room(best: Best) -> Best:
    """Return the state with room for twice as many blocked operators."""
    return best._replace(blocked=np.concatenate([best.blocked, best.blocked], axis=1))


@compiled
def cliques(marks: BoolMatrix, nodes: Ints, largest: int) -> tuple[Members, Ints]:
    """Return all cliques among some nodes, the empty one first; sizes ascend, then nodes do.

    Raises OverflowError for more than MOST_CLIQUES.
    """
    k = len(nodes)
    sets = np.empty((max(8, 2 * k), k), dtype=np.int32)
    sizes = np.zeros(max(8, 2 * k), dtype=np.int64)
    count, head = 1, 0
    while head < count:
        size = sizes[head]
        first = 0
        if size > 0:
            while nodes[first] <= sets[head, size - 1]:
                first += 1
        for j in range(first, k if size < largest else 0):
            node = nodes[j]
            joined = True
            for m in range(size):
                other = sets[head, m]
                if not (marks[node, other] or marks[other, node]):
                    joined = False
                    break
            if not joined:
                continue
            if count == MOST_CLIQUES:
                raise OverflowError("too many cliques")
            if count == len(sizes):
                more_sets = np.empty((2 * count, k), dtype=np.int32)
                more_sets[:count] = sets
                more_sizes = np.zeros(2 * count, dtype=np.int64)
                more_sizes[:count] = sizes
                sets, sizes = more_sets, more_sizes
            sets[count, :size] = sets[head, :size]
            sets[count, size] = node
            sizes[count] = size + 1
            count += 1
        head += 1
    return sets[:count], sizes[:count]


@compiled
def around(graph: Graph, y: int) -> tuple[Ints, Ints]:
    """Return the parents and the undirected neighbours of y, each ascending."""
    marks, lists, degrees = graph.marks, graph.lists, graph.degrees
    parents, neighbours = np.empty(degrees[y], np.int64), np.empty(degrees[y], np.int64)
    num_parents, num_neighbours = 0, 0
    for k in range(degrees[y]):
        z = lists[y, k]
        if marks[z, y] and marks[y, z]:
            neighbours[num_neighbours] = z
            num_neighbours += 1
        elif marks[z, y]:
            parents[num_parents] = z
            num_parents += 1
    return parents[:num_parents], neighbours[:num_neighbours]


@compiled
def merged(one: Ints, two: Members, size: int, left_out: int) -> Members:
    """Return the union of two ascending disjoint sets without one node, ascending."""
    result = np.empty(len(one) + size, dtype=np.int32)
    i, j, count = 0, 0, 0
    while i < len(one) or j < size:
        if j == size or (i < len(one) and one[i] < two[j]):
            node = one[i]
            i += 1
        else:
            node = two[j]
            j += 1
        if node != left_out:
            result[count] = node
            count += 1
    return result[:count]


@compiled
def is_among(operators: Ints, row: int, x: int) -> bool:
    """Whether an operator (row, x) is among some, shape (m, 2)."""
    for k in range(len(operators)):  # noqa: SIM110 - compiled code knows no any()
        if operators[k, 0] == row and operators[k, 1] == x:
            return True
    return False


@compiled
def first_largest(gains: Floats) -> int:
    """Return the first of the largest gains above TOLERANCE, -1 if there is none."""
    chosen, largest = -1, 0.0
    for k in range(len(gains)):
        if gains[k] > largest + TOLERANCE:
            chosen, largest = k, gains[k]
    return chosen


@compiled
def recomplete(graph: Graph) -> bool:
    """Turn the marks after an operator into a CPDAG again; False where they have no extension."""
    found, order = extend(graph.marks, graph.lists, graph.degrees, graph.dag)
    if found:
        complete(graph.dag, graph.lists, graph.degrees, order, graph.marks)
    return found


@compiled
def affected(graph: Graph, x: int, y: int) -> Ints:
    """Return the nodes whose operators may have changed with an operator on x and y, ascending.

    These are x and y, what was or is joined to either by an undirected edge, and every node at
    which a mark has changed. Brings ``before`` up to date.
    """
    marks, before = graph.marks, graph.before
    d = len(graph.degrees)
    dirty = np.zeros(d, dtype=np.bool_)
    for node in (x, y):
        dirty[node] = True
        for z in range(d):
            if (marks[node, z] and marks[z, node]) or (before[node, z] and before[z, node]):
                dirty[z] = True
    for i in range(d):
        for k in range(graph.degrees[i]):
            j = graph.lists[i, k]
            if marks[i, j] != before[i, j]:
                dirty[i] = dirty[j] = True
                before[i, j] = marks[i, j]
    before[x, y], before[y, x] = marks[x, y], marks[y, x]
    return np.flatnonzero(dirty)

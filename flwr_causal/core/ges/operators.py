"""The operators of GES: which there are, which is best, and what they do.

A search stands at a class of equivalent DAGs, a CPDAG. Names are those of Chickering (2002), for
Turn those of Hauser & Bühlmann (2012). For a node y of a CPDAG, ``Pa`` (``Pa_y``) are its parents,
``ne(y)`` its undirected neighbours, and ``NA_yx`` those of them that are adjacent to x.

- Insert(x, y, T), Theorem 15: x and y not adjacent, T among the undirected neighbours of y that are
  not adjacent to x. Valid if ``K = NA_yx + T`` is a clique and every semi-directed path from y to x
  meets it. Gains ``s(y | Pa + K + x) - s(y | Pa + K)`` (Corollary 16).
- Delete(x, y, H), Theorem 17: x -> y or x - y, H a subset of ``NA_yx``. Valid if ``C = NA_yx - H``
  is a clique. Gains ``s(y | Pa + C - x) - s(y | Pa + C + x)`` (Corollary 18).
- Turn(x, y, C) makes x -> y of an edge y -> x or x - y, where C, a clique among ``ne(y) - x``, are
  the neighbours that point into y. It is valid

  - for y -> x (Proposition 34) if C holds all of ``NA_yx``, and every semi-directed path from y to
    x but that edge meets ``C + ne(x)``; it gains
    ``s(y | Pa_y + C + x) - s(y | Pa_y + C) - s(x | Pa_x) + s(x | Pa_x - y)``;
  - for x - y (Proposition 31, with the third condition of Algorithm 5) if C holds a node that is
    not adjacent to x, and x and y separate C from the rest of ``NA_yx`` among the nodes that
    undirected paths join; it gains
    ``s(y | Pa_y + C + x) - s(y | Pa_y + C) - s(x | D + y) + s(x | D)`` with
    ``D = Pa_x + (C and NA_yx)``.

Since the gain of Insert (Delete) depends on K (C) only, operators are enumerated by cliques.

Equal gains, as equivalent operators have, are told apart by the numbers of the nodes: the smallest
y first, then the smallest clique, then the smallest x (of Deletes x, then the clique). Gains count
as equal within TOLERANCE, since the same score summed in another order differs in its last digits.

References
----------
Chickering, D. M. (2002). Optimal structure identification with greedy search. JMLR 3.
Hauser, A. & Bühlmann, P. (2012). Characterization and greedy learning of interventional Markov
equivalence classes of directed acyclic graphs. JMLR 13.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.compiled import compiled
from flwr_causal.core.discrete.families import FULL, Families, enter, find, row_of
from flwr_causal.core.ges.class_kernels import (
    adjacency_lists,
    complete,
    extend,
    join,
    open_path,
    part,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.discrete.families import Members

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

    marks: BoolArray
    before: BoolArray
    dag: BoolArray
    lists: Members
    degrees: IntArray


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

    gains: FloatArray
    others: IntArray
    rows: IntArray
    blocked: IntArray
    num_blocked: IntArray


def graph_of(marks: BoolArray) -> Graph | None:
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
def cliques(marks: BoolArray, nodes: IntArray, largest: int) -> tuple[Members, IntArray]:
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
def around(graph: Graph, y: int) -> tuple[IntArray, IntArray]:
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
def merged(one: IntArray, two: Members, size: int, left_out: int) -> Members:
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
def is_among(operators: IntArray, row: int, x: int) -> bool:
    """Whether an operator (row, x) is among some, shape (m, 2)."""
    for k in range(len(operators)):  # noqa: SIM110 - compiled code knows no any()
        if operators[k, 0] == row and operators[k, 1] == x:
            return True
    return False


@compiled
def first_largest(gains: FloatArray) -> int:
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
def affected(graph: Graph, x: int, y: int) -> IntArray:
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


VALID, BLOCKED = 0, 1


@compiled
def _num_adjacent(graph: Graph, y: int, neighbours: IntArray, insertable: BoolArray) -> IntArray:
    """Return |NA_yx| for each x that an Insert into y may take; -1 for the others."""
    d = len(graph.degrees)
    result = np.zeros(d, dtype=np.int64)
    for z in neighbours:
        for k in range(graph.degrees[z]):
            result[graph.lists[z, k]] += 1
    for x in range(d):
        if not insertable[x, y]:
            result[x] = -1
    result[y] = -1
    for k in range(graph.degrees[y]):
        result[graph.lists[y, k]] = -1
    return result


@compiled
def _clique_adjacent(graph: Graph, clique: Members, size: int) -> IntArray:
    """Return how many nodes of a clique each node is adjacent to."""
    result = np.zeros(len(graph.degrees), dtype=np.int64)
    for m in range(size):
        for k in range(graph.degrees[clique[m]]):
            result[graph.lists[clique[m], k]] += 1
    return result


@compiled
def missing_inserts(
    graph: Graph,
    families: Families,
    nodes: IntArray,
    insertable: BoolArray,
    max_parents: int,
    rows: IntArray,
    wanted: BoolArray,
) -> int:
    """List the gains that the Inserts into some nodes need and that are not known.

    Writes families into ``rows`` (m,) and which x of each into ``wanted`` (m, d); enters them.

    Returns
    -------
    int
        How many; FULL if the table of families has no room, OVERFLOW if ``rows`` has none.
    """
    count = 0
    for y in nodes:
        parents, neighbours = around(graph, y)
        adjacent = _num_adjacent(graph, y, neighbours, insertable)
        sets, sizes = cliques(graph.marks, neighbours, max_parents - 1 - len(parents))
        if len(parents) >= max_parents:
            continue
        for c in range(len(sizes)):
            members = merged(parents, sets[c], sizes[c], -1)
            row = enter(families, y, members, len(members))
            if row == FULL:
                return FULL
            if count == len(rows):
                return OVERFLOW
            inside = _clique_adjacent(graph, sets[c], sizes[c])
            any_wanted = False
            for x in range(len(adjacent)):
                need = adjacent[x] == inside[x] and math.isnan(families.gains[row, x])
                wanted[count, x] = need
                any_wanted = any_wanted or need
            if any_wanted:
                rows[count] = row
                count += 1
    return count


@compiled
def best_inserts(
    graph: Graph,
    families: Families,
    nodes: IntArray,
    insertable: BoolArray,
    max_parents: int,
    banned: IntArray,
    best: Best,
) -> None:
    """Find the best Insert into each of some nodes, of those that are not known to be blocked.

    The gains are known. Whether a path blocks the operator is looked at when it is the best of all,
    by `next_insert`: few ever are.

    ``banned`` (m, 2) lists operators (row, x) that background knowledge forbids.
    """
    for y in nodes:
        best.gains[y] = 0.0
        parents, neighbours = around(graph, y)
        if len(parents) >= max_parents:
            continue
        adjacent = _num_adjacent(graph, y, neighbours, insertable)
        sets, sizes = cliques(graph.marks, neighbours, max_parents - 1 - len(parents))
        rows = np.empty(len(sizes), dtype=np.int64)
        for c in range(len(sizes)):
            members = merged(parents, sets[c], sizes[c], -1)
            rows[c] = find(families, y, members, len(members))
        excluded = np.zeros((len(sizes), len(adjacent)), dtype=np.bool_)
        _exclude(excluded, rows, best.blocked[y, : best.num_blocked[y]])
        _exclude(excluded, rows, banned)
        for c in range(len(sizes)):
            inside = _clique_adjacent(graph, sets[c], sizes[c])
            for x in range(len(adjacent)):
                gain = families.gains[rows[c], x]
                if not gain > best.gains[y] + TOLERANCE:
                    continue
                if adjacent[x] == inside[x] and not excluded[c, x]:
                    best.gains[y], best.others[y], best.rows[y] = gain, x, rows[c]


@compiled
def _exclude(excluded: BoolArray, rows: IntArray, operators: IntArray) -> None:
    """Mark operators (row, x) among the candidates (clique, x)."""
    for k in range(len(operators)):
        for c in range(len(rows)):
            if rows[c] == operators[k, 0]:
                excluded[c, operators[k, 1]] = True


@compiled
def next_insert(graph: Graph, families: Families, best: Best) -> tuple[int, int]:
    """Return the node with the best Insert (-1: none), and whether it is valid.

    Returns
    -------
    y : int
    status : int
        VALID; BLOCKED, and now noted as such: another operator of y is to be found; FULL: there is
        no room for the note.
    """
    y = first_largest(best.gains)
    if y < 0:
        return y, VALID
    d = len(graph.degrees)
    closed = np.zeros(d, dtype=np.bool_)
    row, x = best.rows[y], best.others[y]
    for k in range(families.sizes[row]):
        z = families.members[row, k]
        closed[z] = graph.marks[y, z] and graph.marks[z, y]
    if not open_path(graph.marks, graph.lists, graph.degrees, y, x, closed):
        return y, VALID
    if best.num_blocked[y] == best.blocked.shape[1]:
        return y, FULL
    best.blocked[y, best.num_blocked[y], 0] = row
    best.blocked[y, best.num_blocked[y], 1] = x
    best.num_blocked[y] += 1
    return y, BLOCKED


@compiled
def choose_insert(
    graph: Graph,
    families: Families,
    nodes: IntArray,
    insertable: BoolArray,
    max_parents: int,
    banned: IntArray,
    best: Best,
) -> tuple[int, int]:
    """Return the node with the best valid Insert (-1: none) after some nodes have changed.

    Returns
    -------
    y : int
    status : int
        VALID, or FULL if there is no room to note a blocked operator.
    """
    best_inserts(graph, families, nodes, insertable, max_parents, banned, best)
    again = np.empty(1, dtype=np.int64)
    while True:
        y, status = next_insert(graph, families, best)
        if status != BLOCKED:
            return y, status
        again[0] = y
        best_inserts(graph, families, again, insertable, max_parents, banned, best)


@compiled
def apply_insert(graph: Graph, families: Families, x: int, y: int, row: int) -> bool:
    """Apply Insert(x, y, T) with the T of a family (y, Pa + K); False where it has no extension."""
    marks = graph.marks
    for k in range(families.sizes[row]):
        t = families.members[row, k]
        if marks[y, t] and not (marks[x, t] or marks[t, x]):
            marks[y, t] = False
    marks[x, y] = True
    join(graph.lists, graph.degrees, x, y)
    return recomplete(graph)


@compiled
def missing_deletes(
    graph: Graph,
    families: Families,
    nodes: IntArray,
    removable: BoolArray,
    rows: IntArray,
    wanted: BoolArray,
) -> int:
    """List the gains that the Deletes of edges into some nodes need; see `missing_inserts`."""
    count = 0
    for y in nodes:
        parents, neighbours = around(graph, y)
        for k in range(graph.degrees[y]):
            x = graph.lists[y, k]
            if not (graph.marks[x, y] and removable[x, y]):
                continue
            sets, sizes = cliques(graph.marks, _common(graph, neighbours, x), len(graph.degrees))
            for c in range(len(sizes)):
                members = merged(parents, sets[c], sizes[c], x)
                row = enter(families, y, members, len(members))
                if row == FULL:
                    return FULL
                if not math.isnan(families.gains[row, x]):
                    continue
                if count == len(rows):
                    return OVERFLOW
                rows[count] = row
                wanted[count] = False
                wanted[count, x] = True
                count += 1
    return count


@compiled
def _common(graph: Graph, neighbours: IntArray, x: int) -> IntArray:
    """Return NA_yx from the undirected neighbours of y."""
    result = np.empty(len(neighbours), dtype=np.int64)
    count = 0
    for z in neighbours:
        if z != x and (graph.marks[x, z] or graph.marks[z, x]):
            result[count] = z
            count += 1
    return result[:count]


@compiled
def best_deletes(
    graph: Graph,
    families: Families,
    nodes: IntArray,
    removable: BoolArray,
    banned: IntArray,
    best: Best,
) -> None:
    """Find the best Delete of an edge into each of some nodes; their gains are known."""
    for y in nodes:
        best.gains[y] = 0.0
        parents, neighbours = around(graph, y)
        for k in range(graph.degrees[y]):
            x = graph.lists[y, k]
            if not (graph.marks[x, y] and removable[x, y]):
                continue
            sets, sizes = cliques(graph.marks, _common(graph, neighbours, x), len(graph.degrees))
            for c in range(len(sizes)):
                members = merged(parents, sets[c], sizes[c], x)
                row = find(families, y, members, len(members))
                gain = -families.gains[row, x]
                if gain > best.gains[y] + TOLERANCE and not is_among(banned, row, x):
                    best.gains[y], best.others[y], best.rows[y] = gain, x, row


@compiled
def next_delete(best: Best) -> int:
    """Return the node with the best Delete, -1 if none improves."""
    return first_largest(best.gains)


@compiled
def apply_delete(graph: Graph, families: Families, x: int, y: int, row: int) -> bool:
    """Apply Delete(x, y, H) with the H of a family (y, Pa + C); False where it has no extension."""
    marks = graph.marks
    _, neighbours = around(graph, y)
    for h in _common(graph, neighbours, x):
        kept = False
        for k in range(families.sizes[row]):
            kept = kept or families.members[row, k] == h
        if not kept:
            marks[h, y] = False
            if marks[x, h] and marks[h, x]:
                marks[h, x] = False
    marks[x, y] = marks[y, x] = False
    graph.dag[x, y] = graph.dag[y, x] = False
    part(graph.lists, graph.degrees, x, y)
    return recomplete(graph)


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


def unknown_gains(families: Families, turns: Sequence[Turn]) -> tuple[IntArray, BoolArray]:
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


def turn_gains(families: Families, turns: Sequence[Turn]) -> FloatArray:
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

"""The operators of GES: how they are listed, chosen and applied.

The search moves among equivalence classes of DAGs, given as CPDAGs. Names are those of Chickering
(2002), for Turn those of Hauser & Bühlmann (2012). For a node y of a CPDAG, ``Pa`` (``Pa_y``) are
its parents, ``ne(y)`` its undirected neighbours, and ``NA_yx`` the neighbours adjacent to x.

- Insert(x, y, T), Theorem 15: x and y not adjacent, T among the undirected neighbours of y that are
  not adjacent to x. Valid if ``K = NA_yx + T`` is a clique and every semi-directed path from y to x
  meets it. Gains ``s(y | Pa + K + x) - s(y | Pa + K)`` (Corollary 16).
- Delete(x, y, H), Theorem 17: x -> y or x - y, H a subset of ``NA_yx``. Valid if ``C = NA_yx - H``
  is a clique. Gains ``s(y | Pa + C - x) - s(y | Pa + C + x)`` (Corollary 18).
- Turn(x, y, C) replaces an edge y -> x or x - y by x -> y, where C, a clique in ``ne(y) - x``,
  holds the neighbours that become parents of y. It is valid

  - for y -> x (Proposition 34) if C holds all of ``NA_yx``, and every semi-directed path from y to
    x except the edge itself meets ``C + ne(x)``; it gains
    ``s(y | Pa_y + C + x) - s(y | Pa_y + C) - s(x | Pa_x) + s(x | Pa_x - y)``;
  - for x - y (Proposition 31, with the third condition of Algorithm 5) if C holds a node that is
    not adjacent to x, and every path of undirected edges from C to the rest of ``NA_yx`` meets x or
    y; it gains
    ``s(y | Pa_y + C + x) - s(y | Pa_y + C) - s(x | D + y) + s(x | D)`` with
    ``D = Pa_x + (C and NA_yx)``.

Since the gain of Insert (Delete) depends on K (C) only, operators are enumerated by cliques.

Equivalent operators have equal gains. Such ties are broken by the numbers of the nodes: the
smallest y first, then the smallest clique, then the smallest x (of Deletes x, then the clique).
Gains that :func:`exceeds` does not tell apart are equal, since the same score summed in another
order differs in its last digits.

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

from flwr_causal.core.compiled import compiled_in_place, compiled_inside
from flwr_causal.core.discrete.families import FULL, Families, enter, row_of
from flwr_causal.core.ges.cpdag import Graph, graph_of, join, open_path, part, recomplete
from flwr_causal.core.limits import check_deadline
from flwr_causal.core.ties import GAIN_TIE, TIE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray, Integer

# A node with more cliques of neighbours than this cannot be searched: their number doubles with
# each further neighbour that is joined to all others, and so do memory and time. A clique of 17
# nodes takes two minutes and 2 GB.
MOST_CLIQUES = 1 << 16

#: Results of :func:`choose` beside FULL: an operator, missing gains, or which array is too short.
CHOSEN, MISSING, NO_ROWS, NO_CLIQUES, NO_BLOCKED = 0, -1, -3, -4, -5


class BestOperators(NamedTuple):
    """The best operator at each node y, as far as it is known.

    Attributes
    ----------
    gains : ndarray of float64, shape (d,)
        Gain of the best operator; 0 if none improves the score.
    others : ndarray of int64, shape (d,)
        x.
    rows : ndarray of int64, shape (d,)
        The family (y, Pa + K), or (y, Pa + C).
    blocked : ndarray of int64, shape (d, 2 B)
        Inserts that a semi-directed path makes invalid: row, x, row, x, ... Further Inserts never
        make them valid: the path means that x and y depend on each other given S in the present
        class, an Insert removes no dependence, and a valid Insert of x and y needs them to be
        independent given S.
    num_blocked : ndarray of int64, shape (d,)
    """

    gains: FloatArray
    others: IntArray
    rows: IntArray
    blocked: IntArray
    num_blocked: IntArray


class OperatorRoom(NamedTuple):
    """Arrays that :func:`choose` fills.

    Attributes
    ----------
    rows : ndarray of int64, shape (m,)
        Families of which gains are missing.
    wanted : ndarray of bool, shape (m, d)
        Which gains.
    cliques : ndarray of int64, shape (c, 3)
        Each clique among the undirected neighbours of a node: the clique without its last member,
        the position of that member, and the size. The empty one is first; sizes ascend, then nodes.
    """

    rows: IntArray
    wanted: BoolArray
    cliques: IntArray


def nothing_best(num_variables: int, room: int = 16) -> BestOperators:
    """Return the state before any operator is evaluated."""
    return BestOperators(
        np.zeros(num_variables),
        np.zeros(num_variables, dtype=np.int64),
        np.zeros(num_variables, dtype=np.int64),
        np.zeros((num_variables, 2 * room), dtype=np.int64),
        np.zeros(num_variables, dtype=np.int64),
    )


def with_room(best: BestOperators) -> BestOperators:
    """Return the state with room for twice as many blocked operators."""
    return best._replace(blocked=np.concatenate([best.blocked, best.blocked], axis=1))


def room_for(num_variables: int, rows: int = 64, cliques: int = 64) -> OperatorRoom:
    """Return room for some families and some cliques."""
    return OperatorRoom(
        np.zeros(rows, dtype=np.int64),
        np.zeros((rows, num_variables), dtype=np.bool_),
        np.zeros((cliques, 3), dtype=np.int64),
    )


def more_room(room: OperatorRoom, status: Integer) -> OperatorRoom:
    """Return the arrays with twice the length of the one that was too short.

    Raises
    ------
    OverflowError
        For more than MOST_CLIQUES cliques.
    """
    if status == NO_ROWS:
        return room_for(room.wanted.shape[1], 2 * len(room.rows), len(room.cliques))
    if len(room.cliques) >= MOST_CLIQUES:
        raise OverflowError("too many cliques")
    return room_for(room.wanted.shape[1], len(room.rows), 2 * len(room.cliques))


@compiled_in_place
def exceeds(gain: float, other: float) -> bool:
    """Whether a gain is larger than another one, which is not negative, by more than rounding."""
    return gain > other + (TIE * gain if TIE * gain > GAIN_TIE else GAIN_TIE)


@compiled_in_place
def choose(
    insert: bool,
    graph: Graph,
    families: Families,
    nodes: IntArray,
    allowed: BoolArray,
    max_parents: int,
    banned: IntArray,
    best: BestOperators,
    room: OperatorRoom,
) -> tuple[Integer, Integer]:
    """Evaluate the operators of some nodes again, and find the best operator of all nodes.

    The condition on paths is tested only for the Insert that would be chosen, which saves most of
    these tests.

    Parameters
    ----------
    insert : bool
        Whether to evaluate Inserts; otherwise Deletes.
    nodes : ndarray of int64
        The y whose operators may have changed.
    allowed : ndarray of bool, shape (d, d)
        ``[x, y]``: whether an edge between x and y may be inserted (deleted).
    max_parents : int
        Largest number of parents of y after an Insert.
    banned : ndarray of int64, shape (m, 2)
        Operators (row, x) that background knowledge forbids.

    Returns
    -------
    status : int
        CHOSEN; MISSING: the caller fills in the gains that ``room`` lists, and calls again; FULL
        (families), NO_ROWS, NO_CLIQUES, NO_BLOCKED: the caller enlarges that array and calls again.
    number : int
        CHOSEN: the node with the best operator, -1 if none improves. MISSING: how many families.
    """
    # To numba a literal 0 or -1 is a type of its own, for which callees are compiled again.
    none, count, looked = np.int64(-1), np.int64(0), 0
    marks, lists, degrees, work = graph.marks, graph.lists, graph.degrees, graph.work
    rows, wanted, cliques = room.rows, room.wanted, room.cliques
    d = len(degrees)
    # adjacent[x]: |NA_yx|, negative if x cannot be inserted; inside[x]: how many nodes of a clique
    # are adjacent to x; closed: the nodes that a path may not visit.
    adjacent, inside, closed = work[0], work[1], work[0]
    parents, neighbours, members = work[2], work[3], work[4]
    while True:
        if looked < len(nodes):
            y = nodes[looked]
            looked += 1
        else:
            if count > 0:
                return MISSING, count
            y, highest = none, 0.0
            for node in range(d):
                if exceeds(best.gains[node], highest):
                    y, highest = node, best.gains[node]
            if y < 0 or not insert:
                return CHOSEN, y
            row, x = best.rows[y], best.others[y]
            for node in range(d):
                closed[node] = 0
            for k in range(families.sizes[row]):
                z = families.members[row, k]
                if marks[y, z] and marks[z, y]:
                    closed[z] = 1
            if not open_path(graph, y, x):
                return CHOSEN, y
            k = 2 * best.num_blocked[y]
            if k == best.blocked.shape[1]:
                return NO_BLOCKED, y
            best.blocked[y, k] = row
            best.blocked[y, k + 1] = x
            best.num_blocked[y] += 1
        best.gains[y] = 0.0
        num_parents, num_neighbours = 0, np.int64(0)
        for k in range(degrees[y]):
            z = lists[y, k]
            if marks[z, y]:
                if marks[y, z]:
                    neighbours[num_neighbours] = z
                    num_neighbours += 1
                else:
                    parents[num_parents] = z
                    num_parents += 1
        largest: Integer = num_neighbours
        if insert:
            largest = max_parents - 1 - num_parents
            if largest < 0:
                continue
            for x in range(d):
                adjacent[x] = 0 if allowed[x, y] and x != y else -d
            for j in range(num_neighbours):
                z = neighbours[j]
                for k in range(degrees[z]):
                    adjacent[lists[z, k]] += 1
            for k in range(degrees[y]):
                adjacent[lists[y, k]] = -1
        total = _list_cliques(marks, neighbours, num_neighbours, largest, cliques)
        if total == NO_CLIQUES:
            return NO_CLIQUES, y
        # Inserts are ordered by the clique, then by x; Deletes by x, then by the clique.
        for k in range(1 if insert else degrees[y]):
            left_out = -1 if insert else lists[y, k]
            if not insert and not (marks[left_out, y] and allowed[left_out, y]):
                continue
            for clique in range(total):
                c = clique
                if insert:
                    for x in range(d):
                        inside[x] = 0
                while c > 0:
                    z = neighbours[cliques[c, 1]]
                    if insert:
                        for m in range(degrees[z]):
                            inside[lists[z, m]] += 1
                    elif z == left_out or not (marks[z, left_out] or marks[left_out, z]):
                        break
                    c = cliques[c, 0]
                if c > 0:
                    continue
                # The parents without x, and the clique, from the largest node to the smallest.
                size = num_parents + cliques[clique, 2]
                if not insert and not marks[y, left_out]:
                    size -= 1
                c, p, slot = clique, num_parents - 1, size - 1
                while slot >= 0:
                    if c > 0 and (p < 0 or parents[p] < neighbours[cliques[c, 1]]):
                        z = neighbours[cliques[c, 1]]
                        c = cliques[c, 0]
                    else:
                        z = parents[p]
                        p -= 1
                    if z != left_out:
                        members[slot] = z
                        slot -= 1
                row = enter(families, y, members, size)
                if row == FULL:
                    return FULL, y
                missing = False
                for x in range(0 if insert else left_out, d if insert else left_out + 1):
                    if insert and adjacent[x] != inside[x]:
                        continue
                    gain = families.gains[row, x]
                    if math.isnan(gain):
                        if not missing:
                            if count == len(rows):
                                return NO_ROWS, y
                            rows[count] = row
                            for m in range(d):
                                wanted[count, m] = False
                            missing = True
                        wanted[count, x] = True
                        continue
                    if not insert:
                        gain = -gain
                    if exceeds(gain, best.gains[y]) and _permitted(best, banned, y, x, row):
                        best.gains[y] = gain
                        best.others[y] = x
                        best.rows[y] = row
                if missing:
                    count += 1


@compiled_inside
def _list_cliques(
    marks: BoolArray,
    neighbours: IntArray,
    num_neighbours: Integer,
    largest: Integer,
    cliques: IntArray,
) -> Integer:
    """List the cliques of at most ``largest`` neighbours; return how many, or NO_CLIQUES."""
    cliques[0, 1] = -1
    cliques[0, 2] = 0
    total, head = 1, 0
    while head < total:
        # Each further clique is an earlier clique with one more, larger node.
        for j in range(cliques[head, 1] + 1, num_neighbours if cliques[head, 2] < largest else 0):
            node = neighbours[j]
            c = head
            while c > 0:
                z = neighbours[cliques[c, 1]]
                if not (marks[node, z] or marks[z, node]):
                    break
                c = cliques[c, 0]
            if c == 0:
                if total == len(cliques):
                    return NO_CLIQUES
                cliques[total, 0] = head
                cliques[total, 1] = j
                cliques[total, 2] = cliques[head, 2] + 1
                total += 1
        head += 1
    return total


@compiled_inside
def _permitted(best: BestOperators, banned: IntArray, y: Integer, x: Integer, row: Integer) -> bool:
    """Whether neither background knowledge nor an open path forbids an operator."""
    for m in range(len(banned)):
        if banned[m, 0] == row and banned[m, 1] == x:
            return False
    for m in range(0, 2 * best.num_blocked[y], 2):
        if best.blocked[y, m] == row and best.blocked[y, m + 1] == x:
            return False
    return True


def apply_insert(graph: Graph, families: Families, x: int, y: int, row: int) -> bool:
    """Apply Insert(x, y, T) with the T of a family (y, Pa + K); False where it has no extension."""
    marks = graph.marks
    for t in families.members[row, : families.sizes[row]].tolist():
        if marks[y, t] and not (marks[x, t] or marks[t, x]):
            marks[y, t] = False
    marks[x, y] = True
    join(graph, x, y)
    return recomplete(graph, x, y)


def apply_delete(graph: Graph, families: Families, x: int, y: int, row: int) -> bool:
    """Apply Delete(x, y, H) with the H of a family (y, Pa + C); False where it has no extension."""
    marks = graph.marks
    kept = families.members[row, : families.sizes[row]].tolist()
    for h in graph.lists[y, : graph.degrees[y]].tolist():
        common = marks[h, y] and marks[y, h] and (marks[x, h] or marks[h, x])
        if common and h != x and h not in kept:
            marks[h, y] = False
            if marks[x, h] and marks[h, x]:
                marks[h, x] = False
    marks[x, y] = marks[y, x] = False
    graph.dag[x, y] = graph.dag[y, x] = False
    part(graph, x, y)
    return recomplete(graph, x, y)


class Turn(NamedTuple):
    """One Turn.

    Attributes
    ----------
    x, y : int
        The edge becomes x -> y.
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
    """Return the Turns that meet all conditions but those on paths, and the table of families.

    They are ordered by y, then by size and nodes of the clique, then by x.
    """
    found = []
    parents = [
        np.flatnonzero(graph.marks[:, node] & ~graph.marks[node]).tolist()
        for node in range(len(graph.degrees))
    ]
    for y in range(len(graph.degrees)):
        check_deadline()
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
    """Return the families, (m,), of which turns need unknown gains, and a mask of them, (m, d)."""
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
    """Return the gain of each Turn, shape (m,); the gains of its families must be known."""
    pairs = [
        families.gains[turn.row_y, turn.x] - families.gains[turn.row_x, turn.y] for turn in turns
    ]
    return np.array(pairs, dtype=np.float64)


def is_valid(graph: Graph, turn: Turn) -> bool:
    """Whether one of the :func:`possible_turns` also meets its condition on paths."""
    if graph.marks[turn.x, turn.y]:
        return _separated(graph, turn)
    graph.work[0] = graph.marks[turn.x] & graph.marks[:, turn.x]
    graph.work[0, list(turn.clique)] = 1
    marks = graph.marks.copy()
    marks[turn.y, turn.x] = False
    return not open_path(graph._replace(marks=marks), turn.y, turn.x)


def turned(graph: Graph, turn: Turn) -> Graph:
    """Return the class after a valid Turn; the given graph is not changed."""
    marks = graph.marks.copy()
    marks[turn.y, [turn.x, *turn.clique]] = False
    marks[turn.x, turn.y] = True
    result = graph_of(marks, graph.distinguished)
    if result is None:
        raise AssertionError(f"Turn of {turn.x} and {turn.y} left a graph without an extension")
    return result


def _cliques_and_causes(graph: Graph, y: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield C and x of every Turn at y that meets the conditions on cliques."""
    neighbours = np.flatnonzero(graph.marks[:, y] & graph.marks[y]).tolist()
    beside = graph.lists[y, : graph.degrees[y]].tolist()
    causes = [x for x in beside if graph.marks[y, x]]
    common = {x: {z for z in neighbours if _adjacent(graph, x, z)} for x in causes}
    for clique in _cliques(graph, neighbours):
        for x in causes:
            shared = common[x].intersection(clique)
            if graph.marks[x, y]:
                possible = x not in clique and len(shared) < len(clique)
            else:
                possible = len(shared) == len(common[x])
            if possible:
                yield clique, x


def _cliques(graph: Graph, nodes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all cliques among some ascending nodes: sizes ascend, then nodes do."""
    level: list[tuple[int, ...]] = [()]
    count = 0
    while level:
        count += len(level)
        if count > MOST_CLIQUES:
            raise OverflowError("too many cliques")
        yield from level
        level = [
            (*clique, node)
            for clique in level
            for node in nodes
            if (not clique or node > clique[-1])
            and all(_adjacent(graph, node, member) for member in clique)
        ]


def _separated(graph: Graph, turn: Turn) -> bool:
    """Whether every undirected path from C to the rest of NA_yx meets x or y."""
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

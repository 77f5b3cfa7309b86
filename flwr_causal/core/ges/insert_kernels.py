"""The Insert operator of GES, compiled; the operators are defined in `search_state`."""

from __future__ import annotations

import math

import numpy as np

from flwr_causal.core.compiled import compiled
from flwr_causal.core.discrete.families import FULL, Families, Ints, Members, enter, find
from flwr_causal.core.ges.class_kernels import join, open_path
from flwr_causal.core.ges.search_state import (
    OVERFLOW,
    TOLERANCE,
    Best,
    BoolMatrix,
    Graph,
    around,
    cliques,
    first_largest,
    merged,
    recomplete,
)

VALID, BLOCKED = 0, 1


@compiled
def _num_adjacent(graph: Graph, y: int, neighbours: Ints, insertable: BoolMatrix) -> Ints:
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
def _clique_adjacent(graph: Graph, clique: Members, size: int) -> Ints:
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
    nodes: Ints,
    insertable: BoolMatrix,
    max_parents: int,
    rows: Ints,
    wanted: BoolMatrix,
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
    nodes: Ints,
    insertable: BoolMatrix,
    max_parents: int,
    banned: Ints,
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
def _exclude(excluded: BoolMatrix, rows: Ints, operators: Ints) -> None:
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
    nodes: Ints,
    insertable: BoolMatrix,
    max_parents: int,
    banned: Ints,
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

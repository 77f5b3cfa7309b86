"""The Delete operator of GES, compiled; the operators are defined in `search_state`."""

from __future__ import annotations

import math

import numpy as np

from flwr_causal.core.compiled import compiled
from flwr_causal.core.discrete.families import FULL, Families, Ints, enter, find
from flwr_causal.core.ges.class_kernels import part
from flwr_causal.core.ges.search_state import (
    OVERFLOW,
    TOLERANCE,
    Best,
    BoolMatrix,
    Graph,
    around,
    cliques,
    first_largest,
    is_among,
    merged,
    recomplete,
)


@compiled
def missing_deletes(
    graph: Graph,
    families: Families,
    nodes: Ints,
    removable: BoolMatrix,
    rows: Ints,
    wanted: BoolMatrix,
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
def _common(graph: Graph, neighbours: Ints, x: int) -> Ints:
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
    nodes: Ints,
    removable: BoolMatrix,
    banned: Ints,
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

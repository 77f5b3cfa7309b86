"""Compiled inner loops of graph fusion: the greedy order and the Bayes ball.

Graphs come stacked (``core.stacked_dags``). The greedy order changes its graphs, and these become
dense where they disagree. It keeps them as bits, ``parents[g, p]`` and ``children[g, p]`` being
the sets of position ``p``, where positions count along a topological order of graph ``g``. Turning
a variable into a sink adds edges among its ancestors and children only along that order, so that
one order serves until the last variable is gone, and no search for paths is needed to find the
edge to be reversed next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Bits = NDArray[np.uint64]
    Indices = NDArray[np.int64]

WORD = 64


@compiled
def _popcount(word: np.uint64) -> int:
    """Return the number of ones in a word (the compiler knows this idiom: one instruction)."""
    pairs = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    low = np.uint64(0x3333333333333333)
    fours = (pairs & low) + ((pairs >> np.uint64(2)) & low)
    bytewise = (fours + (fours >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int(np.int64((bytewise * np.uint64(0x0101010101010101)) >> np.uint64(56)))


@compiled
def _lowest(word: np.uint64) -> int:
    """Return the position of the lowest one in a word that is not zero."""
    return _popcount(~word & (word - np.uint64(1)))


@compiled
def _sink_cost(parents: Bits, children: Bits, v: int, met: Bits) -> int:
    """Count the edges to reverse and to add for position ``v`` to become a sink.

    As in the paper the parents are those of the present graph: what the reversal of one edge adds
    is not yet there when the next one is counted. ``met`` is room for one set.
    """
    own = v // WORD + 1
    cost = 0
    met[:] = 0
    for word in range(v // WORD, len(met)):
        left = children[v, word]
        while left:
            child = WORD * word + _lowest(left)
            left &= left - np.uint64(1)
            cost += 1
            for k in range(own):
                cost += _popcount(parents[v, k] & ~parents[child, k])
            for k in range(word + 1):
                met[k] |= parents[child, k]
    if cost == 0:
        return 0
    for k in range(len(met)):
        cost += _popcount(met[k] & ~parents[v, k] & ~children[v, k])
    return cost - 1  # v itself is among the parents of its children


@compiled
def remove_as_sink(parents: Bits, children: Bits, v: int, cover: Bits) -> None:
    """Make position ``v`` a sink by covered-edge reversals and remove it from the graph.

    Along the topological order each edge v -> child is covered (both ends get the parents of
    either), then reversed. ``cover`` returns the parents that ``v`` had at its removal: the only
    positions whose cost can have changed.
    """
    cover[:] = parents[v]
    removed = np.uint64(1) << np.uint64(v % WORD)
    for word in range(v // WORD, len(cover)):
        left = children[v, word]
        while left:
            bit = left & (~left + np.uint64(1))
            left ^= bit
            child = WORD * word + _lowest(bit)
            parents[child, v // WORD] &= ~removed
            for k in range(word + 1):
                added = cover[k] & ~parents[child, k]
                cover[k] |= parents[child, k]
                parents[child, k] = cover[k]
                while added:
                    children[WORD * k + _lowest(added), word] |= bit
                    added &= added - np.uint64(1)
            cover[word] |= bit
    for k in range(len(cover)):
        left = cover[k]
        while left:
            children[WORD * k + _lowest(left), v // WORD] &= ~removed
            left &= left - np.uint64(1)
    parents[v] = 0
    children[v] = 0


@compiled
def greedy_order(
    parents: Bits, children: Bits, variables: Indices, before: NDArray[np.bool_]
) -> Indices:
    """Return an order, causes first, by choosing the cheapest sink of all graphs again and again.

    ``variables[g, p]`` is the variable at position ``p`` of graph ``g``. Equal costs go to the
    variable with the smaller number. The bits are used up. ``before`` must be acyclic, shape
    ``(d, d)`` or ``(0, 0)`` for none.
    """
    num_graphs, size, words = parents.shape
    positions = np.empty((num_graphs, size), np.int64)
    costs = np.zeros((num_graphs, size), np.int64)
    total = np.zeros(size, np.int64)
    met, cover = np.empty(words, np.uint64), np.empty(words, np.uint64)
    for g in range(num_graphs):
        for p in range(size):
            positions[g, variables[g, p]] = p
            costs[g, p] = _sink_cost(parents[g], children[g], p, met)
            total[variables[g, p]] += costs[g, p]
    followers = np.zeros(size, np.int64)
    for i in range(len(before)):
        followers[i] = before[i].sum()
    left = np.ones(size, np.bool_)
    order = np.empty(size, np.int64)
    for step in range(size):
        sink = -1
        for v in range(size):
            if left[v] and followers[v] == 0 and (sink < 0 or total[v] < total[sink]):
                sink = v
        order[size - 1 - step] = sink
        left[sink] = False
        for i in range(len(before)):
            followers[i] -= before[i, sink]
        for g in range(num_graphs):
            remove_as_sink(parents[g], children[g], positions[g, sink], cover)
            for word in range(words):
                changed = cover[word]
                while changed:
                    p = WORD * word + _lowest(changed)
                    changed &= changed - np.uint64(1)
                    cost = _sink_cost(parents[g], children[g], p, met)
                    total[variables[g, p]] += cost - costs[g, p]
                    costs[g, p] = cost
    return order


@compiled
def pack(offsets: Indices, targets: Indices, positions: Indices) -> Bits:
    """Return the neighbours of stacked graphs as bits, shape ``(K, d, words)``.

    ``positions[g, v]`` is the place of variable ``v`` of graph ``g``, for rows and for bits.
    """
    num_graphs, size = positions.shape
    bits = np.zeros((num_graphs, size, (size + WORD - 1) // WORD), np.uint64)
    for g in range(num_graphs):
        for v in range(size):
            for edge in range(offsets[g * size + v], offsets[g * size + v + 1]):
                target = positions[g, targets[edge] - g * size]
                bits[g, positions[g, v], target // WORD] |= np.uint64(1) << np.uint64(target % WORD)
    return bits


@compiled
def _bayes_ball(
    v: int,
    first: int,
    rank: Indices,
    graph: tuple[Indices, Indices, Indices, Indices],
    reached: Indices,
    stack: Indices,
) -> int:
    """Send the ball from ``v`` with its predecessors in the order observed (Shachter, 1998).

    The predecessors it reaches are the parents of ``v`` in the minimal I-map. ``graph`` holds
    offsets and targets of the parents, then of the children; ``first`` is the number of the
    graph's first node. ``reached`` returns two entries a variable, 1 for a ball from a child and 1
    for one from a parent, zero before the call; returned is how many entries of ``stack`` name
    the entries to be cleared.
    """
    parent_offsets, parents, child_offsets, children = graph
    end = 0
    for edge in range(parent_offsets[first + v], parent_offsets[first + v + 1]):
        stack[end] = 2 * (parents[edge] - first)
        reached[stack[end]] = 1
        end += 1
    for edge in range(child_offsets[first + v], child_offsets[first + v + 1]):
        stack[end] = 2 * (children[edge] - first) + 1
        reached[stack[end]] = 1
        end += 1
    start = 0
    while start < end:
        u, from_parent = stack[start] // 2, stack[start] % 2
        start += 1
        if u == v:
            continue
        observed = rank[u] < rank[v]
        # Observed nodes send a parent's ball back to all parents and stop a child's; the others
        # send a child's ball anywhere and a parent's on to the children.
        if observed == from_parent:
            for edge in range(parent_offsets[first + u], parent_offsets[first + u + 1]):
                entry = 2 * (parents[edge] - first)
                if not reached[entry]:
                    reached[entry] = 1
                    stack[end] = entry
                    end += 1
        if not observed:
            for edge in range(child_offsets[first + u], child_offsets[first + u + 1]):
                entry = 2 * (children[edge] - first) + 1
                if not reached[entry]:
                    reached[entry] = 1
                    stack[end] = entry
                    end += 1
    return end


@compiled
def count_imap_edges(
    graph: tuple[Indices, Indices, Indices, Indices], num_graphs: int, order: Indices
) -> Indices:
    """Return the edges of the graphs' minimal I-maps for ``order`` as rows cause, effect, count.

    Parameters
    ----------
    graph : tuple of ndarray
        Offsets and targets of the stacked parents, then of the stacked children.
    num_graphs : int
        K, at least 1.
    order : ndarray of int, shape (d,)
        A permutation of the variables, causes first.

    Returns
    -------
    ndarray of int, shape (m, 3)
        Each edge of the union once, by effect along the order, then by cause.
    """
    size = len(order)
    rank = np.empty(size, np.int64)
    for position in range(size):
        rank[order[position]] = position
    reached = np.zeros(2 * size, np.int64)
    stack = np.empty(2 * size, np.int64)
    counts = np.zeros(size, np.int64)
    rows = np.empty((4 * size, 3), np.int64)
    used = 0
    for v in order:
        for g in range(num_graphs):
            end = _bayes_ball(v, g * size, rank, graph, reached, stack)
            for k in range(end):
                u = stack[k] // 2
                # A node reached both ways counts at the first of its two entries.
                if rank[u] < rank[v] and (reached[2 * u] or reached[2 * u + 1]):
                    counts[u] += 1
                reached[2 * u] = 0
                reached[2 * u + 1] = 0
        if used + size > len(rows):
            more = np.empty((2 * len(rows) + size, 3), np.int64)
            more[:used] = rows[:used]
            rows = more
        for u in range(size):
            if counts[u]:
                rows[used, 0], rows[used, 1], rows[used, 2] = u, v, counts[u]
                counts[u] = 0
                used += 1
    return rows[:used].copy()

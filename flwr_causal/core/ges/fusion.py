"""Structural fusion of DAGs (Puerta et al. 2021): one order, an I-map of each DAG, their union.

The graphs of the parties disagree about directions even where they agree about dependence.
:func:`fuse` takes three steps:

1. the greedy heuristic order (GHO) of the variables, which suits all DAGs;
2. for each DAG its minimal I-map along that order: the sparsest DAG along it that claims no
   independence that the DAG does not have;
3. the union of the I-maps' edges, and in how many of them each edge stands.

A DAG is an array of shape ``(m, 2)`` with rows ``[cause, effect]``, or a boolean matrix of shape
``(d, d)`` in which row causes column. Memory is that of the edges plus ``d * d / 4`` bytes a DAG.

The DAGs are stacked as one sparse graph: node ``v`` of DAG ``g`` among ``d`` variables has the
number ``g * d + v``, and the neighbours of node ``u`` are ``targets[offsets[u] : offsets[u + 1]]``,
ascending. Step 1 changes the graphs, and these become dense where they disagree, so that it keeps
them as bits: ``parents[g, p]`` and ``children[g, p]`` are the sets of position ``p``, where
positions count along a topological order of graph ``g``. Making a variable a sink adds edges along
that order only. One topological order therefore serves until the last variable is removed, and no
search for paths is needed to find the edge that is reversed next.

References
----------
Puerta, J. M., Aledo, J. A., Gamez, J. A. & Laborda, J. D. (2021). Efficient and accurate
structural fusion of Bayesian networks. Information Fusion 66.
Torrijos, P., Gamez, J. A. & Puerta, J. M. (2024). FedGES: a federated learning approach for
Bayesian network structure learning. Discovery Science.
Shachter, R. D. (1998). Bayes-ball: the rational pastime. UAI.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.compiled import (
    compiled_in_place,
    compiled_inside,
    count_ones,
    lowest_one,
)
from flwr_causal.core.limits import check_deadline
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from flwr_causal.core.arrays import BoolArray, IntArray

    Edges = NDArray[np.integer[Any]]
    Bits = NDArray[np.uint64]

#: The shares that words stand for, rounded down. "min-cut" is a fusion of its own, see
#: :mod:`flwr_causal.core.ges.min_cut`.
NAMED_SHARES = {"union": 0.0, "c25": 0.25, "c50": 0.5, "min-cut": 0.5}


@dataclass(frozen=True, eq=False)
class Fusion:
    """The union of several DAGs along a common order.

    Attributes
    ----------
    order : ndarray of int64, shape (d,)
        The variables, causes first; every edge points forward in it.
    edges : ndarray of int32, shape (m, 2)
        Rows ``[cause, effect]`` of the union, sorted.
    support : ndarray of int64, shape (m,)
        In how many of the transformed DAGs each edge stands, from 1 to ``num_dags``.
    num_dags : int
        How many DAGs were fused.

    Raises
    ------
    ConfigError
        If an edge points backward in the order.
    """

    order: IntArray
    edges: NDArray[np.int32]
    support: IntArray
    num_dags: int

    def __post_init__(self) -> None:
        cause, effect = np.argsort(self.order)[self.edges.T]
        if (cause >= effect).any():
            raise ConfigError("an edge of the fusion points backward in its order of variables")

    def keep(self, share: str | float) -> NDArray[np.int32]:
        """Return the edges that enough of the DAGs have, shape ``(m, 2)``, sorted.

        Parameters
        ----------
        share : {"union", "c25", "c50"} or float
            See ``needed``.

        Raises
        ------
        ConfigError
            If ``share`` is another word or outside (0, 1].
        """
        return self.edges[self.support >= needed(share, self.num_dags)]


def needed(share: str | float, num_dags: int) -> int:
    """Return how many of the DAGs must have an edge for it to be kept.

    Words round down and numbers round up. ``"c25"`` and ``"c50"``, of the FedGES paper, are
    ``max(1, floor(share * K))``: with five DAGs ``"c50"`` is 2 and ``"c25"`` is 1, as is
    ``"union"``. A number is ``ceil(share * K)``: with five DAGs 0.5 is 3 and 0.25 is 2.

    Parameters
    ----------
    share : {"union", "c25", "c50", "min-cut"} or float
        A fusion of the paper, "min-cut" as "c50", or a number in (0, 1].
    num_dags : int
        K, at least 1.

    Returns
    -------
    int
        From 1 to K.

    Raises
    ------
    ConfigError
        If ``share`` is another word or outside (0, 1].
    """
    if isinstance(share, str):
        if share not in NAMED_SHARES:
            raise ConfigError(
                f"fusion {share!r} is unknown: use one of {', '.join(NAMED_SHARES)} or a number "
                "in (0, 1]"
            )
        return max(1, math.floor(NAMED_SHARES[share] * num_dags))
    if not 0 < share <= 1:
        raise ConfigError(f"the share of DAGs that an edge needs is {share}: it must be in (0, 1]")
    return max(1, math.ceil(share * num_dags - 1e-9))  # 0.1 * 30 is a little more than 3


def fuse(
    dags: Sequence[Edges | BoolArray],
    num_variables: int,
    *,
    ties: ArrayLike | None = None,
    before: BoolArray | None = None,
) -> Fusion:
    """Fuse DAGs over the same variables (Puerta et al., 2021).

    Equal DAGs, and so a single one, come back as they are, unless ``before`` contradicts them.
    The order of the DAGs does not matter.

    Parameters
    ----------
    dags : sequence of ndarray
        Each of shape ``(m, 2)``, integers, rows ``[cause, effect]``; or ``(d, d)``, boolean.
    num_variables : int
        d, at least 1.
    ties : array-like, shape (d,), optional
        Distinct numbers, one a variable: of variables that cost the same, the one with the smallest
        number becomes a sink first. The ranks of the sorted names make the result independent of
        the order of the columns. Default: the variables' own order.
    before : ndarray of bool, shape (d, d), optional
        ``before[i, j]``: i must precede j (required edges, tiers). It need not be transitive.

    Returns
    -------
    Fusion
        The common order, the union of the edges and the support of each; ``keep`` applies a share.

    Raises
    ------
    DataError
        If there is no DAG, or one is cyclic, of the wrong shape, or names a variable outside.
    ConfigError
        If ``ties`` or ``before`` does not fit the variables, or ``before`` is cyclic.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.solvers import fuse
    >>> fusion = fuse([np.array([[0, 1]]), np.array([[1, 2]])], num_variables=3)
    >>> fusion.edges.tolist(), fusion.support.tolist()
    ([[0, 1], [1, 2]], [1, 1])
    """
    variables = _by_ties(ties, num_variables)
    stack = stack_dags(dags, variables)
    order = greedy_order(stack, variables, before)
    edges, support = union_of_imaps(stack, order, variables)
    return Fusion(variables[order], edges, support, len(dags))


def _by_ties(ties: ArrayLike | None, num_variables: int) -> IntArray:
    """Return the variables in the order of ``ties``, which numbers them in the stack."""
    if num_variables < 1:
        raise ConfigError(f"cannot fuse graphs over {num_variables} variables: give at least one")
    if ties is None:
        return np.arange(num_variables)
    ranks = np.asarray(ties)
    if ranks.shape != (num_variables,) or len(np.unique(ranks)) < num_variables:
        raise ConfigError(
            f"ties must be {num_variables} distinct numbers, one a variable, "
            f"not an array of shape {ranks.shape} with {len(np.unique(ranks))} distinct entries"
        )
    return np.argsort(ranks)


def greedy_order(stack: StackedDags, variables: IntArray, before: BoolArray | None) -> IntArray:
    """Return the greedy heuristic order (GHO) in the numbering of the stack, causes first.

    From the last variable to the first: the variable that is the cheapest to make a sink of all
    DAGs is made one, in each DAG by covered-edge reversals, and removed. The cost counts, over all
    DAGs, the edges to its children (to be reversed), for each child the parents of the variable
    that the child lacks, and the parents of children that are not adjacent to the variable. A
    variable that is a sink of all DAGs costs nothing: the order of equal DAGs is one of theirs.
    """
    size = len(variables)
    precedence = np.zeros((0, 0), np.bool_)
    if before is not None:
        checked = _checked_precedence(np.asarray(before), size)
        precedence = np.ascontiguousarray(checked[np.ix_(variables, variables)])
    positions = np.empty_like(stack.topological)
    np.put_along_axis(positions, stack.topological, np.arange(size)[None], axis=1)
    parent_offsets, parents, child_offsets, children = stack.neighbours
    packed = pack(parent_offsets, parents, positions)
    order = np.empty(size, np.int64)
    _order_by_sinks(
        packed,
        pack(child_offsets, children, positions),
        stack.topological,
        precedence,
        np.empty((2 * len(positions) + 3, size), np.int64),
        np.empty((2, packed.shape[2]), np.uint64),
        order,
    )
    return order


def _checked_precedence(before: NDArray[Any], size: int) -> BoolArray:
    """Return ``before`` if it is a boolean matrix that some order satisfies."""
    if before.dtype != np.bool_ or before.shape != (size, size):
        raise ConfigError(
            f"before has shape {before.shape} and type {before.dtype}: it must be a boolean matrix "
            f"of shape ({size}, {size})"
        )
    pairs = np.argwhere(before)
    ordered = topological_order(*sorted_neighbours(pairs, size))
    if len(ordered) < size:
        cycle = find_cycle(pairs, ordered, size)
        raise ConfigError(
            f"no order satisfies before: it has the cycle {' -> '.join(map(str, cycle))}; "
            "drop one of these requirements"
        )
    return before


def union_of_imaps(
    stack: StackedDags, order: IntArray, variables: IntArray
) -> tuple[NDArray[np.int32], IntArray]:
    """Return the edges of the DAGs' minimal I-maps along an order, and how many have each.

    In a minimal I-map the parents of a variable are its Markov boundary among its predecessors: the
    smallest set of them that separates it from the others. One Bayes ball finds it. Edges are
    sorted, in the numbering of ``variables``.
    """
    size = len(order)
    found, work, start = [], np.zeros((3, 2 * size), np.int64), 0
    while start < size:
        check_deadline()
        part = np.empty((4 * size, 3), np.int64)
        start, used = count_imap_edges(
            stack.neighbours, len(stack.topological), order, np.argsort(order), start, part, work
        )
        found.append(part[:used])
    rows = np.concatenate(found)
    edges = variables[rows[:, :2]]
    by_edge = np.lexsort((edges[:, 1], edges[:, 0]))
    return edges[by_edge].astype(np.int32), rows[by_edge, 2]


class StackedDags(NamedTuple):
    """K DAGs over d variables in one numbering, as ``stack_dags`` makes them.

    Attributes
    ----------
    neighbours : tuple of ndarray of int64
        Offsets and targets of the parents, then offsets and targets of the children.
    topological : ndarray of int64, shape (K, d)
        The variables of each DAG, causes first.
    """

    neighbours: tuple[IntArray, IntArray, IntArray, IntArray]
    topological: IntArray


def stack_dags(dags: Sequence[Edges | BoolArray], variables: IntArray) -> StackedDags:
    """Check DAGs and stack them.

    Parameters
    ----------
    dags : sequence of ndarray
        Each of shape ``(m, 2)``, integers, rows ``[cause, effect]``; or ``(d, d)``, boolean.
        Repeated edges count once.
    variables : ndarray of int64, shape (d,)
        A permutation: ``variables[r]`` of the DAGs becomes ``r`` in the stack.

    Raises
    ------
    DataError
        If there is no DAG, or one is cyclic, of the wrong shape, or names a variable outside.
    """
    if len(dags) == 0:
        raise DataError("there is no DAG to fuse: give at least one")
    size, count = len(variables), len(dags) * len(variables)
    renumbered = np.empty(size, np.int64)
    renumbered[variables] = np.arange(size)
    edges = np.concatenate(
        [renumbered[_read(dag, size, f"dags[{g}]")] + g * size for g, dag in enumerate(dags)]
    )
    offsets, children = sorted_neighbours(edges, count)
    topological = topological_order(offsets, children)
    if len(topological) < count:
        cycle = find_cycle(edges, topological, count)
        raise DataError(
            f"dags[{cycle[0] // size}] has the cycle "
            f"{' -> '.join(str(v) for v in variables[cycle % size])}: only DAGs can be fused "
            "(of a CPDAG, take a consistent extension)"
        )
    by_graph = topological[np.argsort(topological // size, kind="stable")]
    return StackedDags(
        (*sorted_neighbours(edges[:, ::-1], count), offsets, children),
        (by_graph % size).reshape(len(dags), size),
    )


def sorted_neighbours(pairs: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return offsets and targets of the edges ``pairs`` among ``count`` nodes, each edge once."""
    codes = np.unique(pairs[:, 0] * count + pairs[:, 1])
    offsets = np.searchsorted(codes, np.arange(count + 1) * count)
    return offsets.astype(np.int64), codes % count


def _read(dag: Edges | BoolArray, size: int, label: str) -> IntArray:
    """Return the edges of either form as int64, shape ``(m, 2)``."""
    array = np.asarray(dag)
    if array.dtype == np.bool_:
        if array.shape != (size, size):
            raise DataError(
                f"{label} has shape {array.shape}: a boolean graph must be ({size}, {size})"
            )
        return np.argwhere(array)
    if array.size == 0:
        return np.empty((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(
            f"{label} has shape {array.shape} and type {array.dtype}: give integer edges of shape "
            "(m, 2), or a boolean matrix"
        )
    edges = array.astype(np.int64)
    outside = edges[(edges < 0) | (edges >= size)]
    if outside.size:
        raise DataError(f"{label} names the variable {outside[0]}: there are only 0 to {size - 1}")
    return edges


def find_cycle(pairs: IntArray, ordered: IntArray, count: int) -> IntArray:
    """Return a cycle of the edges ``pairs``, its first node repeated at the end.

    ``ordered`` are the nodes that ``topological_order`` could order. Each of the others has a
    parent among the others, so that a walk from parent to parent meets a node twice.
    """
    left = np.setdiff1d(np.arange(count), ordered)
    inside = pairs[np.isin(pairs[:, 0], left)]
    parent = dict(zip(inside[:, 1].tolist(), inside[:, 0].tolist(), strict=True))
    path = [int(left[0])]
    while parent[path[-1]] not in path:
        path.append(parent[path[-1]])
    start = path.index(parent[path[-1]])
    return np.array([path[start], *path[:start:-1], path[start]])


def topological_order(offsets: IntArray, children: IntArray) -> IntArray:
    """Return the nodes, causes first; fewer than all of them where there is a cycle.

    The queue is first in, first out: the result depends on the edges alone.
    """
    count = len(offsets) - 1
    waiting = np.bincount(children, minlength=count).tolist()
    begins, targets = offsets.tolist(), children.tolist()
    order = [node for node in range(count) if waiting[node] == 0]
    for node in order:
        for child in targets[begins[node] : begins[node + 1]]:
            waiting[child] -= 1
            if waiting[child] == 0:
                order.append(child)
    return np.array(order, dtype=np.int64)


WORD = 64


@compiled_inside
def _sink_cost(parents: Bits, children: Bits, v: int, met: Bits) -> int:
    """Count the edges to reverse and to add for position ``v`` to become a sink.

    As in the paper, the parents are those of the present graph: edges that the reversal of one edge
    would add are not considered when the next one is counted. ``met`` is room for one set.
    """
    own = v // WORD + 1
    cost = 0
    for k in range(len(met)):
        met[k] = 0
    for word in range(v // WORD, len(met)):
        left = children[v, word]
        while left:
            child = WORD * word + lowest_one(left)
            left &= left - np.uint64(1)
            cost += 1
            for k in range(own):
                cost += count_ones(parents[v, k] & ~parents[child, k])
            for k in range(word + 1):
                met[k] |= parents[child, k]
    if cost == 0:
        return 0
    for k in range(len(met)):
        cost += count_ones(met[k] & ~parents[v, k] & ~children[v, k])
    return cost - 1  # v itself is among the parents of its children


@compiled_in_place
def remove_as_sink(parents: Bits, children: Bits, v: int, cover: Bits) -> None:
    """Make position ``v`` a sink by covered-edge reversals and remove it from the graph.

    Along the topological order each edge v -> child is covered (both ends get the parents of
    either), then reversed. On return ``cover`` holds the parents that ``v`` had when it was
    removed: the only positions whose cost can have changed.
    """
    for k in range(len(cover)):
        cover[k] = parents[v, k]
    removed = np.uint64(1) << np.uint64(v % WORD)
    for word in range(v // WORD, len(cover)):
        left = children[v, word]
        while left:
            bit = left & (~left + np.uint64(1))
            left ^= bit
            child = WORD * word + lowest_one(bit)
            parents[child, v // WORD] &= ~removed
            for k in range(word + 1):
                added = cover[k] & ~parents[child, k]
                cover[k] |= parents[child, k]
                parents[child, k] = cover[k]
                while added:
                    children[WORD * k + lowest_one(added), word] |= bit
                    added &= added - np.uint64(1)
            cover[word] |= bit
    for k in range(len(cover)):
        left = cover[k]
        while left:
            children[WORD * k + lowest_one(left), v // WORD] &= ~removed
            left &= left - np.uint64(1)
    for k in range(len(cover)):
        parents[v, k] = 0
        children[v, k] = 0


@compiled_in_place
def _order_by_sinks(
    parents: Bits,
    children: Bits,
    variables: IntArray,
    before: BoolArray,
    work: IntArray,
    sets: Bits,
    order: IntArray,
) -> None:
    """Write the greedy order: remove the cheapest sink of all graphs until none is left.

    ``variables[g, p]`` is the variable at position ``p`` of graph ``g``. Of variables that cost the
    same, the one with the smallest number is taken. ``parents`` and ``children`` are emptied.
    ``before`` must be acyclic, shape ``(d, d)`` or ``(0, 0)`` for none. ``work``, shape
    ``(2 K + 3, d)``, and ``sets``, shape ``(2, words)``, are room.
    """
    num_graphs, size = variables.shape
    positions, costs = work[:num_graphs], work[num_graphs : 2 * num_graphs]
    # Costs in all graphs, how many variables must follow, whether the variable is left.
    total, followers, left = (
        work[2 * num_graphs],
        work[2 * num_graphs + 1],
        work[2 * num_graphs + 2],
    )
    met, cover = sets[0], sets[1]
    for v in range(size):
        total[v] = 0
        followers[v] = 0
        left[v] = 1
    for i in range(len(before)):
        for v in range(size):
            followers[i] += before[i, v]
    # Step -1 computes the costs of all positions, each further step those that have changed.
    for step in range(-1, size):
        sink = -1
        if step >= 0:
            for v in range(size):
                free = left[v] > 0 and followers[v] == 0
                if free and (sink < 0 or total[v] < total[sink]):
                    sink = v
            order[size - 1 - step] = sink
            left[sink] = 0
            for i in range(len(before)):
                followers[i] -= before[i, sink]
        for g in range(num_graphs):
            if step >= 0:
                remove_as_sink(parents[g], children[g], positions[g, sink], cover)
            for p in range(size):
                if step < 0:
                    positions[g, variables[g, p]] = p
                    costs[g, p] = 0
                elif not cover[p // WORD] >> np.uint64(p % WORD) & np.uint64(1):
                    continue
                cost = _sink_cost(parents[g], children[g], p, met)
                total[variables[g, p]] += cost - costs[g, p]
                costs[g, p] = cost


def pack(offsets: IntArray, targets: IntArray, positions: IntArray) -> Bits:
    """Return the neighbours of stacked graphs as bits, shape ``(K, d, words)``.

    ``positions[g, v]`` is the place of variable ``v`` of graph ``g``, for rows and for bits.
    """
    num_graphs, size = positions.shape
    words = (size + WORD - 1) // WORD
    places = positions.ravel()
    nodes = np.repeat(np.arange(num_graphs * size), np.diff(offsets))
    bits = np.zeros((num_graphs, size, words), np.uint64)
    for g in range(num_graphs):
        edges = slice(offsets[g * size], offsets[(g + 1) * size])
        joined = np.zeros((size, words * WORD), dtype=np.uint8)
        joined[places[nodes[edges]], places[targets[edges]]] = 1
        bits[g] = np.packbits(joined, axis=1, bitorder="little").view("<u8")
    return bits


@compiled_inside
def _bayes_ball(
    v: int,
    first: int,
    rank: IntArray,
    graph: tuple[IntArray, IntArray, IntArray, IntArray],
    reached: IntArray,
    stack: IntArray,
) -> int:
    """Send a Bayes ball from ``v``; its predecessors in the order are observed (Shachter 1998).

    The predecessors that the ball reaches are the parents of ``v`` in the minimal I-map. ``graph``
    holds offsets and targets of the parents, then of the children; ``first`` is the number of the
    graph's first node. ``reached``, zero before the call, has two entries for each variable: 1 if
    the ball came from a child, 1 if it came from a parent. The first entries of ``stack``, as many
    as the call returns, are the places in ``reached`` that the caller must clear.
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
        # An observed node returns a ball from a parent to all parents and stops one from a child.
        # Another node sends a ball from a child to all neighbours, one from a parent to children.
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


@compiled_in_place
def count_imap_edges(
    graph: tuple[IntArray, IntArray, IntArray, IntArray],
    num_graphs: int,
    order: IntArray,
    rank: IntArray,
    start: int,
    rows: IntArray,
    work: IntArray,
) -> tuple[int, int]:
    """Write the edges of the graphs' minimal I-maps for ``order`` as rows cause, effect, count.

    Each edge of the union has one row; rows are sorted by the effect's place, then by cause.

    Parameters
    ----------
    graph : tuple of ndarray
        Offsets and targets of the stacked parents, then of the stacked children.
    num_graphs : int
        K, at least 1.
    order, rank : ndarray of int64, shape (d,)
        A permutation of the variables, causes first, and the place of each.
    start : int
        The place in the order of the first effect.
    rows : ndarray of int64, shape (m, 3)
        At least d rows.
    work : ndarray of int64, shape (3, 2 d)
        Room; the first and the last row are zero before and after.

    Returns
    -------
    next : int
        The first place whose effects had no room, d if all had.
    used : int
        The number of rows written.
    """
    size = len(order)
    reached, stack, counts = work[0], work[1], work[2]
    used = 0
    for place in range(start, size):
        if used + size > len(rows):
            return place, used
        v = order[place]
        for g in range(num_graphs):
            end = _bayes_ball(v, g * size, rank, graph, reached, stack)
            for k in range(end):
                u = stack[k] // 2
                # A node that was reached both ways is counted once: its entries are then cleared.
                if rank[u] < rank[v] and (reached[2 * u] or reached[2 * u + 1]):
                    counts[u] += 1
                reached[2 * u] = 0
                reached[2 * u + 1] = 0
        for u in range(size):
            if counts[u]:
                rows[used, 0] = u
                rows[used, 1] = v
                rows[used, 2] = counts[u]
                counts[u] = 0
                used += 1
    return size, used

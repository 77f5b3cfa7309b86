"""Several DAGs over the same variables as one sparse graph, checked.

Node ``v`` of DAG ``g`` among ``d`` variables has the number ``g * d + v``. Neighbours are lists:
those of node ``u`` are ``targets[offsets[u] : offsets[u + 1]]``, ascending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.compiled import compiled
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Edges = NDArray[np.integer[Any]]
    BoolMatrix = NDArray[np.bool_]
    Indices = NDArray[np.int64]


class StackedDags(NamedTuple):
    """K DAGs over d variables in one numbering, as ``stack_dags`` makes them.

    Attributes
    ----------
    neighbours : tuple of ndarray of int64
        Offsets and targets of the parents, then offsets and targets of the children.
    topological : ndarray of int64, shape (K, d)
        The variables of each DAG, causes first.
    """

    neighbours: tuple[Indices, Indices, Indices, Indices]
    topological: Indices


def stack_dags(dags: Sequence[Edges | BoolMatrix], variables: Indices) -> StackedDags:
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


def sorted_neighbours(pairs: Indices, count: int) -> tuple[Indices, Indices]:
    """Return offsets and targets of the edges ``pairs`` among ``count`` nodes, each edge once."""
    codes = np.unique(pairs[:, 0] * count + pairs[:, 1])
    offsets = np.searchsorted(codes, np.arange(count + 1) * count)
    return offsets.astype(np.int64), codes % count


def _read(dag: Edges | BoolMatrix, size: int, label: str) -> Indices:
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


def find_cycle(pairs: Indices, ordered: Indices, count: int) -> Indices:
    """Return a cycle of the edges ``pairs``, its first node repeated at the end.

    ``ordered`` is what ``topological_order`` could order of the ``count`` nodes: each of the others
    has a parent among the others, so that going from parent to parent runs into a cycle.
    """
    left = np.setdiff1d(np.arange(count), ordered)
    inside = pairs[np.isin(pairs[:, 0], left)]
    parent = dict(zip(inside[:, 1].tolist(), inside[:, 0].tolist(), strict=True))
    path = [int(left[0])]
    while parent[path[-1]] not in path:
        path.append(parent[path[-1]])
    start = path.index(parent[path[-1]])
    return np.array([path[start], *path[:start:-1], path[start]])


@compiled
def topological_order(offsets: Indices, children: Indices) -> Indices:
    """Return the nodes, causes first; fewer than all of them where there is a cycle.

    Nodes become free first in, first out, so that the result depends on the edges alone.
    """
    count = len(offsets) - 1
    waiting = np.zeros(count, np.int64)
    for child in children:
        waiting[child] += 1
    order = np.empty(count, np.int64)
    end = 0
    for node in range(count):
        if waiting[node] == 0:
            order[end] = node
            end += 1
    start = 0
    while start < end:
        for edge in range(offsets[order[start]], offsets[order[start] + 1]):
            child = children[edge]
            waiting[child] -= 1
            if waiting[child] == 0:
                order[end] = child
                end += 1
        start += 1
    return order[:end]

"""Acyclicity of directed graphs: smooth measures, tests, topological order, removal of cycles.

``weights[i, j] != 0`` means that i causes j. Every cycle lies within one strongly connected
component, and an edge between two components lies on no cycle. The smooth measures therefore
evaluate their matrix functions on each component separately: the result is exact, and a sparse
d x d problem becomes a few small ones.

References
----------
Zheng, Aragam, Ravikumar, Xing: DAGs with NO TEARS, NeurIPS 2018.
Bello, Aragam, Ravikumar: DAGMA: learning DAGs via M-matrices and a log-determinant acyclicity
characterization, NeurIPS 2022.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.limits import check_deadline
from flwr_causal.core.ties import first_smallest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# The functions that need scipy.linalg or scipy.sparse import these when called: they take 0.1 s to
# import, `CausalGraph` imports this module, and a SuperNode starts a process for each message.


def h_exponential(weights: FloatArray) -> tuple[float, FloatArray]:
    """Trace-exponential acyclicity ``h(W) = tr exp(W * W) - d`` (Zheng 2018, theorem 1).

    Parameters
    ----------
    weights
        ``(d, d)`` matrix W.

    Returns
    -------
    value, gradient
        ``h(W) >= 0``, zero exactly for a DAG, and ``2 exp(W * W)^T * W`` of shape ``(d, d)``.
        Overflow gives ``inf``.
    """
    from scipy.linalg import expm

    value = 0.0
    gradient = np.zeros_like(weights)
    for block in cyclic_components(weights):
        inner = np.ix_(block, block)
        w = weights[inner]
        with np.errstate(over="ignore", invalid="ignore"):
            exponential = expm(w * w)
            trace = float(np.trace(exponential))
            gradient[inner] = 2.0 * exponential.T * w
        value += (trace if np.isfinite(trace) else np.inf) - len(block)
    return value, gradient


def logdet_block(squares: FloatArray, s: float) -> tuple[float, FloatArray | None]:
    """Return ``k log s - log det(sI - A)`` and ``(sI - A)^{-1}`` for a non-negative matrix A.

    With ``A = W * W`` the value is the log-determinant acyclicity of Bello 2022, theorem 1: zero
    exactly for a DAG. Its gradient is ``2 (sI - W * W)^{-T} * W``.

    Parameters
    ----------
    squares
        ``(k, k)`` matrix A, non-negative.
    s
        Positive number.

    Returns
    -------
    value, inverse
        ``inf`` and ``None`` where ``sI - A`` is not a nonsingular M-matrix, that is, where the
        spectral radius of A is at least s. An invertible ``sI - A`` is an M-matrix exactly if its
        inverse has no negative entry.
    """
    from scipy.linalg.lapack import dgetrf, dgetri

    k = len(squares)
    # One factorisation gives determinant and inverse: this is the innermost loop of DAGMA.
    factors, pivots, info = dgetrf(s * np.eye(k) - squares)
    if info != 0 or not np.isfinite(factors).all():
        return np.inf, None
    diagonal = np.diagonal(factors)
    exchanges = np.count_nonzero(pivots != np.arange(k))
    if (np.count_nonzero(diagonal < 0) + exchanges) % 2:
        return np.inf, None
    log_determinant = float(np.log(np.abs(diagonal)).sum())
    inverse: FloatArray = dgetri(factors, pivots, overwrite_lu=True)[0]
    # Entries that are exactly zero in theory may be slightly negative by rounding.
    if inverse.min() < -1e-12 * inverse.max():
        return np.inf, None
    return k * float(np.log(s)) - log_determinant, inverse


def strong_components(adjacency: ArrayLike) -> IntArray:
    """Return the number of each node's strongly connected component, shape ``(d,)``."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array(np.asarray(adjacency) != 0)
    _, labels = connected_components(graph, directed=True, connection="strong")
    return np.asarray(labels, dtype=np.intp)


def cyclic_components(adjacency: ArrayLike) -> list[IntArray]:
    """Return the strongly connected components that contain a cycle, as ascending node indices.

    These are the components of two or more nodes, and single nodes with an edge to themselves.
    """
    nonzero = np.asarray(adjacency) != 0
    labels = strong_components(nonzero)
    sizes = np.bincount(labels)
    cyclic = sizes > 1
    cyclic[labels[np.diagonal(nonzero)]] = True
    if not cyclic.any():
        return []
    order = np.argsort(labels, kind="stable")
    members = np.split(order, np.cumsum(sizes)[:-1])
    return sorted((members[c] for c in np.flatnonzero(cyclic)), key=lambda block: int(block[0]))


def is_acyclic(adjacency: ArrayLike) -> bool:
    """Whether the ``(d, d)`` adjacency (nonzero means edge) has no directed cycle."""
    nonzero = np.asarray(adjacency) != 0
    if np.diagonal(nonzero).any():
        return False
    return len(np.unique(strong_components(nonzero))) == len(nonzero)


def topological_order(adjacency: ArrayLike, names: Sequence[str] | None = None) -> list[int]:
    """Return the nodes in an order in which every cause precedes its effects.

    Parameters
    ----------
    adjacency : array of shape (d, d)
        Nonzero means edge.
    names : sequence of str, optional
        Of the nodes: they decide ties, so that the order of the columns does not. Default: ties by
        index.

    Raises
    ------
    ValueError
        If the graph has a directed cycle; the message names the nodes on cycles.
    """
    nonzero = np.asarray(adjacency) != 0
    missing_parents = nonzero.sum(axis=0)
    by_tie = np.arange(len(nonzero)) if names is None else np.argsort(names, kind="stable")
    ranks = np.argsort(by_tie)
    ready = sorted(int(ranks[j]) for j in np.flatnonzero(missing_parents == 0))
    order: list[int] = []
    while ready:
        i = int(by_tie[heapq.heappop(ready)])
        order.append(i)
        for j in np.flatnonzero(nonzero[i]):
            missing_parents[j] -= 1
            if missing_parents[j] == 0:
                heapq.heappush(ready, int(ranks[j]))
    if len(order) < len(nonzero):
        nodes = sorted(int(i) for block in cyclic_components(nonzero) for i in block)
        raise ValueError(f"the graph has a directed cycle among the nodes {nodes}")
    return order


def ancestors(adjacency: ArrayLike) -> BoolArray:
    """Return the transitive closure, shape ``(d, d)``: i is an ancestor of j.

    ``closure[i, j]`` is True if a directed path of one or more edges leads from i to j. The graph
    may have cycles; ``closure[i, i]`` is True if i lies on a cycle.
    """
    closure = (np.asarray(adjacency) != 0).astype(np.float32)
    # Each time the paths that are found are twice as long.
    for _ in range(max(len(closure) - 1, 0).bit_length()):
        wider = np.minimum(closure + closure @ closure, 1.0)
        if np.array_equal(wider, closure):
            break
        closure = wider
    return np.asarray(closure > 0)


def break_cycles(weights: FloatArray, required: BoolArray | None = None) -> FloatArray:
    """Remove the weakest edge on a cycle, repeatedly, until the graph is acyclic.

    Parameters
    ----------
    weights
        ``(d, d)`` weights; an edge is removed by setting its weight to zero. Among edges of equal
        strength the one with the smallest (row, column) is removed first.
    required
        ``(d, d)`` mask of edges that are present whatever their weight and are never removed.
        Default: none.

    Returns
    -------
    ndarray of float64, shape (d, d)
        A copy of ``weights`` whose nonzeros, together with ``required``, form a DAG.

    Raises
    ------
    ValueError
        If the required edges alone form a cycle.
    """
    result = np.array(weights, dtype=np.float64)
    keep = np.zeros(result.shape, dtype=bool) if required is None else np.asarray(required, bool)
    pending = cyclic_components((result != 0) | keep)
    while pending:
        check_deadline()
        block = pending.pop()
        inner = np.ix_(block, block)
        removable = (result[inner] != 0) & ~keep[inner]
        if not removable.any():
            raise ValueError(
                "the required edges form a directed cycle among the nodes "
                f"{[int(i) for i in block]}; drop one of them"
            )
        strength = np.where(removable, np.abs(result[inner]), np.inf)
        row, column = np.unravel_index(int(first_smallest(np.log(strength))), strength.shape)
        result[block[row], block[column]] = 0.0
        pending += [block[part] for part in cyclic_components((result[inner] != 0) | keep[inner])]
    return result

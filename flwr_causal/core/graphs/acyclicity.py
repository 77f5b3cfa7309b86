"""Acyclicity of directed graphs: smooth measures of it, tests for it, and repairs.

``weights[i, j] != 0`` means that i causes j. A graph is cyclic exactly when one of its strongly
connected components holds a cycle, and an edge between two different components lies on no cycle.
The smooth measures use that fact: the matrix functions are evaluated on the components
alone, which is exact and turns a d x d problem into a few small ones once the graph is sparse.

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

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# `CausalGraph` imports this module, and a SuperNode starts a process for each message: scipy.linalg
# and scipy.sparse, a tenth of a second, are imported by the functions that call them.


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
    """``k log s - log det(sI - A)`` and ``(sI - A)^{-1}`` for a nonnegative ``(k, k)`` matrix A.

    With ``A = W * W`` this is the acyclicity of Bello 2022, theorem 1: zero exactly for a DAG, its
    gradient ``2 (sI - W * W)^{-T} * W``.

    The inverse is ``None``, and the value ``inf``, where ``sI - A`` is no nonsingular M-matrix,
    that is where the spectral radius of A reaches s. For such matrices this is the same as the
    inverse having a negative entry.
    """
    from scipy.linalg.lapack import dgetrf, dgetri

    k = len(squares)
    # one factorisation serves determinant and inverse, which matters in the innermost loop
    factors, pivots, info = dgetrf(s * np.eye(k) - squares)
    if info != 0 or not np.isfinite(factors).all():
        return np.inf, None
    diagonal = np.diagonal(factors)
    exchanges = np.count_nonzero(pivots != np.arange(k))
    if (np.count_nonzero(diagonal < 0) + exchanges) % 2:
        return np.inf, None
    log_determinant = float(np.log(np.abs(diagonal)).sum())
    inverse: FloatArray = dgetri(factors, pivots, overwrite_lu=True)[0]
    # rounding leaves entries that are exactly zero in theory a little below it
    if inverse.min() < -1e-12 * inverse.max():
        return np.inf, None
    return k * float(np.log(s)) - log_determinant, inverse


def strong_components(adjacency: ArrayLike) -> IntArray:
    """Label each of the d nodes with its strongly connected component, ``(d,)`` integers."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    graph = csr_array(np.asarray(adjacency) != 0)
    _, labels = connected_components(graph, directed=True, connection="strong")
    return np.asarray(labels, dtype=np.intp)


def cyclic_components(adjacency: ArrayLike) -> list[IntArray]:
    """List the strongly connected components that hold a cycle, as ascending node indices.

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


def topological_order(adjacency: ArrayLike) -> list[int]:
    """Order the nodes so that every cause comes before its effects; ties go by index.

    Raises
    ------
    ValueError
        If the graph has a directed cycle; the message names the nodes on cycles.
    """
    nonzero = np.asarray(adjacency) != 0
    missing_parents = nonzero.sum(axis=0)
    ready = [int(j) for j in np.flatnonzero(missing_parents == 0)]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in np.flatnonzero(nonzero[i]):
            missing_parents[j] -= 1
            if missing_parents[j] == 0:
                heapq.heappush(ready, int(j))
    if len(order) < len(nonzero):
        nodes = sorted(int(i) for block in cyclic_components(nonzero) for i in block)
        raise ValueError(f"the graph has a directed cycle among the nodes {nodes}")
    return order


def ancestors(adjacency: ArrayLike) -> BoolArray:
    """Transitive closure: ``closure[i, j]`` says that a directed path of length >= 1 leads i ~> j.

    Works for cyclic graphs too; ``closure[i, i]`` then says that i lies on a cycle.
    """
    closure: BoolArray = np.array(adjacency) != 0
    for k in range(len(closure)):
        closure |= np.outer(closure[:, k], closure[k])
    return closure


def break_cycles(weights: FloatArray, required: BoolArray | None = None) -> FloatArray:
    """Remove the weakest edges on cycles, one after the other, until no cycle is left.

    Parameters
    ----------
    weights
        ``(d, d)`` weights; an edge is removed by setting its weight to zero. Among edges of equal
        strength the one with the smallest (row, column) goes first.
    required
        ``(d, d)`` mask of edges that exist whatever their weight and are never removed.

    Returns
    -------
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
        block = pending.pop()
        inner = np.ix_(block, block)
        removable = (result[inner] != 0) & ~keep[inner]
        if not removable.any():
            raise ValueError(
                "the required edges form a directed cycle among the nodes "
                f"{[int(i) for i in block]}; drop one of them"
            )
        strength = np.where(removable, np.abs(result[inner]), np.inf)
        row, column = np.unravel_index(int(strength.argmin()), strength.shape)
        result[block[row], block[column]] = 0.0
        pending += [block[part] for part in cyclic_components((result[inner] != 0) | keep[inner])]
    return result

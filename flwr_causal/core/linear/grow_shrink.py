"""Compiled choice of a variable's parents among candidates, by the Gaussian BIC.

Parents are added as long as the best of them pays for itself (grow), then removed as long as the
worst of them does not (shrink). With n growing, this finds the Markov boundary among candidates
that precede the variable in a causal order (Margaritis & Thrun 1999).

Reference
---------
Margaritis, Thrun: Bayesian network induction via local neighborhoods, NIPS 1999.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.compiled import compiled
from flwr_causal.core.ties import TIE

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray, Integer


@compiled
def grow_shrink(
    correlation: FloatArray,
    target: Integer,
    among: BoolArray,
    required: BoolArray,
    cost: float,
    limit: Integer,
    collinear: float,
) -> tuple[IntArray, float, BoolArray]:
    """Return the parents of a variable, ascending, and its residual variance given them.

    Parameters
    ----------
    correlation
        ``(m, m)`` correlations.
    target
        Index of the variable.
    among
        ``(m,)`` mask of the possible parents, the candidates.
    required
        ``(m,)`` mask of those of them that are parents in any case.
    cost
        Of a parent: the least fall of the logarithm of the residual variance.
    limit
        Largest number of parents, required ones aside.
    collinear
        A candidate whose variance given the parents is at most this share adds nothing; neither
        does any to a variable of which no more is left.

    Returns
    -------
    parents : ndarray of int64
    residual : float
    deciding : ndarray of bool, shape (m,)
        The variables that may decide the result: as long as other variables alone become
        candidates, or cease to be any, all that is returned here stays the same.
    """
    m = len(correlation)
    # Variances given the parents, covariances with the target, and columns of a Cholesky factor.
    variance, covariance = np.ones(m), correlation[:, target].copy()
    left = 1.0
    factor = np.empty((m, m))
    parent, deciding = among & required, required.copy()
    count = np.int64(0)
    for a in range(m):
        if parent[a] and variance[a] > collinear:
            left -= _add(correlation, a, count, factor, variance, covariance)
            count += 1
    gains = np.empty(m)
    for _ in range(min(limit, m)):
        for a in range(m):
            gains[a] = 0.0
            if not parent[a] and a != target and min(variance[a], left) > collinear:
                share = covariance[a] * covariance[a] / (variance[a] * left)
                gains[a] = -math.log(max(1.0 - share, collinear))
        best, chosen = cost, -1
        for a in range(m):
            # Of equal gains the first counts.
            if among[a] and gains[a] > best + (TIE if chosen >= 0 else 0.0):
                best, chosen = gains[a], a
        for a in range(m):
            # What gains less than this is never the best, nor equal to the best, on the way.
            deciding[a] |= gains[a] > max(cost, best - 3.0 * TIE)
        if chosen < 0:
            break
        left -= _add(correlation, chosen, count, factor, variance, covariance)
        parent[chosen] = True
        count += 1
    candidates = np.flatnonzero(parent)
    parents, residual = _shrink(
        correlation, target, candidates, required[candidates], cost, collinear
    )
    return parents, residual, deciding


@compiled
def _add(
    correlation: FloatArray,
    chosen: Integer,
    count: Integer,
    factor: FloatArray,
    variance: FloatArray,
    covariance: FloatArray,
) -> float:
    """Add a parent: update variances and covariances, and write a column of the factor.

    Returns
    -------
    float
        The fall of the target's variance.
    """
    root = math.sqrt(variance[chosen])
    with_target = covariance[chosen] / root
    for a in range(len(variance)):
        product = correlation[a, chosen]
        for k in range(count):
            product -= factor[a, k] * factor[chosen, k]
        factor[a, count] = product / root
    for a in range(len(variance)):
        variance[a] -= factor[a, count] ** 2
        covariance[a] -= factor[a, count] * with_target
    return with_target**2  # type: ignore[no-any-return]


@compiled
def _shrink(
    correlation: FloatArray,
    target: Integer,
    parents: IntArray,
    required: BoolArray,
    cost: float,
    collinear: float,
) -> tuple[IntArray, float]:
    """Remove parents as long as the worst one does not pay for itself."""
    size = len(parents)
    members = np.append(parents, target)
    table = np.empty((size + 1, size + 1))
    for a in range(size + 1):
        for b in range(size + 1):
            table[a, b] = correlation[members[a], members[b]]
    used = np.zeros(size, np.bool_)
    for a in range(size):
        if table[a, a] > collinear:
            _sweep(table, a, 1.0)
            used[a] = True
    while True:
        worst, chosen = cost, -1
        for a in range(size):
            if used[a] and not required[a]:
                rise = table[a, size] ** 2 / -table[a, a]
                loss = math.log1p(rise / max(table[size, size], collinear))
                if loss < worst - (TIE if chosen >= 0 else 0.0):
                    worst, chosen = loss, a
        if chosen < 0:
            return parents[used | required], max(table[size, size], 0.0)
        _sweep(table, chosen, -1.0)
        used[chosen] = False


@compiled
def _sweep(table: FloatArray, k: Integer, sign: float) -> None:
    """Sweep a symmetric table at an index (sign 1), or undo it (sign -1), in place.

    Swept at all parents, its last column holds their coefficients and the residual variance, the
    rest minus the inverse of their correlations.
    """
    pivot = table[k, k]
    for a in range(len(table)):
        if a == k:
            continue
        scaled = table[a, k] / pivot
        for b in range(len(table)):
            if b != k:
                table[a, b] -= scaled * table[k, b]
    for a in range(len(table)):
        if a != k:
            table[a, k] *= sign / pivot
            table[k, a] = table[a, k]
    table[k, k] = -1.0 / pivot

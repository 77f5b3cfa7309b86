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
    candidates: IntArray,
    required: BoolArray,
    cost: float,
    limit: Integer,
    collinear: float,
) -> tuple[IntArray, float]:
    """Return the parents of a variable, ascending, and its residual variance given them.

    Parameters
    ----------
    correlation
        ``(m, m)`` correlations.
    target
        Index of the variable.
    candidates
        ``(q,)`` indices of the possible parents, ascending.
    required
        ``(q,)``: whether a candidate is a parent in any case.
    cost
        Of a parent: the least fall of the logarithm of the residual variance.
    limit
        Largest number of parents, required ones aside.
    collinear
        A candidate whose variance given the parents is at most this share adds nothing; neither
        does any to a variable of which no more is left.
    """
    q = len(candidates)
    # Of the candidates and, last, the target: variances given the parents, covariances with the
    # target, and the columns of a Cholesky factor.
    variance, covariance = np.ones(q + 1), np.ones(q + 1)
    for a in range(q):
        covariance[a] = correlation[candidates[a], target]
    factor = np.empty((q + 1, q))
    parent = required.copy()
    count = np.int64(0)
    for a in range(q):
        if required[a] and variance[a] > collinear:
            _add(correlation, candidates, a, count, factor, variance, covariance)
            count += 1
    for _ in range(min(limit, q)):
        chosen = _best(variance, covariance, parent, cost, collinear)
        if chosen < 0:
            break
        _add(correlation, candidates, chosen, count, factor, variance, covariance)
        parent[chosen] = True
        count += 1
    return _shrink(correlation, target, candidates[parent], required[parent], cost, collinear)


@compiled
def _best(
    variance: FloatArray,
    covariance: FloatArray,
    parent: BoolArray,
    cost: float,
    collinear: float,
) -> int:
    """Return the candidate that explains most; -1 if none pays for itself."""
    best, chosen = cost, -1
    left = variance[-1]
    for a in range(len(parent)):
        if not parent[a] and min(variance[a], left) > collinear:
            share = covariance[a] * covariance[a] / (variance[a] * left)
            gain = -math.log(max(1.0 - share, collinear))
            # Of equal gains the first counts.
            if gain > best + (TIE if chosen >= 0 else 0.0):
                best, chosen = gain, a
    return chosen


@compiled
def _add(
    correlation: FloatArray,
    candidates: IntArray,
    chosen: Integer,
    count: Integer,
    factor: FloatArray,
    variance: FloatArray,
    covariance: FloatArray,
) -> None:
    """Add a parent: update variances and covariances, and write a column of the factor."""
    q = len(candidates)
    root = math.sqrt(variance[chosen])
    with_target = covariance[chosen] / root
    for a in range(q):
        product = correlation[candidates[a], candidates[chosen]]
        for k in range(count):
            product -= factor[a, k] * factor[chosen, k]
        factor[a, count] = product / root
    for a in range(q):
        variance[a] -= factor[a, count] ** 2
        covariance[a] -= factor[a, count] * with_target
    variance[q] -= with_target**2


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

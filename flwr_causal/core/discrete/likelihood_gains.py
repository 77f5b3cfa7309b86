"""Gains of the log-likelihood, and what they are on average if x and y are independent given S.

The gain of x as a further parent of y given S is ``sum t(n_sxy) - sum t(n_sx) - sum t(n_sy) +
sum t(n_s)`` with ``t(k) = k log k``: the number of rows times their conditional mutual information.
It is never negative, although x and y may be independent given S. Its mean over all tables that
have the same n_sx and n_sy, if x and y are independent given S, is known exactly: each n_sxy then
has a hypergeometric distribution (Vinh, Epps & Bailey 2010). Where all counts are large this mean
is half the number of parameters that x adds; where tables are nearly empty it is not. A mean is a
sum over the configurations of S and the states of x, which `discrete.scores` counts.

Parties that each count their own rows have sums of such gains, in which every party contributes its
own mean; :mod:`flwr_causal.core.ges.speculative_search` corrects the sum.

References
----------
Vinh, N. X., Epps, J. & Bailey, J. (2010). Information theoretic measures for clusterings
comparison: variants, properties, normalization and correction for chance. JMLR 11.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from flwr_causal.core.compiled import compiled_inside

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, Integer

    CellCounts = NDArray[np.int32]

#: Logarithms of factorials up to this number are looked up; others are computed.
MOST_FACTORIALS = 2**16
#: From this mean of a count on, the mean of its term follows from its moments: the error is below
#: 1e-3 of the mean.
LARGE = 16.0
#: Probability below which larger counts are left out.
NEGLIGIBLE = 1e-15


def log_factorials(num_rows: int) -> FloatArray:
    """Return log k! for k from 0, up to a number of rows or MOST_FACTORIALS."""
    return np.asarray(gammaln(np.arange(min(num_rows, MOST_FACTORIALS) + 1) + 1.0))


@compiled_inside
def mean_of_terms(a: Integer, by_y: CellCounts, factorials: FloatArray) -> float:
    """Return the part of the mean gain that rows of one state of x have, in one configuration of S.

    Parameters
    ----------
    a : int
        Their number, above 0.
    by_y : ndarray of int32, shape (r,)
        Rows of the configuration, by state of y.
    factorials : ndarray of float64
        See :func:`log_factorials`.
    """
    n = np.int64(0)
    for b in by_y:
        n += b
    mean = 0.0
    for b in by_y:
        if b > 0 and n > 1:
            mean += _mean_term(n, a, np.int64(b), factorials)
    return mean


@compiled_inside
def _mean_term(n: Integer, a: Integer, b: Integer, factorials: FloatArray) -> float:
    """Return the mean of k log(k / m), k hypergeometric with mean m: a cell's part of the gain."""
    middle = a * (b / n)
    if middle >= LARGE:
        return _large_mean_term(float(n), float(a), float(b), middle)
    first = a + b - n if a + b > n else np.int64(0)
    weight = math.exp(
        _log_factorial(factorials, a)
        + _log_factorial(factorials, b)
        + _log_factorial(factorials, n - a)
        + _log_factorial(factorials, n - b)
        - _log_factorial(factorials, n)
        - _log_factorial(factorials, first)
        - _log_factorial(factorials, a - first)
        - _log_factorial(factorials, b - first)
        - _log_factorial(factorials, n - a - b + first)
    )
    mean, log_middle = 0.0, math.log(middle)
    for k in range(first, (a if a < b else b) + 1):
        # m - k has mean 0; with it no term is negative, but for its rounding error.
        term = middle - k
        if k > 0:
            term += k * (factorials[k] - factorials[k - 1] - log_middle)
        if term > 0.0:
            mean += weight * term
        if k > middle and weight < NEGLIGIBLE:
            break
        weight *= (a - k) * (b - k) / ((k + 1.0) * (n - a - b + k + 1.0))
    return mean


@compiled_inside
def _large_mean_term(n: float, a: float, b: float, m: float) -> float:
    """Return the same mean where m is large, from the first four central moments of k.

    ``k log(k / m) = m (u + u^2/2 - u^3/6 + u^4/12 - ...)`` with u = (k - m) / m.
    """
    variance = m * ((n - a) / n) * ((n - b) / (n - 1.0))
    if variance <= 0.0:
        return 0.0
    third = variance * ((n - 2.0 * a) / n) * ((n - 2.0 * b) / (n - 2.0))
    # The excess kurtosis of a hypergeometric number.
    p, q = (a / n) * ((n - a) / n), (b / n) * ((n - b) / n)
    excess = (n - 1.0) * ((n + 1.0) / n - 6.0 * (p + q)) / (p * q) + 6.0 * (5.0 * n - 6.0)
    excess /= (n - 2.0) * (n - 3.0)
    fourth = variance * variance * (3.0 + excess)
    return variance / (2.0 * m) - third / (6.0 * m * m) + fourth / (12.0 * m * m * m)


@compiled_inside
def _log_factorial(factorials: FloatArray, k: Integer) -> float:
    result: float = factorials[k] if k < len(factorials) else math.lgamma(k + 1.0)
    return result

"""A differentially private release of the moments of all rows, and what can be read from it.

A row x is centred and scaled by public numbers, z = (x - centre) / scale, and clipped to the norm
C. The release is the sum over rows of ``a a^T`` with a = [c0, z], so that it holds n, means and
second moments, plus noise. Adding or removing a row changes the sum by ``a a^T``, whose Frobenius
norm is ``|a|^2 <= c0^2 + C^2``: the sensitivity. As an entry off the diagonal occurs twice in that
norm, its noise has 1/2 of the variance of one on the diagonal. docs/differential_privacy.md has the
derivation.

Sums are rounded to multiples of a step, so that noise and sums are whole numbers.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.limits import least_eigenvalue
from flwr_causal.core.privacy.discrete_gaussian import discrete_gaussian
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray

#: C is this many times sqrt(d): of independent Gaussian columns with right scales and centres,
#: 1.3 % of the rows are clipped for d = 10, and .1 % for d = 20.
CLIPPING = 1.5
# c0 as a share of C: it balances the noise of n and means against that of the products.
CONSTANT = 0.5
# Steps in a sensitivity, so many that rounding costs nothing.
STEPS = 2**20
# Larger values than any that is not clipped; their squares are float64 numbers.
_LARGEST = 1e100
# Bins of the histograms that scales are estimated from: octaves, from 2^-60 on.
LOWEST_OCTAVE, NUM_OCTAVES = -60, 121
# The scale is this quantile of the absolute values: of a Gaussian, the standard deviation.
SCALE_QUANTILE = 0.6827
# Counts below so many standard deviations of their noise are taken for 0.
_CLEAR = 3.0
# Fewest rows from which anything can be computed.
_FEWEST = 2.0


class Released(NamedTuple):
    """The moments in a release.

    Attributes
    ----------
    rows
        Number of rows, with noise.
    mean
        ``(d,)``, in the units of the data.
    second
        ``(d, d)`` central second moments (divisor n), positive definite, in the units of the data.
    effective_rows
        The number of rows without noise whose partial covariances would vary as much.
    """

    rows: float
    mean: FloatArray
    second: FloatArray
    effective_rows: float


def clipping_norm(d: int) -> float:
    """Return C, the largest norm of a row of d scaled columns."""
    return CLIPPING * sqrt(d)


def sensitivity(d: int) -> float:
    """Return the most by which a row changes the sum, in the Frobenius norm: C^2 + c0^2."""
    return clipping_norm(d) ** 2 * (1 + CONSTANT**2)


def products_of(pieces: Iterable[FloatArray], centers: FloatArray, scales: FloatArray) -> IntArray:
    """Return the sum over rows of ``a a^T`` in steps, shape (1 + d, 1 + d), without noise.

    Parameters
    ----------
    pieces : iterable of ndarray of shape (rows, d)
        A row with a value that is not finite is left out.
    centers, scales : ndarray of shape (d,)
    """
    d = len(centers)
    limit = clipping_norm(d)
    total = np.zeros((1 + d, 1 + d))
    for rows in pieces:
        with np.errstate(over="ignore", invalid="ignore"):
            z = np.clip((rows - centers) / scales, -_LARGEST, _LARGEST)
        z = z[np.isfinite(rows).all(axis=1) & np.isfinite(z).all(axis=1)]
        norm = np.linalg.norm(z, axis=1, keepdims=True)
        z *= limit / np.maximum(norm, limit)
        a = np.column_stack([np.full(len(z), CONSTANT * limit), z])
        total += a.T @ a
    steps = np.rint(total * (STEPS / sensitivity(d))).astype(np.int64)
    return np.asarray(np.triu(steps) + np.triu(steps, 1).T)


def steps_of_noise(d: int, multiplier: float, parties: int) -> int:
    """Return the variance of one party's noise off the diagonal, in squared steps.

    On the diagonal it is twice as large.

    Parameters
    ----------
    d : int
        Number of columns.
    multiplier : float
        Standard deviation of the noise of the sum, in units of the sensitivity.
    parties : int
        Among how many parties this noise is shared.
    """
    # Rounding changes each of the (1 + d)^2 entries by less than a step, sums of float64 by less.
    largest = STEPS + 2 * (1 + d)
    return ceil((largest * multiplier) ** 2 / 2 / parties)


def noise_of(d: int, variance: int, below: Callable[[int], int]) -> IntArray:
    """Return a symmetric matrix of discrete Gaussian noise in steps, shape (1 + d, 1 + d).

    Parameters
    ----------
    d : int
    variance : int
        Off the diagonal, see :func:`steps_of_noise`.
    below : callable
        See :func:`~flwr_causal.core.privacy.discrete_gaussian.discrete_gaussian`.
    """
    noise = np.zeros((1 + d, 1 + d), dtype=np.int64)
    for i in range(1 + d):
        noise[i, i] = discrete_gaussian(2 * variance, below)
        for j in range(i):
            noise[i, j] = noise[j, i] = discrete_gaussian(variance, below)
    return noise


def read(products: IntArray, variance: float, centers: FloatArray, scales: FloatArray) -> Released:
    """Return the moments in a release.

    Eigenvalues of the covariances below ``tau sqrt(d)`` are raised to it, where tau is the standard
    deviation of the noise of a covariance: smaller ones cannot be told from 0.

    With u_i the residual of column i on the others as a combination of the columns, the noise of a
    partial covariance of i and j has about the variance ``tau^2 |u_i|^2 |u_j|^2``, and sampling
    gives ``v_i v_j / n``, with v the residual variances. ``effective_rows`` is 1 over the sum of
    1/n and ``tau^2`` times the squared mean of ``|u_i|^2 / v_i``.

    Parameters
    ----------
    products : ndarray of int64, shape (1 + d, 1 + d)
        Sums with noise, in steps.
    variance : float
        Of all noise in an entry off the diagonal, in squared steps.
    centers, scales : ndarray of shape (d,)

    Raises
    ------
    DataError
        If the noise is larger than the number of rows.
    """
    d = len(centers)
    step = sensitivity(d) / STEPS
    constant = CONSTANT * clipping_norm(d)
    sums = products * step
    rows = sums[0, 0] / constant**2
    if rows < max(_FEWEST, sqrt(2 * variance) * step / constant**2):
        raise DataError(
            f"the private release says that there are {rows:.0f} rows, which is no more than its "
            "noise: add rows, raise epsilon, use secure_aggregation=True, or find out whether all "
            "columns hold numbers (rows with other values are left out)"
        )
    mean = sums[0, 1:] / constant / rows
    noise = sqrt(variance) * step / rows
    second = least_eigenvalue(sums[1:, 1:] / rows - np.outer(mean, mean), noise * sqrt(d))
    precision = np.linalg.inv(second)
    amplified = np.diagonal(precision @ precision) / np.diagonal(precision)
    effective = 1 / (1 / rows + (noise * amplified.mean()) ** 2)
    return Released(
        float(rows),
        centers + scales * mean,
        second * np.outer(scales, scales),
        float(max(effective, _FEWEST)),
    )


def octaves_of(pieces: Iterable[FloatArray]) -> IntArray:
    """Return how many absolute values of each column are in each octave, shape (d, octaves).

    A row with a value that is not finite is left out. A row adds 1 to one bin of each column, so
    the sensitivity is sqrt(d) in the Euclidean norm.
    """
    counts: IntArray | int = 0
    for rows in pieces:
        kept = np.abs(rows[np.isfinite(rows).all(axis=1)])
        octave = np.frexp(kept)[1] - 1
        octave = np.where(kept > 0, octave, LOWEST_OCTAVE) - LOWEST_OCTAVE
        bins = np.clip(octave, 0, NUM_OCTAVES - 1)
        counts = counts + np.array(
            [np.bincount(column, minlength=NUM_OCTAVES) for column in bins.T], dtype=np.int64
        )
    return np.asarray(counts, dtype=np.int64)


def variance_of_counts(d: int, multiplier: float, parties: int) -> int:
    """Return the variance of one party's noise in a count of d columns' octaves."""
    return ceil(d * multiplier**2 / parties)


def scales_of(counts: IntArray, variance: float, names: Sequence[str]) -> FloatArray:
    """Return the scales of columns from noisy counts by octave, shape (d,).

    Parameters
    ----------
    counts : ndarray of int64, shape (d, octaves)
    variance : float
        Of all noise in a count.
    names : sequence of str
        Of the columns, for the error.

    Raises
    ------
    DataError
        If no count of a column is clearly above the noise.
    """
    clear = np.where(counts >= _CLEAR * sqrt(variance), counts, 0)
    scales = np.ones(len(counts))
    for k, own in enumerate(clear):
        if not own.any():
            raise DataError(
                f"column {names[k]!r}: the rows are too few to estimate its scale under the noise: "
                "give it by the option 'scales', raise epsilon, or add rows"
            )
        below = np.concatenate([[0.0], np.cumsum(own) / own.sum()])
        octave = int(np.searchsorted(below, SCALE_QUANTILE) - 1)
        within = (SCALE_QUANTILE - below[octave]) / (below[octave + 1] - below[octave])
        scales[k] = 2.0 ** (LOWEST_OCTAVE + octave + within)
    return scales

"""A differentially private release of the moments of all rows, and what can be read from it.

A row x is centred and scaled by public numbers, z = (x - centre) / scale, and clipped to the norm
C. The release is the sum over rows of ``a a^T`` with a = [c0, z], so that it holds n, means and
second moments, plus noise. Adding or removing a row changes the sum by ``a a^T``, whose Frobenius
norm is ``|a|^2 <= c0^2 + C^2``: the sensitivity. As an entry off the diagonal occurs twice in that
norm, its noise has 1/2 of the variance of one on the diagonal. docs/differential_privacy.md has the
derivation.

A category of k states is k - 1 columns of z, 1 in the rows of a state and 0 in the others, with
public centres and scales (:func:`~flwr_causal.core.privacy.scales.of_indicators`) by which their
part of z has a squared norm of at most 1.5, whatever the state. The numbers of a row are shortened
to what this leaves of C, and the row as a whole to C, so that ``|z| <= C`` holds for any row, and
the sensitivity is the same: for d variables ``c0^2 + C^2``, with C = 1.5 sqrt(d).

Sums are rounded to multiples of a step, so that noise and sums are whole numbers.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.limits import least_eigenvalue
from flwr_causal.core.privacy.discrete_gaussian import discrete_gaussian
from flwr_causal.core.privacy.scales import number_columns, widths_of_release
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

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
# A state is told from the noise if the variance of its column is so many times the least one.
_TOLD = 2.0
# Fewest rows from which anything can be computed.
_FEWEST = 2.0


class Released(NamedTuple):
    """The moments in a release.

    Attributes
    ----------
    rows
        Number of rows, with noise.
    mean
        ``(w,)``, in the units of the data; of states their shares.
    second
        ``(w, w)`` central second moments (divisor n), positive definite, in the units of the data;
        0 of states that cannot be told from the noise, or follow from the others.
    effective_rows
        The number of rows without noise whose partial covariances would vary as much.
    """

    rows: float
    mean: FloatArray
    second: FloatArray
    effective_rows: float


def clipping_norm(d: int) -> float:
    """Return C, the largest norm of a row of d scaled variables."""
    return CLIPPING * sqrt(d)


def sensitivity(d: int) -> float:
    """Return the most by which a row changes the sum, in the Frobenius norm: C^2 + c0^2.

    Parameters
    ----------
    d : int
        Number of variables; a category is one, however many columns it has.
    """
    return clipping_norm(d) ** 2 * (1 + CONSTANT**2)


def products_of(
    pieces: Iterable[FloatArray],
    centers: FloatArray,
    scales: FloatArray,
    states: Sequence[int] = (),
) -> IntArray:
    """Return the sum over rows of ``a a^T`` in steps, shape (1 + w, 1 + w), without noise.

    Parameters
    ----------
    pieces : iterable of ndarray of shape (rows, d)
        Numbers, and of categories the numbers of their states. A row with a value that is not
        finite is left out.
    centers, scales : ndarray of shape (w,)
        Of the columns, whatever they are: a row changes the sum by the sensitivity at most.
    states : sequence of int, default ()
        See :class:`~flwr_causal.core.privacy.scales.Scaling`.
    """
    w = len(centers)
    limit, numbers = clipping_norm(len(states) or w), number_columns(states, w)
    total = np.zeros((1 + w, 1 + w))
    for rows in pieces:
        with np.errstate(over="ignore", invalid="ignore"):
            z = np.clip((_columns(rows, states) - centers) / scales, -_LARGEST, _LARGEST)
        z = z[np.isfinite(rows).all(axis=1) & np.isfinite(z).all(axis=1)]
        z = _shortened(z, numbers, limit)
        a = np.column_stack([np.full(len(z), CONSTANT * limit), z])
        total += a.T @ a
    steps = np.rint(total * (STEPS / sensitivity(len(states) or w))).astype(np.int64)
    return np.asarray(np.triu(steps) + np.triu(steps, 1).T)


def _columns(rows: FloatArray, states: Sequence[int]) -> FloatArray:
    """Return the columns of rows: numbers, and of categories one for each state but the last."""
    if not any(states):
        return rows
    parts = [
        rows[:, j, None] == np.arange(count - 1) if count else rows[:, j, None]
        for j, count in enumerate(states)
    ]
    return np.column_stack(parts).astype(np.float64)


def _shortened(z: FloatArray, numbers: BoolArray, limit: float) -> FloatArray:
    """Return rows of norm ``limit`` at most, of which numbers are shortened before states are."""
    room = np.sqrt(np.maximum(limit**2 - (z[:, ~numbers] ** 2).sum(axis=1, keepdims=True), 0.0))
    own = np.linalg.norm(z[:, numbers], axis=1, keepdims=True)
    z[:, numbers] *= np.where(own > room, room / np.where(own > 0, own, 1.0), 1.0)
    norm = np.linalg.norm(z, axis=1, keepdims=True)
    return np.asarray(z * (limit / np.maximum(norm, limit)))


def steps_of_noise(d: int, multiplier: float, parties: int) -> int:
    """Return the variance of one party's noise off the diagonal, in squared steps.

    On the diagonal it is twice as large.

    Parameters
    ----------
    d : int
        Number of columns of z.
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
        Number of columns of z.
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


def read(
    products: IntArray,
    variance: float,
    centers: FloatArray,
    scales: FloatArray,
    states: Sequence[int] = (),
    names: Sequence[str] = (),
) -> Released:
    """Return the moments in a release.

    Eigenvalues of the covariances below ``tau sqrt(w)`` are raised to it, where tau is the standard
    deviation of the noise of a covariance: smaller ones cannot be told from 0. A state with so few
    rows that the variance of its column is no more than twice this is one with the last state.

    With u_i the residual of column i on the others as a combination of the columns, the noise of a
    partial covariance of i and j has about the variance ``tau^2 |u_i|^2 |u_j|^2``, and sampling
    gives ``v_i v_j / n``, with v the residual variances. ``effective_rows`` is 1 over the sum of
    1/n and ``tau^2`` times the squared mean of ``|u_i|^2 / v_i``.

    Parameters
    ----------
    products : ndarray of int64, shape (1 + w, 1 + w)
        Sums with noise, in steps.
    variance : float
        Of all noise in an entry off the diagonal, in squared steps.
    centers, scales, states
        See :class:`~flwr_causal.core.privacy.scales.Scaling`.
    names : sequence of str, default ()
        Of the variables, for the error; with categories.

    Raises
    ------
    DataError
        If the noise is larger than the number of rows, or no state of a category can be told.
    """
    w, d = len(centers), len(states) or len(centers)
    step = sensitivity(d) / STEPS
    constant = CONSTANT * clipping_norm(d)
    sums = products * step
    rows = sums[0, 0] / constant**2
    if rows < max(_FEWEST, sqrt(2 * variance) * step / constant**2):
        raise DataError(
            f"the private release says that there are {rows:.0f} rows, which is no more than its "
            "noise: add rows, raise epsilon, use secure_aggregation=True, or find out whether all "
            "columns hold numbers, or states of the dictionary (rows with other values are left "
            "out)"
        )
    mean = sums[0, 1:] / constant / rows
    noise = sqrt(variance) * step / rows
    shares = centers + scales * mean
    kept = np.ones(w, dtype=np.bool_)
    blocks = np.split(np.arange(w), np.cumsum(widths_of_release(states))[:-1])
    for j, (count, block) in enumerate(zip(states, blocks, strict=False)):
        if count:
            least = _TOLD * noise * sqrt(w) * scales[block[0]] ** 2
            kept[block] = told = _told_apart(shares[block], least)
            if not told.any():
                raise DataError(
                    f"column {names[j]!r}: no two of its states can be told from the noise of the "
                    "private release, since the rows are too few or nearly all have one state: "
                    "take 'use' from it in the dictionary, add rows, or raise epsilon"
                )
    own, both = mean[kept], np.ix_(kept, kept)
    raw = sums[1:, 1:][both] / rows - np.outer(own, own)
    second = np.zeros((w, w))
    second[both] = least_eigenvalue(raw, noise * sqrt(len(own)))
    precision = np.linalg.inv(second[both])
    amplified = np.diagonal(precision @ precision) / np.diagonal(precision)
    effective = 1 / (1 / rows + (noise * amplified.mean()) ** 2)
    return Released(
        float(rows),
        shares,
        second * np.outer(scales, scales),
        float(max(effective, _FEWEST)),
    )


def _told_apart(shares: FloatArray, least: float) -> BoolArray:
    """Return which columns of a category are kept, shape (k - 1,).

    Parameters
    ----------
    shares : ndarray of shape (k - 1,)
        Of all states but the last.
    least : float
        The least variance of a column that can be told from the noise.
    """
    every = np.append(shares, 1.0 - shares.sum())
    told = every * (1.0 - every) > least
    if not told[-1] and told.any():
        # The columns of the others add up to nearly 1: that of the most frequent state follows.
        told[int(np.argmax(np.where(told, every, -np.inf)))] = False
    return np.asarray(told[:-1])


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

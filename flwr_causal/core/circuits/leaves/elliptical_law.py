"""Normal and t distributions of several numbers: density, conditionals, draws.

The t distribution is written by its own covariance C, which needs more than 2 degrees of freedom
dof; its scale matrix is C (dof - 2) / dof. With dof = inf it is the normal distribution.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import gammaln

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray


class Law(NamedTuple):
    """A distribution of m numbers.

    Parameters
    ----------
    mean : ndarray of float64, shape (m,)
    covariance : ndarray of float64, shape (m, m)
    dof : float
        Degrees of freedom, above 2; inf for the normal distribution.
    """

    mean: FloatArray
    covariance: FloatArray
    dof: float

    def part(self, kept: BoolArray) -> Law:
        """Return the marginal of some of the numbers."""
        return Law(self.mean[kept], self.covariance[np.ix_(kept, kept)], self.dof)

    def log_density(self, rows: FloatArray) -> FloatArray:
        """Log density of each row of shape (n, m), shape (n,)."""
        whitening, log_det = whitened(self.covariance)
        return standard_log_density(
            squared_norms((rows - self.mean) @ whitening.T), log_det, len(self.mean), self.dof
        )


class Conditional(NamedTuple):
    """The rest given the known numbers of n rows: row i has the covariance ``spreads[i] matrix``.

    Parameters
    ----------
    means : ndarray of float64, shape (n, m)
    matrix : ndarray of float64, shape (m, m)
    spreads : ndarray of float64, shape (n,)
        A t distribution is wider the farther the evidence is from its centre; 1 of a normal one.
    dof : float
        Every number that is known adds a degree of freedom.
    log_density : ndarray of float64, shape (n,)
        Of what is known.
    """

    means: FloatArray
    matrix: FloatArray
    spreads: FloatArray
    dof: float
    log_density: FloatArray


def conditional(law: Law, known: BoolArray, rows: FloatArray) -> Conditional:
    """Return the distribution of the rest given some numbers.

    Parameters
    ----------
    law : Law
        Of k numbers.
    known : ndarray of bool, shape (k,)
    rows : ndarray of float64, shape (n, number known)
    """
    n, m = len(rows), int((~known).sum())
    if m == len(known):
        means = np.broadcast_to(law.mean, (n, m))
        return Conditional(means, law.covariance, np.ones(n), law.dof, np.zeros(n))
    whitening, log_det = whitened(law.covariance[np.ix_(known, known)])
    standard = (rows - law.mean[known]) @ whitening.T
    squares = squared_norms(standard)
    density = standard_log_density(squares, log_det, len(known) - m, law.dof)
    across = whitening @ law.covariance[np.ix_(known, ~known)]
    means = law.mean[~known] + standard @ across
    matrix = law.covariance[np.ix_(~known, ~known)] - across.T @ across
    if math.isinf(law.dof):
        return Conditional(means, matrix, np.ones(n), law.dof, density)
    dof = law.dof + len(known) - m
    spreads = (law.dof - 2 + squares) / (dof - 2)
    return Conditional(means, matrix, spreads, dof, density)


def draws(given: Conditional, rng: np.random.Generator) -> FloatArray:
    """Draw one row from each row's conditional, shape (n, m)."""
    n, m = given.means.shape
    factor = np.linalg.cholesky(given.matrix)
    widths = np.sqrt(given.spreads)
    if not math.isinf(given.dof):
        widths = widths * np.sqrt((given.dof - 2) / rng.chisquare(given.dof, n))
    return np.asarray(given.means + widths[:, None] * (rng.standard_normal((n, m)) @ factor.T))


def whitened(covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return W with W C W' = 1, and log det C; a LinAlgError if C is not positive definite.

    Further axes in front are kept: of many covariances at once.
    """
    factor = np.linalg.cholesky(covariance)
    log_det = 2.0 * np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
    return np.linalg.inv(factor), log_det


def squared_norms(rows: FloatArray) -> FloatArray:
    """Sum of squares of each row."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows))


def standard_log_density(
    squares: FloatArray, log_det: FloatArray, m: int, dof: float
) -> FloatArray:
    """Log density from the squared distances to the mean in the metric of the covariance."""
    if math.isinf(dof):
        return np.asarray(-0.5 * (squares + log_det + m * math.log(2 * math.pi)))
    constant = (
        gammaln((dof + m) / 2)
        - gammaln(dof / 2)
        - 0.5 * m * math.log((dof - 2) * math.pi)
        - 0.5 * log_det
    )
    return np.asarray(constant - 0.5 * (dof + m) * np.log1p(squares / (dof - 2)))


def by_pattern(missing: BoolArray) -> Iterator[tuple[NDArray[np.int64] | slice, BoolArray]]:
    """Return the rows of each pattern of missing values.

    Parameters
    ----------
    missing : ndarray of bool, shape (n, k)

    Yields
    ------
    rows : ndarray of int64 or slice
        The rows of one pattern; a slice where all rows have the same.
    known : ndarray of bool, shape (k,)
        Where they have a value.
    """
    if len(missing) == 0:
        return
    if (missing == missing[0]).all():
        yield slice(None), ~missing[0]
        return
    packed = np.packbits(missing, axis=1)
    _, first, inverse = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(inverse.ravel()))
    for start, end, row in zip(np.concatenate(([0], ends[:-1])), ends, first, strict=True):
        yield order[start:end], ~missing[row]

"""Means and covariances of classes from sums over rows, shrunk by held-out likelihood.

A covariance of d columns has more entries than a class may have rows. Two numbers shrink it:
``diagonal`` moves it towards its own diagonal, ``pooled`` towards the covariance within classes
that all classes share. The Gaussian log-likelihood of held-out rows is a function of their sums,
so both are chosen without another exchange.

References
----------
Friedman: Regularized discriminant analysis, Journal of the American Statistical Association 1989.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray


# Added to variances, in units of the columns' variance: a column may be constant in one class.
FLOOR = 1e-6


class Shrinkage(NamedTuple):
    """How far covariances are shrunk, both from 0 to 1.

    Parameters
    ----------
    diagonal : float
        Share by which correlations shrink.
    pooled : float
        Share of the pooled covariance in that of a class of mean size. It counts as a fixed number
        of rows, so a class of few rows takes more of it.
    """

    diagonal: float
    pooled: float


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Sums over the rows of each class; leading axes may hold folds.

    Parameters
    ----------
    counts : ndarray of float, shape (..., C)
        Numbers of rows.
    first : ndarray of float, shape (..., C, d)
        Of ``z - offset of the class``.
    second : ndarray of float, shape (..., C, d, d)
        Of their outer products.
    offsets : ndarray of float, shape (C, d)
        Agreed before the sums and close to the means of the classes: no digits are lost.
    """

    counts: FloatArray
    first: FloatArray
    second: FloatArray
    offsets: FloatArray

    def total(self) -> ClassSums:
        """Return sums over all folds, the first axis."""
        return ClassSums(
            self.counts.sum(axis=0), self.first.sum(axis=0), self.second.sum(axis=0), self.offsets
        )

    def without_each(self) -> ClassSums:
        """Return sums over all folds but one, for each."""
        everything = self.total()
        return ClassSums(
            everything.counts - self.counts,
            everything.first - self.first,
            everything.second - self.second,
            self.offsets,
        )


class ClassMoments(NamedTuple):
    """Means (..., C, d) and covariances (..., C, d, d) of the classes."""

    means: FloatArray
    covariances: FloatArray


def pooled_covariance(sums: ClassSums) -> FloatArray:
    """Covariance within classes, the mean over all rows, shape (..., d, d)."""
    _, scatter = _centered(sums)
    rows = np.maximum(sums.counts.sum(axis=-1), 1.0)
    pooled = scatter.sum(axis=-3) / rows[..., None, None]
    return np.asarray(pooled + FLOOR * np.eye(pooled.shape[-1]))


def shrunk_moments(sums: ClassSums, shrinkage: Shrinkage) -> ClassMoments:
    """Moments of the classes. One without rows has the mean of all rows, and the pooled covariance.

    The covariance of a class of n_c rows with scatter W_c is ``(W_c + k P) / (n_c + k)``, P the
    pooled covariance and ``k = pooled / (1 - pooled)`` times the classes' mean number of rows, but
    at least 1 (a class of one row has no scatter), and then ``(1 - diagonal)`` of its correlations.
    """
    means, covariances = _towards_pooled(sums, shrinkage.pooled)
    off = (1.0 - shrinkage.diagonal) * covariances
    index = np.arange(covariances.shape[-1])
    off[..., index, index] = covariances[..., index, index]
    return ClassMoments(means, off)


def held_out_likelihoods(
    folds: ClassSums, diagonals: Sequence[float], pooled: Sequence[float]
) -> FloatArray:
    """Gaussian log-likelihood of each fold's rows under the moments of the others, summed.

    Parameters
    ----------
    folds : ClassSums
        With one leading axis of folds.
    diagonals, pooled : sequences of float
        The shrinkages to try.

    Returns
    -------
    ndarray of float, shape (diagonals, pooled)
        In nats, of all rows together, given their classes. Folds outside of which there are no
        rows judge nothing and are passed over.
    """
    training = folds.without_each()
    judged = training.counts.sum(axis=-1) > 0
    n = folds.counts[judged]
    d = folds.first.shape[-1]
    likelihoods = np.zeros((len(diagonals), len(pooled)))
    for k, share in enumerate(pooled):
        means, covariances = _towards_pooled(training, share)
        mean = (means - folds.offsets)[judged]
        first = folds.first[judged]
        cross = first[..., :, None] * mean[..., None, :]
        spread = folds.second[judged] - cross - np.swapaxes(cross, -1, -2)
        spread += n[..., None, None] * mean[..., :, None] * mean[..., None, :]
        deviations = np.sqrt(np.diagonal(covariances[judged], axis1=-2, axis2=-1))
        outer = deviations[..., :, None] * deviations[..., None, :]
        # In the eigenvectors of the correlations, shrinking to the diagonal is a step to 1.
        eigenvalues, vectors = np.linalg.eigh(covariances[judged] / outer)
        squares = np.einsum("...ij,...ij->...j", vectors, (spread / outer) @ vectors)
        log_scale = d * np.log(2.0 * np.pi) + 2.0 * np.log(deviations).sum(axis=-1)
        for i, diagonal in enumerate(diagonals):
            shrunk = np.maximum((1.0 - diagonal) * eigenvalues + diagonal, FLOOR)
            log_det = log_scale + np.log(shrunk).sum(axis=-1)
            likelihoods[i, k] = -0.5 * (n * log_det + (squares / shrunk).sum(axis=-1)).sum()
    return likelihoods


def choose_shrinkage(
    folds: ClassSums, diagonals: Sequence[float], pooled: Sequence[float]
) -> Shrinkage:
    """Shrinkage of the largest held-out log-likelihood; of equal ones the first, which is least."""
    if folds.counts.shape[-1] == 1:
        pooled = (0.0,)  # one class is its own pooled covariance
    likelihoods = held_out_likelihoods(folds, diagonals, pooled)
    i, k = map(int, np.unravel_index(int(likelihoods.argmax()), likelihoods.shape))
    return Shrinkage(float(diagonals[i]), float(pooled[k]))


def _centered(sums: ClassSums) -> tuple[FloatArray, FloatArray]:
    """Means (..., C, d) less the offsets, 0 without rows, and scatters about them."""
    n = np.maximum(sums.counts, 1.0)
    mean = sums.first / n[..., None]
    scatter = sums.second - n[..., None, None] * mean[..., :, None] * mean[..., None, :]
    return mean, scatter


def _towards_pooled(sums: ClassSums, share: float) -> tuple[FloatArray, FloatArray]:
    mean, scatter = _centered(sums)
    means = sums.offsets + mean
    rows = np.maximum(sums.counts.sum(axis=-1), 1.0)
    overall = np.einsum("...c,...cj->...j", sums.counts, means) / rows[..., None]
    means = np.where(sums.counts[..., None] > 0, means, overall[..., None, :])
    pooled = (scatter.sum(axis=-3) / rows[..., None, None])[..., None, :, :]
    if share >= 1.0:
        covariances = np.broadcast_to(pooled, scatter.shape).copy()
    else:
        present = np.maximum((sums.counts > 0).sum(axis=-1), 1)
        extra = np.maximum(share / (1.0 - share) * rows / present, 1.0)[..., None, None, None]
        covariances = (scatter + extra * pooled) / (sums.counts[..., None, None] + extra)
    return means, covariances + FLOOR * np.eye(scatter.shape[-1])

"""Contemporaneous partial correlations from moments, with a ridge chosen by held-out rows.

If series are sampled more slowly than their effects act, as in fMRI, lags hold little information,
and the partial correlations of x_t rank the pairs best. They are symmetric and have no direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from flwr_causal.core.limits import check_deadline
from flwr_causal.core.linear.moments import merge
from flwr_causal.core.linear.solution import check_at_least_zero
from flwr_causal.core.threads import single_threaded
from flwr_causal.core.ties import first_smallest
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.linear.moments import SampleMoments


# Candidate ridges, as shares of the variables' mean variance.
RIDGE_SHARES = (0.003, 0.01, 0.03, 0.1, 0.2, 0.4)


@single_threaded()
def partial_correlation(moments: SampleMoments, ridge: float) -> FloatArray:
    """Return the partial correlation of each two variables given all others.

    With ``P = (S + ridge I)^{-1}`` it is ``-P_ij / sqrt(P_ii P_jj)``.

    Parameters
    ----------
    moments
        Moments of x_t, without lags.
    ridge
        In units of the variables' variance; standardised moments are recommended.

    Returns
    -------
    ``(d, d)`` symmetric values from -1 to 1, with zeros on the diagonal.

    Raises
    ------
    DataError
        If a moment is missing, or the covariance with this ridge is singular.
    ConfigError
        If the ridge is negative.
    """
    precision, _ = _precision(moments, ridge)
    scale = np.sqrt(np.diagonal(precision))
    result: FloatArray = -precision / np.outer(scale, scale)
    np.fill_diagonal(result, 0.0)
    return result


@single_threaded()
def held_out_loss(train: SampleMoments, held_out: SampleMoments, ridge: float) -> float:
    """Return the mean negative log density of held-out rows under ``N(mean, S + ridge I)``.

    Mean and covariance S are those of the training rows. In nats a row: ``1/2 (d log 2 pi + log det
    + tr(P S_held_out) + bias^T P bias)``. Errors are those of :func:`partial_correlation`.

    Parameters
    ----------
    train, held_out
        Moments of x_t of disjoint sets of rows.
    ridge
        See :func:`partial_correlation`.
    """
    precision, log_determinant = _precision(train, ridge)
    bias = held_out.mean - train.mean
    spread = float(np.sum(precision * held_out.second) + bias @ precision @ bias)
    return 0.5 * (train.d * float(np.log(2.0 * np.pi)) + log_determinant + spread)


def held_out_losses(folds: Sequence[SampleMoments], ridges: Sequence[float]) -> FloatArray:
    """Return the mean :func:`held_out_loss` of each ridge, each fold being held out once.

    The mean is over the rows of all folds; the folds are those of :func:`select_ridge`.
    """
    totals = np.zeros(len(ridges))
    for k, fold in enumerate(folds):
        check_deadline()
        train = merge(other for i, other in enumerate(folds) if i != k)
        totals += [fold.n * held_out_loss(train, fold, ridge) for ridge in ridges]
    return totals / sum(fold.n for fold in folds)


def select_ridge(folds: Sequence[SampleMoments]) -> float:
    """Return the ridge with the least :func:`held_out_losses`, the largest of equally good ones.

    The candidates are ``RIDGE_SHARES`` times the mean variance.

    Parameters
    ----------
    folds
        Moments of x_t of at least two disjoint sets of rows, preferably parties or stretches of
        time.

    Raises
    ------
    ConfigError
        If there are fewer than two folds.
    DataError
        If the folds' variables differ, or a covariance is singular with one of the ridges.
    """
    if len(folds) < 2:
        raise ConfigError(f"a choice by held-out rows needs at least 2 folds, got {len(folds)}")
    unit = merge(folds).mean_variance
    ridges = [share * unit for share in sorted(RIDGE_SHARES, reverse=True)]
    return ridges[int(first_smallest(held_out_losses(folds, ridges)))]


def _precision(moments: SampleMoments, ridge: float) -> tuple[FloatArray, float]:
    """Return ``(S + ridge I)^{-1}`` and the logarithm of the determinant of ``S + ridge I``."""
    check_at_least_zero(ridge=ridge)
    moments.require_complete()
    identity = np.eye(moments.d)
    try:
        factor = scipy.linalg.cholesky(moments.second + ridge * identity, lower=True)
    except np.linalg.LinAlgError as error:
        raise DataError(
            f"the covariance of {moments.d} variables in {moments.n} rows is singular with the "
            f"ridge {ridge}: give a larger one"
        ) from error
    inverse = scipy.linalg.cho_solve((factor, True), identity)
    precision = np.asarray((inverse + inverse.T) / 2.0)
    return precision, 2.0 * float(np.log(np.diagonal(factor)).sum())

"""Contemporaneous partial correlations from moments, with a ridge chosen on held-out rows.

Where series are sampled more slowly than their effects act, as in fMRI, lags tell little and the
partial correlations of x_t rank the pairs best. They are symmetric: no direction is claimed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from flwr_causal.core.linear.moments import merge
from flwr_causal.core.linear.solution import check_at_least_zero
from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.linear.moments import Moments


# Ridges to choose from, as shares of the variables' mean variance.
RIDGE_SHARES = (0.003, 0.01, 0.03, 0.1, 0.2, 0.4)


@single_threaded()
def partial_correlation(moments: Moments, ridge: float) -> FloatArray:
    """Partial correlation of each two variables given all others.

    With ``P = (S + ridge I)^{-1}`` it is ``-P_ij / sqrt(P_ii P_jj)``.

    Parameters
    ----------
    moments
        Moments of x_t: no lags.
    ridge
        In units of the variables' variance; best of standardised moments.

    Returns
    -------
    ``(d, d)`` symmetric, from -1 to 1, the diagonal zero.

    Raises
    ------
    DataError
        If the moments are incomplete, or singular with this ridge.
    ConfigError
        If the ridge is negative.
    """
    precision, _ = _precision(moments, ridge)
    scale = np.sqrt(np.diagonal(precision))
    result: FloatArray = -precision / np.outer(scale, scale)
    np.fill_diagonal(result, 0.0)
    return result


@single_threaded()
def held_out_loss(train: Moments, held_out: Moments, ridge: float) -> float:
    """Negative log-likelihood of held-out rows under the Gaussian N(mean, S + ridge I) of others.

    Per row, in nats: ``1/2 (d log 2 pi + log det + tr(P S_held_out) + bias^T P bias)``. The
    parameters and errors are those of :func:`partial_correlation`.
    """
    precision, log_determinant = _precision(train, ridge)
    bias = held_out.mean - train.mean
    spread = float(np.sum(precision * held_out.second) + bias @ precision @ bias)
    return 0.5 * (train.d * float(np.log(2.0 * np.pi)) + log_determinant + spread)


def held_out_losses(folds: Sequence[Moments], ridges: Sequence[float]) -> FloatArray:
    """Return the mean :func:`held_out_loss` of each ridge, every fold held out in turn.

    The mean is over the rows of all folds. The parameters are those of :func:`select_ridge`.
    """
    totals = np.zeros(len(ridges))
    for k, fold in enumerate(folds):
        train = merge(other for i, other in enumerate(folds) if i != k)
        totals += [fold.n * held_out_loss(train, fold, ridge) for ridge in ridges]
    return totals / sum(fold.n for fold in folds)


def select_ridge(folds: Sequence[Moments]) -> float:
    """Choose the ridge under which every fold is most likely given the others.

    The candidates are ``RIDGE_SHARES`` of the mean variance; of equal ones the largest is chosen.

    Parameters
    ----------
    folds
        Moments of x_t of at least two disjoint sets of rows, best parties or stretches of time.

    Raises
    ------
    ConfigError
        If there are fewer than two folds.
    DataError
        If the folds differ in their variables, or are singular with every ridge.
    """
    if len(folds) < 2:
        raise ConfigError(f"a choice by held-out rows needs at least 2 folds, got {len(folds)}")
    unit = merge(folds).mean_variance
    ridges = [share * unit for share in RIDGE_SHARES]
    losses = held_out_losses(folds, ridges)
    return min(zip(losses, ridges, strict=True), key=lambda trial: (trial[0], -trial[1]))[1]


def _precision(moments: Moments, ridge: float) -> tuple[FloatArray, float]:
    """Return ``(S + ridge I)^{-1}`` and the logarithm of the determinant of ``S + ridge I``."""
    check_at_least_zero(ridge=ridge)
    moments.require_complete()
    identity = np.eye(moments.d)
    try:
        factor = scipy.linalg.cholesky(moments.second + ridge * identity, lower=True)
    except np.linalg.LinAlgError as error:
        raise DataError(
            f"the covariance of {moments.d} variables in {moments.n} rows is singular; give a "
            f"larger ridge (now {ridge})"
        ) from error
    inverse = scipy.linalg.cho_solve((factor, True), identity)
    precision = np.asarray((inverse + inverse.T) / 2.0)
    return precision, 2.0 * float(np.log(np.diagonal(factor)).sum())

"""Least-squares regression of one variable on others, from second moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from flwr_causal.core.linear.moments import distinct, moments_of_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.linear.moments import SampleMoments

# Parents are treated as linearly dependent if a Cholesky pivot of their correlations is below this.
SINGULAR_PIVOT = 1e-7
# Lower limit of residual variances, as a share of the variable's variance. Smaller values are
# rounding errors, whose logarithm is not bounded.
RESIDUAL_FLOOR = 1e-12


def regress(second: FloatArray, parents: IntArray, child: int) -> tuple[FloatArray, float]:
    """Regress one variable on its parents by least squares, from second moments.

    Parameters
    ----------
    second
        ``(d, d)`` second moments; only the entries among ``parents`` and ``child`` are read.
    parents, child
        Indices of the parents and of the variable.

    Returns
    -------
    coefficients, residual_variance
        ``(len(parents),)`` coefficients, and the mean squared residual, 0 where it is not above
        ``RESIDUAL_FLOOR`` of the variance. If the parents are linearly dependent, the coefficients
        are those of least norm in standardised units.
    """
    variance = float(second[child, child])
    if len(parents) == 0:
        return np.zeros(0), variance
    among = second[np.ix_(parents, parents)]
    with_child = second[parents, child]
    # Standardised, so that a small pivot means linear dependence and not small units.
    scale = np.sqrt(np.diagonal(among))
    scale = np.where(scale > 0, scale, 1.0)
    correlation, target = among / np.outer(scale, scale), with_child / scale
    try:
        factor = scipy.linalg.cholesky(correlation, lower=True)
        if np.diagonal(factor).min() < SINGULAR_PIVOT:
            raise np.linalg.LinAlgError
        standardized = scipy.linalg.cho_solve((factor, True), target)
    except np.linalg.LinAlgError:
        standardized = np.linalg.lstsq(correlation, target, rcond=1e-12)[0]
    coefficients = np.asarray(standardized / scale, dtype=np.float64)
    residual = variance - float(coefficients @ with_child)
    return coefficients, residual if residual > RESIDUAL_FLOOR * variance else 0.0


def least_squares(
    moments: SampleMoments | Sequence[SampleMoments], adjacency: ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Regress every variable on its parents by least squares.

    Parameters
    ----------
    moments
        Moments of m variables, or one object for each of the d, see
        :func:`~core.linear.moments.moments_of_variables`. The moments among a variable and its
        parents are read.
    adjacency
        ``(m, d)``: the parents of the first d variables.

    Returns
    -------
    weights, residual_variances
        ``(m, d)`` and ``(d,)``, see :func:`regress`.
    """
    parent_mask = np.asarray(adjacency) != 0
    weights = np.zeros(parent_mask.shape)
    variances = np.zeros(parent_mask.shape[1])
    for j, own in enumerate(moments_of_variables(moments, len(variances))):
        parents = np.flatnonzero(parent_mask[:, j])
        weights[parents, j], variances[j] = regress(own.second, parents, j)
    return weights, variances


def refit(moments: SampleMoments | Sequence[SampleMoments], adjacency: ArrayLike) -> FloatArray:
    """Return the ``(d, d)`` least-squares weights of every variable on its parents.

    Only the moments among a variable and its parents are read; all others may be NaN.
    """
    return least_squares(moments, adjacency)[0]


def intercepts_of(
    moments: SampleMoments | Sequence[SampleMoments], weights: FloatArray
) -> FloatArray:
    """Return the ``(d,)`` intercepts with which the noise has mean 0.

    Parameters
    ----------
    moments
        Moments of m variables, or one for each of the d.
    weights
        ``(m, d)``.
    """
    d = weights.shape[1]
    parts, own = distinct(moments_of_variables(moments, d))
    levels = np.array([part.mean[:d] - part.mean @ weights for part in parts])
    return np.asarray(levels[own, np.arange(d)])


def implied_noise(weights: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the noise variances with which a system has given variances.

    They need no covariances: with ``T = (I - W)^{-1}`` the variance of variable j is
    ``sum_i T[i, j]^2 noise_i``.

    Parameters
    ----------
    weights
        ``(d, d)`` W, of a DAG.
    variances
        ``(d,)`` of the variables.

    Returns
    -------
    ndarray of shape (d,)
        Not positive where the weights explain more than a variable's variance.
    """
    total = np.linalg.inv(np.eye(len(weights)) - weights)
    return np.asarray(np.linalg.solve((total**2).T, variances))


def explained_shares(second: FloatArray) -> FloatArray:
    """Return the share of each variable's variance that all others explain (R2), shape (d,).

    Parameters
    ----------
    second
        ``(d, d)`` second moments. Of a constant the share is 0.
    """
    varies = np.diagonal(second) > 0
    if not varies.all():
        shares = np.zeros(len(second))
        if varies.any():
            shares[varies] = explained_shares(second[np.ix_(varies, varies)])
        return shares
    scale = np.sqrt(np.diagonal(second))
    correlation = second / np.outer(scale, scale)
    try:
        factor = scipy.linalg.cholesky(correlation, lower=True)
        if np.diagonal(factor).min() < SINGULAR_PIVOT:
            raise np.linalg.LinAlgError
    except np.linalg.LinAlgError:  # combinations of each other, which are explained wholly
        d = len(scale)
        left = [regress(correlation, np.delete(np.arange(d), j), j)[1] for j in range(d)]
        return np.clip(1.0 - np.array(left), 0.0, 1.0)
    inverse = scipy.linalg.cho_solve((factor, True), np.eye(len(scale)))
    return np.asarray(1.0 - 1.0 / np.maximum(np.diagonal(inverse), 1.0))


def solved(among: FloatArray, right: FloatArray) -> FloatArray:
    """Solve with second moments among columns, whatever their units and also if some are dependent.

    Parameters
    ----------
    among
        ``(k, k)``.
    right
        ``(k,)`` or ``(k, m)``.
    """
    scale = np.sqrt(np.diagonal(among))
    scale = np.where(scale > 0, scale, 1.0)
    across = scale if right.ndim == 1 else scale[:, None]
    found = np.linalg.lstsq(among / np.outer(scale, scale), right / across, rcond=1e-12)[0]
    return np.asarray(found / across)


def given_others(moments: SampleMoments, count: int) -> SampleMoments:
    """Return the moments of the first columns given all others: of their residuals.

    Parameters
    ----------
    moments
        Of the columns, such as those of a step and of the past.
    count
        How many are left. One row less is counted for each of the others.
    """
    if count == moments.d:
        return moments
    own, others = np.arange(count), np.arange(count, moments.d)
    cross = moments.second[np.ix_(others, own)]
    explained = cross.T @ solved(moments.second[np.ix_(others, others)], cross)
    second = moments.second[:count, :count] - (explained + explained.T) / 2
    rows = max(1, moments.n - len(others))
    return type(moments)(rows, np.zeros(count), second, moments.names[:count])


def informing_rows(moments: SampleMoments, regressors: IntArray, child: int) -> FloatArray:
    """Return how many rows inform about each coefficient of a regression, shape (k,).

    For a coefficient they are the rows in which its regressor and the child are seen, and a share
    of those in which the child alone is missing, by how much of its residual the other columns
    tell. Where another regressor q is missing, the row's residual is that of the regression plus
    what the other columns leave open of q: of residual variance s2, coefficient b and variance v of
    q given all other columns it informs as s2 / (s2 + b^2 v) rows do.

    At 20 to 50 % missing cells 95 % intervals by these rows covered the effects in sparse and dense
    graphs in 93 to 96 %; by the rows in which both are seen in 92 to 95 %.

    Parameters
    ----------
    moments : SampleMoments
        All of its rows inform where no cell is missing (``together`` is None).
    regressors : ndarray of int, shape (k,)
    child : int
    """
    if moments.together is None:
        return np.full(len(regressors), float(moments.n))
    together = moments.together
    coefficients, residual = regress(moments.second, regressors, child)
    left_open = moments.left_open
    told = 1.0 - left_open[child] / residual
    seen, alone = together[regressors, child], np.diagonal(together)[regressors]
    rows = seen + told * (alone - seen)
    lost = 1.0 - residual / (residual + coefficients**2 * left_open[regressors])
    kept = 1.0 - (1.0 - seen / together[child, child]) * lost
    return np.asarray(rows * [np.delete(kept, k).prod() for k in range(len(regressors))])

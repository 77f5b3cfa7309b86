"""The score of a linear Gaussian DAG from moments; lower is better.

It is the negative maximised log-likelihood, up to a constant, plus a cost for every edge. It reads
only the moments among each variable and its parents; all others may be NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

from flwr_causal.core.linear.moments import moments_of_variables, require_varying
from flwr_causal.core.linear.regression import (
    RESIDUAL_FLOOR,
    SINGULAR_PIVOT,
    least_squares,
    regress,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.linear.moments import SampleMoments


# A variable is treated as a linear combination of its parents if its variance given the parents is
# below this share of its variance.
COLLINEAR = 1e-10


def edge_cost(n: float, d: int, gamma: float) -> float:
    """Return the cost of one edge, ``log(n) / 2 + gamma log(d)``.

    ``gamma = 0`` is the ordinary BIC. Positive values give the extended BIC, which takes into
    account the number of possible edges.
    """
    return 0.5 * float(np.log(n)) + gamma * float(np.log(max(d, 1)))


def gaussian_bic(
    moments: SampleMoments | Sequence[SampleMoments], adjacency: ArrayLike, gamma: float = 0.0
) -> float:
    """Return the Gaussian BIC, ``sum_j n_j/2 log(RSS_j / n_j) + cost |E|``.

    Parameters
    ----------
    moments
        Number of rows n and covariances (divisor n). Or one for each variable; the n of the cost is
        then the mean of their n.
    adjacency
        ``(d, d)``: nonzero at ``[i, j]`` where i causes j.
    gamma
        See :func:`edge_cost`. Default: 0, the ordinary BIC.

    Raises
    ------
    DataError
        If a variable is constant.
    """
    edges = np.asarray(adjacency)
    own = moments_of_variables(moments, edges.shape[1])
    require_varying(own)
    _, residuals = least_squares(own, edges)
    floor = RESIDUAL_FLOOR * np.array([part.second[j, j] for j, part in enumerate(own)])
    rows = np.array([part.n for part in own], dtype=np.float64)
    fit = 0.5 * float(rows @ np.log(np.maximum(residuals, floor)))
    return fit + edge_cost(float(rows.mean()), own[0].d, gamma) * np.count_nonzero(edges)


def residual_variances(
    correlation: FloatArray, parents: IntArray, child: int
) -> tuple[float, FloatArray, FloatArray]:
    """Return residual variances of one variable given its parents, with one less, with one more.

    Parameters
    ----------
    correlation
        ``(d, d)`` correlations. With covariances the test for collinearity would depend on units.
    parents, child
        Indices of the parents and of the variable.

    Returns
    -------
    residual, without, with_another
        The residual variance given ``parents``; ``(len(parents),)`` the residual variances without
        each of the parents; ``(d,)`` the residual variances with each variable as a further parent
        (unchanged for a linear combination of the parents).
    """
    variances = np.diagonal(correlation)
    if len(parents) == 0:
        residual = float(variances[child])
        partial, given = correlation[:, child], variances
        without = np.zeros(0)
    else:
        among = correlation[np.ix_(parents, parents)]
        try:
            factor = scipy.linalg.cholesky(among, lower=True, check_finite=False)
            if np.diagonal(factor).min() < SINGULAR_PIVOT:
                raise np.linalg.LinAlgError
            whitened = scipy.linalg.solve_triangular(
                factor, correlation[parents], lower=True, check_finite=False
            )
            inverse_root = scipy.linalg.solve_triangular(
                factor, np.eye(len(parents)), lower=True, check_finite=False
            )
            coefficients = inverse_root.T @ whitened[:, child]
            residual = float(variances[child] - whitened[:, child] @ whitened[:, child])
            without = residual + coefficients**2 / (inverse_root**2).sum(axis=0)
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(among)
            keep = values > COLLINEAR * values[-1]
            whitened = (vectors[:, keep] / np.sqrt(values[keep])).T @ correlation[parents]
            residual = float(variances[child] - whitened[:, child] @ whitened[:, child])
            without = np.array(
                [regress(correlation, parents[parents != p], child)[1] for p in parents]
            )
        partial = correlation[:, child] - whitened.T @ whitened[:, child]
        given = variances - (whitened**2).sum(axis=0)
    independent = given > COLLINEAR * variances
    gain = np.where(independent, partial**2 / np.where(independent, given, 1.0), 0.0)
    with_another = np.maximum(residual - gain, 0.0)
    return residual, without, np.asarray(with_another, dtype=np.float64)


def partial_correlations(correlation: FloatArray, parents: IntArray, child: int) -> FloatArray:
    """Return the absolute partial correlation of one variable with each, given its (other) parents.

    Parameters
    ----------
    correlation, parents, child
        See :func:`residual_variances`.

    Returns
    -------
    ndarray of shape (d,)
        NaN where correlations are; the entry of the variable itself has no meaning.
    """
    residual, without, with_another = residual_variances(correlation, parents, child)
    left = max(residual, RESIDUAL_FLOOR)
    total = np.full(len(with_another), left)
    total[parents] = np.maximum(without, RESIDUAL_FLOOR)
    explained = total - with_another
    explained[parents] = total[parents] - left
    # So small a share of the variance is a rounding error of one that is a combination of others.
    explained[explained < COLLINEAR] = 0.0
    return np.asarray(np.sqrt(np.minimum(explained / total, 1.0)), dtype=np.float64)

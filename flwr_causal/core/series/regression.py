"""Lagged models from moments: ridge and lasso of the present on the past, and DYNOTEARS.

The moments are those of the m = d (1 + p) columns of ``z = [x_t, x_{t-1}, ..., x_{t-p}]``, in this
order. A fit is an ``(m, d)`` array of weights, row causes column: the first d rows are the
instantaneous effects W, the next d the effects A_1 of lag 1, and so on. Moments of parties add up,
so that the fit to their sum is that to the pooled rows.

Ridge and lasso fit lagged effects only (W = 0). For every target j they minimise
``1/2 E (x_j - a^T y)^2`` plus a penalty, where y are the lags, E is the mean over the rows and all
columns are centred. A ridge is therefore in units of the causes' variance, and a sparsity in units
of a covariance of cause and target; for standardised moments both are dimensionless.

DYNOTEARS (Pamfil et al. 2020, eq. 9) fits instantaneous and lagged effects. It is the problem of
NOTEARS on the m columns of z with the edges into lagged columns forbidden: lagged columns lie on no
cycle, and their part of the loss is constant. The solvers for rows without time solve it unchanged.

The lasso is minimised by coordinate descent on second moments (Friedman et al. 2010).

References
----------
Pamfil et al.: DYNOTEARS: structure learning from time-series data, AISTATS 2020.
Friedman, Hastie, Tibshirani: Regularization paths for generalized linear models via coordinate
descent, Journal of Statistical Software 33 (2010), sections 2.2 (covariance updates) and 2.6.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from flwr_causal.core.arrays import to_square
from flwr_causal.core.compiled import compiled
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.limits import check_deadline
from flwr_causal.core.linear.dagma import follow_central_path
from flwr_causal.core.linear.notears import solve_augmented
from flwr_causal.core.linear.solution import check_at_least_zero, check_sparsity
from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.linear.moments import SampleMoments

SolverName = Literal["dagma", "notears"]
SOLVERS = {"dagma": follow_central_path, "notears": solve_augmented}
# Largest number of sweeps of coordinate descent over the causes of one target. A few hundred are
# usual; many thousands occur for nearly collinear causes with nearly no penalty.
MAX_SWEEPS = 100_000


def order_of(moments: SampleMoments, num_variables: int) -> int:
    """Return the number of lags p of moments of m = d (1 + p) columns.

    Raises
    ------
    DataError
        If m is not d (1 + p) with at least one lag.
    """
    d, m = num_variables, moments.d
    if d < 1 or m % d or m < 2 * d:
        raise DataError(
            f"moments of {m} columns are not those of {d} variables and their lags: they must be "
            "of [x_t, x_{t-1}, ..., x_{t-p}] with p >= 1"
        )
    return m // d - 1


def leading(moments: SampleMoments, num_variables: int, order: int) -> SampleMoments:
    """Return the moments of x_t and the first ``order`` lags, from the same rows.

    Raises
    ------
    ConfigError
        If ``order`` is not between 1 and the number of lags of the moments.
    """
    if not 1 <= order <= order_of(moments, num_variables):
        raise ConfigError(
            f"order must be from 1 to the {order_of(moments, num_variables)} lags of the moments, "
            f"got {order}"
        )
    return moments.subset(range(num_variables * (1 + order)))


@single_threaded()
def ridge(
    moments: SampleMoments,
    num_variables: int,
    penalty: float,
    *,
    allowed: ArrayLike | None = None,
) -> FloatArray:
    """Regress every variable on the lags with a penalty ``1/2 penalty |a|^2``.

    Parameters
    ----------
    moments
        Moments of the m stacked columns.
    num_variables
        d.
    penalty
        In units of the causes' variance, for the mean of squares (n times as large for their sum).
        0 is least squares, of least norm if the lags are collinear.
    allowed
        ``(m, d)`` mask of the allowed edges; its first d rows are not read. Default: all.

    Returns
    -------
    ``(m, d)`` weights, the first d rows zero.

    Raises
    ------
    DataError
        If a moment is missing, or the columns are not d variables and their lags.
    ConfigError
        If the penalty is negative or the mask has another shape.
    """
    check_at_least_zero(penalty=penalty)
    moments.require_complete()
    usable = _usable(moments, num_variables, allowed)
    d = num_variables
    weights = np.zeros((moments.d, d))
    # Targets with the same allowed causes share one Cholesky factor.
    patterns, group_of = np.unique(usable, axis=1, return_inverse=True)
    for group, pattern in enumerate(patterns.T):
        check_deadline()
        targets = np.flatnonzero(group_of.ravel() == group)
        causes = np.flatnonzero(pattern)
        gram = moments.second[np.ix_(causes, causes)]
        products = moments.second[np.ix_(causes, targets)]
        if penalty == 0:
            solution = np.linalg.lstsq(gram, products, rcond=1e-12)[0]
        else:
            solution = cho_solve(cho_factor(gram + penalty * np.eye(len(causes))), products)
        weights[np.ix_(causes, targets)] = solution
    return weights


@single_threaded()
def lasso(
    moments: SampleMoments,
    num_variables: int,
    sparsity: float,
    *,
    allowed: ArrayLike | None = None,
    required: ArrayLike | None = None,
    start: FloatArray | None = None,
    tolerance: float = 1e-11,
) -> FloatArray:
    """Regress every variable on the lags with a penalty ``sparsity |a|_1``.

    The problem is convex; coordinate descent converges to its minimum.

    Parameters
    ----------
    moments
        Moments of the m stacked columns.
    num_variables
        d.
    sparsity
        In units of a covariance. From the largest covariance of a target with a lag upwards, all
        its weights are zero.
    allowed, required
        ``(m, d)`` masks of the allowed edges, and of the edges without a penalty; their first d
        rows are not read. Default: all, and none.
    start
        ``(m, d)`` weights to start from, such as those for a larger sparsity. Default: zero.
    tolerance
        The descent ends when no weight, times its cause's standard deviation, changes by more than
        this share of the target's standard deviation.

    Returns
    -------
    ``(m, d)`` weights, the first d rows zero.

    Raises
    ------
    DataError
        If a moment is missing, the columns are not d variables and their lags, or the lags are so
        nearly collinear that the descent does not converge.
    ConfigError
        If the sparsity is negative or a mask has another shape.
    """
    # Imported here because it loads numba, which takes longer than most uses of this module.

    check_at_least_zero(sparsity=sparsity, tolerance=tolerance)
    moments.require_complete()
    d, m = num_variables, moments.d
    penalties = np.where(_usable(moments, d, allowed), sparsity, np.inf)
    penalties[_mask(required, (m, d), "required")] = 0.0
    weights = np.zeros((d, m - d)) if start is None else np.array(start[d:].T, order="C")
    gram = np.ascontiguousarray(moments.second[d:, d:])
    products = np.ascontiguousarray(moments.second[:d, d:])
    columns = np.ascontiguousarray(penalties[d:].T)
    tolerances = tolerance * np.sqrt(moments.variances[:d])
    moving = 0
    for target in range(d):
        check_deadline()
        own = slice(target, target + 1)
        moving += descend(
            gram, products[own], columns[own], weights[own], tolerances[own], MAX_SWEEPS
        )
    if moving:
        raise DataError(
            f"the lasso of {moving} variables did not converge, because their lags are nearly "
            f"collinear: raise the sparsity (now {sparsity}) or leave variables out"
        )
    return np.vstack([np.zeros((d, d)), weights.T])


@single_threaded()
def dynotears(
    moments: SampleMoments,
    num_variables: int,
    sparsity: float,
    lagged_sparsity: float | None = None,
    *,
    allowed: ArrayLike | None = None,
    required: ArrayLike | None = None,
    solver: SolverName = "dagma",
) -> FloatArray:
    """Minimise ``1/2 E |x - W^T x - A^T y|^2 + sparsity |W|_1 + lagged_sparsity |A|_1``, W acyclic.

    Parameters
    ----------
    moments
        Moments of the m = d (1 + p) stacked columns.
    num_variables
        d.
    sparsity, lagged_sparsity
        Penalties of instantaneous and lagged weights in units of a covariance. Default of
        ``lagged_sparsity``: ``sparsity``.
    allowed, required
        ``(m, d)`` masks of the allowed edges, and of the edges without a penalty. Default: all but
        x_i -> x_i at t, and none.
    solver
        ``"dagma"``, the central path of the log-determinant, or ``"notears"``, the paper's
        augmented Lagrangian.

    Returns
    -------
    ``(m, d)`` weights before any threshold. Small weights may still form cycles of W.

    Raises
    ------
    DataError
        If a moment is missing, or the columns are not d variables and their lags.
    ConfigError
        If a penalty is out of range, a mask has another shape or the solver is unknown.
    """
    if solver not in SOLVERS:
        raise ConfigError(f"unknown solver {solver!r}; known are {', '.join(SOLVERS)}")
    order_of(moments, num_variables)
    moments.require_complete()
    d, m = num_variables, moments.d
    penalties = np.full((m, m), sparsity, dtype=np.float64)
    penalties[d:] = sparsity if lagged_sparsity is None else lagged_sparsity
    check_sparsity(penalties, m)
    allowed_edges = to_square(_mask(allowed, (m, d), "allowed"))
    required_edges = to_square(_mask(required, (m, d), "required"))
    masks = EdgeMasks(allowed_edges & ~np.eye(m, dtype=bool), required_edges)
    return SOLVERS[solver](moments, masks, penalties)[:, :d]


def _usable(moments: SampleMoments, num_variables: int, allowed: ArrayLike | None) -> BoolArray:
    """Return the ``(m, d)`` mask of the allowed lagged edges."""
    order_of(moments, num_variables)  # checks the number of columns
    shape = (moments.d, num_variables)
    usable = _mask(allowed, shape, "allowed")
    usable[:num_variables] = False
    return usable


def _mask(
    values: ArrayLike | None, shape: tuple[int, int], name: Literal["allowed", "required"]
) -> BoolArray:
    """Return a copy of a mask; by default all edges are allowed and none is required."""
    mask = np.full(shape, name == "allowed") if values is None else np.array(values, dtype=bool)
    if mask.shape != shape:
        raise ConfigError(f"the mask of {name} edges must have shape {shape}, got {mask.shape}")
    return mask


@compiled
def descend(
    gram: FloatArray,
    products: FloatArray,
    penalties: FloatArray,
    weights: FloatArray,
    tolerances: FloatArray,
    max_sweeps: int,
) -> int:
    """Minimise ``1/2 a^T G a - g^T a + sum_i penalty_i |a_i|`` for every target, in place.

    A sweep over all causes is followed by sweeps over the causes of nonzero weight until these no
    longer change. The descent ends with a sweep over all causes that changes no weight by more than
    the tolerance.

    Parameters
    ----------
    gram
        ``(q, q)`` second moments G of the causes.
    products
        ``(d, q)`` second moments g of each target with the causes.
    penalties
        ``(d, q)`` penalties of the absolute weights; infinite for edges that are not allowed.
    weights
        ``(d, q)`` start, overwritten by the solution.
    tolerances
        ``(d,)`` largest change ``|delta_i| sqrt(G_ii)`` at the end, in the targets' units.
    max_sweeps
        Largest number of sweeps of one target.

    Returns
    -------
    The number of targets that did not converge in ``max_sweeps`` sweeps.
    """
    num_targets, num_causes = products.shape
    moving = 0
    for j in range(num_targets):
        a = weights[j]
        # Covariance of the residual with the causes, the negative gradient of the loss.
        left = np.empty(num_causes)
        everything = True
        done = False
        for _ in range(max_sweeps):
            if everything:
                # Computed anew, so that the rounding errors of many updates do not add up.
                left[:] = products[j]
                for i in range(num_causes):
                    if a[i] != 0.0:
                        left -= gram[i] * a[i]
            largest = 0.0
            for i in range(num_causes):
                if not everything and a[i] == 0.0:
                    continue
                variance = gram[i, i]
                if variance <= 0.0:
                    continue
                free = left[i] + variance * a[i]
                size = max(abs(free) - penalties[j, i], 0.0) / variance
                change = math.copysign(size, free) - a[i]
                if change != 0.0:
                    a[i] += change
                    left -= gram[i] * change
                    largest = max(largest, abs(change) * math.sqrt(variance))
            still = largest <= tolerances[j]
            done = still and everything
            if done:
                break
            everything = still
        if not done:
            moving += 1
    return moving

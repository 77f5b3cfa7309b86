"""Total effects in linear systems, with standard errors, from second moments.

A total effect is the coefficient of the cause in the regression of the effect on the cause and an
adjustment set. Where moments of that regression are unknown, and for effects over several steps of
time, it is computed from the coefficients of all variables on their parents, as the sum over
directed paths of the products along them. The regressions of different variables are asymptotically
independent, which gives the standard error by the delta method.

References
----------
Henckel, L., Perković, E. & Maathuis, M. H. (2022). Graphical criteria for efficient total effect
estimation via adjustment in causal linear models. JRSS B 84.
Lütkepohl, H. (2005). New introduction to multiple time series analysis. Section 3.7. (Standard
errors of impulse responses.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs import adjustment
from flwr_causal.core.graphs.effect import NO_EFFECT, Effect, estimated
from flwr_causal.core.linear.moments import Moments, by_variable
from flwr_causal.core.linear.regression import regress
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray

# A cause is a linear function of the other variables if they leave this share of its variance.
COLLINEAR_SHARE = 1e-10


def by_regression(
    moments: Moments, cause: int, effect: int, adjusted: Sequence[int], level: float
) -> Effect:
    """Return the effect of a regression on the cause and an adjustment set.

    The standard error is the classical one, the interval that of the t distribution with
    ``n - 2 - len(adjusted)`` degrees of freedom.

    Parameters
    ----------
    moments
        Moments of the rows about their means; those of the regression are read.
    cause, effect
        Indices of the two variables.
    adjusted
        Indices of the adjustment set.
    level
        Of the interval.

    Raises
    ------
    DataError
        If there are too few rows, or the cause is a linear function of the adjustment set.
    ConfigError
        If the level is not between 0 and 1.
    """
    names = tuple(moments.names[k] for k in adjusted)
    degrees = _degrees_of_freedom(moments, 1 + len(adjusted), effect)
    own = regress(moments.second, np.array(adjusted, dtype=np.intp), cause)[1]
    if not own > COLLINEAR_SHARE * moments.second[cause, cause]:
        raise DataError(
            f"{moments.names[cause]} does not vary in these rows, or is a linear function of "
            f"{', '.join(names) or 'nothing'}: no effect of it can be estimated"
        )
    coefficients, residual = regress(moments.second, np.array([cause, *adjusted]), effect)
    error = float(np.sqrt(residual / (degrees * own)))
    return estimated(float(coefficients[0]), error, level, degrees, names)


def total_effect(
    moments: Moments | Sequence[Moments], marks: BoolArray, cause: int, effect: int, level: float
) -> Effect | None:
    """Return the effect by adjustment for the optimal set.

    Parameters
    ----------
    moments
        Moments of the m columns, or one for each variable.
    marks
        ``(m, m)``: a DAG over the columns.
    cause, effect, level
        As in :func:`by_regression`, also errors.

    Returns
    -------
    Effect or None
        None if a moment of the regression is unknown, or the moments are of different rows.
    """
    if not adjustment.is_possible_cause(marks, cause, effect):
        return NO_EFFECT
    if not isinstance(moments, Moments):
        return None
    adjusted = adjustment.optimal_set(marks, cause, effect)
    assert adjusted is not None  # the parents of a descendant's ancestors always are one
    columns = [cause, effect, *adjusted]
    if not np.isfinite(moments.second[np.ix_(columns, columns)]).all():
        return None
    return by_regression(moments, cause, effect, adjusted, level)


def possible_effects(
    moments: Moments, marks: BoolArray, cause: int, effect: int, level: float
) -> list[Effect]:
    """Return an effect for each set of parents that the cause has in a DAG of the class (IDA).

    Parameters
    ----------
    moments
        Moments of the m columns.
    marks
        ``(m, m)``: a CPDAG over the columns, see :mod:`core.graphs.equivalence`.
    cause, effect, level
        As in :func:`by_regression`, also errors.

    Raises
    ------
    DataError
        Also if a moment of a regression is unknown.
    """
    found = []
    for parents, members in adjustment.possible_parents(marks, cause):
        if adjustment.is_possible_cause(members, cause, effect):
            columns = [cause, effect, *parents]
            moments.subset(columns).require_complete()
            found.append(by_regression(moments, cause, effect, parents, level))
        else:
            found.append(NO_EFFECT)
    return found


def along_paths(
    moments: Moments | Sequence[Moments],
    value: float,
    gradient: FloatArray,
    edges: BoolArray,
    level: float,
) -> Effect:
    """Return an effect that is a function of the coefficients of all variables on their parents.

    Parameters
    ----------
    moments
        Moments of m columns, or one for each of the first d; only those within families are read.
    value
        The effect.
    gradient
        ``(m, d)`` derivatives of the effect by the coefficients.
    edges
        ``(m, d)``: the parents of the first d columns.
    level
        Of the interval.

    Raises
    ------
    DataError
        If there are too few rows.
    ConfigError
        If the level is not between 0 and 1.
    """
    own = by_variable(moments, edges.shape[1])
    variance, least = 0.0, np.inf
    for j in np.flatnonzero((edges & (gradient != 0)).any(axis=0)):
        parents, part = np.flatnonzero(edges[:, j]), own[j]
        degrees = _degrees_of_freedom(part, len(parents), int(j))
        among = part.second[np.ix_(parents, parents)]
        scale = np.sqrt(np.diagonal(among))
        change = gradient[parents, j] / scale
        spread = np.linalg.lstsq(among / np.outer(scale, scale), change, rcond=1e-12)[0]
        variance += regress(part.second, parents, int(j))[1] * float(change @ spread) / degrees
        least = min(least, degrees)
    return estimated(value, float(np.sqrt(variance)), level, least)


def _degrees_of_freedom(moments: Moments, num_regressors: int, effect: int) -> int:
    degrees = moments.n - num_regressors - 1
    if degrees < 1:
        raise DataError(
            f"{moments.n} rows are too few for the regression of {moments.names[effect]} on "
            f"{num_regressors} variables: at least {num_regressors + 2} are needed"
        )
    return degrees

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

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from flwr_causal.core.graphs import adjustment
from flwr_causal.core.graphs.effect import NO_EFFECT, Effect, estimated
from flwr_causal.core.graphs.equivalence import consistent_extension
from flwr_causal.core.limits import SMALLEST
from flwr_causal.core.linear.moments import Moments, moments_of_variables
from flwr_causal.core.linear.parties import clustered_error, party_scores
from flwr_causal.core.linear.regression import informing_rows, least_squares, regress, solved
from flwr_causal.core.ties import as_ranked, whole
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray

#: Moments of each party's rows; none where they are unknown or not wanted.
Parties: TypeAlias = "Sequence[Moments]"

# A cause is a linear function of the other variables if they leave this share of its variance.
COLLINEAR_SHARE = 1e-10


def by_regression(
    moments: Moments,
    cause: int,
    effect: int,
    adjusted: Sequence[int],
    level: float,
    parties: Parties = (),
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
    parties
        Moments of each party's rows: the standard error is then clustered by party, and the t
        distribution has a degree of freedom less than there are parties. Default: the classical
        standard error of independent rows.

    Raises
    ------
    DataError
        If there are too few rows, or the cause is a linear function of the adjustment set.
    ConfigError
        If the level is not between 0 and 1.
    """
    names = tuple(moments.names[k] for k in adjusted)
    regressors = np.array([cause, *adjusted], dtype=np.intp)
    rows = informing_rows(moments, regressors, effect)[0]
    degrees = _degrees_of_freedom(moments, whole(rows), 1 + len(adjusted), effect)
    own = regress(moments.second, np.array(adjusted, dtype=np.intp), cause)[1]
    if not own > COLLINEAR_SHARE * moments.second[cause, cause]:
        raise DataError(
            f"{moments.names[cause]} does not vary in these rows, or is a linear function of "
            f"{', '.join(names) or 'nothing'}: no effect of it can be estimated"
        )
    coefficients, residual = regress(moments.second, regressors, effect)
    if parties:
        scores = party_scores(parties, moments.mean, regressors, effect, coefficients)
        contrast = np.eye(len(regressors))[0]
        among = moments.second[np.ix_(regressors, regressors)]
        terms = scores @ solved(among, contrast) / moments.n
        error = clustered_error(terms, moments.n, len(regressors))
        return estimated(float(coefficients[0]), error, level, len(parties) - 1, names)
    error = float(np.sqrt(residual / (degrees * own)))
    return estimated(float(coefficients[0]), error, level, degrees, names)


def total_effect(
    moments: Moments | Sequence[Moments],
    marks: BoolArray,
    cause: int,
    effect: int,
    level: float,
    parties: Parties = (),
) -> Effect | None:
    """Return the effect by adjustment for the optimal set.

    Parameters
    ----------
    moments
        Moments of the m columns, or one for each variable.
    marks
        ``(m, m)``: a DAG over the columns.
    cause, effect, level, parties
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
    return by_regression(moments, cause, effect, adjusted, level, parties)


def possible_effects(
    moments: Moments,
    marks: BoolArray,
    cause: int,
    effect: int,
    level: float,
    parties: Parties = (),
) -> list[Effect]:
    """Return an effect for each set of parents that the cause has in a DAG of the class (IDA).

    The fewest parents come first, of as many the smaller effect: the order of columns is no matter.

    Parameters
    ----------
    moments
        Moments of the m columns.
    marks
        ``(m, m)``: a CPDAG over the columns, see :mod:`core.graphs.equivalence`.
    cause, effect, level, parties
        As in :func:`by_regression`, also errors.

    Raises
    ------
    DataError
        Also if a moment of a regression is unknown.
    """
    found = []
    for parents, members in adjustment.possible_parents(marks, cause):
        if effect not in parents and adjustment.is_possible_cause(members, cause, effect):
            columns = [cause, effect, *parents]
            _require_known(moments.subset(columns), cause=moments.names[cause])
            one = by_regression(moments, cause, effect, parents, level, parties)
        else:
            one = NO_EFFECT
        found.append((len(parents), one))
    return in_order(found)


def possible_effects_along_paths(
    moments: Sequence[Moments],
    marks: BoolArray,
    cause: int,
    effect: int,
    level: float,
    parties: Parties = (),
) -> list[Effect]:
    """Return the effects of :func:`possible_effects` where each variable has its own moments.

    No single regression gives them: each is the sum over directed paths in a DAG of the class in
    which the cause has these parents. Parameters and errors are those of :func:`along_paths`.
    """
    found = []
    for parents, members in adjustment.possible_parents(marks, cause):
        dag = consistent_extension(members)
        assert dag is not None
        if not adjustment.is_possible_cause(dag, cause, effect):
            found.append((len(parents), NO_EFFECT))
            continue
        total = np.linalg.inv(np.eye(len(dag)) - least_squares(moments, dag)[0])
        value, gradient = float(total[cause, effect]), np.outer(total[cause], total[:, effect])
        one = along_paths(moments, value, gradient, dag, level, parties)
        found.append((len(parents), one))
    return in_order(found)


def in_order(found: Sequence[tuple[int, Effect]]) -> list[Effect]:
    """Return effects by their numbers of parents, then by their values."""
    values = np.array([one.value for _, one in found])
    ranked = as_ranked(values / np.abs(values).max(initial=SMALLEST))
    parents = np.array([count for count, _ in found])
    return [found[k][1] for k in np.lexsort((ranked, parents))]


def _require_known(part: Moments, cause: str) -> None:
    """Raise a DataError if a moment of a regression is unknown."""
    unknown = np.argwhere(~np.isfinite(part.second))
    if len(unknown):
        one, other = (part.names[k] for k in unknown[0])
        raise DataError(
            f"the second moment of {one} and {other} is unknown, which the possible effects of "
            f"{cause} need: the method asked for few moments. Run moments, with the same order, "
            "which asks for all; or total_effect, if the graph has all directions"
        )


def along_paths(
    moments: Moments | Sequence[Moments],
    value: float,
    gradient: FloatArray,
    edges: BoolArray,
    level: float,
    parties: Parties = (),
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
    level, parties
        As in :func:`by_regression`.

    Raises
    ------
    DataError
        If there are too few rows.
    ConfigError
        If the level is not between 0 and 1.
    """
    own = moments_of_variables(moments, edges.shape[1])
    variance, least = 0.0, np.inf
    terms, most = np.zeros(len(parties)), 0
    for j in np.flatnonzero((edges & (gradient != 0)).any(axis=0)):
        parents, part = np.flatnonzero(edges[:, j]), own[j]
        degrees = _degrees_of_freedom(part, part.n, len(parents), int(j))
        change = solved(part.second[np.ix_(parents, parents)], gradient[parents, j])
        coefficients, residual = regress(part.second, parents, int(j))
        variance += residual * float(gradient[parents, j] @ change) / degrees
        if parties:
            terms += (
                party_scores(parties, part.mean, parents, int(j), coefficients) @ change / part.n
            )
            most = max(most, len(parents))
        least = min(least, degrees)
    if parties:
        error = clustered_error(terms, own[0].n, most)
        return estimated(value, error, level, len(parties) - 1)
    return estimated(value, float(np.sqrt(variance)), level, least)


def _degrees_of_freedom(moments: Moments, rows: int, num_regressors: int, effect: int) -> int:
    degrees = rows - num_regressors - 1
    if degrees < 1:
        raise DataError(
            f"{rows} rows are too few for the regression of {moments.names[effect]} on "
            f"{num_regressors} variables: at least {num_regressors + 2} are needed"
        )
    return degrees

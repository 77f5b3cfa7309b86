"""Total effects, with standard errors, from second moments of blocks of columns.

A variable is a block of columns, a number one column. An effect is a contrast of coefficients of
the regression of the effect's columns on those of the cause and an adjustment set. Where moments of
that regression are unknown, and for effects over several steps of time, it is computed from the
coefficients of all variables on their parents, as the sum over directed paths of the products along
them. The regressions of different variables are asymptotically independent, which gives the
standard error by the delta method.

References
----------
Henckel, L., Perković, E. & Maathuis, M. H. (2022). Graphical criteria for efficient total effect
estimation via adjustment in causal linear models. JRSS B 84.
Lütkepohl, H. (2005). New introduction to multiple time series analysis. Section 3.7. (Standard
errors of impulse responses.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.answers import NO_EFFECT, Effect, estimated
from flwr_causal.core.graphs import adjustment
from flwr_causal.core.graphs.equivalence import consistent_extension
from flwr_causal.core.limits import SMALLEST
from flwr_causal.core.linear.moments import SampleMoments, moments_of_variables
from flwr_causal.core.linear.parties import clustered_error, party_scores
from flwr_causal.core.linear.regression import (
    RESIDUAL_FLOOR,
    informing_rows,
    least_squares,
    solved,
)
from flwr_causal.core.ties import as_ranked, whole
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# A contrast is not estimated if the columns of the adjustment set explain all but this share of it.
COLLINEAR = 1e-8
# Directions of the regressors' correlations with less than this share of the largest are none.
SINGULAR = 1e-10


class Blocks(NamedTuple):
    """Second moments of blocks of columns, a block for each variable.

    Attributes
    ----------
    names
        Of the m variables; with lags the d at t come first.
    columns
        Of each variable.
    moments
        Of the rows about their means, or of the first d variables each its own.
    parties
        Moments of each party's rows: standard errors are then clustered by party, and t
        distributions have a degree of freedom less than there are parties. Default: the classical
        standard errors of independent rows.
    """

    names: Sequence[str]
    columns: Sequence[IntArray]
    moments: SampleMoments | Sequence[SampleMoments]
    parties: Sequence[SampleMoments] = ()

    def of(self, variables: Sequence[int] | IntArray) -> IntArray:
        """Return the columns of variables side by side."""
        none = np.empty(0, dtype=np.intp)
        return np.concatenate([none, *[self.columns[k] for k in variables]])


class Contrast(NamedTuple):
    """The change of the cause's columns, and the weights of the effect's columns."""

    change: FloatArray
    outcome: FloatArray


def by_adjustment(
    blocks: Blocks, pair: tuple[int, int], adjusted: Sequence[int], asked: Contrast, level: float
) -> Effect:
    """Return the contrast of a regression on the cause and an adjustment set.

    The standard error is the classical one, the interval that of the t distribution.

    Parameters
    ----------
    blocks
        Its moments are of the same rows for all variables; those of the regression are read.
    pair
        The cause and the effect.
    adjusted
        The adjustment set.
    asked
        The contrast.
    level
        Of the interval.

    Raises
    ------
    DataError
        If there are too few rows, or the adjustment set determines the change of the cause.
    ConfigError
        If the level is not between 0 and 1.
    """
    i, j = pair
    moments = blocks.moments
    assert isinstance(moments, SampleMoments)
    regressors, outcome = blocks.of([i, *adjusted]), blocks.columns[j]
    second = moments.second
    among = second[np.ix_(regressors, regressors)]
    cross = second[np.ix_(regressors, outcome)] @ asked.outcome
    wanted = np.concatenate([asked.change, np.zeros(len(regressors) - len(asked.change))])
    scale = np.sqrt(np.diagonal(among))
    scale = np.where(scale > 0, scale, 1.0)
    units, target, change = among / np.outer(scale, scale), cross / scale, wanted / scale
    found, _, rank, _ = np.linalg.lstsq(units, np.column_stack([change, target]), rcond=SINGULAR)
    weights, coefficients = found.T
    names = tuple(blocks.names[k] for k in adjusted)
    rows = whole(float(informing_rows(moments, regressors, int(outcome[0]))[0]))
    degrees = _degrees_of_freedom(rows, int(rank), blocks.names[j])
    if np.abs(units @ weights - change).max() > COLLINEAR * np.abs(change).max():
        raise DataError(
            f"{blocks.names[i]} does not vary in these rows, or is a linear function of "
            f"{', '.join(names) or 'nothing'}: no effect of it can be estimated"
        )
    value = float(change @ coefficients)
    if blocks.parties:
        scores = party_scores(
            blocks.parties, moments.mean, regressors, (outcome, asked.outcome), coefficients / scale
        )
        terms = scores @ (weights / scale) / moments.n
        error = clustered_error(terms, moments.n, len(regressors))
        return estimated(value, error, level, len(blocks.parties) - 1, names)
    own = float(asked.outcome @ second[np.ix_(outcome, outcome)] @ asked.outcome)
    residual = own - float(target @ coefficients)
    residual = residual if residual > RESIDUAL_FLOOR * own else 0.0
    error = float(np.sqrt(residual / degrees * max(change @ weights, 0.0)))
    return estimated(value, error, level, degrees, names)


def by_optimal_set(
    blocks: Blocks, marks: BoolArray, pair: tuple[int, int], asked: Contrast, level: float
) -> Effect | None:
    """Return the effect by adjustment for the optimal set.

    Parameters
    ----------
    blocks, pair, asked, level
        As in :func:`by_adjustment`, also errors.
    marks
        ``(m, m)``: a DAG or a class over the variables, see :mod:`core.graphs.equivalence`.

    Returns
    -------
    Effect or None
        None if the class leaves it open, a moment of the regression is unknown, or the moments are
        of different rows.
    """
    if not adjustment.is_possible_cause(marks, *pair):
        return NO_EFFECT
    adjusted = adjustment.optimal_set(marks, *pair)
    if adjusted is None or not isinstance(blocks.moments, SampleMoments):
        return None
    columns = blocks.of([*pair, *adjusted])
    if not np.isfinite(blocks.moments.second[np.ix_(columns, columns)]).all():
        return None
    return by_adjustment(blocks, pair, adjusted, asked, level)


def possible_effects(
    blocks: Blocks, marks: BoolArray, pair: tuple[int, int], asked: Contrast, level: float
) -> list[Effect]:
    """Return an effect for each set of parents that the cause has in a DAG of the class (IDA).

    The fewest parents come first, of as many the smaller effect: the order of columns is no matter.

    Parameters
    ----------
    blocks, marks, pair, asked, level
        As in :func:`by_optimal_set`, also errors. Where each variable has moments of its own, no
        single regression gives the effects: each is the sum over directed paths in a DAG of the
        class in which the cause has these parents, and the variables are numbers without lags.

    Raises
    ------
    DataError
        Also if a moment of a regression is unknown.
    """
    cause, effect = pair
    found: list[tuple[int, Effect]] = []
    for parents, members in adjustment.possible_parents(marks, cause):
        one = NO_EFFECT
        if not isinstance(blocks.moments, SampleMoments):
            dag = consistent_extension(members)
            assert dag is not None
            if adjustment.is_possible_cause(dag, cause, effect):
                total = np.linalg.inv(np.eye(len(dag)) - least_squares(blocks.moments, dag)[0])
                amount = float(asked.change[0] * asked.outcome[0])
                value = amount * float(total[cause, effect])
                gradient = amount * np.outer(total[cause], total[:, effect])
                one = along_paths(blocks, value, gradient, dag, level)
        elif effect not in parents and adjustment.is_possible_cause(members, cause, effect):
            _require_known(blocks.moments, blocks.of([cause, effect, *parents]))
            one = by_adjustment(blocks, pair, parents, asked, level)
        found.append((len(parents), one))
    return _in_order(found)


def _in_order(found: Sequence[tuple[int, Effect]]) -> list[Effect]:
    """Return effects by their numbers of parents, then by their values."""
    values = np.array([one.value for _, one in found])
    ranked = as_ranked(values / np.abs(values).max(initial=SMALLEST))
    parents = np.array([count for count, _ in found])
    return [found[k][1] for k in np.lexsort((ranked, parents))]


def _require_known(moments: SampleMoments, columns: IntArray) -> None:
    """Raise a DataError if a moment of a regression, the first column of the cause, is unknown."""
    unknown = np.argwhere(~np.isfinite(moments.second[np.ix_(columns, columns)]))
    if len(unknown):
        cause, one, other = (moments.names[columns[k]] for k in (0, *unknown[0]))
        raise DataError(
            f"the second moment of {one} and {other} is unknown, which the possible effects of "
            f"{cause} need: the method asked for few moments. Run moments, with the same order, "
            "which asks for all; or total_effect, if the graph has all directions"
        )


def along_paths(
    blocks: Blocks, value: float, gradient: FloatArray, edges: BoolArray, level: float
) -> Effect:
    """Return an effect that is a function of the coefficients of all variables on their parents.

    Parameters
    ----------
    blocks
        Of its moments those within families are read.
    value
        The effect.
    gradient
        Its derivatives by the coefficients of the columns of the first d variables on all columns.
    edges
        ``(m, d)``: the parents of the first d variables.
    level
        Of the interval.

    Raises
    ------
    DataError
        If there are too few rows.
    ConfigError
        If the level is not between 0 and 1.
    """
    own_moments = moments_of_variables(blocks.moments, edges.shape[1])
    variance, least = 0.0, np.inf
    terms, most = np.zeros(len(blocks.parties)), 0
    for j, part in enumerate(own_moments):
        own, regressors = blocks.columns[j], blocks.of(np.flatnonzero(edges[:, j]))
        slopes, second = gradient[np.ix_(regressors, own)], part.second
        if not slopes.any():
            continue
        rows = whole(float(informing_rows(part, regressors, int(own[0]))[0]))
        degrees = _degrees_of_freedom(rows, len(regressors), blocks.names[j])
        among, cross = second[np.ix_(regressors, regressors)], second[np.ix_(regressors, own)]
        coefficients, change = solved(among, cross), solved(among, slopes)
        # The columns of a variable have one design, and residuals that are correlated.
        left = second[np.ix_(own, own)] - cross.T @ coefficients
        variance += float(((slopes.T @ change) * left).sum()) / degrees
        least = min(least, degrees)
        for column, fitted, by in zip(own, coefficients.T, change.T, strict=True):
            if blocks.parties:
                outcome = np.array([column]), np.ones(1)
                scores = party_scores(blocks.parties, part.mean, regressors, outcome, fitted)
                terms += scores @ by / part.n
                most = max(most, len(regressors))
    if blocks.parties:
        error = clustered_error(terms, own_moments[0].n, most)
        return estimated(value, error, level, len(blocks.parties) - 1)
    return estimated(value, float(np.sqrt(max(variance, 0.0))), level, least)


def _degrees_of_freedom(rows: int, num_regressors: int, effect: str) -> int:
    degrees = rows - num_regressors - 1
    if degrees < 1:
        raise DataError(
            f"{rows} rows are too few for the regression of {effect} on "
            f"{num_regressors} columns: at least {num_regressors + 2} are needed"
        )
    return degrees

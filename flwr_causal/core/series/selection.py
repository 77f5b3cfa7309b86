"""Choosing order, method and penalty of a lagged model by held-out error, from sums alone.

A fold is a disjoint set of rows: one party, or a stretch of time. All folds hold moments of the
largest order; smaller orders read their leading columns, so that every candidate is judged on the
same rows. A candidate is fitted to the sum of the other folds, and its squared error on the fold
that was left out is a quadratic form in that fold's moments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from flwr_causal.core.linear.moments import merge
from flwr_causal.core.series.regression import dynotears, lasso, leading, order_of, ridge
from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.linear.moments import Moments


MethodName = Literal["ridge", "lasso", "dynotears"]
METHODS: tuple[MethodName, ...] = ("ridge", "lasso", "dynotears")

# Penalties to choose from. Ridges are multiples of d / n of the mean variance of x_t, at which the
# noise of n rows outweighs effects of all d variables together; sparsities are multiples of
# sqrt(log d / n) of it, about the largest covariance that is noise alone.
RIDGE_MULTIPLES = (0.02, 0.06, 0.2, 0.6, 2.0, 6.0, 20.0, 60.0)
SPARSITY_MULTIPLES = (0.12, 0.18, 0.3, 0.42, 0.6, 0.85, 1.2, 1.7)
# Sparsities of DYNOTEARS are shares of the mean variance, whatever n. With many rows held-out error
# always favours less, but a path with next to no penalty ends in worse directions: on NetSim with
# 50 subjects in d = 5, 10, 15 the AUROC of |W| is 1.00, .96, .88 at the least of these, and .63,
# .27, .35 at the multiples of sqrt(log d / n) of about .0025 that the error prefers to them.
INSTANTANEOUS_SHARES = (0.02, 0.05, 0.1, 0.15, 0.2)
# Fits that are only compared end at this tolerance.
SELECTION_TOLERANCE = 1e-6
# By how much the instantaneous part must lower the held-out error, as a share of it. It saves .04
# to .13 on NetSim (15 subjects, 200 steps in five stretches) and at most .002 on DREAM4 (networks 1
# to 3 of size 100, centred by phase).
INSTANTANEOUS_MARGIN = 0.02


class Recipe(NamedTuple):
    """How to fit: number of lags, method, and its penalty in the units of the moments."""

    order: int
    method: MethodName
    penalty: float


class Trial(NamedTuple):
    """A recipe that was tried, and its held-out squared error per row and variable."""

    recipe: Recipe
    error: float


class LaggedSelection(NamedTuple):
    """The table of all trials, orders, methods and penalties in the order they were given."""

    table: tuple[Trial, ...]

    def best(self, method: MethodName | None = None) -> Trial:
        """Return the trial of least error, among all or those of one method.

        Of equal errors the smaller order wins, then the larger penalty.

        Raises
        ------
        ConfigError
            If there is no such trial.
        """
        among = [trial for trial in self.table if method in (None, trial.recipe.method)]
        if not among:
            raise ConfigError(f"no candidate of method {method} was tried")
        return min(among, key=lambda t: (t.error, t.recipe.order, -t.recipe.penalty))

    @property
    def instantaneous_gain(self) -> float:
        """Share of the least error of lagged effects alone that DYNOTEARS' least error saves.

        Negative where it errs more. Needs trials of both kinds.
        """
        lagged = [t.error for t in self.table if t.recipe.method != "dynotears"]
        if not lagged:
            raise ConfigError("without a lagged candidate there is nothing to compare with")
        least = min(lagged)
        return 1.0 - self.best("dynotears").error / least if least > 0 else 0.0

    def trusts_instantaneous(self) -> bool:
        """Whether instantaneous effects lower the error by more than ``INSTANTANEOUS_MARGIN``."""
        return self.instantaneous_gain > INSTANTANEOUS_MARGIN


def standardized_folds(folds: Sequence[Moments]) -> list[Moments]:
    """Folds in units of the pooled standard deviations.

    Raises
    ------
    DataError
        If a column is constant in all folds together.
    """
    _, scale = merge(folds).standardized()
    return [fold.scaled(scale) for fold in folds]


def one_step_error(weights: FloatArray, train: Moments, held_out: Moments) -> float:
    """Mean squared error, per row and variable, of the fit's prediction of held-out rows.

    Parameters
    ----------
    weights
        ``(m, d)`` fitted to ``train``; instantaneous effects read x_t as it is.
    train
        What the weights were fitted to: its means give the intercepts.
    held_out
        Moments of other rows.
    """
    m, d = weights.shape
    residual = np.eye(m, d) - weights
    bias = (held_out.mean - train.mean) @ residual
    squared = float(np.sum(residual * (held_out.second @ residual))) + float(np.sum(bias**2))
    return squared / float(d)


@single_threaded()
def select(
    folds: Sequence[Moments],
    num_variables: int,
    *,
    orders: Sequence[int] | None = None,
    methods: Sequence[MethodName] = ("ridge", "lasso"),
    penalties: Mapping[MethodName, Sequence[float]] | None = None,
    allowed: ArrayLike | None = None,
    required: ArrayLike | None = None,
    lagged_sparsity: float = 1.0,
) -> LaggedSelection:
    """Try every order with every method and penalty, each fold left out once.

    Parameters
    ----------
    folds
        Moments of the m = d (1 + p) stacked columns, of at least two disjoint sets of rows. Their
        order does not matter.
    num_variables
        d.
    orders
        Numbers of lags to try. Default: 1 to p.
    methods
        ``"ridge"``, ``"lasso"`` (lagged effects alone), ``"dynotears"`` (instantaneous ones too).
    penalties
        Values to try of a method, in the units of the moments. Default: :func:`default_penalties`.
    allowed, required
        ``(m, d)`` masks, as the fits take them (ridge has no use for ``required``).
    lagged_sparsity
        DYNOTEARS' sparsity of lagged weights in units of that of instantaneous ones.

    Raises
    ------
    ConfigError
        If there are fewer than two folds, no candidates, or an unknown method or order.
    DataError
        If the folds' columns differ or are not those of d variables and their lags.
    """
    if len(folds) < 2:
        raise ConfigError(f"a choice by held-out rows needs at least 2 folds, got {len(folds)}")
    everything = merge(folds)
    largest = order_of(everything, num_variables)
    tried = list(range(1, largest + 1)) if orders is None else list(orders)
    grids = dict(default_penalties(everything, num_variables)) | dict(penalties or {})
    unknown = sorted({*methods, *grids} - set(METHODS))
    if unknown:
        raise ConfigError(f"unknown methods {unknown}; known are {', '.join(METHODS)}")
    if not tried or not any(len(grids[method]) for method in methods):
        raise ConfigError("there is no candidate: give at least one order, method and penalty")
    recipes = [
        Recipe(order, method, float(penalty))
        for order in tried
        for method in methods
        for penalty in grids[method]
    ]
    errors = dict.fromkeys(recipes, 0.0)
    for k, fold in enumerate(folds):
        train = merge(other for i, other in enumerate(folds) if i != k)
        for order in tried:
            part = leading(train, num_variables, order)
            held_out = leading(fold, num_variables, order)
            masks = [
                None if mask is None else np.asarray(mask, dtype=bool)[: part.d]
                for mask in (allowed, required)
            ]
            for method in methods:
                wanted = sorted({r for r in recipes if r[:2] == (order, method)}, reverse=True)
                for recipe, weights in _fits(part, num_variables, wanted, masks, lagged_sparsity):
                    errors[recipe] += fold.n * one_step_error(weights, part, held_out)
    return LaggedSelection(tuple(Trial(r, errors[r] / everything.n) for r in errors))


def default_penalties(moments: Moments, num_variables: int) -> dict[MethodName, tuple[float, ...]]:
    """Penalties to try by method, for moments of all rows; see ``SPARSITY_MULTIPLES``."""
    d, n = num_variables, moments.n
    unit = float(moments.variances[:d].mean())
    share = unit * d / n
    noise = unit * float(np.sqrt(np.log(max(d, 2)) / n))
    return {
        "ridge": tuple(multiple * share for multiple in RIDGE_MULTIPLES),
        "lasso": tuple(multiple * noise for multiple in SPARSITY_MULTIPLES),
        "dynotears": tuple(part * unit for part in INSTANTANEOUS_SHARES),
    }


def _fits(
    moments: Moments,
    num_variables: int,
    recipes: Sequence[Recipe],
    masks: Sequence[BoolArray | None],
    lagged_sparsity: float,
) -> Iterator[tuple[Recipe, FloatArray]]:
    """Fit recipes of one order and method, penalties falling: a lasso starts from the last one."""
    allowed, required = masks
    weights: FloatArray | None = None
    for recipe in recipes:
        _, method, penalty = recipe
        if method == "ridge":
            weights = ridge(moments, num_variables, penalty, allowed=allowed)
        elif method == "lasso":
            weights = lasso(
                moments,
                num_variables,
                penalty,
                allowed=allowed,
                required=required,
                start=weights,
                tolerance=SELECTION_TOLERANCE,
            )
        else:
            lagged = penalty * lagged_sparsity
            weights = dynotears(
                moments, num_variables, penalty, lagged, allowed=allowed, required=required
            )
        yield recipe, weights

"""Choice of order, method and penalty of a lagged model by held-out error, from moments alone.

The rows are divided into folds: parties, or stretches of time. The folds' moments are those of the
largest order; a smaller order reads their first columns, so that all candidates are compared on the
same rows. Each fold is held out once: a candidate is fitted to the moments of the other folds, and
its squared error on the held-out rows is a quadratic form in their moments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from flwr_causal.core.limits import SMALLEST, check_deadline
from flwr_causal.core.linear.moments import merge
from flwr_causal.core.series.regression import dynotears, lasso, leading, order_of, ridge
from flwr_causal.core.threads import single_threaded
from flwr_causal.core.ties import first_smallest
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.linear.moments import Moments


MethodName = Literal["ridge", "lasso", "dynotears"]
METHODS: tuple[MethodName, ...] = ("ridge", "lasso", "dynotears")

# Candidate penalties. Ridges are multiples of d / n times the mean variance of x_t, where the noise
# of n rows outweighs the effects of all d variables together; sparsities are multiples of
# sqrt(log d / n) times that variance, about the largest covariance by chance.
RIDGE_MULTIPLES = (0.02, 0.06, 0.2, 0.6, 2.0, 6.0, 20.0, 60.0)
SPARSITY_MULTIPLES = (0.12, 0.18, 0.3, 0.42, 0.6, 0.85, 1.2, 1.7)
# Sparsities of DYNOTEARS are shares of the mean variance for every n. With many rows the held-out
# error always favours a smaller sparsity, but with nearly none the directions get worse: on NetSim
# with 50 subjects and d = 5, 10, 15 the AUROC of |W| is 1.00, .96, .88 at the least of these
# shares, and .63, .27, .35 at shares of about .0025, multiples of sqrt(log d / n), which have a
# smaller error.
INSTANTANEOUS_SHARES = (0.02, 0.05, 0.1, 0.15, 0.2)
# Tolerance of fits that are used only to compare candidates.
SELECTION_TOLERANCE = 1e-6
# Share of the held-out error by which instantaneous effects must reduce it. They reduce it by .04
# to .13 on NetSim (15 subjects, 200 steps in five stretches) and by at most .002 on DREAM4
# (networks 1 to 3 of size 100, centred by phase).
INSTANTANEOUS_MARGIN = 0.02


class Recipe(NamedTuple):
    """A candidate: number of lags, method, and penalty in the units of the moments."""

    order: int
    method: MethodName
    penalty: float


class Trial(NamedTuple):
    """A candidate and its held-out squared error per row and variable."""

    recipe: Recipe
    error: float


class LaggedSelection(NamedTuple):
    """All trials, by order, method and penalty as given to :func:`select`."""

    table: tuple[Trial, ...]

    def best(self, method: MethodName | None = None) -> Trial:
        """Return the trial of least error, of all methods or of one.

        Of trials with equal errors it is the one of the smaller order, then of the larger penalty.

        Raises
        ------
        ConfigError
            If there is no trial of that method.
        """
        among = [trial for trial in self.table if method in (None, trial.recipe.method)]
        if not among:
            raise ConfigError(f"no candidate of method {method} was tried")
        among.sort(key=lambda trial: (trial.recipe.order, -trial.recipe.penalty))
        errors = np.maximum([trial.error for trial in among], SMALLEST)
        return among[int(first_smallest(np.log(errors)))]

    @property
    def instantaneous_gain(self) -> float:
        """``1 - e / e_lagged`` of the least errors of DYNOTEARS and of lagged effects alone.

        Negative if DYNOTEARS has the larger error.

        Raises
        ------
        ConfigError
            If there are no trials of DYNOTEARS, or none of another method.
        """
        lagged = [t.error for t in self.table if t.recipe.method != "dynotears"]
        if not lagged:
            raise ConfigError("no candidate with lagged effects alone was tried")
        least = min(lagged)
        return 1.0 - self.best("dynotears").error / least if least > 0 else 0.0

    def trusts_instantaneous(self) -> bool:
        """Whether the gain by instantaneous effects exceeds ``INSTANTANEOUS_MARGIN``."""
        return self.instantaneous_gain > INSTANTANEOUS_MARGIN


def standardized_folds(folds: Sequence[Moments]) -> list[Moments]:
    """Return the folds in units of the pooled standard deviations.

    Raises
    ------
    DataError
        If a column is constant in all folds together.
    """
    _, scale = merge(folds).standardized()
    return [fold.scaled(scale) for fold in folds]


def one_step_error(weights: FloatArray, train: Moments, held_out: Moments) -> float:
    """Return the mean squared error of a fit on held-out rows, per row and variable.

    Parameters
    ----------
    weights
        ``(m, d)`` weights, fitted to ``train``; instantaneous effects use the observed x_t.
    train
        Moments of the training rows, whose means determine the intercepts.
    held_out
        Moments of the held-out rows.
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
    """Compute the held-out error of every order with every method and penalty.

    Parameters
    ----------
    folds
        Moments of the m = d (1 + p) stacked columns, of at least two disjoint sets of rows. The
        result does not depend on their order.
    num_variables
        d.
    orders
        Numbers of lags to try. Default: 1 to p.
    methods
        ``"ridge"``, ``"lasso"`` (lagged effects alone), ``"dynotears"`` (instantaneous ones too).
    penalties
        Penalties to try by method, in the units of the moments. Default:
        :func:`default_penalties`.
    allowed, required
        ``(m, d)`` masks, see :func:`~core.series.regression.lasso`; ridge ignores ``required``.
    lagged_sparsity
        DYNOTEARS' sparsity of lagged weights in units of that of instantaneous ones.

    Raises
    ------
    ConfigError
        If there are fewer than two folds, no candidates, an unknown method, or an order beyond p.
    DataError
        If the folds' columns differ, or are not d variables and their lags.
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
    """Return the candidate penalties of each method for the moments of all rows.

    See ``RIDGE_MULTIPLES``, ``SPARSITY_MULTIPLES`` and ``INSTANTANEOUS_SHARES``.
    """
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
    """Fit candidates of one order and method, penalties falling; a lasso starts from the last."""
    allowed, required = masks
    weights: FloatArray | None = None
    for recipe in recipes:
        check_deadline()
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

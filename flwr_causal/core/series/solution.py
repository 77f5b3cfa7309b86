"""The fit of a lagged model to moments, after a choice of order, instantaneous part and penalties.

The moments are those of the m = d (1 + p) columns of ``z = [x_t, x_{t-1}, ..., x_{t-p}]`` over
disjoint folds of rows. A fold may contain rows of any number of parties: the result is that of the
pooled rows. Choices are made by the one-step prediction error on held-out folds
(:func:`select`).

The rows are divided into folds: parties, or stretches of time. The folds' moments are those of the
largest order; a smaller order reads their first columns, so that all candidates are compared on the
same rows. Each fold is held out once: a candidate is fitted to the moments of the other folds, and
its squared error on the held-out rows is a quadratic form in their moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.limits import SMALLEST, check_deadline
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments, data_scale, merge, moments_of_variables
from flwr_causal.core.linear.order_search import LEAST_EFFECT, OrderSolution, search_orders
from flwr_causal.core.linear.regression import least_squares
from flwr_causal.core.linear.solution import finish
from flwr_causal.core.series.design import split_blocks
from flwr_causal.core.series.partial_correlation import partial_correlation, select_ridge
from flwr_causal.core.series.regression import dynotears, lasso, leading, order_of, ridge
from flwr_causal.core.threads import single_threaded
from flwr_causal.core.ties import first_smallest
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.series.regression import SolverName

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


def standardized_folds(folds: Sequence[SampleMoments]) -> list[SampleMoments]:
    """Return the folds in units of the pooled standard deviations.

    Raises
    ------
    DataError
        If a column is constant in all folds together.
    """
    _, scale = merge(folds).standardized()
    return [fold.scaled(scale) for fold in folds]


def one_step_error(weights: FloatArray, train: SampleMoments, held_out: SampleMoments) -> float:
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
    folds: Sequence[SampleMoments],
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


def default_penalties(
    moments: SampleMoments, num_variables: int
) -> dict[MethodName, tuple[float, ...]]:
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
    moments: SampleMoments,
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


Regression = Literal["lasso", "ridge", "held-out"]
Ranking = Literal["weights", "partial-correlation+weights"]

# The automatic sparsity is this factor times sqrt(log d / n) times the harmonic mean of the
# variances, which is nearest to the variance of the noise. Measured on the settings of the 2Dbn
# paper (d = 5 to 20, eight (d, n), seeds 100-109) with 1.6 times that sparsity for the lags: the
# summed mean SHD of W + A is 60.4, and about the same from 0.28 to 0.36; the best with one sparsity
# for both blocks is 66.
SPARSITY_FACTOR = 0.3
# Factors on the automatic sparsity among which "bic" chooses.
BIC_FACTORS = (0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0)


class LaggedSolution(NamedTuple):
    """A lagged model fitted to moments.

    Parameters
    ----------
    moments : SampleMoments or sequence of SampleMoments
        Moments of all rows, with the chosen number of lags; or one for each variable.
    raw : ndarray of shape (m, d)
        Penalised weights before the threshold: W stacked on A_1, ..., A_p.
    scores : ndarray of shape (d, d)
        Strengths of the summary graph's edges, for ranking.
    order : int
        The chosen p.
    instantaneous : bool
        Whether W was fitted.
    sparsity, ridge : float
        The penalties, in units of the variables' variance; NaN for a penalty that was not used.
    search : OrderSolution or None
        The search over orders, with ``solver="order"``.
    """

    moments: SampleMoments | Sequence[SampleMoments]
    raw: FloatArray
    scores: FloatArray
    order: int
    instantaneous: bool
    sparsity: float
    ridge: float
    search: OrderSolution | None = None


@dataclass(frozen=True, kw_only=True)
class LaggedProblem:
    """The options of a fit and of the choices before it.

    Parameters
    ----------
    masks : EdgeMasks
        Background knowledge over the m columns, ``(m, m)``.
    thresholds : ndarray of shape (m, 1)
        Thresholds on the absolute weights of each column's effects. "bic" scores the graphs after
        the thresholds.
    select_order : bool or int
        A number is p. Else whether p is chosen, from 1 to the order of the moments, by the error of
        predictions from the past alone (the reduced form of a system with instantaneous effects has
        the same p). Orders below the largest lag of a required edge are not tried.
    instantaneous : bool or "auto"
        Whether W is fitted; with "auto" if this lowers the held-out error by 2 %
        (:data:`core.series.solution.INSTANTANEOUS_MARGIN`).
    regression : {"lasso", "ridge", "held-out"}
        Penalty of the effects. "held-out" chooses the one of smaller error in predicting held-out
        rows from the past. With instantaneous effects the lasso is DYNOTEARS; the ridge then fits
        the lagged effects given DYNOTEARS' W.
    ranking : {"weights", "partial-correlation+weights"}
        The scores: absolute weights summed over W and the lags; or, for series sampled too slowly
        to show lags, the sum of these and of the absolute partial correlations of x_t, which are
        symmetric, each in units of its standard deviation off the diagonal.
    sparsity : float or {"auto", "bic", "held-out"}
        Sparsity of the lasso, or of W in DYNOTEARS.
    lagged_sparsity : float
        DYNOTEARS' sparsity of A in units of that of W.
    ridge : float or "held-out"
        Penalty of the ridge.
    solver : {"order", "dagma", "notears"}
        "order" is the search over orders (:mod:`core.linear.order_search`), without penalties; the
        others solve DYNOTEARS' problem.
    least_effect : float
        With "order": least partial correlation of an edge, given the other causes.
    """

    masks: EdgeMasks
    thresholds: FloatArray
    select_order: bool | int = False
    instantaneous: bool | Literal["auto"] = True
    regression: Regression = "lasso"
    ranking: Ranking = "weights"
    sparsity: float | Literal["auto", "bic", "held-out"] = "auto"
    lagged_sparsity: float = 1.0
    ridge: float | Literal["held-out"] = "held-out"
    solver: SolverName | Literal["order"] = "dagma"
    least_effect: float = LEAST_EFFECT

    def solve(
        self,
        folds: Sequence[SampleMoments],
        num_variables: int,
        by_order: Mapping[int, SampleMoments] | None = None,
    ) -> LaggedSolution:
        """Choose order, regression, instantaneous part and penalties, and fit.

        Parameters
        ----------
        folds : sequence of SampleMoments
            Moments of the m stacked columns by fold; one fold is enough if nothing is chosen by
            held-out error.
        num_variables : int
            d.
        by_order : mapping of int to SampleMoments, optional
            Moments by order, of all rows with that number of lags (a smaller order has more rows);
            only the columns of that order are read. The model is fitted to the moments of the
            chosen order if they are given, otherwise to the merged folds.

        Raises
        ------
        DataError
            If a moment is missing or the lags are collinear, as in
            :func:`~core.series.regression.lasso`.
        """
        d = num_variables
        order, regression = self._choose_from_the_past(folds, d)
        folds = [leading(fold, d, order) for fold in folds]
        every = leading(by_order[order], d, order) if by_order and order in by_order else None
        fitting = _Fitting(self, folds, d, merge(folds) if every is None else every)
        with_now = fitting.with_instantaneous()
        if self.solver == "order":
            return self.search(fitting.pooled, d, with_now=with_now)
        sparsity = penalty = np.nan
        sparse = None
        if regression == "lasso" or with_now:
            sparsity = fitting.choose_sparsity(with_now)
            weights = sparse = fitting.sparse(sparsity, with_now)
        if regression == "ridge":
            penalty = fitting.choose_ridge()
            weights = fitting.ridged(penalty, sparse)
        return LaggedSolution(
            moments=fitting.pooled,
            raw=weights,
            scores=fitting.ranked(weights),
            order=order,
            instantaneous=with_now,
            sparsity=sparsity,
            ridge=penalty,
        )

    def search(
        self,
        moments: SampleMoments | Sequence[SampleMoments],
        num_variables: int,
        *,
        with_now: bool = True,
    ) -> LaggedSolution:
        """Search over orders of the variables, with the order p of the moments.

        Parameters
        ----------
        moments : SampleMoments or sequence of SampleMoments
            Moments of the m stacked columns, or one for each variable
            (:mod:`core.interventions.moments`).
        num_variables : int
            d.
        with_now : bool, default True
            Whether W is fitted.
        """
        d, m = num_variables, moments_of_variables(moments, num_variables)[0].d
        masks = self.masks.first(m)
        if not with_now:
            allowed = masks.allowed.copy()
            allowed[:d] = False
            masks = EdgeMasks(allowed, masks.required)
        found = search_orders(moments, masks, num_targets=d, least_effect=self.least_effect)
        return LaggedSolution(
            moments=moments,
            raw=least_squares(moments, found.best.adjacency)[0],
            scores=_strengths(found.strengths),
            order=m // d - 1,
            instantaneous=with_now,
            sparsity=np.nan,
            ridge=np.nan,
            search=found,
        )

    def cut(
        self, moments: SampleMoments | Sequence[SampleMoments], raw: FloatArray, *, refit: bool
    ) -> CausalGraph:
        """Return the graph of the weights ``(m, d)`` above the thresholds, over all m columns.

        With ``refit`` its weights are fitted by least squares, see
        :func:`core.linear.solution.refit_support`.
        """
        m = len(raw)
        masks = self.masks.first(m)
        limits = self.thresholds[:m]
        return finish(moments, to_square(raw), threshold=limits, masks=masks, refit=refit)

    def _choose_from_the_past(
        self, folds: Sequence[SampleMoments], d: int
    ) -> tuple[int, Literal["lasso", "ridge"]]:
        """Choose order and regression by the error of predictions from the past alone."""
        largest, regression = order_of(folds[0], d), self.regression
        if not isinstance(self.select_order, bool) and regression != "held-out":
            return self.select_order, regression
        if not self.select_order and regression != "held-out":
            return largest, regression
        least = largest
        if self.select_order:
            _, lagged = split_blocks(np.asarray(self.masks.required)[:, :d])
            least = 1 + int(max(np.flatnonzero(lagged.any(axis=(1, 2))), default=0))
        methods: tuple[MethodName, ...] = ("ridge", "lasso")
        if regression != "held-out":
            methods = (regression,)
        orders = range(least, largest + 1)
        tried = select(folds, d, orders=orders, methods=methods, allowed=self.masks.allowed[:, :d])
        recipe = tried.best().recipe
        return recipe.order, "ridge" if recipe.method == "ridge" else "lasso"


class _Fitting:
    """The fits of one problem to folds of one order; held-out errors are computed once."""

    def __init__(
        self, problem: LaggedProblem, folds: Sequence[SampleMoments], d: int, pooled: SampleMoments
    ) -> None:
        self.problem, self.folds, self.d, self.pooled = problem, folds, d, pooled
        self.tried: dict[MethodName, tuple[Trial, ...]] = {}
        m = self.pooled.d
        self.allowed = np.asarray(problem.masks.allowed)[:m, :d]
        self.required = np.asarray(problem.masks.required)[:m, :d]

    def with_instantaneous(self) -> bool:
        """Return whether W is fitted."""
        given = self.problem.instantaneous
        if given != "auto":
            return given
        if self.required[: self.d].any():
            return True
        return self._select("ridge", "lasso", "dynotears").trusts_instantaneous()

    def choose_sparsity(self, with_now: bool) -> float:
        """Return the sparsity of the lasso or of DYNOTEARS."""
        given = self.problem.sparsity
        if isinstance(given, float):
            return given
        if given == "held-out":
            return self._select("dynotears" if with_now else "lasso").best().recipe.penalty
        noise = float(np.sqrt(np.log(max(self.d, 2)) / self.pooled.n))
        automatic = SPARSITY_FACTOR * noise * data_scale(self.pooled.variances[: self.d])
        if given == "auto":
            return automatic
        tried = [factor * automatic for factor in sorted(BIC_FACTORS, reverse=True)]
        scores = [self._bic(self.sparse(sparsity, with_now)) for sparsity in tried]
        return tried[int(first_smallest(scores))]

    def choose_ridge(self) -> float:
        """Return the penalty of the ridge."""
        given = self.problem.ridge
        return given if isinstance(given, float) else self._select("ridge").best().recipe.penalty

    def sparse(self, sparsity: float, with_now: bool) -> FloatArray:
        """Return the weights of the lasso or, with instantaneous effects, of DYNOTEARS."""
        if not with_now:
            return lasso(
                self.pooled, self.d, sparsity, allowed=self.allowed, required=self.required
            )
        assert self.problem.solver != "order"
        lagged = sparsity * self.problem.lagged_sparsity
        return dynotears(
            self.pooled,
            self.d,
            sparsity,
            lagged,
            allowed=self.allowed,
            required=self.required,
            solver=self.problem.solver,
        )

    def ridged(self, penalty: float, sparse: FloatArray | None) -> FloatArray:
        """Return the ridge's weights, fitted to ``x_t - x_t W`` if ``sparse`` has a W."""
        if sparse is None:
            return ridge(self.pooled, self.d, penalty, allowed=self.allowed)
        now = sparse[: self.d]
        change = np.eye(self.pooled.d)
        change[: self.d, : self.d] -= now
        rest = SampleMoments(
            self.pooled.n,
            self.pooled.mean @ change,
            change.T @ self.pooled.second @ change,
            self.pooled.names,
        )
        weights = ridge(rest, self.d, penalty, allowed=self.allowed)
        weights[: self.d] = now
        return weights

    def ranked(self, weights: FloatArray) -> FloatArray:
        """Return the scores of the summary graph's edges, ``(d, d)``."""
        if self.problem.ranking == "weights":
            return _strengths(weights)
        now = standardized_folds([fold.subset(range(self.d)) for fold in self.folds])
        symmetric = np.abs(partial_correlation(merge(now), select_ridge(now)))
        return _normalized(symmetric) + _normalized(_strengths(weights))

    def _bic(self, weights: FloatArray) -> float:
        graph = self.problem.cut(self.pooled, weights, refit=True)
        return gaussian_bic(self.pooled, graph.adjacency)

    def _select(self, *methods: MethodName) -> LaggedSelection:
        """Return the trials of some methods, each of which is tried once."""
        order = order_of(self.pooled, self.d)
        for method in methods:
            if method not in self.tried:
                self.tried[method] = select(
                    self.folds,
                    self.d,
                    orders=(order,),
                    methods=(method,),
                    allowed=self.allowed,
                    required=self.required,
                    lagged_sparsity=self.problem.lagged_sparsity,
                ).table
        return LaggedSelection(tuple(trial for method in methods for trial in self.tried[method]))


def _strengths(weights: FloatArray) -> FloatArray:
    """Return absolute weights ``(m, d)`` summed over W and the lags, ``(d, d)``."""
    d = weights.shape[1]
    blocks = np.abs(weights).reshape(-1, d, d)
    return np.asarray(blocks[0] + blocks[1:].sum(axis=0))


def _normalized(strengths: FloatArray) -> FloatArray:
    """Return strengths in units of their standard deviation off the diagonal; the diagonal is 0.

    All values are 0 if the strengths are equal, in which case they do not rank the edges.
    """
    off_diagonal = ~np.eye(len(strengths), dtype=bool)
    among = strengths[off_diagonal]
    if among.size == 0 or np.ptp(among) == 0:
        return np.zeros_like(strengths)
    return np.asarray(np.where(off_diagonal, strengths / among.std(), 0.0))

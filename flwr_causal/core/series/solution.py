"""The fit of a lagged model to moments, after a choice of order, instantaneous part and penalties.

The moments are those of the m = d (1 + p) columns of ``z = [x_t, x_{t-1}, ..., x_{t-p}]`` over
disjoint folds of rows. A fold may contain rows of any number of parties: the result is that of the
pooled rows. Choices are made by the one-step prediction error on held-out folds
(:mod:`core.series.selection`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import Moments, data_scale, merge, moments_of_variables
from flwr_causal.core.linear.order_search import LEAST_EFFECT, OrderSolution, search_orders
from flwr_causal.core.linear.regression import least_squares
from flwr_causal.core.linear.solution import finish
from flwr_causal.core.series.design import split_blocks
from flwr_causal.core.series.partial_correlation import partial_correlation, select_ridge
from flwr_causal.core.series.regression import dynotears, lasso, leading, order_of, ridge
from flwr_causal.core.series.selection import (
    LaggedSelection,
    MethodName,
    Trial,
    select,
    standardized_folds,
)
from flwr_causal.core.ties import first_smallest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.series.regression import SolverName


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
    moments : Moments or sequence of Moments
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

    moments: Moments | Sequence[Moments]
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
        (:data:`core.series.selection.INSTANTANEOUS_MARGIN`).
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
        folds: Sequence[Moments],
        num_variables: int,
        by_order: Mapping[int, Moments] | None = None,
    ) -> LaggedSolution:
        """Choose order, regression, instantaneous part and penalties, and fit.

        Parameters
        ----------
        folds : sequence of Moments
            Moments of the m stacked columns by fold; one fold is enough if nothing is chosen by
            held-out error.
        num_variables : int
            d.
        by_order : mapping of int to Moments, optional
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
        self, moments: Moments | Sequence[Moments], num_variables: int, *, with_now: bool = True
    ) -> LaggedSolution:
        """Search over orders of the variables, with the order p of the moments.

        Parameters
        ----------
        moments : Moments or sequence of Moments
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
        self, moments: Moments | Sequence[Moments], raw: FloatArray, *, refit: bool
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
        self, folds: Sequence[Moments], d: int
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
        self, problem: LaggedProblem, folds: Sequence[Moments], d: int, pooled: Moments
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
        rest = Moments(
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

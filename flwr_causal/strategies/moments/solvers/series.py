"""Graphs of time series with lags: any ``order`` of 1 or more, but for classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flwr_causal.core.folds import NUM_FOLDS
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.linear.order_search import ROWS_FOR_ORDERS
from flwr_causal.core.options import bounded
from flwr_causal.core.parts import Part, option, words
from flwr_causal.core.series.design import lagged_graph
from flwr_causal.core.series.solution import LaggedProblem
from flwr_causal.errors import ConfigError
from flwr_causal.strategies.moments.solvers.orders import SearchOfEdges
from flwr_causal.strategies.moments.solvers.penalised import Sparse
from flwr_causal.strategies.moments.solvers.solver import Solved, WeightSolver
from flwr_causal.strategies.series import Lagged, PenalisedLags, by_block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.linear.moments import SampleMoments
    from flwr_causal.core.series.solution import LaggedSolution
    from flwr_causal.sources.products import Products

LAGGED_THRESHOLD = 0.15


@dataclass(frozen=True, kw_only=True)
class FittedLags(Part):
    """Effects within a step and of lags.

    Parameters
    ----------
    select_order : bool, default False
        Choose the number of lags, 1 to ``order``, by the held-out error of one-step predictions.
        All orders are compared on the steps that have ``order`` steps before them; the chosen order
        is then fitted to all steps with that number of lags.
    instantaneous : bool or "auto", default True
        Whether effects within a step are fitted; "auto": if they lower the held-out error by 2 %.
    """

    text = Lagged.text

    select_order: bool = option(False, needs=("folds", "weights"))
    instantaneous: bool | Literal["auto"] = option(
        True, needs={False: ("weights",), "auto": ("folds", "weights")}
    )


class HeldOutRidge(Part):
    """The weight of a squared norm by the error on held-out rows."""

    text = "regression='ridge' and ridge='held-out'"
    needs = words("folds")
    chosen_by = ("regression",)
    instead = "'lasso', or 'ridge' with a number for 'ridge',"


@dataclass(frozen=True, kw_only=True)
class PenalisedSteps(PenalisedLags):
    """Weights with a norm, of the effects of lags too.

    Parameters
    ----------
    regression : {"lasso", "ridge", "held-out"}, default "lasso"
        Penalty of the effects; "held-out" chooses the one of smaller held-out error.
    ranking : {"weights", "partial-correlation+weights"}, default "weights"
        The strengths in ``run.scores``. "partial-correlation+weights" adds contemporaneous partial
        correlations, which are symmetric: for series that are sampled more slowly than effects act,
        as in fMRI.
    """

    text = "time series (order=1 or more) by the solvers 'dagma' or 'notears'"
    needs = words("observed")
    chosen_by = ("order",)
    instead = "0 with the solvers 'dagma' and 'notears'"

    regression: Literal["lasso", "ridge", "held-out"] = option(
        "lasso", needs={"held-out": ("folds",)}
    )
    ranking: Literal["weights", "partial-correlation+weights"] = option("weights", needs="folds")


@dataclass(frozen=True, kw_only=True)
class Ridge(PenalisedSteps):
    """A squared norm of the weights.

    Parameters
    ----------
    ridge : float or "held-out", default "held-out"
        Weight of the squared norm, in units of the variables' variance.
    """

    text = "regression='ridge' or 'held-out'"

    ridge: float | Literal["held-out"] = bounded("held-out", least=0)


@dataclass(frozen=True, kw_only=True)
class LaggedWeights(FittedLags, SearchOfEdges, Sparse, Ridge, WeightSolver):
    """The dynamic Bayesian network of the best score, or of regressions with a norm.

    Parameters
    ----------
    solver : {"auto", "order", "dagma", "notears"}, default "auto"
        "auto" is "order" but for series without known interventions of fewer than 5 rows for each
        column of the lagged design.
    threshold, lagged_threshold : float
        Edges within a step, and of lags, of absolute weight up to this are left out. Default:
        0.15, and for lags as within a step.
    num_lags : int, optional
        The number of lags that was chosen, for replicates. Default: that of the rows, or by
        ``select_order``.
    """

    solver: Literal["auto", "order", "dagma", "notears"] = "auto"
    threshold: float = LAGGED_THRESHOLD
    lagged_threshold: float | None = None
    num_lags: int | None = None

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The parts that the values choose; "auto" chooses as "order" does."""
        if self.solver in ("auto", "order"):
            return (SearchOfEdges,)
        found: list[type[Part]] = [Sparse]
        if self.regression != "lasso" and self.ridge == "held-out":
            found.append(HeldOutRidge)
        return (*found, PenalisedSteps if self.regression == "lasso" else Ridge)

    @property
    def by_score(self) -> bool:
        """Return whether the graph within a step has the best BIC, as of a search over orders."""
        return self.solver in ("auto", "order") and self.instantaneous is True

    @property
    def num_folds(self) -> int:
        """Several to choose by the error on held-out steps."""
        holds_out = (
            self.select_order
            or self.instantaneous == "auto"
            or self.sparsity == "held-out"
            or self.regression == "held-out"
            or (self.regression != "lasso" and self.ridge == "held-out")
            or self.ranking != "weights"
        )
        return NUM_FOLDS if holds_out else 1

    def possible(self, masks: EdgeMasks, num_variables: int) -> EdgeMasks:
        """Return the masks without edges within a step where these are not fitted.

        Raises
        ------
        ConfigError
            If knowledge requires instantaneous edges, and ``instantaneous=False`` leaves them out.
        """
        if self.instantaneous is not False:
            return masks
        d = num_variables
        if masks.required[:d, :d].any():
            raise ConfigError(
                "The background knowledge requires instantaneous edges, and instantaneous=False "
                "leaves them out: state them as lagged edges, or use instantaneous=True."
            )
        allowed = masks.allowed.copy()
        allowed[:d] = False
        return EdgeMasks(allowed, masks.required)

    def solve(self, products: Products, masks: EdgeMasks) -> Solved:
        """Choose penalties and lags, fit the weights, and drop weights below the thresholds."""
        agreement, d = products.agreement, len(products.agreement.names)
        found, problem = self._weights(products, masks)
        over_columns = problem.cut(found.moments, found.raw, refit=self.refit)
        masks = masks.first(len(found.raw))
        graph = lagged_graph(
            agreement.names,
            over_columns.weights[:, :d],
            threshold_now=0,
            threshold_lagged=0,
            raw=found.raw,
            masks=masks,
        )
        penalties = {"sparsity": found.sparsity, "ridge": found.ridge}
        info = {
            "order": found.order,
            "instantaneous": int(found.instantaneous),
            **{name: value for name, value in penalties.items() if np.isfinite(value)},
            **({} if found.search is None else found.search.info),
        }
        outcome = Solved(found.moments, graph, None, found.scores, (), info)
        return self.fitted(products, masks, outcome, found.search)

    def settled(self, outcome: Solved) -> LaggedWeights:
        """Replicates have the order, the penalties and the kind of the main training."""
        info = outcome.info
        chosen: dict[str, Any] = {
            name: info[name] for name in ("sparsity", "ridge") if name in info
        }
        solver = self.solver if self.solver != "auto" else "dagma" if chosen else "order"
        regression = self.regression
        if regression == "held-out":
            regression = "ridge" if "ridge" in info else "lasso"
        return replace(
            self,
            **chosen,
            solver=solver,
            regression=regression,
            lagged_sparsity=self.lagged_factor(self.sparsity),
            instantaneous=bool(info["instantaneous"]),
            ranking="weights",  # others need folds
            num_lags=info["order"] if self.select_order else None,
        )

    def dag(self, products: Products, masks: EdgeMasks, own: Sequence[SampleMoments]) -> BoolArray:
        """Return the best DAG, given moments for each variable."""
        return self._by_orders(masks, own, self.least_effect)

    def _weights(
        self, products: Products, masks: EdgeMasks
    ) -> tuple[LaggedSolution, LaggedProblem]:
        """Return the weights of all edges."""
        agreement, design = products.agreement, products.design
        d, solver, threshold = len(agreement.names), self.solver, self.threshold
        if solver == "auto":
            few = agreement.n < ROWS_FOR_ORDERS * d * (1 + design.order)
            solver = "dagma" if few and not agreement.targets else "order"
        lagged = threshold if self.lagged_threshold is None else self.lagged_threshold
        problem = LaggedProblem(
            masks=masks,
            thresholds=by_block(threshold, lagged, d, design.order),
            select_order=self.num_lags or self.select_order,
            instantaneous=self.instantaneous,
            regression=self.regression,
            ranking=self.ranking,
            sparsity=self.sparsity,
            lagged_sparsity=self.lagged_factor(self.sparsity),
            ridge=self.ridge,
            solver=solver,
            least_effect=self.least_effect,
        )
        if agreement.targets:
            now = bool(self.instantaneous)
            return problem.search(products.moments, d, with_now=now), problem
        folds = design.moments_of_sets(products.values, agreement.n)
        fewer = () if products.of_fewer_lags is None else products.of_fewer_lags
        by_order = {k: design.moments(own, agreement.n) for k, own in enumerate(fewer, 1)}
        return problem.solve(folds, d, by_order=by_order), problem

"""LiNGAM (Shimizu et al. 2006), directions from non-Gaussian noise: the server's side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.lingam import OrderProblem, OrderSearch, advance, begin
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.linear.solution import edge_weights, refit_support
from flwr_causal.core.series.design import lagged_graph, lagged_names, to_square
from flwr_causal.data.kinds import DataKind
from flwr_causal.protocol.lingam import CONTRACT, RESIDUALS, SUMS
from flwr_causal.runtime.method import Request
from flwr_causal.strategies.base import CausalStrategy
from flwr_causal.strategies.options import Mode, require
from flwr_causal.strategies.plausibility import combination_warning, gaussian_noise_warning
from flwr_causal.strategies.series import (
    RowsOrSeries,
    by_block,
    series_moments,
    stationarity_warning,
    system_of_series,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.model import LinearModel
    from flwr_causal.core.series.model import LaggedModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.plausibility import Expected
    from flwr_causal.protocol.exchange import Contract, Exchange
    from flwr_causal.protocol.records import Scalar
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.strategies.base import Baselines, RunAlone


@dataclass(frozen=True, eq=False)
class Start:
    """The state before the second moments are known.

    Parameters
    ----------
    agreement : Agreement
    masks : EdgeMasks
        Background knowledge over the d columns, or over the m columns of the lagged design.
    """

    agreement: Agreement
    masks: EdgeMasks


@dataclass(frozen=True, eq=False)
class Searching(Start):
    """The state from then on.

    Parameters
    ----------
    problem : OrderProblem
        The pooled moments, and the parents that they choose in any order.
    search : OrderSearch
        The orders that were reached, and the negentropies that are known.
    exchanges : int
        Exchanges so far.
    """

    problem: OrderProblem
    search: OrderSearch
    exchanges: int


@dataclass(kw_only=True, eq=False)
class Lingam(RowsOrSeries[Start]):
    """The linear graph whose noise terms are independent and not Gaussian, with all directions.

    The first exchange sums second moments. From them follow the parents of each variable in any
    causal order (Gaussian BIC), and the residuals of these regressions. In each further exchange
    the parties send the means of two bounded functions of residuals, from which the server computes
    how far these are from Gaussian; it searches for the order of highest likelihood
    (``core.linear.lingam``). The graph is that of the pooled rows. Two to nine exchanges
    have sufficed, also with 100 variables. Units of the columns do not matter.

    With an ``order`` p the rows are steps of time series with their p lags, which precede all
    variables: a structural vector autoregression (VAR-LiNGAM, Hyvarinen et al. 2010), fitted in one
    step.

    **What leaves a party**: in the schema exchange names, types, the number of rows and, for each
    column, mean and sum of squared deviations; then second moments, as of
    :class:`~flwr_causal.strategies.moments.Moments`, and two means for each of some hundred
    combinations of the columns.

    Parameters
    ----------
    max_rounds : int, default 20
        The most exchanges. If the search needs more, the best order so far is the result.
    threshold : float, default 0.0
        Edges of absolute weight up to this are left out. The edges of the result have passed the
        BIC already, which does not depend on units.
    lagged_sparsity : None
        Has no effect: there is no L1 norm.

    References
    ----------
    Shimizu, Hoyer, Hyvarinen & Kerminen (2006). A linear non-Gaussian acyclic model for causal
    discovery. JMLR 7.

    Hyvarinen, Zhang, Shimizu & Hoyer (2010). Estimation of a structural vector autoregression
    model using non-Gaussianity. JMLR 11.
    """

    contract: ClassVar[Contract] = CONTRACT

    max_rounds: int = 20
    threshold: float = 0.0

    narrowed: ClassVar[Mapping[str, Mode]] = {
        "lagged_sparsity": Mode("methods with an L1 norm", lambda method: False)
    }

    def validate(self) -> None:
        """Check the options' values."""
        super().validate()
        require(self.max_rounds >= 2, "max_rounds", self.max_rounds, "2 or more")
        self.validate_center()

    @property
    def data(self) -> DataKind:
        """Rows with noise that is not Gaussian, or time series."""
        return super().data if self.order else DataKind.NON_GAUSSIAN

    @property
    def pools_rows(self) -> bool:
        """Whether the pooled moments are those of the pooled rows, all centred by one mean."""
        return self.aggregation == "mean" and self.center == "global" and self.order == 0

    @property
    def client_options(self) -> dict[str, Scalar]:
        """How the parties prepare their rows."""
        return {**super().client_options, "order": self.order}

    @property
    def later_exchanges(self) -> tuple[Exchange, ...]:
        """The exchange of residuals."""
        return (RESIDUALS,)

    @property
    def expected(self) -> Expected:
        """As of other linear methods, but the units of the columns do not matter."""
        return replace(super().expected, raw_units=False)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], run_alone: RunAlone
    ) -> Baselines | None:
        """Return the graphs of this method on the pooled rows, and on each party's."""
        return CausalStrategy.baselines(self, tables, names, run_alone)

    def init(self, agreement: Agreement) -> Start:
        """Return the state before the first exchange."""
        return Start(agreement, self.masks(agreement))

    def request(self, state: Start) -> Request:
        """Request the second moments, then means of functions of residuals."""
        if not isinstance(state, Searching):
            return Request(SUMS)
        problem = state.problem
        directions = problem.directions(state.search.wanted)
        if self.order:
            # Rows are [1, g, z]: the mean of z over all rows with g = 1 is not exactly zero.
            level = -directions @ problem.moments.mean
            directions = np.column_stack([np.zeros(len(level)), level, directions])
        return Request(RESIDUALS, {"directions": directions})

    def close(self, state: Start, replies: Replies) -> tuple[Start, dict[str, Any]]:
        """Begin the search, or go on with the negentropies of the residuals."""
        if isinstance(state, Searching):
            problem = state.problem
            means = np.column_stack([replies["tails"], replies["skew"]])
            search = advance(problem, state.search, means)
            exchanges = state.exchanges + 1
        else:
            # Parties may be missing from a secure sum.
            state = replace(state, agreement=state.agreement.with_rows(replies.rows))
            moments = self._pooled(state.agreement, replies["moments"])
            moments.require_varying()
            problem = OrderProblem(moments, len(state.agreement.names), state.masks)
            search, exchanges = begin(problem, self.seed), 1
        info = {"orders": len(search.orders), "wanted": len(search.wanted)}
        return Searching(state.agreement, state.masks, problem, search, exchanges), info

    def _pooled(self, agreement: Agreement, products: FloatArray) -> Moments:
        """Return the moments of the d columns, or of the m columns of the lagged design."""
        names, n = agreement.names, agreement.n
        if self.order:
            return series_moments(products, n, lagged_names(names, self.order))[0]
        return Moments(n, np.zeros(len(names)), products[0], names)

    def finished(self, state: Start) -> str | None:
        """Return why the run is over, None to go on."""
        if not isinstance(state, Searching):
            return None
        if not state.search.wanted:
            return "no move of a variable in the causal order improves the likelihood"
        return f"{self.max_rounds} exchanges are done" if self._cut_short(state) else None

    def _cut_short(self, state: Searching) -> bool:
        return bool(state.search.wanted) and state.exchanges >= self.max_rounds

    def graph(self, state: Start) -> CausalGraph | None:
        """Return the graph of the best order so far, None before the first exchange.

        After the first exchange it is a graph of the equivalence class alone.
        """
        return self._plausible(state)[0] if isinstance(state, Searching) else None

    def _plausible(self, state: Searching) -> tuple[CausalGraph, list[str]]:
        agreement, problem, d = state.agreement, state.problem, state.problem.num_variables
        adjacency = problem.adjacency(state.search.best_order(problem))
        raw = _fitted(problem, adjacency, 0.0)
        limits = by_block(*self.limits(self.threshold), d, self.order)
        weights = _fitted(problem, adjacency, limits)
        if self.order:
            graph = lagged_graph(
                agreement.names,
                weights,
                threshold_now=0,
                threshold_lagged=0,
                raw=raw,
                masks=state.masks,
            )
        else:
            required = state.masks.required
            graph = CausalGraph(agreement.names, weights, raw_weights=raw, required=required)
        return self.plausible(graph, self.units(agreement), state.masks)

    def model(self, state: Start) -> LinearModel | LaggedModel | None:
        """Return the fitted system in the units of the data."""
        if not isinstance(state, Searching):
            return None
        agreement, moments = state.agreement, state.problem.moments
        graph = self._plausible(state)[0]
        if self.order:
            return system_of_series(agreement, self.scale(agreement), moments, graph)
        return self.fitted_system(agreement, moments, graph.adjacency)

    def scores(self, state: Start) -> FloatArray | None:
        """Return absolute partial correlations along the order, summed over the lags, (d, d)."""
        if not isinstance(state, Searching):
            return None
        problem, d = state.problem, state.problem.num_variables
        strengths = problem.strengths(state.search.best_order(problem))
        return np.asarray(strengths.reshape(-1, d, d).sum(axis=0), dtype=np.float64)

    def warnings(self, state: Start) -> list[str]:
        """Warn of Gaussian noise, of combinations of columns, and of a search cut short."""
        found = super().warnings(state)
        if not isinstance(state, Searching):
            return found
        agreement, problem, search = state.agreement, state.problem, state.search
        graph, left_out = self._plausible(state)
        found += left_out
        if self._cut_short(state):
            found.append(
                f"The search for the causal order was cut short after {self.max_rounds} exchanges: "
                "moves that would improve the likelihood may be left. Raise max_rounds."
            )
        noise = search.negentropies(problem, search.best_order(problem))
        found += gaussian_noise_warning(graph, state.masks, noise, agreement.n)
        if not self.order:
            found += combination_warning(problem.moments, agreement.rows.values())
        return [*found, *stationarity_warning(graph, agreement.n)]


def _fitted(
    problem: OrderProblem, adjacency: BoolArray, threshold: float | FloatArray
) -> FloatArray:
    """Return the least-squares weights above a threshold of a graph, shape (m, d)."""
    d = problem.num_variables
    required = problem.masks.required
    weights = refit_support(problem.moments, to_square(adjacency), threshold, required)
    kept = (weights != 0) | (required & to_square(adjacency))
    return edge_weights(kept, weights)[:, :d]

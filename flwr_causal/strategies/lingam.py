"""LiNGAM (Shimizu et al. 2006), directions from non-Gaussian noise: the server's side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.determined import separation
from flwr_causal.core.linear.lingam import OrderProblem, OrderSearch, advance, begin
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.solution import edge_weights, refit_support
from flwr_causal.core.options import bounded
from flwr_causal.core.series.design import lagged_graph
from flwr_causal.data.kinds import DataKind
from flwr_causal.doubts.graphs import doubts_of, gaussian_noise, plausible
from flwr_causal.protocol.lingam import CONTRACT, RESIDUALS
from flwr_causal.runtime.algorithm import Ask, Note, Result
from flwr_causal.sources.sums import exact_products
from flwr_causal.strategies.base import CausalStrategy
from flwr_causal.strategies.linear import fitted_system
from flwr_causal.strategies.series import (
    RowsOrSeriesOptions,
    by_block,
    with_party_moments,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray
    from flwr_causal.core.linear.determined import Relations
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.doubts.tables import Expected
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.runtime.algorithm import Steps
    from flwr_causal.runtime.options import Baselines
    from flwr_causal.strategies.options import takes


@dataclass(frozen=True, kw_only=True)
class LingamOptions(RowsOrSeriesOptions):
    """The options of :class:`Lingam`.

    Parameters
    ----------
    max_rounds : int, default 20
        The most exchanges. If the search needs more, the best order so far is the result.
    threshold : float, default 0.0
        Edges of absolute weight up to this are left out. The edges of the result have passed the
        BIC already, which does not depend on units.

    Examples
    --------
    >>> from flwr_causal.strategies.lingam import LingamOptions
    >>> LingamOptions(max_rounds=5).max_rounds
    5
    """

    max_rounds: int = bounded(20, least=2)
    threshold: float = 0.0

    @property
    def leaves_reported(self) -> bool:
        """Not by reports: the pooled moments show which columns others determine."""
        return False

    @property
    def expected(self) -> Expected:
        """As of other linear methods, but the units of the columns do not matter."""
        return replace(super().expected, raw_units=False)

    def baselines(
        self, tables: Sequence[pd.DataFrame], names: tuple[str, ...], handling: Handling
    ) -> Baselines | None:
        """Return None: the method itself is compared."""
        return None


class Lingam(CausalStrategy):
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
    :class:`~flwr_causal.strategies.moments.moments.Moments`, and two means for each of some hundred
    combinations of the columns.

    References
    ----------
    Shimizu, Hoyer, Hyvarinen & Kerminen (2006). A linear non-Gaussian acyclic model for causal
    discovery. JMLR 7.

    Hyvarinen, Zhang, Shimizu & Hoyer (2010). Estimation of a structural vector autoregression
    model using non-Gaussianity. JMLR 11.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> from flwr_causal.strategies import Lingam
    >>> tables, weights = federated_linear(3, 200, 2)
    >>> simulate(Lingam(), tables).graph.kind
    'dag'
    """

    options_type = LingamOptions
    options: LingamOptions

    if TYPE_CHECKING:

        @takes(LingamOptions)
        def __init__(self, **options: Any) -> None: ...

    contract: ClassVar[Contract] = CONTRACT

    def train(self, agreement: Agreement, replicate: int = 0) -> Steps:
        """Search for the causal order of highest likelihood.

        Yields
        ------
        Ask
            For second moments, then for means of functions of residuals.

        Returns
        -------
        Result
            The graph of the best order; after the first exchange one of the equivalence class.
        """
        masks, d = self.options.masks(agreement), len(agreement.names)
        pooled = yield from exact_products(agreement, self.options.design(agreement))
        agreement, moments = pooled.agreement, pooled.moments
        assert isinstance(moments, SampleMoments)  # there are no interventions
        moments.require_varying()
        own = separation(
            moments.second,
            moments.n,
            agreement.names,
            required=masks.required,
            widths=[1] * moments.d,
        )
        problem = OrderProblem(own.moments(moments), d, own.masks(masks))
        search = begin(problem, self.options.seed)
        yield Note(_info(search))
        for _ in range(self.options.max_rounds - 1):
            if not search.wanted:
                break
            directions = self._directions(problem, search)
            found = partial(self._result, agreement, problem, search, own.found)
            replies = yield Ask(RESIDUALS, {"directions": directions}, so_far=found)
            means = np.column_stack([replies["tails"], replies["skew"]])
            search = advance(problem, search, means)
            yield Note(_info(search))
        return self._result(agreement, problem, search, own.found, ended=True)

    def _with_parties(
        self,
        agreement: Agreement,
        model: Any,
        replies: Mapping[str, Arrays],
        reports: Mapping[str, TableReport],
    ) -> Any:
        """Return a linear system with each party's moments in the units of the data."""
        sent = {party: arrays["moments"].sum(axis=0) for party, arrays in replies.items()}
        return with_party_moments(model, agreement, sent, self.options.design(agreement))

    def _directions(self, problem: OrderProblem, search: OrderSearch) -> FloatArray:
        """Return the residuals whose negentropy is wanted, as combinations of 1 and the columns."""
        directions = problem.directions(search.wanted)
        level = -directions @ problem.moments.mean
        if self.options.center != "phase":
            return np.column_stack([level, directions])
        # The mark says which rows are not centred yet.
        return np.column_stack([np.zeros(len(level)), level, directions])

    def _result(
        self,
        agreement: Agreement,
        problem: OrderProblem,
        search: OrderSearch,
        determined: Relations,
        ended: bool = False,
    ) -> Result:
        """Return the graph of the best order so far, its model and warnings."""
        d, masks = problem.num_variables, problem.masks
        order = search.best_order(problem)
        adjacency = problem.adjacency(order)
        raw = _fitted(problem, adjacency, 0.0)
        weights = _fitted(
            problem,
            adjacency,
            by_block(*self.options.limits(self.options.threshold), d, self.options.order),
        )
        graph = (
            lagged_graph(
                agreement.names,
                weights,
                threshold_now=0,
                threshold_lagged=0,
                raw=raw,
                masks=masks,
            )
            if self.options.order
            else CausalGraph(agreement.names, weights, raw_weights=raw, required=masks.required)
        )
        graph, warnings = plausible(graph, self.options.units(agreement), masks)
        noise = search.negentropies(problem, order)
        if search.known:
            # The best of many orders is a little more likely by chance.
            chance = gaussian_noise(noise, agreement.n)
            loss = np.where(np.outer(chance, chance), 0.0, search.turning_loss(problem, order))
            graph = replace(graph, turning_loss=loss)
        if ended and search.wanted:
            warnings += doubts_of(cut_after=self.options.max_rounds)
        warnings += doubts_of(
            graph=graph,
            masks=masks,
            n=agreement.n,
            negentropies=noise,
            relations=determined,
            names=agreement.names,
            rows=agreement.rows.values(),
        )
        # Absolute partial correlations along an order of the graph, summed over the lags.
        along = topological_order(adjacency[:d], agreement.names)
        strengths = problem.strengths(adjacency, along).reshape(-1, d, d).sum(axis=0)
        return Result(
            graph,
            scores=strengths,
            model=fitted_system(
                agreement, self.options.divisors(agreement), problem.moments, graph
            ),
            warnings=tuple(warnings),
            reason=f"{self.options.max_rounds} exchanges are done"
            if search.wanted
            else "no move of a variable in the causal order improves the likelihood",
        )

    # What the method is for, and what it sends.

    def validate(self) -> None:
        """Check the options' values."""
        super().validate()
        if self.options.order:
            self.options.check_series()

    @property
    def data(self) -> DataKind:
        """Rows with noise that is not Gaussian, or time series."""
        return DataKind.SERIES if self.options.order else DataKind.NON_GAUSSIAN

    @property
    def pools_rows(self) -> bool:
        """Whether the pooled moments equal those of the pooled rows, all centred by one mean."""
        return (
            self.options.aggregation == "mean"
            and self.options.center in ("auto", "global")
            and self.options.order == 0
        )


def _info(search: OrderSearch) -> dict[str, int]:
    """Return a search's entries in the history."""
    return {"orders": len(search.orders), "wanted": len(search.wanted)}


def _fitted(
    problem: OrderProblem, adjacency: BoolArray, threshold: float | FloatArray
) -> FloatArray:
    """Return the least-squares weights above a threshold of a graph, shape (m, d)."""
    d = problem.num_variables
    required = problem.masks.required
    weights = refit_support(problem.moments, to_square(adjacency), threshold, required)
    kept = (weights != 0) | (required & to_square(adjacency))
    return edge_weights(kept, weights)[:, :d]

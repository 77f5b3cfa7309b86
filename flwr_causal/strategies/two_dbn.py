"""2Dbn (Chen, Ma & Yue 2024): federated dynamic Bayesian networks, the server's side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from flwr_causal.core.consensus.schedules import TUNED_LAGGED, Tuning
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.series.design import knowledge_masks, lagged_names
from flwr_causal.protocol.consensus import TWO_DBN
from flwr_causal.strategies.notears_admm import LinearADMM
from flwr_causal.strategies.options import Mode, only
from flwr_causal.strategies.series import (
    SeriesOptions,
    by_block,
    expected_of_series,
    stationarity_warning,
    system_of_series,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.series.model import LaggedModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.plausibility import Expected
    from flwr_causal.protocol.exchange import Contract
    from flwr_causal.protocol.records import Scalar
    from flwr_causal.strategies.consensus_runs import Candidate, ConsensusRun


DEFAULT_ROUNDS = 25


SEVERAL_ORDERS = Mode("order=2 or more", lambda method: method.order > 1)


@dataclass(kw_only=True, eq=False)
class TwoDBN(SeriesOptions, LinearADMM):
    """Federated structure learning from time series (Chen, Ma & Yue 2024).

    The model is ``x_t = x_t W + x_{t-1} A_1 + ... + x_{t-p} A_p + noise`` (row vectors) with W
    acyclic. With the rows [x_t, x_{t-1}, ..., x_{t-p}] it is the consensus ADMM of
    NOTEARS-ADMM, whose options it shares
    (:class:`~flwr_causal.strategies.notears_admm.LinearADMM`); the acyclicity acts on W alone.

    **What leaves a party**: as for NOTEARS-ADMM, but arrays of m x d and m x m, m = d (1 + p).

    Parameters
    ----------
    max_rounds : int or None, default None
        None is 25 for the fast schedule (24 rounds and the refit) and 200 for the paper's.
    threshold : float or None, default None
        Threshold of instantaneous edges. None is 0.15: with the paper's 0.3 its program finds
        almost no edges in small samples.
    select_order : bool, default False
        Choose the number of lags, 1 to ``order``, by the held-out error (with ``sparsity="bic"`` by
        the BIC). All orders are fitted in the same rounds.
    center : {"global", "series", "phase"}, default "global"
        Subtract the mean over all parties' rows ("global"), or that of each series ("series"). With
        "phase" rows under a known perturbation are centred by their own mean within the series and
        all other rows by their mean over all parties.
    order, lagged_threshold, lagged_sparsity, series_column, time_column, gaps, phase_column, \
perturbed_from, perturbed_to
        See :class:`~flwr_causal.strategies.series.SeriesOptions`.

    References
    ----------
    Chen, Ma & Yue (2024). Temporal causal discovery in dynamic Bayesian networks using
    federated learning.
    """

    contract: ClassVar[Contract] = TWO_DBN
    tunings: ClassVar[Mapping[int, Tuning]] = TUNED_LAGGED
    usual_threshold: ClassVar[float] = 0.15
    searched_threshold: ClassVar[float] = 0.15

    select_order: bool = only(SEVERAL_ORDERS, False)
    center: Literal["global", "series", "phase"] = "global"  # type: ignore[assignment]

    def validate(self) -> None:
        """Check the options' values."""
        if self.max_rounds is None and self.schedule == "fast":
            self.max_rounds = DEFAULT_ROUNDS
        super().validate()
        self.validate_series(self.center)

    @property
    def schema_options(self) -> dict[str, Scalar]:
        """How the parties find and centre their series."""
        return {**super().schema_options, **self.layout_options, "center": self.center}

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns that are not variables."""
        return (*super().role_columns, *self.series_columns, *self.target_columns)

    @property
    def with_interventions(self) -> dict[str, tuple[bool, str]]:
        """Which options fit rows under interventions, by name, and what they must be."""
        by_bic = not self.select_order or self.sparsity == "bic"
        needed = "False, or given with sparsity='bic',"
        return {**super().with_interventions, "select_order": (by_bic, needed)}

    @property
    def expected(self) -> Expected:
        """One unit and level of each column, more steps than columns with their lags."""
        return expected_of_series(super().expected, self.order)

    # The lagged design.

    @property
    def lags(self) -> int:
        """Number of lags p in the design."""
        return self.order

    def columns(self, agreement: Agreement) -> tuple[str, ...]:
        """Return the names of the m columns of the design."""
        return lagged_names(agreement.names, self.order)

    def stacked_masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge over the design's columns."""
        return knowledge_masks(self.knowledge_or_none, agreement.names, self.order)

    def thresholds(self, agreement: Agreement, usual: float) -> FloatArray:
        """Return the thresholds on the weights of the design's columns, shape (m, 1)."""
        limits = self.limits(usual if self.threshold is None else self.threshold)
        return by_block(*limits, len(agreement.names), self.order)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every sparsity with every number of lags, the largest first."""
        given = super().candidates
        if not self.select_order:
            return given
        known = self.knowledge_or_none or Knowledge()
        least = max((lag for *_, lag in known.required_lagged), default=1)
        orders = range(self.order, least - 1, -1)
        return tuple(candidate._replace(lags=p) for p in orders for candidate in given)

    def block_sparsity(self, num_variables: int) -> FloatArray:
        """Return the factors on the sparsity of the design's columns, shape (m, 1)."""
        automatic = self.schedule == "fast" and isinstance(self.sparsity, str)
        factor = self.lagged_factor(automatic=automatic)
        return by_block(1.0, factor, num_variables, self.order)

    def model(self, state: ConsensusRun) -> LaggedModel | None:
        """Return the fitted lagged system in the units of the data, None before the refit."""
        if state.total is None:
            return None
        graph = self.graph(state)
        assert graph.lagged is not None
        return system_of_series(state.agreement, self.scale(state.agreement), state.total, graph)

    def warnings(self, state: ConsensusRun) -> list[str]:
        """Warn where the fitted system is not stationary too."""
        own = stationarity_warning(self.graph(state), state.agreement.n)
        return [*super().warnings(state), *own]

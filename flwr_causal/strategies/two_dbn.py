"""2Dbn (Chen, Ma & Yue 2024): federated dynamic Bayesian networks, the server's side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from flwr_causal.core.lagged import companion_radius, lagged_graph, lagged_names
from flwr_causal.core.schedules import TUNED_LAGGED, Tuning
from flwr_causal.errors import DataError
from flwr_causal.strategies.linear import LinearStrategy, variance_within
from flwr_causal.strategies.notears_admm import AdmmRun, NotearsADMM
from flwr_causal.strategies.options import require
from flwr_causal.strategies.series import SeriesOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from flwr_causal.core.graph import CausalGraph
    from flwr_causal.core.knowledge import EdgeMasks
    from flwr_causal.data.checks import Agreement, TableReport
    from flwr_causal.wire import Scalar

    FloatArray = NDArray[np.float64]

DEFAULT_ROUNDS = 26


@dataclass(kw_only=True, eq=False)
class TwoDBN(SeriesOptions, NotearsADMM):
    """Federated structure learning from time series (Chen, Ma & Yue 2024).

    The model is ``x_t = x_t W + x_{t-1} A_1 + ... + x_{t-p} A_p + noise`` (row vectors) with W
    acyclic. With the rows [x_t, x_{t-1}, ..., x_{t-p}] it is the consensus ADMM of
    :class:`~flwr_causal.strategies.notears_admm.NotearsADMM`, whose options it shares; the
    acyclicity acts on W alone.

    **What leaves a party**: as with NOTEARS-ADMM, arrays of m x d and m x m with m = d (1 + p).

    Parameters
    ----------
    max_rounds : int or None, default None
        None is 26 for the fast schedule (25 rounds and the refit) and 200 for the paper's.
    threshold : float, default 0.15
        Of instantaneous edges. The paper's is 0.3, at which its program finds next to nothing in
        small samples.
    lagged_threshold : float, optional
        Of lagged edges; default as ``threshold``.
    lagged_sparsity : float, default 1.0
        The sparsity of the lagged weights in units of that of the instantaneous ones.
    center : {"global", "series", "phase"}, default "global"
        Subtract the mean over all parties' rows, each series' own, or, for rows under a known
        perturbation, their own within the series and the global one elsewhere.
    order, series_column, time_column, gaps, phase_column, perturbed_from, perturbed_to
        See :class:`~flwr_causal.strategies.series.SeriesOptions`.
    """

    method: ClassVar[str] = "2dbn"
    tunings: ClassVar[Mapping[int, Tuning]] = TUNED_LAGGED

    threshold: float = 0.15
    lagged_threshold: float | None = None
    lagged_sparsity: float = 1.0
    center: Literal["global", "series", "phase"] = "global"  # type: ignore[assignment]

    def validate(self) -> None:
        """Check the options' values."""
        if self.max_rounds is None and self.schedule == "fast":
            self.max_rounds = DEFAULT_ROUNDS
        super().validate()
        limit = self.lagged_threshold
        require(limit is None or limit >= 0, "lagged_threshold", limit, "0 or more")
        require(self.lagged_sparsity >= 0, "lagged_sparsity", self.lagged_sparsity, "0 or more")
        both = (self.perturbed_from is None) == (self.perturbed_to is None)
        require(both, "perturbed_to", self.perturbed_to, "given with perturbed_from")
        marked = bool(self.phase_column) or self.perturbed_from is not None
        require(self.center != "phase" or marked, "center", self.center, "given with phase_column")
        _ = self.layout

    @property
    def schema_options(self) -> dict[str, Scalar]:
        """How the parties find and centre their series."""
        return {**self.layout_options, "center": self.center}

    def agree(self, reports: Mapping[str, TableReport]) -> Agreement:
        """Agree on the columns; with ``center="series"`` the variance is that within the series."""
        agreement = super(LinearStrategy, self).agree(reports)
        if self.center != "series":
            return agreement
        variance = variance_within(reports, agreement)
        flat = [name for name, v in zip(agreement.names, variance, strict=True) if not v > 0]
        if flat:
            raise DataError(
                f"column {flat[0]!r} does not vary within any series, only between them: leave it "
                "out, or use center='global'"
            )
        return replace(agreement, variance=variance)

    # The lagged design.

    @property
    def lags(self) -> int:
        """Number of lags p in the design."""
        return self.order

    def columns(self, agreement: Agreement) -> tuple[str, ...]:
        """Return the names of the m columns of the design."""
        return lagged_names(agreement.names, self.order)

    def stacked_masks(self, agreement: Agreement) -> EdgeMasks:
        """Return the background knowledge over the design's columns; lagged edges are free."""
        return self.over_lags(self.masks(agreement))

    def _limits(self) -> tuple[float, float]:
        lagged = self.threshold if self.lagged_threshold is None else self.lagged_threshold
        return self.threshold, lagged

    def thresholds(self, agreement: Agreement) -> FloatArray:
        """Return what the weights of the design's columns must exceed, shape (m, 1)."""
        d, (now, lagged) = len(agreement.names), self._limits()
        return np.repeat([now, lagged], [d, d * self.order])[:, None]

    def block_sparsity(self, num_variables: int) -> FloatArray:
        """Return the factors on the sparsity of the design's columns, shape (m, 1)."""
        sizes = [num_variables, num_variables * self.order]
        return np.repeat([1.0, self.lagged_sparsity], sizes)[:, None]

    def final_graph(
        self, agreement: Agreement, weights: FloatArray, raw: FloatArray, masks: EdgeMasks
    ) -> CausalGraph:
        """Return the graph with its lags; the edges are decided already."""
        return lagged_graph(
            agreement.names, weights, threshold_now=0, threshold_lagged=0, raw=raw, masks=masks
        )

    def model(self, state: AdmmRun) -> None:
        """Return nothing: the graph's weights are the model."""

    def scores(self, state: AdmmRun) -> FloatArray:
        """Return the absolute weights before the threshold, summed over W and the lags."""
        raw = np.abs(state.inner.weights[self._chosen(state)])
        d = raw.shape[1]
        return np.asarray(raw.reshape(-1, d, d).sum(axis=0), dtype=np.float64)

    def warnings(self, state: AdmmRun) -> list[str]:
        """Warn where the fitted system is not stationary."""
        graph = self.graph(state)
        if graph.lagged is None:
            return []
        radius = companion_radius(graph.weights, graph.lagged)
        if radius < 1:
            return []
        return [
            f"The fitted system is not stationary (spectral radius {radius:.2f}, stationary below "
            "1): the series may have trends. Take differences, or center='series'."
        ]

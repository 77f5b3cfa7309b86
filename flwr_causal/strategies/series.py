"""The options of methods on time series: order, blocks of the design, how a table holds series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.series.design import companion_radius
from flwr_causal.core.series.model import LaggedModel, fit_lagged
from flwr_causal.data.kinds import DataKind
from flwr_causal.data.roles import SERIES
from flwr_causal.data.series.series import Layout
from flwr_causal.strategies.options import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.records import Scalar

    FloatArray = NDArray[np.float64]

# Measured on the paper's suites, 28 settings: summed SHD of W + A by 2Dbn in 25 rounds 104.8 (seeds
# 0-4) and 109.6 (3000-3004), and 116.6 and 117.6 with the factor 1; 2 is no better. The moments
# method gains as much.
LAGGED_FACTOR = 1.6
# Fits of random walks have a spectral radius from 0.998 up (200 steps), of linear trends from 0.99
# (50 steps: 0.92); of the paper's stationary systems at most 0.86.
HARDLY_STATIONARY = 0.95


@dataclass(kw_only=True, eq=False)
class SeriesOptions:
    """Options that strategies on time series have in common.

    A row of the design is [x_t, x_{t-1}, ..., x_{t-p}], m = d (1 + p) columns.

    Parameters
    ----------
    order : int, default 1
        p, the number of lags.
    lagged_threshold : float, optional
        Lagged edges of absolute weight up to this are left out; default as ``threshold``.
    lagged_sparsity : float, optional
        The sparsity of the lagged weights in units of that of the instantaneous ones. Default: 1
        where the sparsity is a number or the paper's, as in the paper, and 1.6 where it is found
        from the data, measured to be better.
    series_column : str, default ""
        The column that tells a party's series apart; its values never leave the party. Default: the
        table is one series, or a list of tables is several.
    time_column : str, default ""
        The column of times, ascending in equal steps within a series. Default: rows follow each
        other.
    gaps : {"fail", "split"}, default "fail"
        A longer step or a missing value is an error, or starts a new series.
    phase_column : str, default ""
        The column that marks rows under a known perturbation, for ``center="phase"``.
    perturbed_from, perturbed_to : float, optional
        Instead: the times between which all series are perturbed, both included.
    """

    order: int = 1
    lagged_threshold: float | None = None
    lagged_sparsity: float | None = None
    series_column: str = ""
    time_column: str = ""
    gaps: Literal["fail", "split"] = "fail"
    phase_column: str = ""
    perturbed_from: float | None = None
    perturbed_to: float | None = None

    def validate_series(self, center: str) -> None:
        """Check the options' values, and that they agree with the way of centring.

        Raises
        ------
        ConfigError
            With the option's name and what is allowed.
        """
        limit = self.lagged_threshold
        require(limit is None or limit >= 0, "lagged_threshold", limit, "0 or more")
        factor = self.lagged_sparsity
        require(factor is None or factor >= 0, "lagged_sparsity", factor, "0 or more")
        both = (self.perturbed_from is None) == (self.perturbed_to is None)
        require(both, "perturbed_to", self.perturbed_to, "given with perturbed_from")
        marked = bool(self.phase_column) or self.perturbed_from is not None
        require(center != "phase" or marked, "center", center, "given with phase_column")
        _ = self.layout

    @property
    def data(self) -> DataKind:
        """Series; with order 0 rows without time."""
        return DataKind.SERIES if self.order else DataKind.LINEAR

    @property
    def layout(self) -> Layout:
        """The options as the parties use them, checked."""
        times = self.perturbed_from, self.perturbed_to
        return Layout(
            series_column=self.series_column,
            time_column=self.time_column,
            gaps=self.gaps,
            phase_column=self.phase_column,
            perturbed=None if times[0] is None or times[1] is None else (times[0], times[1]),
            order=self.order,
        )

    @property
    def layout_options(self) -> dict[str, Scalar]:
        """The same as plain values."""
        start, end = self.perturbed_from, self.perturbed_to
        return {
            "order": self.order,
            "series-column": self.series_column,
            "time-column": self.time_column,
            "gaps": self.gaps,
            "phase-column": self.phase_column,
            "perturbed-from": "" if start is None else repr(start),
            "perturbed-to": "" if end is None else repr(end),
        }

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns that are no variables: of series, times and phases."""
        return (SERIES, *(name for name in self.layout.columns if name))

    def lagged_factor(self, *, automatic: bool) -> float:
        """Return the factor on the sparsity of lagged weights."""
        default = LAGGED_FACTOR if automatic else 1.0
        return default if self.lagged_sparsity is None else self.lagged_sparsity

    def limits(self, threshold: float) -> tuple[float, float]:
        """Return the thresholds of instantaneous and of lagged edges."""
        lagged = self.lagged_threshold
        return threshold, threshold if lagged is None else lagged


def by_block(now: float, lagged: float, num_variables: int, order: int) -> FloatArray:
    """Return one value for each column of the design, shape (m, 1): now, and at each lag."""
    return np.repeat([now, lagged], [num_variables, num_variables * order])[:, None]


def stationarity_warning(graph: CausalGraph | None) -> list[str]:
    """Warn where the system of a graph's weights is not or hardly stationary, with its radius."""
    if graph is None or graph.lagged is None:
        return []
    radius = companion_radius(graph.weights, graph.lagged)
    if radius < HARDLY_STATIONARY:
        return []
    word = "not" if radius >= 1 else "hardly"
    return [
        f"The fitted system is {word} stationary (spectral radius {radius:.3f}, stationary below "
        "1): the series may have trends or be random walks, whose regressions find effects that "
        "are not there. Take differences, or center='series' where only their levels differ."
    ]


def system_of_series(
    agreement: Agreement, scale: FloatArray, moments: Moments, adjacency: NDArray[np.bool_]
) -> LaggedModel:
    """Return the least-squares system of a graph over the design's columns, in the data's units.

    Parameters
    ----------
    agreement : Agreement
    scale : ndarray of shape (d,)
        What the variables were divided by.
    moments : Moments
        Of the m columns, centred and scaled; only entries within families are read.
    adjacency : ndarray of bool, shape (m, m)
    """
    d = len(agreement.names)
    units, level = (np.tile(values, moments.d // d) for values in (scale, agreement.mean))
    second = moments.second * np.outer(units, units)
    mean = level + moments.mean * units
    return fit_lagged(Moments(moments.n, mean, second, moments.names), adjacency, d)

"""The options of time-series methods: order, and how a table holds series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.lagged import lagged_masks
from flwr_causal.data.series_layout import Layout
from flwr_causal.data.tables import SERIES

if TYPE_CHECKING:
    from flwr_causal.core.knowledge import EdgeMasks
    from flwr_causal.wire import Scalar


@dataclass(kw_only=True, eq=False)
class SeriesOptions:
    """Options that strategies on time series have in common.

    Parameters
    ----------
    order : int, default 1
        p, the number of lags.
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
    series_column: str = ""
    time_column: str = ""
    gaps: Literal["fail", "split"] = "fail"
    phase_column: str = ""
    perturbed_from: float | None = None
    perturbed_to: float | None = None

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
    def role_columns(self) -> tuple[str, ...]:
        """The columns that are no variables: of series, times and phases."""
        return (SERIES, *(name for name in self.layout.columns if name))

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

    def over_lags(self, masks: EdgeMasks) -> EdgeMasks:
        """Return knowledge of instantaneous edges over the design's columns; lags are free."""
        d = len(masks.allowed)
        every = np.ones((self.order, d, d), dtype=bool)
        return lagged_masks(masks.allowed, every, required_now=masks.required)

"""What the clients of time-series methods share: a party's series as rows with their lags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import numpy as np
from numpy.typing import NDArray

from flwr_causal.clients.linear import LinearClient
from flwr_causal.data.series.levels import Centering, centered_rows, describe_series
from flwr_causal.data.series.series import Layout, Series, find_series, long_enough

if TYPE_CHECKING:
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport

FloatArray = NDArray[np.float64]


class SeriesClient(LinearClient):
    """Base of the clients whose rows are steps of time series.

    The design has m = d (1 + p) columns: the variables now, one step ago, and so on to p steps ago.
    With order 0 there is no time, and the rows are those of any table.
    """

    @property
    def layout(self) -> Layout:
        """How the party's table holds its series."""
        options = self.options
        start, end = str(options["perturbed-from"]), str(options["perturbed-to"])
        return Layout(
            series_column=str(options["series-column"]),
            time_column=str(options["time-column"]),
            gaps=cast("Literal['fail', 'split']", options["gaps"]),
            phase_column=str(options["phase-column"]),
            perturbed=(float(start), float(end)) if start and end else None,
            order=self.order,
        )

    @property
    def order(self) -> int:
        """Number of lags p."""
        return int(self.options["order"])

    def describe(self, policy: Policy) -> TableReport:
        """Report the series: a row is a step with all its lags."""
        if self.order == 0:
            return super().describe(policy)
        by = cast("Centering", self.options["center"])
        table = self.source.read()
        sums = "sums" in self.contract.reports
        return describe_series(table, self.layout, policy, sums=sums, by=by)

    def design(self) -> FloatArray:
        """Return the party's rows with their lags, centred and scaled, shape (n_k, m)."""
        if self.order == 0:
            return super().design()
        return np.concatenate(self.designs(self.series(), self.order))

    def series(self) -> list[Series]:
        """Return the party's series that are long enough."""
        setup, layout = self.setup, self.layout
        found = find_series(self.source.read(), layout, setup.policy, setup.names)
        return long_enough(found, layout.order)[0]

    def designs(self, series: list[Series], order: int) -> list[FloatArray]:
        """Return the rows of each series with so many lags, centred and scaled."""
        setup = self.setup
        by = cast("Centering", setup.options["center"])
        rows = centered_rows(series, order, setup.mean, by)
        if not setup.options["standardize"]:
            return rows
        scale = np.tile(np.sqrt(setup.variance), 1 + order)
        return [one / scale for one in rows]

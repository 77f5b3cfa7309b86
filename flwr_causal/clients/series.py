"""What the clients of time-series methods share: a party's series as rows with their lags."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from flwr_causal.clients.linear import LinearClient
from flwr_causal.core.lagged import lagged_rows
from flwr_causal.data.levels import Centering, center, describe_series
from flwr_causal.data.series import find_series, long_enough
from flwr_causal.data.series_layout import Layout

if TYPE_CHECKING:
    from flwr_causal.data.checks import Policy, TableReport

FloatArray = NDArray[np.float64]


class SeriesClient(LinearClient):
    """Base of the clients whose rows are steps of time series.

    The design has m = d (1 + p) columns: the variables now, one step ago, and so on to p steps ago.
    """

    temporal: ClassVar[bool] = True

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
            order=int(options["order"]),
        )

    @property
    def dimensions(self) -> dict[str, int]:
        """d, and m for the columns of the design."""
        d = len(self.setup.names)
        return {"d": d, "m": d * (1 + self.layout.order)}

    def describe(self, policy: Policy) -> TableReport:
        """Report the series: a row is a step with all its lags."""
        by = cast("Centering", self.options["center"])
        table = self.source.read()
        return describe_series(table, self.layout, policy, sums=self.sums, by=by)

    def design(self) -> FloatArray:
        """Return the party's rows with their lags, centred and scaled, shape (n_k, m)."""
        setup, layout = self.setup, self.layout
        found = find_series(self.source.read(), layout, setup.policy, setup.names)
        used, _ = long_enough(found, layout.order)
        used = center(used, setup.mean, cast("Centering", setup.options["center"]))
        if setup.options["standardize"]:
            scale = np.sqrt(setup.variance)
            used = [replace(one, values=one.values / scale) for one in used]
        return lagged_rows([one.values for one in used], layout.order)

"""The base of clients on numeric columns: rows centred, scaled, with lags, and in folds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from flwr_causal.clients.base import CausalClient, Memory
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.linear.folds import split_rows
from flwr_causal.data.check.party_table import complete_rows
from flwr_causal.data.series.levels import (
    Centering,
    centered_rows,
    describe_series,
    perturbed_rows,
)
from flwr_causal.data.series.series import Layout, Series, find_series, long_enough
from flwr_causal.errors import FederationError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport


class LinearClient(CausalClient):
    """Base of the linear methods' clients."""

    def memory_at(self, number: int) -> Memory | None:
        """Return the memory of the party's last exchange, None if there is none.

        It can be the memory of this exchange: if a reply was lost, the server sends the message
        again. The party must then send the same reply, without a second update of its multipliers.

        Parameters
        ----------
        number : int
            The number of this exchange. A memory must contain the number of its exchange, as
            ``number``.

        Raises
        ------
        FederationError
            If a message of a later exchange was answered before.
        """
        memory = self.recall()
        if memory is not None and memory.numbers["number"] > number:
            raise FederationError(
                f"The message of exchange {number} came after that of exchange "
                f"{memory.numbers['number']}; it was ignored."
            )
        return memory

    @property
    def masks(self) -> EdgeMasks:
        """The background knowledge, for methods that send their option ``knowledge``."""
        text = str(self.setup.options["knowledge"])
        knowledge = Knowledge.from_dict(json.loads(text)) if text else Knowledge()
        return knowledge.masks(self.setup.names)

    def count_rows(self) -> int:
        """Count the rows that are kept, each of which is a row of the design."""
        return int(complete_rows(self.table(), self.setup.policy).sum())

    def design(self) -> FloatArray:
        """Return the party's rows centred and scaled as agreed, shape (n_k, d)."""
        setup, rows = self.setup, self.rows()
        mean = rows.mean(axis=0) if setup.options["center"] == "party" else setup.mean
        centered = rows - mean
        return centered / np.sqrt(setup.variance) if setup.options["standardize"] else centered

    def folds(self, design: FloatArray) -> list[FloatArray]:
        """Return the rows for training and those held out, or all rows as the only fold."""
        if not self.setup.options["held-out"]:
            return [design]
        train, held_out = split_rows(len(design), int(self.setup.options["seed"]))
        return [design[train], design[held_out]]


class SeriesClient(LinearClient):
    """Base of the clients whose rows are steps of time series.

    The lagged design has m = d (1 + p) columns: the variables at t, t - 1, ..., t - p. With order 0
    there are no lags, and the rows are those of a table without time.
    """

    @property
    def layout(self) -> Layout:
        """The layout of the series in the party's table."""
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
        """Report the columns and problems of the series; a row is a step with all its lags."""
        if self.order == 0:
            return super().describe(policy)
        by = cast("Centering", self.options["center"])
        table = self.source.read()
        return describe_series(
            table,
            self.layout,
            policy,
            sums="sums" in self.contract.reports,
            relations="relations" in self.contract.reports,
            by=by,
        )

    def count_rows(self) -> int:
        """Count the rows of the design: with lags, the steps that have all of them."""
        return len(self.design()) if self.order else super().count_rows()

    def design(self) -> FloatArray:
        """Return the party's rows with their lags, centred and scaled, shape (n_k, m)."""
        if self.order == 0:
            return super().design()
        return np.concatenate(self.designs(self.series(), self.order))

    def series(self) -> list[Series]:
        """Return the party's series of more than p steps."""
        setup, layout = self.setup, self.layout
        found = find_series(self.source.read(), layout, setup.policy, setup.names)
        return long_enough(found, layout.order)[0]

    def designs(self, series: list[Series], order: int) -> list[FloatArray]:
        """Return the rows of each series with ``order`` lags, centred and scaled."""
        setup = self.setup
        by = cast("Centering", setup.options["center"])
        rows = centered_rows(series, order, setup.mean, by)
        if not setup.options["standardize"]:
            return rows
        scale = np.tile(np.sqrt(setup.variance), 1 + order)
        return [one / scale for one in rows]

    def leveled_rows(self, series: list[Series], order: int) -> FloatArray:
        """Return the rows [1, g, z] of the series; g is 1 if the agreed mean was subtracted."""
        rows = np.concatenate(self.designs(series, order))
        level = np.ones(len(rows))
        if self.setup.options["center"] == "phase":
            level = 1.0 - np.concatenate([perturbed_rows(one, order) for one in series])
        return np.column_stack([np.ones(len(rows)), level, rows])

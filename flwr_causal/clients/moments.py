"""Moments (Ng & Zhang 2022, section 4): the party's side."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.clients.base import Asked, answers
from flwr_causal.clients.linear import SeriesClient
from flwr_causal.core.linear.folds import stretches
from flwr_causal.core.nonlinear.additive import basis_rows
from flwr_causal.data.check.party_table import complete_rows
from flwr_causal.data.interventions import NODE_KEY, by_party, split_names, targets_by_row
from flwr_causal.data.read.pieces import whole
from flwr_causal.errors import ConfigError
from flwr_causal.protocol.moments import CONTRACT, SUMS

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays, FloatArray, IntArray
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.interventions import Targets
    from flwr_causal.data.read.pieces import Table
    from flwr_causal.protocol.exchange import Contract


class MomentsClient(SeriesClient):
    """Sends one array, the second moments of the party's centred and scaled rows.

    **What leaves the party**: :mod:`flwr_causal.protocol.moments` declares it.
    """

    contract: ClassVar[Contract] = CONTRACT

    @property
    def _additive(self) -> bool:
        return bool(self.setup.options["model"] == "additive")

    @answers(SUMS)
    def second_moments(self, asked: Asked) -> Arrays:
        """Return the second moments of each fold."""
        if self.order:
            return {"moments": self._of_series()}
        if self._additive:
            return {"moments": self._of_functions()}
        if self.setup.targets:
            return {"moments": self._of_groups()}
        return {"moments": self.products() / self.num_rows}

    def table(self) -> Table:
        """Return the party's table without the column that names targets."""
        name, table = self._target_column, super().table()
        return whole(table).drop(columns=name, errors="ignore") if name else table

    def describe(self, policy: Policy) -> TableReport:
        """Report the table, and the targets of its rows if there are any."""
        report = super().describe(policy)
        if self.order:
            if NODE_KEY in self.context.node_config:
                raise ConfigError(
                    "its node config states interventions, which are for rows without time: set "
                    "order=0, or take them out"
                )
            return report
        codes, sets = self._targets(policy, report.rows)
        present = tuple(sets[k] for k in np.unique(codes))
        return replace(report, targets=present) if any(present) else report

    @property
    def _target_column(self) -> str:
        return str(self.options["intervention-column"])

    def _targets(self, policy: Policy, num_rows: int) -> tuple[IntArray, list[Targets]]:
        """Return each kept row's position in a list of sets of targets, and that list."""
        stated = by_party(str(self.options["interventions"])).get(self.source.name, [])
        of_node = split_names(str(self.context.node_config.get(NODE_KEY, "")))
        column, own = self._target_column, [*stated, *of_node]
        if not column:
            return np.zeros(num_rows, dtype=np.int64), [tuple(sorted({*own}))]
        codes, sets = targets_by_row(whole(super().table()), column, own)
        return codes[complete_rows(self.frame(), policy)], sets

    def _of_groups(self) -> FloatArray:
        """Return the mean products of the rows [1, x] of each set of targets."""
        codes, sets = self._targets(self.setup.policy, self.num_rows)
        of_target = [[k for k, own in enumerate(sets) if own == one] for one in self.setup.targets]
        sums: FloatArray | float = 0.0
        start = 0
        for design in self.design_pieces():
            rows = np.column_stack([np.ones(len(design)), design])
            own = codes[start : start + len(rows)]
            parts = [rows[np.isin(own, chosen)] for chosen in of_target]
            sums = sums + np.stack([part.T @ part for part in parts])
            start += len(rows)
        return np.asarray(sums / self.num_rows)

    def _of_functions(self) -> FloatArray:
        """Return the mean products of the rows [1, functions of the variables]."""
        setup = self.setup
        scale = np.ones(len(setup.names)) if setup.options["standardize"] else setup.variance

        def products(rows: FloatArray) -> FloatArray:
            functions = basis_rows(rows, np.zeros(len(scale)), np.sqrt(scale))
            rows = np.column_stack([np.ones(len(rows)), functions])
            return rows.T @ rows

        sums = reduce(np.add, map(products, self.design_pieces()))
        return np.asarray(sums / self.num_rows)[None]

    def _of_series(self) -> FloatArray:
        """Return the products of the rows of each fold, then those with fewer lags."""
        series, options = self.series(), self.setup.options
        rows = self.leveled_rows(series, self.order)
        count = int(options["folds"])
        fold = stretches([len(one.values) - self.order for one in series], count)
        parts = [rows[fold == k] for k in range(count)]
        if options["select-order"]:
            # A smaller order has further rows: steps with fewer than p steps before them.
            parts += [self.leveled_rows(series, order) for order in range(1, self.order)]
        sums = np.zeros((len(parts), rows.shape[1], rows.shape[1]))
        for part, products in zip(parts, sums, strict=True):
            size = part.shape[1]
            products[:size, :size] = part.T @ part / len(rows)
        return sums

"""The base of the linear methods' clients that use known interventions: the targets of each row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.clients.linear import LinearClient
from flwr_causal.core.discrete.small_counts import are_small, withheld
from flwr_causal.data.interventions import by_party, targets_by_row
from flwr_causal.data.read.pieces import whole
from flwr_causal.protocol.door import RefusedError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.interventions import Targets
    from flwr_causal.data.read.pieces import Table
    from flwr_causal.protocol.options import InterventionPartyOptions


class InterventionClient(LinearClient):
    """Base of the clients whose rows may be under known interventions.

    Their options are an :class:`~flwr_causal.strategies.linear.InterventionOptions`.
    """

    options: InterventionPartyOptions

    @property
    def other_columns(self) -> tuple[str, ...]:
        """The columns that are needed and are no variables, among them the column of targets."""
        return (*super().other_columns, self._target_column)

    def table(self) -> Table:
        """Return the party's table without the column that names targets."""
        name, table = self._target_column, super().table()
        return whole(table).drop(columns=name, errors="ignore") if name else table

    def describe(self, handling: Handling) -> TableReport:
        """Report the table, and the targets of its rows if there are any."""
        report = super().describe(handling)
        codes, sets = self._targets(handling, report.rows)
        present = tuple(sets[k] for k in np.unique(codes))
        return replace(report, targets=present) if any(present) else report

    def strata(self) -> IntArray | None:
        """Return each row's set of targets: a replicate has as many rows of each."""
        return self.target_sets() if self.setup.targets else None

    def target_sets(self) -> IntArray:
        """Return each row's position in ``setup.targets``, shape (n_k,)."""
        codes, sets = self._targets(self.setup.handling, self.num_rows)
        # A set that only dropped rows have is not among those that were agreed on.
        place = {targets: k for k, targets in enumerate(self.setup.targets)}
        return np.array([place.get(targets, -1) for targets in sets], dtype=np.int64)[codes]

    def products(self) -> FloatArray:
        """Return the sums of products of the rows [1, z] by set of targets; without any, by fold.

        Sums over few rows are treated as the option ``small_counts`` says.

        Raises
        ------
        RefusedError
            If sums are over few rows, and such sums are refused.
        """
        if not self.setup.targets:
            return super().products()
        found = self.products_by_set(self.sum_rows(), self.target_sets(), len(self.setup.targets))
        small = self.setup.small
        rows = found[:, 0, 0].round().astype(np.int64)
        if small.treatment == "refuse" and are_small(rows, small.minimum).any():
            raise RefusedError(f"The reply was not sent: sets of targets have {small.refusal}")
        if small.withheld:
            found[withheld(rows, small.withheld)] = 0.0
        return found

    @property
    def _target_column(self) -> str:
        return self.options.intervention_column

    def _targets(self, handling: Handling, num_rows: int) -> tuple[IntArray, list[Targets]]:
        """Return each kept row's position in a list of sets of targets, and that list."""
        stated = by_party(self.options.interventions).get(self.source.name, [])
        column, own = self._target_column, [*stated, *self.node.interventions]
        if not column:
            return np.zeros(num_rows, dtype=np.int64), [tuple(sorted({*own}))]
        codes, sets = targets_by_row(whole(super().table()), column, own)
        return codes[self.kept_rows(handling)[:, 0]], sets

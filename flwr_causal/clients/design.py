"""The base of the clients that send sums over the rows z of a design."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.clients.interventions import InterventionClient
from flwr_causal.clients.linear import SeriesClient
from flwr_causal.core.blocks.design import Category, Design
from flwr_causal.data.check.party_table import prepare_columns
from flwr_causal.data.interventions import acted_on
from flwr_causal.data.read.pieces import pieces
from flwr_causal.data.series.series import value_columns
from flwr_causal.protocol.second_moments import sent_design
from flwr_causal.sources.normal_scores import received_scores

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.protocol.options import DesignPartyOptions


class DesignClient(InterventionClient, SeriesClient):
    """Base of the clients whose rows z are blocks of columns: see :mod:`core.blocks.design`."""

    options: DesignPartyOptions

    def sum_rows(self, order: int | None = None) -> Iterator[FloatArray]:
        """Yield the rows z in pieces: of numbers, of functions of numbers, and of categories.

        Missing cells are NaN, and so are all of a variable that the party lacks.
        """
        design, complete = sent_design(self.setup), self.setup.policy.missing_values != "em"
        complete = complete and len(self.held_names) == len(self.setup.names)
        numbers = design.single if self.order else design.numbers
        if self.options.scores:
            design = design.with_scores(received_scores(self.asked, self.setup))
        elif numbers and complete:
            yield from super().sum_rows(order)
            return
        if self.order:
            steps = self.steps_of_rows(self.order if order is None else order)
            yield self._columns_at(design, steps).reshape(len(steps), -1)
        else:
            for piece in pieces(self.table()):
                yield self._columns_of(design, piece)

    def number_pieces(self) -> Iterator[FloatArray]:
        """Yield the values of numbers at t in pieces, (rows, d), in the units of the data.

        Missing cells are NaN, and so are categories and columns that the party lacks.
        """
        names, states = self.setup.names, self.setup.states
        design = Design.of(names, np.zeros(len(names)), np.ones(len(names)), states)
        firsts = np.cumsum([0, *design.widths[:-1]])
        categories = [isinstance(one, Category) for one in design.variables]
        if self.order:
            whole = iter([self._columns_at(design, self.steps_of_rows(self.order)[:, :1])[:, 0]])
        else:
            whole = (self._columns_of(design, piece) for piece in pieces(self.table()))
        for columns in whole:
            yield np.where(categories, np.nan, columns[:, firsts])

    def _columns_at(self, design: Design, steps: IntArray) -> FloatArray:
        """Return the columns of the variables in steps of series, (rows, steps, columns)."""
        used, places = np.unique(steps, return_inverse=True)
        columns = self._columns_of(design, value_columns(self.frame(), self.layout).iloc[used])
        return columns[places.reshape(steps.shape)]

    def _columns_of(self, design: Design, piece: pd.DataFrame) -> FloatArray:
        """Return the columns at t of the variables of a part of the table."""
        held, policy = self.held_names, self.setup.policy
        own = [one for one in design.variables if one.name in held]
        states = [one.states if isinstance(one, Category) else () for one in own]
        columns = prepare_columns(piece, [one.name for one in own], states, policy)
        known = dict(zip([one.name for one in own], columns, strict=True))
        missing = np.full(len(columns[0]), np.nan)
        return np.column_stack(
            [
                one.columns(known[one.name])
                if one.name in known
                else np.tile(missing[:, None], one.width)
                for one in design.variables
            ]
        )

    def rows_with_sets(self) -> Iterator[tuple[FloatArray, IntArray | None]]:
        """Yield the columns of the variables in pieces, and each row's set of targets if any."""
        sets, start = self.strata(), 0
        for rows in self.sum_rows():
            end = start + len(rows)
            yield rows, None if sets is None else sets[start:end]
            start = end

    def rows_by_targets(self) -> Iterator[list[FloatArray]]:
        """Yield the rows of each set of targets, in pieces; without interventions all rows."""
        for rows, sets in self.rows_with_sets():
            several = range(len(self.setup.targets))
            yield [rows] if sets is None else [rows[sets == k] for k in several]

    def rows_with_targets(self) -> Iterator[tuple[FloatArray, BoolArray | None]]:
        """Yield the columns of the variables in pieces, and which each row's targets are if any."""
        acted = acted_on(self.setup.targets, self.setup.names)
        for rows, sets in self.rows_with_sets():
            yield rows, None if sets is None else acted[sets]

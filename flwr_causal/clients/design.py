"""The base of the clients that send sums over the rows z of a design."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.clients.interventions import InterventionClient
from flwr_causal.clients.linear import SeriesClient
from flwr_causal.core.blocks.design import Category, Design
from flwr_causal.data.check.columns import as_numbers, kind_of
from flwr_causal.data.check.party_table import complete_rows, prepare_columns
from flwr_causal.data.interventions import acted_on
from flwr_causal.data.read.pieces import pieces, selected
from flwr_causal.data.series.series import value_columns
from flwr_causal.errors import DataError
from flwr_causal.protocol.second_moments import sent_design
from flwr_causal.sources.normal_scores import received_scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.read.pieces import Table
    from flwr_causal.protocol.options import DesignPartyOptions

#: What a column of weights must be.
REMEDY = "give each row a number, 0 or more, or leave the row out"


class DesignClient(InterventionClient, SeriesClient):
    """Base of the clients whose rows z are blocks of columns: see :mod:`core.blocks.design`."""

    options: DesignPartyOptions

    @property
    def other_columns(self) -> tuple[str, ...]:
        """The columns that are needed and are no variables, among them that of weights."""
        return (*super().other_columns, self.options.weight_column)

    def table(self) -> Table:
        """Return the party's table without the column of weights."""
        name, table = self.options.weight_column, super().table()
        return selected(table, [one for one in table.columns if one != name]) if name else table

    def describe(self, handling: Handling) -> TableReport:
        """Report the table, once its weights are checked."""
        if self.options.weighted:
            weights_in(super().table(), self.options.weight_column)
        return super().describe(handling)

    def sum_rows(self, order: int | None = None) -> Iterator[FloatArray]:
        """Yield the rows z in pieces, with ``order`` lags (default: the agreed number).

        Where rows have weights, these are the first column.
        """
        weights, start = self._weights(order), 0
        for rows in self._design_rows(order):
            own = None if weights is None else weights[start : start + len(rows)]
            yield rows if own is None else np.column_stack([own, rows])
            start += len(rows)

    def _weights(self, order: int | None) -> FloatArray | None:
        """Return the weights of the rows z, shape (n_k,); None where they have none."""
        if not self.options.weighted:
            return None
        handling = self.setup.handling
        every = weights_in(super().table(), self.options.weight_column)
        if not self.order:
            kept = [complete_rows(piece, handling) for piece in pieces(self.table())]
            return every[np.concatenate(kept)]
        if order in (None, self.order):
            return every[self.kept_rows(handling)[:, 0]]
        return np.concatenate(
            self._resampled_rows([every[one.rows[order:]] for one in self.series()])
        )

    def products_by_set(
        self, designs: Iterable[FloatArray], places: IntArray | None = None, count: int = 1
    ) -> FloatArray:
        """Return the sums of products of the rows of each set, those of weights times them."""
        if self.options.weighted:
            designs = map(sent_design(self.setup).of_weighted, designs)
        return super().products_by_set(designs, places, count)

    def _design_rows(self, order: int | None) -> Iterator[FloatArray]:
        """Yield the columns of numbers, of functions of numbers, and of categories.

        Complete tables of numbers, the default case, have the rows of the base class. Missing cells
        are NaN, and so are all of a variable that the party lacks.
        """
        design, complete = sent_design(self.setup), self.setup.handling.missing_values != "em"
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
        held, handling = self.held_names, self.setup.handling
        own = [one for one in design.variables if one.name in held]
        states = [one.states if isinstance(one, Category) else () for one in own]
        columns = prepare_columns(piece, [one.name for one in own], states, handling)
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


def weights_in(table: Table, name: str) -> FloatArray:
    """Return the weights of a table's rows, shape (n,).

    Raises
    ------
    DataError
        If the table has no such column, or weights are no numbers, missing, infinite or negative,
        or none is above 0.
    """
    if name not in table.columns:
        raise DataError(
            f"the table has no column {name!r}, which weight_column names: add it, with 1 in rows "
            "that count once"
        )
    own = [piece[name] for piece in pieces(selected(table, [name]))]
    if any(kind_of(part) != "numeric" for part in own):
        raise DataError(
            f"column {name!r}, which weight_column names, does not hold numbers alone: {REMEDY}"
        )
    weights = np.concatenate([as_numbers(part) for part in own])
    for text, wrong in (
        ("missing or infinite", ~np.isfinite(weights)),
        ("negative", weights < 0),
    ):
        if wrong.any():
            raise DataError(
                f"column {name!r}, which weight_column names, has {text} weights in "
                f"{int(wrong.sum())} of {len(wrong)} rows: {REMEDY}"
            )
    if not weights.any():
        raise DataError(f"column {name!r}, which weight_column names, is 0 in all rows: {REMEDY}")
    return weights

"""The base of clients on numeric columns: rows centred, scaled, with lags, and in folds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from flwr_causal.clients.base import CausalClient
from flwr_causal.core.folds import split_rows, stretches
from flwr_causal.core.linear.moments import row_products
from flwr_causal.data.check.column_sums import combined, sums_of
from flwr_causal.data.read.pieces import joined, whole
from flwr_causal.data.series.levels import (
    Centering,
    centered_rows,
    describe_series,
    perturbed_rows,
)
from flwr_causal.data.series.series import Series, SeriesLayout, find_series, long_enough
from flwr_causal.protocol.second_moments import sent_design

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from flwr_causal.clients.base import Source
    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.read.pieces import Table
    from flwr_causal.data.resampling import Draw
    from flwr_causal.protocol.options import LinearPartyOptions, SeriesPartyOptions


class LinearClient(CausalClient):
    """Base of the linear methods' clients."""

    options: LinearPartyOptions

    def design(self) -> FloatArray:
        """Return the party's rows centred and scaled as agreed, shape (n_k, m)."""
        return joined(self.design_pieces(), len(self.source.read()))

    def design_pieces(self) -> Iterator[FloatArray]:
        """Yield the same rows in pieces: for sums over rows, which need not all be in memory."""
        design = sent_design(self.setup)
        if self.options.center == "party" and not self.options.levels:
            design = design.with_means(self.once("mean", self._mean))
        yield from map(design.rows_of, self.row_pieces())

    def _mean(self) -> FloatArray:
        return combined([sums_of(rows) for rows in self.row_pieces()]).mean

    def sum_rows(self, order: int | None = None) -> Iterator[FloatArray]:
        """Yield the rows z of the sums in pieces, with ``order`` lags (default: the agreed number).

        Here there are none.
        """
        yield from self.design_pieces()

    def products(self) -> FloatArray:
        """Return the sums of products of the rows [1, z] of each set, (sets, 1 + s, 1 + s).

        The sets are folds of the rows: the training rows and those held out, those of a
        cross-validation, or one of all rows.
        """
        return self.products_by_set(self.sum_rows(), self.folds(), self.options.folds)

    def folds(self) -> IntArray | None:
        """Return each row's fold, shape (n_k,): 1 of those held out; None if there are none."""
        if not self.options.held_out:
            return None
        places = np.zeros(self.num_rows, dtype=np.int64)
        places[split_rows(len(places), self.options.seed)[1]] = 1
        return places

    def products_by_set(
        self, designs: Iterable[FloatArray], places: IntArray | None = None, count: int = 1
    ) -> FloatArray:
        """Return the sums of products of the rows [1, z] of each set, (sets, 1 + s, 1 + s).

        Parameters
        ----------
        designs : iterable of ndarray of shape (rows, s)
            The rows z in pieces.
        places : ndarray of shape (n_k,), optional
            The set of each row. Default: all rows are one set.
        count : int, default 1
            The number of sets.
        """
        sums: FloatArray | float = 0.0
        start = 0
        for design in designs:
            parts = [design]
            if places is not None:
                own = places[start : start + len(design)]
                parts = [design[own == k] for k in range(count)]
            sums = sums + np.stack([row_products(part) for part in parts])
            start += len(design)
        return np.asarray(sums)

    def mean_products(self, designs: Iterable[FloatArray]) -> FloatArray:
        """Return the mean products of the rows [1, z], given z in pieces, shape (1 + s, 1 + s)."""
        return np.asarray(self.products_by_set(designs)[0] / self.num_rows)


class SeriesClient(LinearClient):
    """Base of the clients whose rows are steps of time series.

    The lagged design has m = d (1 + p) columns: the variables at t, t - 1, ..., t - p. With order 0
    there are no lags, and the rows are those of a table without time.
    """

    options: SeriesPartyOptions

    @property
    def layout(self) -> SeriesLayout:
        """The layout of the series in the party's table."""
        return self.options.layout

    @property
    def order(self) -> int:
        """Number of lags p."""
        return self.options.order

    @property
    def has_time(self) -> bool:
        """Whether rows are steps of time series."""
        return self.order > 0

    @property
    def role_columns(self) -> tuple[str, ...]:
        """The columns of series, times and phases; none without lags."""
        return self.layout.columns if self.order else ()

    def table(self) -> Table:
        """Return the party's table, in memory if it holds series, of which there may be several."""
        return whole(super().table()) if self.order else super().table()

    def describe(self, handling: Handling) -> TableReport:
        """Report the columns and problems of the series; a row is a step with all its lags."""
        if self.order == 0:
            return super().describe(handling)
        return describe_series(
            self.frame(),
            self.layout,
            handling,
            sums="sums" in self.contract.reports,
            relations="relations" in self.contract.reports,
            by=self.centering,
            tells_levels=self.options.center == "auto" and not self.options.levels,
        )

    def count_rows(self) -> int:
        """Count the rows of the design: steps with all their lags."""
        return len(self.kept_rows(self.setup.handling)) if self.order else super().count_rows()

    def folds(self) -> IntArray | None:
        """Return each row's fold; more than two folds are stretches of the series."""
        if not self.order or self.options.folds <= 2:
            return super().folds()
        lengths = [len(one.values) - self.order for one in self.series()]
        return stretches(lengths, self.options.folds)

    def series(self) -> list[Series]:
        """Return the party's series of more than p steps."""
        setup, layout = self.setup, self.layout
        found = find_series(self.frame(), layout, setup.handling, self.held_names)
        return long_enough(found, layout.order)[0]

    @property
    def centering(self) -> Centering:
        """Which means are subtracted from the rows of series."""
        center = self.options.center
        return center if center in ("series", "phase") else "global"

    def series_of_rows(self) -> IntArray:
        """Return the number of each row's series, shape (n_k,)."""
        windows = self._windows(self.setup.handling, self.order)
        return np.concatenate(
            self._resampled_rows([np.full(len(w), k) for k, w in enumerate(windows)])
        )

    def kept_rows(self, handling: Handling) -> IntArray:
        """Return the positions of the steps t, t - 1, ..., t - p of each row of the design."""
        if self.order == 0:
            return super().kept_rows(handling)
        return np.concatenate(self._resampled_rows(self._windows(handling, self.order)))

    def steps_of_rows(self, order: int) -> IntArray:
        """Return the positions of the steps of each row with ``order`` lags, (rows, 1 + order)."""
        return np.concatenate(self._resampled_rows(self._windows(self.setup.handling, order)))

    def _windows(self, handling: Handling, order: int) -> list[IntArray]:
        """Return the positions of the steps of each row, by series, (rows, 1 + order) each."""
        found = long_enough(find_series(self.frame(), self.layout, handling), self.order)[0]
        return [sliding_window_view(one.rows, 1 + order)[:, ::-1] for one in found]

    def resampled(self, draw: Draw) -> Source:
        """Return the source of a replicate's rows; steps of series are drawn with their lags."""
        return self.source if self.order else super().resampled(draw)

    def _resampled_rows(self, rows: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the rows of series; in a replicate blocks of them, as one."""
        if self.draw is None:
            return list(rows)
        return [np.concatenate(rows)[self.draw.blocks([len(one) for one in rows])]]

    def designs(self, series: list[Series], order: int) -> list[FloatArray]:
        """Return the rows of each series with ``order`` lags, centred and scaled.

        In a replicate these are as many rows, drawn from all of them in blocks, in one array.
        """
        setup = self.setup
        rows = self._resampled_rows(centered_rows(series, order, setup.mean, self.centering))
        scale = np.tile(sent_design(setup).scale, 1 + order)
        return [one / scale for one in rows]

    def sum_rows(self, order: int | None = None) -> Iterator[FloatArray]:
        """Yield the rows z of the sums in pieces, with ``order`` lags (default: the agreed number).

        Series are one piece: each of their rows holds those before it. Where series are centred by
        phases, a mark is before the others: 1 in rows from which the agreed means were subtracted.
        """
        if self.order == 0:
            yield from super().sum_rows(order)
            return
        series, order = self.series(), self.order if order is None else order
        rows = np.concatenate(self.designs(series, order))
        if self.options.center == "phase":
            marks = self._resampled_rows([perturbed_rows(one, order) for one in series])
            rows = np.column_stack([1.0 - np.concatenate(marks), rows])
        yield rows

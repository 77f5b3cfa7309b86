"""What describes a party's rows: the party's side."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from flwr_causal.clients.base import CausalClient
from flwr_causal.contract.answers import Asked, answers
from flwr_causal.core.description.description import pattern_counts
from flwr_causal.core.description.grids import (
    NUM_PLACES,
    StepGrid,
    place_edges,
    rows_below,
    rows_below_steps,
)
from flwr_causal.core.discrete.small_counts import are_small, withheld
from flwr_causal.core.discrete.small_gaps import summed_rows
from flwr_causal.data.check.party_table import describe, prepare_columns
from flwr_causal.data.read.pieces import pieces, whole
from flwr_causal.data.read.reading import with_columns
from flwr_causal.errors import DataError
from flwr_causal.party.cache import cached
from flwr_causal.protocol.describe import (
    CONTRACT,
    OVERVIEW,
    POOLED_OVERVIEW,
    TABLES,
    scaling_of,
)
from flwr_causal.protocol.door import RefusedError
from flwr_causal.protocol.options import SmallCounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.read.pieces import Table
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.describe import DescribePartyOptions


class _Piece(NamedTuple):
    """Some rows.

    Parameters
    ----------
    numbers : ndarray of shape (n, q)
        NaN where a cell is missing.
    codes : list of ndarray of shape (n,)
        Of each category, -1 where a cell is missing.
    missing : ndarray of bool, shape (n, d)
    """

    numbers: FloatArray
    codes: list[IntArray]
    missing: BoolArray


class _Few(NamedTuple):
    """What is not told of a table.

    Parameters
    ----------
    columns : tuple of str
        Of fewer values than ``minimum_count``, or of texts each in fewer rows.
    gaps : dict of str to int
        How many of its first values a column lacks as well.
    """

    columns: tuple[str, ...]
    gaps: dict[str, int]


class _PairSums(NamedTuple):
    """Sums over the rows in which two columns of numbers have values, each of shape (q, q)."""

    pairs: FloatArray
    sums: FloatArray
    squares: FloatArray
    products: FloatArray


class DescribeClient(CausalClient):
    """Counts the party's rows: on common grids, by state, by gaps.

    **What leaves the party**: :mod:`flwr_causal.protocol.describe` declares it.
    """

    contract: ClassVar[Contract] = CONTRACT
    options: DescribePartyOptions

    def table(self) -> Table:
        """Return the party's table without what it does not tell; all else follows from that.

        Columns of which it tells nothing have no value. A column that lacks fewer cells than
        ``minimum_count`` lacks its first values, too, until it lacks so many.
        """
        table, few = super().table(), self._few
        if not (few.columns or few.gaps):
            return table
        frame = whole(table)
        changed = {}
        for place, (name, column) in enumerate(frame.items()):
            if name in few.columns:
                changed[place] = pd.Series(np.nan, frame.index)
            elif name in few.gaps:
                held = column.notna()
                changed[place] = column.mask(held & (held.cumsum() <= few.gaps[name]))
        return with_columns(frame, changed)

    def describe(self, handling: Handling) -> TableReport:
        """Report on the table.

        Of a column of numbers with a few texts it tells how many these are, and no state.
        """
        report, told = super().describe(handling), self._few.columns
        columns = list(report.columns)
        places = {column.name: place for place, column in enumerate(columns)}
        for plain in describe(whole(super().table())[list(told)], handling).columns if told else ():
            if plain.stray:
                columns[places[plain.name]] = replace(plain, distinct=plain.texts, copy_of=None)
        return replace(report, columns=tuple(columns))

    @property
    def _few(self) -> _Few:
        """The columns of few values, and those of few gaps.

        The mean, or the texts, of a column of few values would be values of single rows.

        Raises
        ------
        DataError
            If all columns have few values, or one has in a run with ``small_counts="refuse"``.
        """
        small = SmallCounts(self.options.minimum_count, self.options.small_counts)
        if small.treatment == "report" or small.minimum == 0:
            return _Few((), {})
        table = super().table()
        found = cached(
            self.context,
            f"few {small.minimum} {self.source.table} {hash((*table.columns, len(table)))}",
            lambda: _few_of(table, small.minimum),
        )
        few, refuses = found.columns, small.treatment == "refuse"
        if few and (refuses or len(few) == len(table.columns)):
            raise DataError(
                f"column {few[0]!r} has a value, or each of its texts, in {small.minimum - 1} "
                f"rows at most (minimum_count={small.minimum}): leave the column out (exclude), "
                "leave the party out, or use secure_aggregation=True or small_counts='report'"
            )
        return found._replace(gaps={}) if refuses else found

    @property
    def held_names(self) -> tuple[str, ...]:
        """The agreed columns that the party's table has, and of which it may tell something."""
        there = set(super().table().columns).difference(self._few.columns)
        return tuple(name for name in self.setup.names if name in there)

    @property
    def _is_number(self) -> BoolArray:
        return np.array([not states for states in self.setup.states], dtype=np.bool_)

    def _pieces(self) -> Iterator[_Piece]:
        """Yield the rows; a column that the party lacks is missing in all of them."""
        setup, held = self.setup, self.held_names
        states = dict(zip(setup.names, setup.states, strict=True))
        for rows in pieces(self.frame()):
            columns = prepare_columns(rows, held, [states[name] for name in held], setup.handling)
            known = dict(zip(held, columns, strict=True))
            n = len(columns[0]) if columns else len(rows)
            lacked = np.full(n, np.nan)
            whole = [known.get(name, lacked) for name in setup.names]
            own = zip(setup.names, whole, strict=True)
            codes = [
                np.where(np.isnan(one), -1, one).astype(np.int64)
                for name, one in own
                if states[name]
            ]
            numbers = [one for one, number in zip(whole, self._is_number, strict=True) if number]
            missing = np.empty((n, len(whole)), dtype=np.bool_)
            missing[:, self._is_number] = np.isnan(numbers).T if numbers else False
            missing[:, ~self._is_number] = np.array(codes).T < 0 if codes else False
            yield _Piece(np.reshape(numbers, (len(numbers), n)).T, codes, missing)

    @answers(OVERVIEW, POOLED_OVERVIEW)
    def overview(self, asked: Asked) -> Arrays:
        """Count rows on coarse grids, by state, and by pairs of gaps."""
        edges = place_edges(*scaling_of(self.setup))
        sizes = [len(states) for states in self.setup.states if states]
        places = np.zeros((len(edges), NUM_PLACES), dtype=np.int64)
        states = [np.zeros(size, dtype=np.int64) for size in sizes]
        gaps, lacking = np.zeros((len(self.setup.names),) * 2), np.zeros(len(self.setup.names))
        for piece, summed in self._summed_pieces():
            for place, own, values in zip(places, edges, piece.numbers.T, strict=True):
                place += rows_below(values[~np.isnan(values)], own)
            for count, codes in zip(states, piece.codes, strict=True):
                count += np.bincount(codes[codes >= 0], minlength=len(count))
            some = piece.missing[summed & piece.missing.any(axis=1)].astype(np.float64)
            gaps += some.T @ some
            lacking += piece.missing.sum(axis=0)
        np.fill_diagonal(gaps, lacking)
        return {
            "places": places,
            "states": np.concatenate([*map(self._without_withheld, states), np.zeros(0, np.int64)]),
            "gaps": gaps.astype(np.int64),
        }

    def _without_withheld(self, counts: IntArray) -> IntArray:
        """Return the counts of one table without those that the run withholds."""
        least = self.setup.small.withheld
        return np.where(withheld(counts, least), 0, counts) if least else counts

    def _summed_pieces(self) -> Iterator[tuple[_Piece, BoolArray]]:
        """Yield the rows, and which of them gaps of two columns and sums of pairs are over.

        Raises
        ------
        RefusedError
            If rows would be left out, and small counts are refused.
        """
        small = self.setup.small
        if small.treatment == "report" or small.minimum == 0:
            for piece in self._pieces():
                yield piece, np.ones(len(piece.missing), dtype=np.bool_)
            return
        # A table of one piece is prepared once for both.
        first = list(islice(self._pieces(), 2))
        held = first if len(first) < 2 else None
        summed = self.once("summed rows", lambda: self._summed_rows(held or self._pieces()))
        if small.treatment == "refuse" and not summed.all():
            raise RefusedError(f"The reply was not sent: patterns of gaps have {small.refusal}")
        start = 0
        for piece in held or self._pieces():
            yield piece, summed[start : start + len(piece.missing)]
            start += len(piece.missing)

    def _summed_rows(self, rows: Iterable[_Piece]) -> BoolArray:
        missing = np.concatenate([piece.missing for piece in rows])
        return summed_rows(missing, self.setup.small.minimum)

    @answers(TABLES)
    def tables(self, asked: Asked) -> Arrays:
        """Count rows on the grids and by patterns of gaps, and sum products."""
        bins, (mean, deviation) = self.options.bins, scaling_of(self.setup)
        grids = [StepGrid(*one) for one in zip(asked["lowest"], asked["widths"], strict=True)]
        sought = asked["sought"].astype(np.bool_)
        below = np.zeros((len(grids), bins + 1), dtype=np.int64)
        patterns = np.zeros(len(sought), dtype=np.int64)
        states = [np.zeros(len(own), dtype=np.int64) for own in self.setup.states if own]
        missing = np.zeros(len(self.setup.names), dtype=np.int64)
        q = len(grids)
        seen, level = np.zeros((2, q))
        total = _PairSums(*np.zeros((4, q, q)))
        unit = np.where(deviation > 0, deviation, 1.0)
        for piece, summed in self._summed_pieces():
            for own, grid, values in zip(below, grids, piece.numbers.T, strict=True):
                own += rows_below_steps(values[~np.isnan(values)], grid, bins)
            for count, codes in zip(states, piece.codes, strict=True):
                count += np.bincount(codes[codes >= 0], minlength=len(count))
            patterns += pattern_counts(piece.missing[summed], sought)
            missing += piece.missing.sum(axis=0)
            standard = np.where(deviation > 0, (piece.numbers - mean) / unit, 0.0)
            standard[np.isnan(piece.numbers)] = np.nan
            seen += (~np.isnan(standard)).sum(axis=0)
            level += np.nansum(standard, axis=0)
            sums = _pair_sums(standard if summed.all() else standard[summed])
            total = _PairSums(*(a + b for a, b in zip(total, sums, strict=True)))
        apart = np.zeros(len(missing))
        apart[self._is_number] = level**2 / np.maximum(seen, 1.0)
        apart[~self._is_number] = self._states_apart(states, asked["shares"])
        return {
            "below": below,
            "patterns": patterns,
            **total._asdict(),
            "pairs": total.pairs.astype(np.int64),
            "apart": apart,
            "lacking_apart": np.abs(missing - self.num_rows * asked["lacking"]),
        }

    def _states_apart(self, states: list[IntArray], shares: FloatArray) -> list[float]:
        """Return the rows of each category times the distance of what the party told of it."""
        ends = np.cumsum([len(one) for one in states])[:-1]
        parts = np.split(shares, ends) if states else []
        told = map(self._without_withheld, states)
        return [
            float(np.abs(own - own.sum() * share).sum() / 2)
            for own, share in zip(told, parts, strict=True)
        ]


# What pandas infers of a column of numbers, also of such as float64 cannot hold.
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "complex")


def _few_of(table: Table, least: int) -> _Few:
    """Return the columns of few values or of few gaps, by the fewest rows."""
    seen = np.zeros(len(table.columns), dtype=np.int64)
    texts: list[Counter[str]] = [Counter() for _ in table.columns]
    for rows in pieces(table):
        for place, (_, column) in enumerate(rows.items()):
            seen[place] += int(column.notna().sum())
            if pd.api.types.infer_dtype(column) not in _NUMBERS:
                counts = column.value_counts()
                texts[place].update(dict(zip(map(str, counts.index), counts, strict=True)))
    lacking = len(table) - seen
    more = np.where(are_small(lacking, least), least - lacking, 0)
    held = zip(map(str, table.columns), seen.tolist(), more.tolist(), texts, strict=True)
    columns, gaps = [], {}
    for name, count, further, own in held:
        left = max(own.values(), default=count) - further
        # A column without any value tells nothing.
        if count and min(left, count - further) < least:
            columns.append(name)
        elif further:
            gaps[name] = further
    return _Few(tuple(columns), gaps)


def _pair_sums(rows: FloatArray) -> _PairSums:
    """Return the sums over rows in which two columns have values; NaN stands for none."""
    missing = np.isnan(rows)
    if not missing.any():
        q = rows.shape[1]
        sums, squares = (np.tile(one[:, None], (1, q)) for one in (rows.sum(0), (rows**2).sum(0)))
        return _PairSums(np.full((q, q), float(len(rows))), sums, squares, rows.T @ rows)
    seen, filled = (~missing).astype(np.float64), np.where(missing, 0.0, rows)
    return _PairSums(seen.T @ seen, filled.T @ seen, (filled**2).T @ seen, filled.T @ filled)

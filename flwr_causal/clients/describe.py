"""What describes a party's rows: the party's side."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from flwr_causal.clients.base import Asked, CausalClient, answers
from flwr_causal.core.description.gaps import counts_of, packed_patterns, unpacked_patterns
from flwr_causal.core.description.grids import (
    NUM_PLACES,
    StepGrid,
    place_edges,
    rows_below,
    rows_below_steps,
)
from flwr_causal.core.discrete.gaps_of_few import few_together, overlapping
from flwr_causal.core.discrete.small_counts import are_small, withheld
from flwr_causal.data.check.party_table import describe, prepare_columns
from flwr_causal.data.read.pieces import pieces
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
from flwr_causal.protocol.options import SmallCounts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray, IntArray
    from flwr_causal.data.check.policy import Policy
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

    def describe(self, policy: Policy) -> TableReport:
        """Report on the table; columns of which it tells nothing have no value.

        Of a column of numbers with a few texts it tells how many these are, and no state.
        """
        frame, withheld = self.frame(), self._withheld
        empty = pd.Series(np.nan, frame.index)
        places = [k for k, name in enumerate(frame.columns) if name in withheld]
        report = describe(
            with_columns(frame, dict.fromkeys(places, empty)),
            policy,
            sums=True,
            states=policy.names_states,
        )
        if not places:
            return report
        columns = list(report.columns)
        plain = describe(frame.iloc[:, places], policy).columns
        for place, column in zip(places, plain, strict=True):
            if column.stray:
                columns[place] = replace(column, distinct=column.texts, copy_of=None)
        return replace(report, columns=tuple(columns))

    @property
    def _withheld(self) -> tuple[str, ...]:
        """The columns of fewer values than ``minimum_count``, or of texts each in fewer rows.

        Their mean, or their texts, would be values of single rows.

        Raises
        ------
        DataError
            If these are all columns, or the run has ``small_counts="refuse"``.
        """
        table = self.table()
        small = SmallCounts(self.options.minimum_count, self.options.small_counts)
        if small.treatment == "report" or small.minimum == 0:
            return ()
        found = cached(
            self.context,
            f"few {small.minimum} {self.source.table} {hash((*table.columns, len(table)))}",
            lambda: _columns_of_few_rows(table, small.minimum),
        )
        if found and (small.treatment == "refuse" or len(found) == len(table.columns)):
            raise DataError(
                f"column {found[0]!r} has a value, or each of its texts, in {small.minimum - 1} "
                f"rows at most (minimum_count={small.minimum}): leave the column out (exclude), "
                "leave the party out, or use secure_aggregation=True or small_counts='report'"
            )
        return found

    @property
    def held_names(self) -> tuple[str, ...]:
        """The agreed columns that the party's table has, and of which it may tell something."""
        there = set(self.table().columns).difference(self._withheld)
        return tuple(name for name in self.setup.names if name in there)

    @property
    def _is_number(self) -> BoolArray:
        return np.array([not states for states in self.setup.states], dtype=np.bool_)

    def _pieces(self) -> Iterator[_Piece]:
        """Yield the rows; a column that the party lacks is missing in all of them."""
        setup, held = self.setup, self.held_names
        states = dict(zip(setup.names, setup.states, strict=True))
        for rows in pieces(self.frame()):
            columns = prepare_columns(rows, held, [states[name] for name in held], setup.policy)
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
        gaps = np.zeros((len(self.setup.names),) * 2)
        for piece in self._pieces():
            for place, own, values in zip(places, edges, piece.numbers.T, strict=True):
                place += rows_below(values[~np.isnan(values)], own)
            for count, codes in zip(states, piece.codes, strict=True):
                count += np.bincount(codes[codes >= 0], minlength=len(count))
            some = piece.missing[piece.missing.any(axis=1)].astype(np.float64)
            gaps += some.T @ some
        together = gaps.astype(np.int64)
        return {
            "places": places,
            "states": np.concatenate([*map(self._without_few, states), np.zeros(0, np.int64)]),
            "gaps": np.where(few_together(together, self.num_rows, self._least), 0, together),
        }

    @property
    def _least(self) -> int:
        """The fewest rows that may be told; 0 where all may be."""
        small = self.setup.small
        return 0 if small.treatment == "report" else small.minimum

    def _without_few(self, counts: IntArray) -> IntArray:
        """Return the counts of one table without those that the run withholds."""
        least = self.setup.small.withheld
        return np.where(withheld(counts, least), 0, counts) if least else counts

    @answers(TABLES)
    def tables(self, asked: Asked) -> Arrays:
        """Count rows on the grids and by patterns of gaps, and sum products."""
        bins, (mean, deviation) = self.options.bins, scaling_of(self.setup)
        grids = [StepGrid(*one) for one in zip(asked["lowest"], asked["widths"], strict=True)]
        sought = asked["sought"].astype(np.bool_)
        below = np.zeros((len(grids), bins + 1), dtype=np.int64)
        patterns: Counter[bytes] = Counter()
        states = [np.zeros(len(own), dtype=np.int64) for own in self.setup.states if own]
        missing = np.zeros(len(self.setup.names), dtype=np.int64)
        q = len(grids)
        total = _PairSums(*np.zeros((4, q, q)))
        unit = np.where(deviation > 0, deviation, 1.0)
        for piece in self._pieces():
            for own, grid, values in zip(below, grids, piece.numbers.T, strict=True):
                own += rows_below_steps(values[~np.isnan(values)], grid, bins)
            for count, codes in zip(states, piece.codes, strict=True):
                count += np.bincount(codes[codes >= 0], minlength=len(count))
            patterns.update(packed_patterns(piece.missing))
            missing += piece.missing.sum(axis=0)
            standard = np.where(deviation > 0, (piece.numbers - mean) / unit, 0.0)
            standard[np.isnan(piece.numbers)] = np.nan
            total = _PairSums(*(a + b for a, b in zip(total, _pair_sums(standard), strict=True)))
        found, rows = unpacked_patterns(patterns, len(missing))
        least, together = self._least, found.T.astype(np.int64) @ (rows[:, None] * found)
        few = few_together(together, self.num_rows, least)
        numbers = self._is_number
        kept = ~(few[np.ix_(numbers, numbers)] | overlapping(found[:, numbers], rows, least))
        total = _PairSums(*(one * kept for one in total))
        tells = not (few.any() or are_small(rows, least).any())
        return {
            "below": below,
            "patterns": counts_of(patterns, sought) * tells,
            **total._asdict(),
            "pairs": total.pairs.astype(np.int64),
            "apart": self._apart(total, states, asked["shares"]),
            "lacking_apart": np.abs(missing - self.num_rows * asked["lacking"]),
        }

    def _apart(self, total: _PairSums, states: list[IntArray], shares: FloatArray) -> FloatArray:
        """Return the rows times the party's distance from all rows, shape (d,).

        It follows from the counts and sums that leave.
        """
        apart = np.zeros(len(self.setup.names))
        seen, sums = np.diagonal(total.pairs), np.diagonal(total.sums)
        apart[self._is_number] = sums**2 / np.maximum(seen, 1.0)
        ends = np.cumsum([len(one) for one in states])[:-1]
        parts = np.split(shares, ends) if states else []
        apart[~self._is_number] = [
            np.abs(own - own.sum() * share).sum() / 2
            for own, share in zip(map(self._without_few, states), parts, strict=True)
        ]
        return apart


# What pandas infers of a column of numbers, also of such as float64 cannot hold.
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal", "complex")


def _columns_of_few_rows(table: Table, least: int) -> tuple[str, ...]:
    """Return the columns with fewer values than that, or with texts that each are in fewer rows."""
    seen = np.zeros(len(table.columns), dtype=np.int64)
    texts: list[Counter[str]] = [Counter() for _ in table.columns]
    for rows in pieces(table):
        for place, (_, column) in enumerate(rows.items()):
            seen[place] += int(column.notna().sum())
            if pd.api.types.infer_dtype(column) not in _NUMBERS:
                counts = column.value_counts()
                texts[place].update(dict(zip(map(str, counts.index), counts, strict=True)))
    held = zip(table.columns, seen.tolist(), texts, strict=True)
    # A column without any value tells nothing.
    return tuple(
        str(name)
        for name, count, own in held
        if count and (count < least or (own and max(own.values()) < least))
    )


def _pair_sums(rows: FloatArray) -> _PairSums:
    """Return the sums over rows in which two columns have values; NaN stands for none."""
    missing = np.isnan(rows)
    if not missing.any():
        q = rows.shape[1]
        sums, squares = (np.tile(one[:, None], (1, q)) for one in (rows.sum(0), (rows**2).sum(0)))
        return _PairSums(np.full((q, q), float(len(rows))), sums, squares, rows.T @ rows)
    seen, filled = (~missing).astype(np.float64), np.where(missing, 0.0, rows)
    return _PairSums(seen.T @ seen, filled.T @ seen, (filled**2).T @ seen, filled.T @ filled)

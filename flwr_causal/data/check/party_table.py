"""A party's own table: the report on it, and the rows that the report counted."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.core.discrete.cut_points import apply_cuts
from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.linear.determined import determined, tells_combinations
from flwr_causal.data.check.column_sums import ColumnProducts, ColumnSums, combined, sums_of
from flwr_causal.data.check.columns import (
    LARGEST_EXACT,
    PLAIN,
    all_columns,
    as_numbers,
    check_exact,
    distinct_values,
    find_columns,
    find_numbers,
    interval_names,
    kind_of,
    kind_of_type,
    named_states,
    type_of,
)
from flwr_causal.data.check.far_values import (
    LOOKED_AT,
    Ends,
    add_rows,
    cells_apart,
    skewed_as_amounts,
)
from flwr_causal.data.check.handling import MOST_FRACTIONS, Handling
from flwr_causal.data.check.report import (
    NUMBERS,
    ColumnReport,
    Kind,
    TableReport,
)
from flwr_causal.data.read.pieces import pieces, whole
from flwr_causal.data.read.texts import is_number, is_stray
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.discrete.discrete import Codes
    from flwr_causal.data.read.pieces import Table

#: A row dominates a column where it holds more than this share of the sum of squares, and Gaussian
#: rows would do so with less than this probability.
MOST_OF_SQUARES, CHANCE = 0.5, 1e-9
#: A column tells rows apart if more than this share of the values in its first rows differ.
MANY_VALUES, FIRST_ROWS = 0.25, 1000
#: A table of fewer rows that repeat others is none of copies.
FEWEST_REPEATED = 5
#: How many cells of a table commands list.
SHOWN_CELLS = 10


def complete_rows(frame: pd.DataFrame, handling: Handling | None = None) -> BoolArray:
    """Mark the rows that training uses.

    Parameters
    ----------
    frame : DataFrame
        n rows.
    handling : Handling, optional
        With ``missing_values="drop"`` a row counts if it has neither a missing nor an infinite
        value in any column (dropped text columns aside); else all rows count.

    Returns
    -------
    bool array of shape (n,)
    """
    if handling is None or handling.missing_values != "drop":
        return np.ones(len(frame), dtype=np.bool_)
    kinds, block = _numbers_of(frame)
    return _complete(frame, kinds, block, handling)


def _complete(
    frame: pd.DataFrame, kinds: Sequence[Kind], block: FloatArray, handling: Handling
) -> BoolArray:
    complete = np.ones(len(frame), dtype=np.bool_)
    if handling.missing_values != "drop":
        return complete
    if handling.text_columns != "drop":
        texts = [position for position, kind in enumerate(kinds) if kind not in NUMBERS]
        complete &= frame.iloc[:, texts].notna().to_numpy(dtype=np.bool_).all(axis=1)
    return complete & np.isfinite(block).all(axis=1)


def describe(
    table: Table,
    handling: Handling | None = None,
    *,
    sums: bool = False,
    states: bool = False,
    relations: bool = False,
) -> TableReport:
    """Report on a party's table.

    Parameters
    ----------
    table : DataFrame or LargeFile
        The table, as :func:`flwr_causal.data.read.pieces.open_table` returns it. A file is read
        once; with ``states`` all of it is then in memory.
    handling : Handling, optional
        How the run handles problems: it decides which rows are kept. Default: all must be fine.
    sums : bool
        Compute the sums that centring and scaling need; they then leave the party.
    states : bool
        Name the different values of each column, as far as :class:`Handling` lets them be named;
        they then leave the party. For methods on categories.
    relations : bool
        Say which columns are linear combinations of others, and of which a single row has most of
        the variance. For linear methods.

    Returns
    -------
    TableReport

    Raises
    ------
    DataError
        For numbers that float64 cannot hold or tell apart, and with ``states`` for a category that
        is no text, number or boolean.
    """
    handling = handling or Handling()
    table = whole(table) if states else table
    found = _Pass(handling, relations=relations)
    for piece in pieces(table):
        found.add(piece)
    _check_exact(table, found, states=states)
    facts = found.facts(sums=sums)
    if relations:
        _add_relations(facts, found)
    first_with: dict[bytes, int] = {}
    columns = []
    # pandas takes longer to cut out a column than to add it up.
    rows = _kept_columns(whole(table), found) if states else []
    for position, (name, kind) in enumerate(zip(found.names, found.kinds, strict=True)):
        first = first_with.setdefault(found.digests[position].digest(), position)
        copy_of = None if first == position else first
        if states and kind != "other":
            facts[position] |= _states(rows[position], name, kind, handling)
        columns.append(ColumnReport(name, kind, copy_of=copy_of, **facts[position]))
    dropped = len(table) - found.rows
    needed = max(FEWEST_REPEATED, found.rows / 100)
    # The numbers alone tell faster that there are not so many.
    repeats = found.repeated_numbers >= needed and repeated_rows(table) >= needed
    return TableReport(
        found.rows, dropped, tuple(columns), sums, states, relations, repeats=repeats
    )


def repeated_rows(table: Table) -> int:
    """Return how many rows repeat an earlier one in all columns.

    0 where no column has many different values: then equal rows are no copies.
    """
    rows: list[NDArray[np.uint64]] = []
    for piece in pieces(table):
        if not rows and not _tells_rows_apart(piece, *_numbers_of(piece)):
            return 0
        try:
            found = pd.util.hash_pandas_object(piece, index=False)
        except TypeError:  # lists and the like
            found = pd.util.hash_pandas_object(piece.map(str), index=False)
        rows.append(np.asarray(found, dtype=np.uint64))
    return _repeated(rows)


def _tells_rows_apart(piece: pd.DataFrame, kinds: Sequence[Kind], block: FloatArray) -> bool:
    """Return whether a column has many different values, given what :func:`_numbers_of` does."""
    first = block[:FIRST_ROWS]
    many = len(first) * MANY_VALUES
    of_block = (kind for kind in kinds if kind in NUMBERS)
    numbers = (one for kind, one in zip(of_block, first.T, strict=True) if kind == "numeric")
    texts = (k for k, kind in enumerate(kinds) if kind == "category")
    return any(len(np.unique(column[~np.isnan(column)])) > many for column in numbers) or any(
        piece.iloc[:FIRST_ROWS, k].nunique() > many for k in texts
    )


def _repeated(digests: Sequence[NDArray[np.uint64]]) -> int:
    together = np.concatenate([np.zeros(0, dtype=np.uint64), *digests])
    return len(together) - len(pd.unique(together))


def _digests(values: FloatArray) -> NDArray[np.uint64]:
    """Return a number for each row, equal for equal rows, shape (n,); columns are contiguous."""
    found = np.zeros(len(values), dtype=np.uint64)
    for column in values.T:
        found ^= column.view(np.uint64)
        found *= np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(32)
    return found


def _kept_columns(frame: pd.DataFrame, found: _Pass) -> list[pd.Series]:
    columns = all_columns(frame)
    if found.rows == len(frame):
        return columns
    kept = np.concatenate(found.kept)
    return [column[kept] for column in columns]


def prepare(
    frame: pd.DataFrame, names: Sequence[str], handling: Handling | None = None
) -> FloatArray:
    """Return exactly the rows that :func:`describe` counted, as numbers.

    Parameters
    ----------
    frame : DataFrame
        The party's table.
    names : sequence of str
        The agreed columns, in the agreed order; found by name.
    handling : Handling, optional
        That with which the table was described.

    Returns
    -------
    float64 array of shape (n, d), C-contiguous

    Raises
    ------
    DataError
        A column is absent, doubled, not numeric, or not finite in a row that is kept.
    """
    kept = complete_rows(frame, handling)
    rows = _columns(frame, names)
    rows = rows if kept.all() else rows[kept]
    if not np.isfinite(rows).all():
        columns = zip(names, rows.T, strict=True)
        bad = [name for name, values in columns if not np.isfinite(values).all()]
        raise DataError(
            f"columns {', '.join(bad)} have missing or infinite values: fill them in, or leave "
            "those rows out with missing_values='drop'"
        )
    return rows


def prepare_columns(
    frame: pd.DataFrame,
    names: Sequence[str],
    states: Sequence[Sequence[str]],
    handling: Handling | None = None,
) -> list[FloatArray | IntArray | Codes]:
    """Return exactly the rows that :func:`describe` counted, column by column, each (n,).

    Columns with agreed states are the numbers of their states, all others numbers. Parameters and
    errors are those of :func:`prepare_states`; where missing values are kept, missing
    numbers are NaN, and missing states -1.
    """
    kept = complete_rows(frame, handling)
    as_missing = handling is not None and handling.keeps_missing
    found: list[FloatArray | IntArray | Codes] = []
    for name, agreed, column in zip(names, states, find_columns(frame, names), strict=True):
        rows = column if kept.all() else column[kept]
        lacking = rows.isna().to_numpy(dtype=np.bool_) if as_missing else None
        seen = rows if lacking is None else rows[~lacking]
        own = _coded(name, seen, agreed) if agreed else _complete_numbers(name, seen)
        if lacking is not None and lacking.any():
            whole = np.full(len(rows), -1) if agreed else np.full(len(rows), np.nan)
            whole[~lacking] = own
            own = whole
        found.append(own)
    return found


def prepare_states(
    frame: pd.DataFrame,
    names: Sequence[str],
    states: Sequence[Sequence[str]],
    handling: Handling | None = None,
    cuts: Mapping[str, FloatArray] | None = None,
) -> DiscreteTable:
    """Return exactly the rows that :func:`describe` counted, as states.

    Parameters
    ----------
    frame : DataFrame
        The party's table.
    names : sequence of str
        The agreed columns, in the agreed order; found by name.
    states : sequence of sequence of str
        The agreed states of each. Those of a column in ``cuts`` are not looked at.
    handling : Handling, optional
        That with which the table was described.
    cuts : mapping of str to float64 array, optional
        Agreed cut points, ascending, of the columns that are discretised; their states are
        :func:`~flwr_causal.data.check.columns.interval_names` of them.

    Returns
    -------
    DiscreteTable
        One variable for each name, every row once.

    Raises
    ------
    DataError
        A column is absent or doubled, has a missing or infinite value in a row that is kept, a
        value that is not among its states, or no agreed states yet.
    """
    cuts = cuts or {}
    kept = complete_rows(frame, handling)
    codes = np.zeros((len(names), int(kept.sum())), dtype=np.uint8)
    known = []
    every = bool(kept.all())
    columns = zip(names, states, find_columns(frame, names), strict=True)
    for position, (name, agreed, column) in enumerate(columns):
        rows = column if every else column[kept]
        if name in cuts:
            codes[position] = apply_cuts(_complete_numbers(name, rows), cuts[name])
            known.append(interval_names(cuts[name]))
        else:
            codes[position] = _coded(name, rows, agreed)
            known.append(tuple(agreed))
    return DiscreteTable(tuple(names), tuple(known), codes)


def _complete_numbers(name: str, rows: pd.Series) -> FloatArray:
    """Return a column's numbers, shape (n,), none of which is missing or infinite."""
    numbers = find_numbers(rows)
    _check_complete(name, np.isfinite(numbers).all())
    return numbers


def _coded(name: str, rows: pd.Series, states: Sequence[str]) -> Codes:
    """Return the position of each row's value among the states, shape (n,)."""
    kind = kind_of(rows)
    if kind == "other":
        raise DataError(f"column {name!r} ({rows.dtype}) holds no categories: make it text")
    values, codes = distinct_values(rows, kind)
    _check_complete(name, (codes >= 0).all())
    if not states and len(values):
        raise DataError(
            f"column {name!r} has no agreed states: it is to be discretised, so give its cut points"
        )
    labels, _ = named_states(values, name)
    place = {state: code for code, state in enumerate(states)}
    if not place.keys() >= set(labels):
        raise DataError(
            f"column {name!r} has a value that is not among its {len(states)} agreed states: the "
            "table must not change between the schema exchange and the training"
        )
    lookup: Codes = np.array([place[label] for label in labels], dtype=np.uint8)
    return lookup[codes]


def _check_complete(name: str, complete: Any) -> None:
    if not complete:
        raise DataError(
            f"column {name!r} has missing or infinite values: fill them in (with a state of their "
            "own, if that they are missing means something), or leave those rows out with "
            "missing_values='drop'"
        )


def _columns(frame: pd.DataFrame, names: Sequence[str]) -> FloatArray:
    """Return the named columns, shape (n, len(names)), C-contiguous; each must be there once."""
    if list(names) == list(frame.columns) and frame.columns.is_unique and _is_plain(frame):
        # One block: pandas caches single columns in the table, which costs more than small tables.
        return np.array(frame.to_numpy(dtype=np.float64), order="C")
    rows = np.empty((len(frame), len(names)))
    for position, column in enumerate(find_columns(frame, names)):
        rows[:, position] = find_numbers(column)
    return rows


def _is_plain(frame: pd.DataFrame) -> bool:
    """Say whether all columns have one numpy type of numbers."""
    return _plain_kind(frame) is not None


def _plain_kind(frame: pd.DataFrame) -> Kind | None:
    """Return the kind of all columns where they have one numpy type of numbers; else None."""
    types = list(frame.dtypes)
    first = types[0] if types else None
    if not (isinstance(first, np.dtype) and first.kind in PLAIN):
        return None
    return kind_of_type(first) if types.count(first) == len(types) else None


def _numbers_of(
    frame: pd.DataFrame, kinds: list[Kind] | None = None
) -> tuple[list[Kind], FloatArray]:
    """Return the kinds of all columns, unless given, and those of numbers, in order, shape (n, .).

    The kinds of a table are those of its first piece.
    """
    plain = _plain_kind(frame)
    if plain is not None:
        return kinds or [plain] * frame.shape[1], frame.to_numpy(dtype=np.float64)
    columns = all_columns(frame)
    kinds = kinds or [kind_of(column) for column in columns]
    chosen = [column for kind, column in zip(kinds, columns, strict=True) if kind in NUMBERS]
    block = np.empty((len(frame), len(chosen)), order="F")
    for place, column in enumerate(chosen):
        block[:, place] = as_numbers(column)
    return kinds, block


class _Pass:
    """What one pass over a table finds about its columns, piece by piece.

    Attributes
    ----------
    names, kinds : list
        Of all columns, known after the first piece.
    places : list of int
        The positions of the columns of numbers.
    kept : list of bool arrays
        Which rows of each piece are used.
    digests : list
        Of each column's kept values: equal for columns with the same values.
    ends : list of Ends
        Of each column of numbers.
    sums : list of ColumnSums
        Of each piece's kept rows and columns of numbers.
    products : ColumnProducts or None
        Of the same; None unless relations are to be found.
    """

    def __init__(self, handling: Handling, *, relations: bool) -> None:
        self._handling = handling
        self._relations = relations
        self.names: list[str] = []
        self.kinds: list[Kind] = []
        self.places: list[int] = []
        self.kept: list[BoolArray] = []
        self.digests: list[Any] = []
        self.ends: list[Ends] = []
        self.sums: list[ColumnSums] = []
        self.products: ColumnProducts | None = None
        self._first: list[FloatArray] = []
        self._rows: list[NDArray[np.uint64]] = []
        self._varies = False
        self._missing: list[IntArray] = []
        self._infinite: list[IntArray] = []
        self._texts: dict[int, set[str | None]] = {}
        self._stray: dict[int, IntArray] = {}

    @property
    def rows(self) -> int:
        """The number of rows that are used."""
        return sum(int(kept.sum()) for kept in self.kept)

    @property
    def repeated_numbers(self) -> int:
        """How many rows that are used repeat the numbers of an earlier one; or 0, as there."""
        return _repeated(self._rows) if self._varies else 0

    def add(self, piece: pd.DataFrame) -> None:
        """Look at further rows."""
        kinds, block = _numbers_of(piece, self.kinds)
        if not self.kept:
            self._begin(piece, kinds, block)
        kept = _complete(piece, self.kinds, block, self._handling)
        self.kept.append(kept)
        missing = np.zeros(len(self.kinds), dtype=np.int64)
        missing[self.places] = np.isnan(block).sum(axis=0)
        self._infinite.append(np.isinf(block).sum(axis=0))
        every = bool(kept.all())
        # Adding 0 turns negative zeros into positive ones, which they equal.
        values = np.add(block if every else block[kept], 0.0, order="F")
        for place, column in zip(self.places, values.T, strict=True):
            self.digests[place].update(column.data)
        add_rows(self.ends, values)
        if self._varies:
            self._rows.append(_digests(values))
        self.sums.append(sums_of(values))
        if self._relations:
            if self.products is None:
                self.products = ColumnProducts(self.sums[0].mean)
            self.products.add(values[~np.isnan(values).any(axis=1)])
            left = LOOKED_AT - sum(map(len, self._first))
            if left > 0 or not self._first:
                self._first.append(values[:left].copy())
        for place, different in self._texts.items():
            column = piece.iloc[:, place]
            missing[place] = column.isna().sum()
            codes, texts = _factorized(column if every else column[kept])
            # Rows are equal if the values, in the order in which they occur, and their places are.
            content = "\0".join(texts).encode(errors="surrogatepass")
            self.digests[place].update(codes.tobytes())
            self.digests[place].update(hashlib.sha1(content, usedforsecurity=False).digest())
            # A missing value is one more; of more than may be states, one more suffices.
            different.update([None] if (codes < 0).any() else [])
            different.update(texts[: self._handling.max_states + 1])
            self._stray[place] = self._stray.get(place, 0) + _numbers_and_others(codes, texts)
        self._missing.append(missing)

    def _begin(self, piece: pd.DataFrame, kinds: list[Kind], block: FloatArray) -> None:
        self.names = [str(name) for name in piece.columns]
        self.kinds = kinds
        self.places = [place for place, kind in enumerate(self.kinds) if kind in NUMBERS]
        # Twice as fast as other digests on today's processors, and no secret.
        self.digests = [hashlib.sha1(usedforsecurity=False) for _ in self.kinds]
        self.ends = [Ends() for _ in self.places]
        self._varies = _tells_rows_apart(piece, kinds, block)
        self._texts = {k: set() for k, kind in enumerate(self.kinds) if kind not in NUMBERS}

    def facts(self, *, sums: bool) -> list[dict[str, Any]]:
        """Return each column's entries of its report, by their names."""
        missing, infinite = np.sum(self._missing, axis=0), np.sum(self._infinite, axis=0)
        facts: list[dict[str, Any]] = [{"missing": count} for count in missing.tolist()]
        for place, different in self._texts.items():
            facts[place]["distinct_one"] = len(different) == 1
            facts[place]["texts"] = min(len(different - {None}), self._handling.max_states + 1)
            numbers, others = self._stray[place].tolist()
            facts[place]["stray"] = others if numbers > others else 0
        for place, ends in zip(self.places, self.ends, strict=True):
            far = ends.far()
            facts[place]["far"] = 0 if far is None else far.rows
        total = self.total
        entries = {"infinite": infinite, "distinct_one": total.same & (self.rows > 0)}
        if sums:
            entries |= _finite_sums(total)
        for name, values in entries.items():
            for place, value in zip(self.places, values.tolist(), strict=True):
                facts[place][name] = value
        return facts

    @property
    def first(self) -> FloatArray:
        """The first of the rows that are used, where relations are to be found."""
        return np.concatenate(self._first)

    @cached_property
    def total(self) -> ColumnSums:
        """The sums of all rows that are used."""
        return combined(self.sums)


def _factorized(rows: pd.Series) -> tuple[NDArray[np.intp], list[str]]:
    """Return the codes of the different values, -1 where one is missing, and these as texts."""
    try:
        codes, values = pd.factorize(rows)
    except (TypeError, NotImplementedError):  # lists and the like, which are compared as texts
        codes, values = pd.factorize(rows.map(str))
    return codes, [str(value) for value in values]


def _numbers_and_others(codes: NDArray[np.intp], texts: Sequence[str]) -> IntArray:
    """Return how many values are numbers, and how many are neither numbers nor missing."""
    counts = np.bincount(codes[codes >= 0], minlength=len(texts))
    numbers = np.fromiter(map(is_number, texts), np.bool_, len(texts))
    others = np.fromiter(map(is_stray, texts), np.bool_, len(texts))
    return np.array([counts[numbers].sum(), counts[others].sum()])


def stray_cells(table: Table, report: TableReport) -> Iterator[tuple[str, int, str]]:
    """Yield the cells that are no numbers where most of a column is: its name, row and value.

    Rows count from 1. For the party's own machine: values are no part of any report.
    """
    frame = whole(table) if any(column.stray for column in report.columns) else None
    for place, column in enumerate(report.columns):
        if frame is not None and column.stray:
            cells = frame.iloc[:, place]
            for row, cell in enumerate(cells.tolist(), start=1):
                if not pd.isna(cell) and is_stray(str(cell)):
                    yield column.name, row, str(cell)


def _finite_sums(total: ColumnSums) -> dict[str, FloatArray]:
    """Return the sums to be reported; zeros where undefined."""
    fits = total.finite & np.isfinite(total.squares)
    return {
        "mean": np.where(fits, total.mean, 0.0),
        "remainder": np.where(fits, total.remainder, 0.0),
        "squares": np.where(total.finite, np.where(fits, total.squares, np.inf), 0.0),
    }


def _check_exact(table: Table, found: _Pass, *, states: bool) -> None:
    """Check the columns of large whole numbers; see :func:`check_exact`."""
    # A float has lost what it lost before; states of plain whole numbers are named exactly.
    ignored = "f" + "iu" * states
    total = found.total
    span = np.maximum(total.highest, 0.0) - np.minimum(total.lowest, 0.0)
    large = [found.places[k] for k in np.flatnonzero(span > LARGEST_EXACT)]
    if not large:
        return
    parts = [piece.iloc[:, large] for piece in pieces(table)]
    for column in all_columns(pd.concat(parts)):
        if column.dtype.kind not in ignored:
            check_exact(column, as_numbers(column))


def _add_relations(facts: list[dict[str, Any]], found: _Pass) -> None:
    """Add what columns are combinations of, and what few rows do to their moments."""
    places, total, n = found.places, found.total, np.maximum(found.total.present, 3)
    flags = zip(cells_apart(found.first), skewed_as_amounts(found.first), strict=True)
    for place, (apart, skewed) in zip(places, flags, strict=True):
        facts[place] |= {"combination_of": (), "dominated": False}
        facts[place] |= {"apart": bool(apart), "skewed": bool(skewed)}
    if found.rows <= 2 or found.products is None or not np.isfinite(total.squares).all():
        return
    varies = ~total.same & (total.squares > 0)
    # Of incomplete rows nothing is known of the columns together.
    if tells_combinations(found.products.rows, len(places)):
        second = np.where(np.outer(varies, varies), found.products.second(), 0.0)
        for column, others in determined(second, [found.names[place] for place in places]):
            facts[places[column]]["combination_of"] = tuple(places[k] for k in others)
    farthest = np.maximum(total.highest - total.mean, total.mean - total.lowest)
    share = np.where(varies, farthest**2, 0.0) / np.where(varies, total.squares, 1.0)
    # An upper bound of how probable so large a share of one of n Gaussian rows is: the share is
    # (n - 1) / n times a variable of the beta distribution with 1/2 and (n - 2) / 2.
    rest, half = np.maximum(1 - share * n / (n - 1), 1e-15), (n - 2) / 2
    chance = n * rest**half / np.sqrt(np.pi * half * np.maximum(1 - rest, MOST_OF_SQUARES))
    # A rare state of two is no outlier.
    dominated = total.between & (share > MOST_OF_SQUARES) & (chance < CHANCE)
    for place, one in zip(places, dominated.tolist(), strict=True):
        facts[place]["dominated"] = one


def _states(rows: pd.Series, name: str, kind: Kind, handling: Handling) -> dict[str, Any]:
    """Return the number of different values, what they are like, and the states if few."""
    values, codes = distinct_values(rows, kind)
    types = type_of(rows, kind, values)
    whole = kind == "numeric" and bool((values == np.floor(values)).all())
    few = handling.max_states
    if kind == "numeric" and name in handling.number_names:
        few = 0
    elif kind == "numeric" and handling.number_states:
        few = handling.number_states if whole else 0
    elif kind == "numeric" and not whole:
        # Measurements are not categories: their values need not leave the party.
        few = min(few, handling.discretize or MOST_FRACTIONS)
    if len(values) > few:
        most = int(np.bincount(codes[codes >= 0]).max(initial=0))
        repeated = kind == "numeric" and most > len(rows) / 2
        facts = {"distinct": len(values), "whole": whole, "repeated": repeated}
        return facts | {"values": types}
    _, states = named_states(values, name)
    return {"distinct": len(states), "whole": whole, "states": states, "values": types}

"""A party's table by the dictionary: its names, codes and units become the shared ones.

Each cell is read by itself, so that the pieces of a large file are read as all of it.

**The party's map** is a TOML file with its own names, codes and units: an entry for each
column that is written otherwise than the dictionary says::

    sex = {1 = "male", 2 = "female"}            # codes and their states
    weight = {from = "w_g", factor = 0.001}     # another name, another unit
    stage = {from = "grade", missing = ["9"], states = {0 = "I", 1 = "II"}}

The file never leaves the party.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.core.discrete.discrete import state_name
from flwr_causal.core.words import as_seen, nearest
from flwr_causal.data.dictionary.entries import NUMERIC, STATED, plain_number, read_toml, spelled
from flwr_causal.data.dictionary.faults import (
    SHOWN_ROWS,
    SHOWN_VALUES,
    DictionaryFault,
    DictionaryFaultError,
    FaultyValue,
    shortened,
)
from flwr_causal.data.read.texts import MISSING
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.data.dictionary.entries import ColumnEntry, Dictionary

#: The keys of an entry; any other key is a code, whose value is the state that it stands for.
KEYS = ("from", "factor", "offset", "thousands", "missing", "states")
# What may stand between thousands; a point is a decimal point, a comma where a table description
# says so.
_MARKS = (",", "'", " ", "\u00a0", "\u202f")


@dataclass(frozen=True)
class ColumnMap:
    """How a party writes one column of the dictionary.

    Parameters
    ----------
    source : str
        The column's name in the party's table.
    factor, offset : float
        The value in the dictionary's unit is ``factor * value + offset``.
    thousands : str, default ""
        The mark between thousands in its numbers.
    missing : tuple of str, default ()
        Further texts of the party that are missing values, before the factor.
    states : tuple of (code, state), default ()
        If there are any, only these codes and the names of the states are states.
    """

    source: str
    factor: float = 1.0
    offset: float = 0.0
    thousands: str = ""
    missing: tuple[str, ...] = ()
    states: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class LocalMap:
    """The entries of a party's file.

    Parameters
    ----------
    columns : tuple of (name, ColumnMap)
        By the dictionary's name.
    """

    columns: tuple[tuple[str, ColumnMap], ...] = ()

    def of(self, name: str) -> ColumnMap:
        """Return how a column is written; by default as the dictionary says."""
        return self._by_name.get(name) or ColumnMap(name)

    @cached_property
    def _by_name(self) -> dict[str, ColumnMap]:
        return dict(self.columns)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], dictionary: Dictionary) -> LocalMap:
        """Return the map of the values of a TOML file.

        Raises
        ------
        ConfigError
            Naming column and key: a column that the dictionary lacks, a code of a state that it
            lacks, a factor of a column that is no number, one source of two columns.
        """
        found: dict[str, ColumnMap] = {}
        sources: dict[str, str] = {}
        for name, own in values.items():
            entry = dictionary.find(name)
            if entry is None:
                near = nearest(name, [one.name for one in dictionary.columns])
                hint = f"; did you mean {near!r}?" if near else ""
                raise ConfigError(f"the dictionary has no column {name!r}{hint}")
            found[name] = _column_map(entry, own)
        for one in dictionary.used:
            source = found[one.name].source if one.name in found else one.name
            other = sources.setdefault(source, one.name)
            if other != one.name:
                raise ConfigError(
                    f"the columns {other!r} and {one.name!r} of the dictionary are both read from "
                    f"{source!r}: give one of them another 'from'"
                )
        return cls(tuple(found.items()))

    @classmethod
    def read(cls, path: str | Path, dictionary: Dictionary) -> LocalMap:
        """Read a TOML file, once for each version of it.

        Raises
        ------
        ConfigError
            As :meth:`from_dict`, with the file's name; also if it cannot be read.
        """
        file = Path(path).expanduser()
        try:
            version = file.stat().st_mtime_ns
        except OSError:
            version = 0
        return _read(file, version, dictionary)


#: The map of a party that writes its table as the dictionary says.
NO_MAP = LocalMap()


@lru_cache(maxsize=8)
def _read(path: Path, version: int, dictionary: Dictionary) -> LocalMap:
    def parse(values: Mapping[str, Any]) -> LocalMap:
        return LocalMap.from_dict(values, dictionary)

    found: LocalMap = read_toml(path, "map to the dictionary", parse)
    return found


def _column_map(entry: ColumnEntry, values: Any) -> ColumnMap:
    """Return the map of one column, checked against the dictionary."""
    where = f"column {entry.name!r}"
    if not isinstance(values, dict) or not values:
        raise ConfigError(
            f'{where} is {values!r}: write codes, {{1 = "male", 2 = "female"}}, or '
            '{from = "w_g", factor = 0.001}'
        )
    codes = values.get("states", {})
    if not isinstance(codes, dict):
        raise ConfigError(f"{where}: 'states' is {codes!r}: write codes, {{1 = \"male\"}}")
    codes = {**codes, **{key: own for key, own in values.items() if key not in KEYS}}
    source = values.get("from", entry.name)
    if not isinstance(source, str) or not source.strip():
        raise ConfigError(f"{where}: 'from' is {source!r}: write the column's name in the table")
    scaled = [key for key in ("factor", "offset", "thousands") if key in values]
    if scaled and entry.kind not in NUMERIC:
        raise ConfigError(
            f"{where} is of the kind '{entry.kind}', no number: it has no '{scaled[0]}'"
        )
    factor, offset = (_finite(where, key, values) for key in ("factor", "offset"))
    thousands = values.get("thousands", "")
    if "thousands" in values and thousands not in _MARKS:
        raise ConfigError(
            f"{where}: 'thousands' is {thousands!r}: write a comma, an apostrophe or a blank"
        )
    missing = values.get("missing", [])
    plain = isinstance(missing, list) and all(isinstance(one, str | int | float) for one in missing)
    if not plain:
        raise ConfigError(f'{where}: \'missing\' is {missing!r}: write a list, ["-999", "NA"]')
    return ColumnMap(
        source.strip(),
        factor,
        offset,
        thousands,
        tuple(map(spelled, missing)),
        tuple((code.strip(), _state(where, entry, code, own)) for code, own in codes.items()),
    )


def _finite(where: str, key: str, values: Mapping[str, Any]) -> float:
    value = values.get(key, 1.0 if key == "factor" else 0.0)
    plain = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    if not plain or (key == "factor" and value == 0):
        raise ConfigError(f"{where}: '{key}' is {value!r}: write a number, of 'factor' not 0")
    return float(value)


def _state(where: str, entry: ColumnEntry, code: str, state: Any) -> str:
    """Return the state that a code stands for; a ConfigError if the column has none such."""
    near = nearest(code, KEYS)
    hint = f" (or did you mean the key '{near}'?)" if near else ""
    if entry.kind not in STATED:
        raise ConfigError(
            f"{where} is of the kind '{entry.kind}' and has no states, and the map has the code "
            f"{code!r}{hint}: take it out, or correct the dictionary's kind"
        )
    known = entry.state_names
    if isinstance(state, str) and (state in known or (not known and state.strip())):
        return state
    raise ConfigError(
        f"{where}: the code {code!r} stands for {state!r}, which is no state of the dictionary"
        f"{hint}: {', '.join(known) or 'write a text'}"
    )


@dataclass(frozen=True)
class PartyDictionary:
    """The dictionary, with a party's map of its names, codes and units.

    Parameters
    ----------
    dictionary : Dictionary
    local : LocalMap
        The party's names, codes and units.
    hidden : tuple of str, default ()
        Columns of the dictionary that the party's policy withholds: it lacks them.
    left_out : tuple of str, default ()
        Columns of roles that the run has no use for.
    may_lack : bool, default False
        Whether the table may lack any column, as the rows of a query do.
    as_numbers : bool, default False
        Whether ordered states, and the two states of a column of two, are the numbers 0, 1, ... of
        their order, for methods that take numbers alone.
    as_places : bool, default False
        Whether all states that are listed are these numbers, as in :meth:`applied_by_cell`.
    """

    dictionary: Dictionary
    local: LocalMap = NO_MAP
    hidden: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    may_lack: bool = False
    as_numbers: bool = False
    as_places: bool = False

    @cached_property
    def columns(self) -> tuple[tuple[ColumnEntry, ColumnMap], ...]:
        """The columns that runs read, and how the party writes them."""
        return tuple(
            (one, self.local.of(one.name))
            for one in self.dictionary.used
            if one.name not in self.left_out
        )

    @cached_property
    def text_sources(self) -> tuple[str, ...]:
        """The party's names of the columns whose cells are read as they are spelled."""
        return tuple(own.source for one, own in self.columns if one.kind not in NUMERIC)

    def missing_columns(self, names: Sequence[str]) -> list[DictionaryFault]:
        """Return a fault for each column that a table of these columns lacks or has twice."""
        found = []
        times = self._times(names)
        sources = {own.source for _, own in self.columns}
        others = [name for name in names if name not in sources]
        for one, own in self.columns:
            if not times[one.name] and not (one.optional or self.may_lack):
                alike = [name for name in others if as_seen(name) == as_seen(one.name)]
                near = next(iter(alike), nearest(own.source, others))
                hint = f'the table has {near!r}: map it, {one.name} = {{from = "{near}"}}'
                found.append(
                    DictionaryFault(one.name, "is missing in the table", hint=hint if near else "")
                )
            elif times[one.name] > 1:
                found.append(DictionaryFault(one.name, "is there more than once in the table"))
        return found

    def _times(self, names: Sequence[str]) -> dict[str, int]:
        """Return how often each column of the dictionary is in a table and may be seen."""
        there = Counter(names)
        return {
            one.name: there[own.source] * (one.name not in self.hidden) for one, own in self.columns
        }

    def applied(
        self, frame: pd.DataFrame, first_row: int = 1
    ) -> tuple[pd.DataFrame, list[DictionaryFault]]:
        """Return rows of a table as the dictionary has them, and what does not fit it.

        Parameters
        ----------
        frame : DataFrame
            Rows as :mod:`~flwr_causal.data.read.reading` reads them, where columns of
            :attr:`text_sources` may be text.
        first_row : int, default 1
            The number of the first of them.

        Returns
        -------
        frame : DataFrame
            The columns that the dictionary uses and the table holds, in the dictionary's order:
            numbers as float64, states and ids as text, dates as datetime64. What does not fit is
            missing.
        faults : list of DictionaryFault
            Empty if all fits.
        """
        names = [str(name) for name in frame.columns]
        faults = self.missing_columns(names)
        times = self._times(names)
        found: dict[str, pd.Series] = {}
        for one, own in self.columns:
            if times[one.name] == 1:
                cells = frame[own.source]
                found[one.name], wrong = self._read(cells, one, own)
                faults += _faults(one, cells, wrong, first_row)
        return pd.DataFrame(found, index=frame.index), faults

    def applied_by_cell(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return rows of a run with epsilon: of states that are listed the number of their place.

        A cell that does not fit is missing, and nothing says so.

        Parameters
        ----------
        frame : DataFrame
            Numbers, and columns of :attr:`text_sources` as text, each from its own cell alone.

        Raises
        ------
        DictionaryFaultError
            If columns are missing.
        """
        faults = self.missing_columns([str(name) for name in frame.columns])
        if faults:
            raise DictionaryFaultError(faults)
        return replace(self, as_places=True).applied(frame)[0]

    def _read(
        self, cells: pd.Series, entry: ColumnEntry, own: ColumnMap
    ) -> tuple[pd.Series, dict[str, BoolArray]]:
        """Return a column, and by the reason which of its cells do not fit."""
        missing = (*self.dictionary.missing, *entry.missing, *own.missing)
        if entry.kind in NUMERIC:
            return _numbers(cells, entry, own, missing)
        if entry.kind in STATED:
            values, wrong = _by_text(cells, missing, _state_of(entry, own))
            if entry.states and (self.as_places or (self.as_numbers and entry.is_scale)):
                place = {state: float(k) for k, state in enumerate(entry.state_names)}
                values = values.map(place).astype(np.float64)
            elif values.isna().all():
                values = values.astype("category")  # objects without a value pass for numbers
            return values, {_no_state(entry): wrong}
        if entry.kind == "date":
            values, wrong = _by_text(cells, missing, _date_of)
            return pd.to_datetime(values), {"no date such as 2024-01-31": wrong}
        values, _ = _by_text(cells, missing, lambda text: text)
        return values, {}


def _no_state(entry: ColumnEntry) -> str:
    return f"outside its states ({', '.join(entry.state_names)})"


def _faults(
    entry: ColumnEntry, cells: pd.Series, wrong: dict[str, BoolArray], first_row: int
) -> list[DictionaryFault]:
    found = []
    for reason, marked in wrong.items():
        rows = np.flatnonzero(marked)
        if len(rows):
            values: dict[str, list[int]] = {}
            for row, value in zip(rows.tolist(), cells.iloc[rows].tolist(), strict=True):
                values.setdefault(shortened(value), []).append(first_row + row)
            listed = [
                FaultyValue(value, len(own), tuple(own[:SHOWN_ROWS]))
                for value, own in list(values.items())[:SHOWN_VALUES]
            ]
            found.append(DictionaryFault(entry.name, reason, len(rows), tuple(listed)))
    return found


def _numbers(
    cells: pd.Series, entry: ColumnEntry, own: ColumnMap, missing: Sequence[str]
) -> tuple[pd.Series, dict[str, BoolArray]]:
    """Return a column of numbers in the dictionary's unit, and the cells that do not fit."""
    raw, no_number = _raw_numbers(cells, missing, own.thousands)
    values = raw if (own.factor, own.offset) == (1.0, 0.0) else own.factor * raw + own.offset
    known = np.isfinite(values)
    no_number = no_number | np.isinf(values)
    wrong: dict[str, BoolArray] = {"no number": no_number}
    if entry.kind == "count":
        whole = known & (values >= 0) & (values == np.floor(values))
        wrong["no whole number from 0 on"] = known & ~whole
    outside = np.zeros(len(values), dtype=np.bool_)
    with np.errstate(invalid="ignore"):
        if entry.least is not None:
            outside |= values < entry.least
        if entry.most is not None:
            outside |= values > entry.most
    wrong[f"outside {entry.range_in_words}"] = outside & known
    bad = np.logical_or.reduce(list(wrong.values()))
    return pd.Series(np.where(bad, np.nan, values), cells.index), wrong


def _raw_numbers(
    cells: pd.Series, missing: Sequence[str], thousands: str
) -> tuple[FloatArray, BoolArray]:
    """Return the numbers as they are written, NaN where missing, and which cells are none."""
    if cells.dtype == object and pd.api.types.infer_dtype(cells, skipna=True) == "boolean":
        cells = cells.astype("boolean")  # as without a missing one
    dtype = cells.dtype
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
        values = cells.to_numpy(dtype=np.float64, na_value=np.nan).copy()
        codes = [number for text in missing if (number := plain_number(text)) is not None]
        values[np.isin(values, codes)] = np.nan
        return values, np.zeros(len(values), dtype=np.bool_)
    point = "." if thousands == "," else ".,"
    groups = rf"\d{{1,3}}(?:{re.escape(thousands)}\d{{3}})+"
    marked = re.compile(rf"[+-]?{groups}(?:[{point}]\d*)?", re.ASCII)

    def number_of(text: str) -> float | None:
        if thousands and marked.fullmatch(text):
            text = text.replace(thousands, "").replace(",", ".")
        return plain_number(text)

    found, wrong = _by_text(cells, (*missing, *MISSING), number_of)
    return found.to_numpy(dtype=np.float64, na_value=np.nan), wrong


def _by_text(
    cells: pd.Series, missing: Sequence[str], value_of: Callable[[str], Any]
) -> tuple[pd.Series, BoolArray]:
    """Return what the texts of cells stand for, missing where they are, and which stand for none.

    Parameters
    ----------
    cells : Series
    missing : sequence of str
        Texts that are missing values.
    value_of : callable
        Returns the value of a text; None where it has none.
    """
    places, distinct = pd.factorize(cells)
    texts = [_text_of(value) for value in distinct]
    numbers = {number for text in missing if (number := plain_number(text)) is not None}
    absent = [not text or text in missing or plain_number(text) in numbers for text in texts]
    values = [None if gone else value_of(text) for text, gone in zip(texts, absent, strict=True)]
    unknown = [value is None and not gone for value, gone in zip(values, absent, strict=True)]
    taken = np.array([*values, None], dtype=object)[places]
    wrong = np.array([*unknown, False], dtype=np.bool_)[places]
    return pd.Series(taken, cells.index, dtype=object), wrong


def _text_of(value: Any) -> str:
    """Return how a cell is spelled, without blanks around it."""
    try:
        return state_name(value).strip()
    except DataError:
        return str(value).strip()


def _state_of(entry: ColumnEntry, own: ColumnMap) -> Callable[[str], str | None]:
    """Return the function from a text to its state; None for a text that stands for none."""
    known = {state: state for state in entry.state_names}
    if own.states:
        known |= dict(own.states)
    else:
        known |= {text: state for state, spellings in entry.states for text in spellings}
    by_number: dict[float, set[str]] = {}
    for text, state in known.items():
        number = plain_number(text)
        if number is not None:
            by_number.setdefault(number, set()).add(state)
    every_text = not entry.states and not own.states

    def state_of(text: str) -> str | None:
        if text in known:
            return known[text]
        # 1.0 is the state of 1, unless 1 and 01 are two states.
        number = plain_number(text)
        alike = set() if number is None else by_number.get(number, set())
        if len(alike) == 1:
            return next(iter(alike))
        return text if every_text else None

    return state_of


def _date_of(text: str) -> pd.Timestamp | None:
    try:
        date = pd.to_datetime(text, format="ISO8601", utc=True)
    except (ValueError, OverflowError):
        return None
    # In one unit: a column of dates far away has no room for nanoseconds.
    return None if pd.isna(date) else date.tz_localize(None).as_unit("us")

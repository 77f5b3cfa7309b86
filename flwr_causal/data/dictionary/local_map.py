"""A party's own names, codes and units, mapped to the dictionary: a TOML file of the party.

An entry for each column that is written otherwise than the dictionary says::

    sex = {1 = "male", 2 = "female"}            # codes and their states
    weight = {from = "w_g", factor = 0.001}     # another name, another unit
    stage = {from = "grade", missing = ["9"], states = {0 = "I", 1 = "II"}}

The file never leaves the party.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr_causal.core.words import nearest
from flwr_causal.data.dictionary.entries import NUMERIC, STATED, read_toml, spelled
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

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

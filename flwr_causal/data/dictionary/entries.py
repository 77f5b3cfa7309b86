"""The dictionary of a federation's columns: one TOML file that all parties share.

A table for each column says what it is::

    missing = ["-999"]                       # texts that are missing values, in every column

    [columns.sex]
    kind = "category"
    states = {male = ["m", "1"], female = ["f", "2"]}

    [columns.weight]
    kind = "number"
    unit = "kg"
    least = 2
    most = 300
    tier = 2

Columns of a table that it does not list are not read, and nothing of them leaves a party.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr_causal.core.received import json_of
from flwr_causal.core.words import as_seen, nearest
from flwr_causal.data.read.texts import is_number
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

#: The kinds of columns: what a file's key ``kind`` may be, and its meaning.
KINDS: Mapping[str, str] = {
    "number": "a measured number",
    "count": "a whole number from 0 on",
    "category": "states without an order",
    "ordered": "states in the order of the list",
    "date": "a date, or a date with a time of day, in ISO 8601 form (2024-01-31)",
    "time": "a number that says when",
    "text": "free text",
    "id": "a name or a number of a row, of a person or of a place",
}
#: The kinds that variables may have; columns of the others are used in a role only.
VARIABLES = frozenset({"number", "count", "category", "ordered"})
#: The kinds that have states.
STATED = frozenset({"category", "ordered"})
#: The kinds that are numbers.
NUMERIC = frozenset({"number", "count", "time"})

#: What a column may be for, with the kinds that it may then have.
ROLES: Mapping[str, frozenset[str]] = {
    "row-id": frozenset({"id", "text", "count", "category"}),
    "series": frozenset({"id", "text", "count", "category"}),
    "time": frozenset({"time", "date", "number", "count"}),
    "target": VARIABLES,
    "treatment": VARIABLES,
    "outcome": VARIABLES,
    "intervention": frozenset({"text", "category"}),
}
#: The option of a method that names the column with a role.
ROLE_OPTIONS: Mapping[str, str] = {
    "row-id": "row_id",
    "series": "series_column",
    "time": "time_column",
    "target": "target",
    "intervention": "intervention_column",
}
#: The name of a run's dictionary, by its digest, among the values of its configuration.
DIGEST = "dictionary_digest"
# The roles of columns that are no variables.
_OTHER = frozenset(ROLES) - {"target", "treatment", "outcome"}


@dataclass(frozen=True)
class ColumnEntry:
    """What a dictionary says of one column; a field for each key of its table.

    Parameters
    ----------
    name : str
        Its name at all parties.
    kind : str
        One of :data:`KINDS`.
    use : bool
        Whether runs read it. Default: true of numbers, counts and states, and of columns with a
        role.
    states : tuple of (state, spellings)
        In their order. Empty: any text is a state.
    unit : str, default ""
        For readers, and for the messages of values outside the range.
    least, most : float, optional
        The admissible range, with its ends.
    missing : tuple of str, default ()
        Texts that are missing values; numbers are compared as numbers.
    role : str, default ""
        One of :data:`ROLES`.
    tier : int, optional
        Of background knowledge: no edge leads from a higher tier to a lower one.
    optional : bool, default False
        Whether a party may lack it.
    meaning : str, default ""
        For readers.
    """

    name: str
    kind: str
    use: bool
    states: tuple[tuple[str, tuple[str, ...]], ...] = ()
    unit: str = ""
    least: float | None = None
    most: float | None = None
    missing: tuple[str, ...] = ()
    role: str = ""
    tier: int | None = None
    optional: bool = False
    meaning: str = ""

    @property
    def is_variable(self) -> bool:
        """Whether runs may take it for a variable."""
        return self.use and self.kind in VARIABLES and self.role not in _OTHER

    @property
    def state_names(self) -> tuple[str, ...]:
        """The states in their order."""
        return tuple(state for state, _ in self.states)

    @property
    def is_scale(self) -> bool:
        """Whether its states may be taken for numbers: they have an order, or are two."""
        return bool(self.states) and (self.kind == "ordered" or len(self.states) == 2)

    @property
    def range_in_words(self) -> str:
        """The admissible range with its unit; "" where there is none."""
        unit = f" {self.unit}" if self.unit else ""
        if self.least is not None and self.most is not None:
            return f"{self.least:g} to {self.most:g}{unit}"
        if self.least is not None:
            return f"{self.least:g}{unit} or more"
        return "" if self.most is None else f"at most {self.most:g}{unit}"

    def to_dict(self) -> dict[str, Any]:
        """Return the keys and values of its table, without those that have their default."""
        found: dict[str, Any] = {"kind": self.kind}
        if self.use != _used_by_default(self.kind, self.role):
            found["use"] = self.use
        if self.states:
            plain = all(spellings == () for _, spellings in self.states)
            found["states"] = (
                list(self.state_names)
                if plain
                else {state: list(spellings) for state, spellings in self.states}
            )
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name not in ("name", "kind", "use", "states") and value != one.default:
                found[one.name] = list(value) if isinstance(value, tuple) else value
        return found


_KEYS = tuple(one.name for one in fields(ColumnEntry) if one.name != "name")


def _used_by_default(kind: str, role: str) -> bool:
    return kind in VARIABLES or bool(role)


@dataclass(frozen=True)
class Dictionary:
    """What all parties' tables hold.

    Parameters
    ----------
    columns : tuple of ColumnEntry
        In the order that variables have in results.
    missing : tuple of str, default ()
        Texts that are missing values in every column.

    Raises
    ------
    ConfigError
        If two columns have a name that a reader cannot tell apart, a role is given twice, or no
        column is used.
    """

    columns: tuple[ColumnEntry, ...]
    missing: tuple[str, ...] = ()
    _by_name: dict[str, ColumnEntry] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {one.name: one for one in self.columns})
        seen: dict[str, str] = {}
        roles: dict[str, str] = {}
        for one in self.columns:
            other = seen.setdefault(as_seen(one.name), one.name)
            if other != one.name:
                raise ConfigError(f"the columns {other!r} and {one.name!r} read alike: rename one")
            if one.role and one.use and roles.setdefault(one.role, one.name) != one.name:
                raise ConfigError(
                    f"the columns {roles[one.role]!r} and {one.name!r} both have the role "
                    f"'{one.role}': give it to one of them"
                )
        if not self.used:
            raise ConfigError("it uses no column: list one under [columns.NAME]")

    @cached_property
    def used(self) -> tuple[ColumnEntry, ...]:
        """The columns that runs read, in their order."""
        return tuple(one for one in self.columns if one.use)

    def find(self, name: str) -> ColumnEntry | None:
        """Return what it says of a column; None if it does not list it."""
        return self._by_name.get(name)

    def of_role(self, role: str) -> str:
        """Return the name of the column with a role; "" if none has it."""
        return next((one.name for one in self.used if one.role == role), "")

    def left_out(self, options: object) -> tuple[str, ...]:
        """Return the columns of roles that a run with these options has no use for."""
        return tuple(
            one.name
            for one in self.used
            if not one.is_variable and getattr(options, ROLE_OPTIONS[one.role], "") != one.name
        )

    def tiers(self, names: Collection[str]) -> tuple[tuple[str, ...], ...]:
        """Return the names of the variables of each tier, of these alone; without empty tiers."""
        found: dict[int, list[str]] = {}
        for one in self.used:
            if one.tier is not None and one.name in names and one.is_variable:
                found.setdefault(one.tier, []).append(one.name)
        return tuple(tuple(found[tier]) for tier in sorted(found))

    @cached_property
    def text(self) -> str:
        """All of it as JSON, from which :meth:`from_text` makes the same dictionary."""
        # A list, because the order of the columns matters.
        columns = [[one.name, one.to_dict()] for one in self.columns]
        return json.dumps({"missing": self.missing, "columns": columns})

    @cached_property
    def digest(self) -> str:
        """SHA-256 of :attr:`text`: the same for files that say the same."""
        return dictionary_digest(self.text)

    @classmethod
    def from_text(cls, text: str) -> Dictionary:
        """Return the dictionary of :attr:`text`.

        Raises
        ------
        ConfigError
            If the text is none.
        """
        return _of_text(text)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Dictionary:
        """Return the dictionary of the values of a TOML file.

        Raises
        ------
        ConfigError
            Naming column and key, what is allowed, and the nearest name of a misspelt one.
        """
        _check_keys("", values, ("missing", "columns"))
        columns = values.get("columns", {})
        if not isinstance(columns, dict):
            raise ConfigError("'columns' is no table: write a table [columns.NAME] for each column")
        missing = _texts("", "missing", values.get("missing", []))
        return cls(tuple(_entry(name, own) for name, own in columns.items()), missing)

    @classmethod
    def read(cls, path: str | Path) -> Dictionary:
        """Read a TOML file.

        Raises
        ------
        ConfigError
            As :meth:`from_dict`, with the file's name; also if it cannot be read.
        """
        found: Dictionary = read_toml(Path(path), "dictionary", cls.from_dict)
        return found


def dictionary_digest(text: str) -> str:
    """Return the digest of a dictionary's text; "" for none."""
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def read_toml(path: Path, what: str, parse: Any) -> Any:
    """Return what ``parse`` makes of a TOML file; a ConfigError names the file.

    Parameters
    ----------
    path : Path
    what : str
        What the file holds, for the message.
    parse : callable
        Given the file's values.
    """
    try:
        values = tomllib.loads(path.expanduser().read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"The {what} {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The {what} {path} is no TOML file: {error}") from None
    try:
        return parse(values)
    except ConfigError as error:
        raise ConfigError(f"The {what} {path}: {error}") from None


@lru_cache(maxsize=8)
def _of_text(text: str) -> Dictionary:
    try:
        values = json_of(text)
        columns = dict(values["columns"])
        return Dictionary.from_dict({"missing": values["missing"], "columns": columns})
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ConfigError("the dictionary that the server sent cannot be read") from None


def _entry(name: str, values: Any) -> ColumnEntry:
    """Return what the table of a column says, checked."""
    where = f"column {name!r}"
    if not name.strip() or name != name.strip():
        raise ConfigError(f"{where} has a name with blanks around it, or none: correct it")
    if not isinstance(values, dict):
        raise ConfigError(f"{where} is no table: write [columns.{json.dumps(name)}]")
    _check_keys(where, values, _KEYS)
    kind = _choice(where, "kind", values.get("kind"), KINDS)
    role = _choice(where, "role", values["role"], ROLES) if "role" in values else ""
    if role and kind not in ROLES[role]:
        kinds = ", ".join(one for one in KINDS if one in ROLES[role])
        raise ConfigError(f"{where} is of the kind '{kind}'; with the role '{role}' use: {kinds}")
    use = _flag(where, "use", values.get("use", _used_by_default(kind, role)))
    if use and not _used_by_default(kind, role):
        raise ConfigError(
            f"{where} is of the kind '{kind}', which is no variable: take 'use' out, or give it a "
            f"role ({', '.join(ROLES)}) or one of the kinds {', '.join(sorted(VARIABLES))}"
        )
    entry = ColumnEntry(
        name,
        kind,
        use,
        states=_states(where, kind, values["states"]) if "states" in values else (),
        unit=_text(where, "unit", values.get("unit", "")),
        least=_number(where, "least", values.get("least")),
        most=_number(where, "most", values.get("most")),
        missing=_texts(where, "missing", values.get("missing", [])),
        role=role,
        tier=_tier(where, values.get("tier")),
        optional=_flag(where, "optional", values.get("optional", False)),
        meaning=_text(where, "meaning", values.get("meaning", "")),
    )
    _check_entry(where, entry)
    return entry


def _check_entry(where: str, entry: ColumnEntry) -> None:
    """Raise a ConfigError for keys that the kind does not have, or that contradict each other."""
    ranged = entry.least is not None or entry.most is not None
    if (ranged or entry.unit) and entry.kind not in NUMERIC:
        key = "unit" if entry.unit else "least" if entry.least is not None else "most"
        raise ConfigError(f"{where} is of the kind '{entry.kind}', which has no '{key}'")
    if entry.least is not None and entry.most is not None and entry.least > entry.most:
        raise ConfigError(f"{where}: 'least' is {entry.least:g}, above 'most', {entry.most:g}")
    if entry.kind == "ordered" and len(entry.states) < 2:
        raise ConfigError(f"{where} is ordered: list its 'states', the lowest first")
    if entry.tier is not None and not entry.is_variable:
        raise ConfigError(f"{where} has a tier and is no variable: take 'tier' out")
    states: dict[str, str] = {}
    missing = set(entry.missing)
    for state, spellings in entry.states:
        for text in (state, *spellings):
            if states.setdefault(text, state) != state:
                raise ConfigError(
                    f"{where}: {text!r} stands for the states {states[text]!r} and {state!r}"
                )
            if text in missing:
                raise ConfigError(f"{where}: {text!r} is a state and a missing value: choose one")


def _check_keys(where: str, values: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in values:
        if key not in known:
            near = nearest(key.lower(), known)
            hint = f"did you mean '{near}'?" if near else f"there are {', '.join(known)}"
            raise ConfigError(f"{_prefix(where)}there is no key '{key}'; {hint}")


def _prefix(where: str) -> str:
    return f"{where}: " if where else ""


def _choice(where: str, key: str, value: Any, known: Collection[str]) -> str:
    if isinstance(value, str) and value in known:
        return value
    given = "is missing" if value is None else f"is {value!r}"
    near = nearest(value.lower(), known) if isinstance(value, str) else ""
    hint = f"; did you mean '{near}'?" if near else ""
    raise ConfigError(f"{where}: '{key}' {given}; it is one of {', '.join(known)}{hint}")


def _flag(where: str, key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: '{key}' is {value!r}: write true or false")
    return value


def _text(where: str, key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where}: '{key}' is {value!r}: write a text in quotation marks")
    return value


def _number(where: str, key: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ConfigError(f"{where}: '{key}' is {value!r}: write a number")
    return float(value)


def _tier(where: str, value: Any) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ConfigError(f"{where}: 'tier' is {value!r}: write a whole number from 0 on")
    return value


def _texts(where: str, key: str, value: Any) -> tuple[str, ...]:
    """Return a list of texts; numbers in it are written as texts."""
    if isinstance(value, list) and any(isinstance(one, str) and not one.strip() for one in value):
        raise ConfigError(
            f"{_prefix(where)}'{key}' has an empty text: empty fields are missing in any case, so "
            "take it out"
        )
    if not (isinstance(value, list) and all(_is_spelling(one) for one in value)):
        raise ConfigError(f'{_prefix(where)}\'{key}\' is {value!r}: write a list, ["-999", "NA"]')
    return tuple(spelled(one) for one in value)


def _is_spelling(value: Any) -> bool:
    plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return plain and bool(str(value).strip())


def spelled(value: str | float) -> str:
    """Return a text or a number of a TOML file as a cell spells it: "1" for 1 and 1.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def _states(where: str, kind: str, value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return states and their further spellings from a list of states, or a table of lists."""
    if kind not in STATED:
        raise ConfigError(
            f"{where} is of the kind '{kind}', which has no 'states': use {', '.join(STATED)}"
        )
    if isinstance(value, list):
        listed = _texts(where, "states", value)
        value = {state: [] for state in listed}
        if len(value) < len(listed):
            raise ConfigError(f"{where}: 'states' lists a state twice: list each once")
    if not (isinstance(value, dict) and value):
        raise ConfigError(
            f'{where}: \'states\' is {value!r}: write ["low", "high"], or with their spellings '
            '{low = ["l", "1"], high = ["h", "2"]}'
        )
    return tuple(
        (state.strip(), _texts(where, f"states.{state}", spellings))
        for state, spellings in value.items()
    )


def plain_number(text: str) -> float | None:
    """Return the number that a text is; None if it is none."""
    return float(text) if is_number(text) else None

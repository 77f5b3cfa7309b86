"""What a party may report on its table before training: the entries of the report, as data.

A :class:`Fact` declares one entry: its key, its meaning, its possible values, and how it is written
as plain values and read again. The fields of :class:`flwr_causal.data.check.report.TableReport` and
of its columns carry theirs as metadata (:func:`fact`); the door refuses every other entry
(:func:`flwr_causal.protocol.door.reported`), and docs/privacy/schema.md prints the list.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import filterfalse
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from flwr_causal.core.words import MOST_OF_TEXT, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from dataclasses import Field

    _Form: TypeAlias = Callable[[Any], Any]
    Forms: TypeAlias = tuple[_Form, _Form]

T = TypeVar("T")

#: The parts of a report that only some methods need; a contract names the parts that its method
#: needs.
Part: TypeAlias = Literal["sums", "relations", "states", "series", "ids", "interventions"]
#: When each part leaves, in words.
PARTS: dict[Part, str] = {
    "sums": "where columns are centred, scaled or cut into intervals",
    "relations": "where effects are found from numbers",
    "states": "where columns are categories; in moments with text_columns='keep' or model='curved'",
    "series": "where rows are steps of time series",
    "ids": "where rows may be matched by ids",
    "interventions": "where rows may be under known interventions",
}
FactKind: TypeAlias = Literal["count", "position", "flag", "number", "square", "text", "name"]
Each: TypeAlias = Literal["", "column", "state", "note"]
#: The states of each of several columns.
States: TypeAlias = tuple[tuple[str, ...], ...]
#: No party has more rows than this, and no report more columns.
MOST_ROWS, MOST_COLUMNS = 10**12, 20_000
_MOST_FLOAT = sys.float_info.max


@dataclass(frozen=True)
class Fact:
    """One entry of a report.

    Parameters
    ----------
    key : str
        In the reply's ``ConfigRecord``.
    meaning : str
        Printed in the documentation.
    kind : {"count", "position", "flag", "number", "square", "text", "name"}
        Possible plain values: a whole number from 0 on, or from -1 on; 0 or 1; a finite number; a
        number from 0 on, which may be infinite; a text that prints on one line; the name of a
        column or a state.
    part : str or None, default None
        The part that it belongs to; None: every method's report has it.
    each : {"", "column", "state", "note"}, default ""
        A list with one value for each column, for each named state, or for each remark; "": one
        value for the table.
    forms : pair of callables, optional
        Write one value as a plain one, and read it again. Default: by the kind; a position that is
        None is written as -1.
    lengths : Fact, optional
        With a value for each state: the entry that says how many of them each column has.
    """

    key: str
    meaning: str
    kind: FactKind
    part: Part | None = None
    each: Each = ""
    forms: Forms | None = None
    lengths: Fact | None = None

    def write(self, value: Any) -> dict[str, Any]:
        """Return the plain value by its key; a list where each column has an entry."""
        if self.lengths is not None:
            texts, counts = pack_states(value)
            return {self.key: texts, self.lengths.key: counts}
        write, _ = self.forms or _KINDS[self.kind][1:]
        return {self.key: [write(one) for one in value] if self.each else write(value)}

    def read(self, values: Mapping[str, Any]) -> Any:
        """Undo :meth:`write`; lists become tuples.

        Raises
        ------
        KeyError, TypeError, ValueError, OverflowError
            If the entry is missing or malformed.
        """
        plain = values[self.key]
        if self.lengths is not None:
            return unpack_states(plain, values[self.lengths.key])
        _, read = self.forms or _KINDS[self.kind][1:]
        return tuple(map(read, plain)) if self.each else read(plain)

    def problem(self, plain: Any) -> str:
        """Return why a plain value is not of the declared kind; "" if it is."""
        entries = plain if self.each else [plain]
        if not isinstance(entries, list):
            return f"'{self.key}' is a single value where the report has a list"
        if self.each == "column" and len(entries) > MOST_COLUMNS:
            return f"'{self.key}' is of {len(entries)} columns, at most {MOST_COLUMNS}"
        # Most entries of a wide table are equal; of several types, 1 and 1.0 are equal, too.
        types = {*map(type, entries)}
        different = {*entries} if len(types) == 1 and types <= _HASHED else entries
        if not all(map(_KINDS[self.kind][0], different)):
            entry = next(filterfalse(_KINDS[self.kind][0], entries))
            return f"'{self.key}' is declared as {self.kind}, but is not: {entry!r:.99}"
        # Texts with forms are lists, of which a wide table has long ones.
        if self.kind == "text" and self.forms is None:
            longest = max(map(len, entries), default=0)
            if longest > MOST_OF_TEXT:
                return f"'{self.key}' has {longest:,} letters, at most {MOST_OF_TEXT:,}"
        return ""


def fact(
    default: T,
    meaning: str,
    kind: FactKind,
    part: Part | None = None,
    each: Each = "",
    key: str = "",
    forms: Forms | None = None,
    lengths: Fact | None = None,
) -> T:
    """Return a field that is an entry of a report; its key is by default its name."""
    entry = Fact(key, meaning, kind, part, each, forms, lengths)
    return field(default=default, metadata={"fact": entry})


@cache
def facts_of(report: type, each: Each = "") -> tuple[tuple[Field[Any], Fact], ...]:
    """Return the fields of a dataclass that are entries of a report, with what they declare.

    Of a report on one thing of several, ``each`` says of what: its entries are lists.
    """
    return tuple(
        (one, replace(own, key=own.key or one.name.replace("_", "-"), each=own.each or each))
        for one in fields(report)
        for own in one.metadata.values()
    )


def pack_states(states: Sequence[Sequence[str]]) -> tuple[list[str], list[int]]:
    """Return all states in one list, and how many of them belong to each column."""
    return [state for column in states for state in column], [len(column) for column in states]


def unpack_states(texts: Sequence[str], counts: Sequence[int]) -> States:
    """Undo :func:`pack_states`.

    Raises
    ------
    ValueError
        The counts do not fit the texts.
    """
    if sum(counts) != len(texts) or any(count < 0 for count in counts):
        raise ValueError(f"{len(texts)} states, but {sum(counts)} are expected")
    rest = iter(texts)
    return tuple(tuple(str(next(rest)) for _ in range(count)) for count in counts)


# The types of plain values.
_HASHED = {bool, int, float, str}


def _is_whole(value: Any, least: int = 0) -> bool:
    # A truth value is an int for Python, and travels as one.
    return isinstance(value, int) and value >= least


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and printable(value, len(value)) == value


def _is_number(value: Any) -> bool:
    # Comparisons, since the largest whole numbers of Python are no floats.
    return isinstance(value, int | float) and -_MOST_FLOAT <= value <= _MOST_FLOAT


# What is a possible plain value, how a value is written as one, and how it is read again.
_KINDS: dict[FactKind, tuple[_Form, _Form, _Form]] = {
    # Their form is checked where the error can say of which column they are.
    "name": (lambda plain: isinstance(plain, str), str, str),
    "text": (_is_line, str, str),
    "count": (_is_whole, int, int),
    "position": (
        lambda plain: _is_whole(plain, -1),
        lambda value: -1 if value is None else value,
        lambda plain: None if plain < 0 else int(plain),
    ),
    "flag": (lambda plain: _is_whole(plain) and plain <= 1, int, bool),
    "number": (_is_number, float, float),
    "square": (
        lambda plain: plain == math.inf or (_is_number(plain) and plain >= 0),
        float,
        float,
    ),
}

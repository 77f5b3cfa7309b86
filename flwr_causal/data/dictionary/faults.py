"""What of a party's table does not fit the dictionary: names and counts, and where, for the party.

A fault has two sides. Its name, its reason and how many values it concerns may leave the party; its
rows and values are for the party's own log and commands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flwr_causal.core.words import some
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: How many values of a fault are listed, and how many rows of each.
SHOWN_VALUES, SHOWN_ROWS = 10, 5
# Characters of a value that are listed.
_LONGEST = 60


@dataclass(frozen=True)
class FaultyValue:
    """A value that does not fit, and where it is; for the party alone.

    Parameters
    ----------
    value : str
    count : int
        In how many rows.
    rows : tuple of int
        The first of them, counted from 1.
    """

    value: str
    count: int
    rows: tuple[int, ...]

    def and_also(self, other: FaultyValue) -> FaultyValue:
        """Return the value with the rows of a later part of the table added."""
        rows = (*self.rows, *other.rows)[:SHOWN_ROWS]
        return FaultyValue(self.value, self.count + other.count, rows)

    @property
    def where(self) -> str:
        """The rows in words."""
        rest = self.count - len(self.rows)
        listed = some(map(str, self.rows), SHOWN_ROWS) + (f" and {rest} more" if rest else "")
        return f"row{'s' * (self.count > 1)} {listed}"


@dataclass(frozen=True)
class DictionaryFault:
    """One way in which a column does not fit.

    Parameters
    ----------
    column : str
        The dictionary's name of it.
    reason : str
        What is wrong, without any value of the table.
    count : int
        How many values; 0 where the column itself is at fault.
    values : tuple of FaultyValue
        The first of them. They never leave the party.
    hint : str, default ""
        A remedy that names something of the party's table. It never leaves the party.
    """

    column: str
    reason: str
    count: int = 0
    values: tuple[FaultyValue, ...] = ()
    hint: str = ""

    def public(self, *, counts: bool = True) -> str:
        """Return the fault as others may see it, without counts where rows are hidden in sums."""
        if not self.count:
            return f"column {self.column!r} {self.reason}"
        number = str(self.count) if counts else "some"
        return f"column {self.column!r}, {number} value{'s' * (number != '1')}: {self.reason}"

    def local(self) -> list[str]:
        """Return the fault as the party may see it, a line for each of the first values."""
        where = f"column {self.column!r}"
        lines = [f"{where}, {one.where}: {one.value!r}: {self.reason}" for one in self.values]
        rest = self.count - sum(one.count for one in self.values)
        if rest > 0 and lines:
            lines.append(f"{where}, {rest} further values: {self.reason}")
        lines = lines or [self.public()]
        return [*lines[:-1], f"{lines[-1]}; {self.hint}"] if self.hint else lines


class DictionaryFaultError(DataError):
    """A party's table does not fit the dictionary.

    Parameters
    ----------
    faults : sequence of DictionaryFault
    counts : bool, default True
        Whether the message says how many values are at fault.
    """

    def __init__(self, faults: Sequence[DictionaryFault], *, counts: bool = True) -> None:
        lines = "; ".join(one.public(counts=counts) for one in faults)
        super().__init__(
            f"the table does not fit the dictionary: {lines}. Rows and values are in its "
            "node's log, and flwr-causal check shows them there: correct the party's map "
            "(dictionary-map), the table, or the dictionary"
        )
        self.faults = tuple(faults)

    def without_counts(self) -> DictionaryFaultError:
        """Return the error as it is said where numbers of rows are hidden."""
        return DictionaryFaultError(self.faults, counts=False)

    def local(self) -> list[str]:
        """Return the lines for the party's own log."""
        return [line for one in self.faults for line in one.local()]


def joined_faults(faults: Iterable[DictionaryFault]) -> list[DictionaryFault]:
    """Return the faults of the pieces of a table as those of the whole table."""
    found: dict[tuple[str, str], DictionaryFault] = {}
    for one in faults:
        before = found.setdefault((one.column, one.reason), one)
        if before is not one and one.count:
            values = {value.value: value for value in before.values}
            for value in one.values:
                known = values.get(value.value)
                if known is not None or len(values) < SHOWN_VALUES:
                    values[value.value] = value if known is None else known.and_also(value)
            found[one.column, one.reason] = replace(
                before, count=before.count + one.count, values=tuple(values.values())
            )
    return list(found.values())


def shortened(value: object) -> str:
    """Return a value as text that fits a line."""
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

"""What of a party's table does not fit the dictionary: names and counts, and where, for the party.

A fault has two sides. Its name, its reason and how many values it concerns may leave the party; its
rows and values are for the party's own log and commands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: How many rows of a fault are listed.
SHOWN_ROWS = 10
# Characters of a value that are listed.
_LONGEST = 60


@dataclass(frozen=True)
class Fault:
    """One way in which a column does not fit.

    Parameters
    ----------
    column : str
        The dictionary's name of it.
    reason : str
        What is wrong, without any value of the table.
    count : int
        How many values; 0 where the column itself is at fault.
    cells : tuple of (row, value)
        The first of them; rows count from 1. They never leave the party.
    hint : str, default ""
        A remedy that names something of the party's table. It never leaves the party.
    """

    column: str
    reason: str
    count: int = 0
    cells: tuple[tuple[int, str], ...] = ()
    hint: str = ""

    def public(self, *, counts: bool = True) -> str:
        """Return the fault as others may see it, without counts where rows are hidden in sums."""
        if not self.count:
            return f"column {self.column!r} {self.reason}"
        some = str(self.count) if counts else "some"
        return f"column {self.column!r}: {some} value{'s' * (some != '1')} {self.reason}"

    def local(self) -> list[str]:
        """Return the fault as the party may see it, a line for each of the first rows."""
        where = f"column {self.column!r}"
        lines = [f"{where}, row {row}: {value!r} {self.reason}" for row, value in self.cells]
        rest = self.count - len(self.cells)
        if rest > 0 and lines:
            lines.append(f"{where}: {rest} more of {self.count} {self.reason}")
        lines = lines or [self.public()]
        return [*lines[:-1], f"{lines[-1]}; {self.hint}"] if self.hint else lines


class DictionaryFaultError(DataError):
    """A party's table does not fit the dictionary.

    Parameters
    ----------
    faults : sequence of Fault
    """

    def __init__(self, faults: Sequence[Fault], *, counts: bool = True) -> None:
        lines = "; ".join(one.public(counts=counts) for one in faults)
        super().__init__(
            f"the table does not fit the dictionary: {lines}. The log of its node says which rows, "
            "and so does flwr-causal check on the party's machine. Correct them there, map the "
            "party's codes and units by a file (dictionary-map), or correct the dictionary"
        )
        self.faults = tuple(faults)

    def without_counts(self) -> DictionaryFaultError:
        """Return the error as it is said where numbers of rows are hidden."""
        return DictionaryFaultError(self.faults, counts=False)

    def local(self) -> list[str]:
        """Return the lines for the party's own log."""
        return [line for one in self.faults for line in one.local()]


def joined_faults(faults: Iterable[Fault]) -> list[Fault]:
    """Return the faults of the pieces of a table as those of the whole table."""
    found: dict[tuple[str, str], Fault] = {}
    for one in faults:
        key = (one.column, one.reason)
        before = found.get(key)
        if before is None:
            found[key] = one
        elif one.count:
            cells = (*before.cells, *one.cells)[:SHOWN_ROWS]
            found[key] = replace(before, count=before.count + one.count, cells=cells)
    return list(found.values())


def shortened(value: object) -> str:
    """Return a value as text that fits a line."""
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

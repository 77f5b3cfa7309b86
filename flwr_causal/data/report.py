"""What one party says about its table before training.

A report holds names, types, counts and flags, and where the method centres or scales, three sums
a column. It never holds a category, a minimum, a maximum or a row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["NUMBERS", "ColumnReport", "Kind", "TableReport"]

Kind = Literal["numeric", "boolean", "category", "other"]

#: The kinds that the linear methods can use.
NUMBERS: tuple[Kind, ...] = ("numeric", "boolean")


@dataclass(frozen=True)
class ColumnReport:
    """What a party says about one column.

    Parameters
    ----------
    name : str
        The column's name.
    kind : {"numeric", "boolean", "category", "other"}
        Booleans count as the numbers 0 and 1; "other" is dates, complex numbers, mixtures.
    missing, infinite : int
        Values of that kind in the whole column, before any row is dropped.
    distinct_one : bool
        Whether the kept rows hold one value only (always so with a single row).
    copy_of : int or None
        Position of the first column with the same values in every kept row, else None.
    mean, remainder, squares : float
        With sums only, over the kept rows: the mean as a float64; the sum of the deviations from
        that number (not quite zero, since a mean near 1e8 is itself rounded by 1e-8); the sum of
        their squares (infinite where float64 cannot hold it). Else 0.
    """

    name: str
    kind: Kind
    missing: int = 0
    infinite: int = 0
    distinct_one: bool = False
    copy_of: int | None = None
    mean: float = 0.0
    remainder: float = 0.0
    squares: float = 0.0

    @property
    def is_number(self) -> bool:
        """Whether the linear methods can use the column."""
        return self.kind in NUMBERS


@dataclass(frozen=True)
class TableReport:
    """What a party says about its table.

    Parameters
    ----------
    rows : int
        Rows that are kept for training.
    dropped_rows : int
        Rows left out because of missing or infinite values.
    columns : tuple of ColumnReport
        In the table's order.
    has_sums : bool
        Whether the columns' ``mean``, ``remainder`` and ``squares`` were computed.
    """

    rows: int
    dropped_rows: int
    columns: tuple[ColumnReport, ...]
    has_sums: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in the table's order."""
        return tuple(column.name for column in self.columns)

    @property
    def duplicate_names(self) -> tuple[str, ...]:
        """Names that more than one column has, each once."""
        return tuple(name for name, count in Counter(self.names).items() if count > 1)

    def is_empty(self, column: ColumnReport) -> bool:
        """Whether a column has no value at all, so that its kind means nothing."""
        return column.missing == self.rows + self.dropped_rows

    def to_dict(self) -> dict[str, int | list[str] | list[int] | list[float]]:
        """Return plain ints and lists of one type each, fit for a Flower ConfigRecord."""
        columns = self.columns
        sums = columns if self.has_sums else ()
        return {
            "rows": self.rows,
            "dropped-rows": self.dropped_rows,
            "has-sums": int(self.has_sums),
            "names": [column.name for column in columns],
            "kinds": [str(column.kind) for column in columns],
            "missing": [column.missing for column in columns],
            "infinite": [column.infinite for column in columns],
            "distinct-one": [int(column.distinct_one) for column in columns],
            "copy-of": [-1 if column.copy_of is None else column.copy_of for column in columns],
            "means": [column.mean for column in sums],
            "remainders": [column.remainder for column in sums],
            "squares": [column.squares for column in sums],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TableReport:
        """Build a report from :meth:`to_dict`'s result.

        Raises
        ------
        DataError
            The values are not those of a report.
        """
        try:
            has_sums = bool(values["has-sums"])
            lists = [values[key] for key in ("names", "kinds", "missing", "infinite")]
            lists += [values[key] for key in ("distinct-one", "copy-of")]
            if not set(values["kinds"]) <= set(get_args(Kind)):
                raise ValueError(f"unknown kinds in {values['kinds']}")
            sums = [values[key] for key in ("means", "remainders", "squares")]
            lists += sums if has_sums else [[0.0] * len(values["names"])] * len(sums)
            columns = tuple(
                ColumnReport(
                    name=str(name),
                    kind=kind,
                    missing=int(missing),
                    infinite=int(infinite),
                    distinct_one=bool(distinct_one),
                    copy_of=None if copy_of < 0 else int(copy_of),
                    mean=float(mean),
                    remainder=float(remainder),
                    squares=float(squares),
                )
                for (
                    name,
                    kind,
                    missing,
                    infinite,
                    distinct_one,
                    copy_of,
                    mean,
                    remainder,
                    squares,
                ) in zip(*lists, strict=True)
            )
            return cls(int(values["rows"]), int(values["dropped-rows"]), columns, has_sums)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"a party's report of its table is malformed ({error!r}): "
                "do all parties run the same version of flwr-causal?"
            ) from error

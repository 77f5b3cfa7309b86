"""A party's report on its table, sent before training.

A report holds names, types, counts and flags, and where the method centres or scales, three sums
a column. Only where the method asks for states (those on categories do, the others never) it also
holds the different values of each column that has few of them, without saying how often or in which
rows they occur. It never holds the values of a column that has many, nor a row. Each field declares
what it is and how it travels (:class:`flwr_causal.contract.report.Fact`).
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from flwr_causal.contract.report import Fact, Part, fact, facts_of
from flwr_causal.core.discrete.discrete import VALUES
from flwr_causal.core.linear.determined import tells_combinations
from flwr_causal.core.received import json_of
from flwr_causal.core.words import fault_of_name
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


Kind = Literal["numeric", "boolean", "category", "other"]

#: The kinds that the linear methods can use.
NUMBERS: tuple[Kind, ...] = ("numeric", "boolean")


def _names(text: str) -> tuple[str, ...]:
    """Return the texts of a JSON list."""
    listed = json_of(text)
    named = isinstance(listed, list) and all(isinstance(name, str) for name in listed)
    if not named or any(map(fault_of_name, listed)):
        raise ValueError(f"no list of names: {text:.99}")
    return tuple(listed)


@dataclass(frozen=True)
class ColumnReport:
    """A party's report on one column.

    Each field says what it is. The fields of a part that the report has not (``sums``,
    ``relations`` or ``states``) are 0 or empty.

    Parameters
    ----------
    kind : {"numeric", "boolean", "category", "other"}
        Booleans count as the numbers 0 and 1; "other" is dates, complex numbers, mixtures.
    missing, infinite : int
        Of the whole column, before any row is dropped.
    far : int
        By :mod:`flwr_causal.data.check.far_values`.
    copy_of : int or None
        The position of an earlier column; None: it is no copy.
    mean, remainder, squares : float
        The mean is rounded to float64, by 1e-8 where it is near 1e8: the remainder is the sum of
        the deviations from that number. ``squares`` is infinite where float64 cannot hold it.
    states : tuple of str
        As texts, sorted; empty where the policy does not let so many be named.
    combination_of : tuple of int
        Positions of earlier columns; empty where it is no combination, or the rows are too few to
        find out.
    dominated : bool
        Whether one row holds more than half of ``squares``, which cannot be chance.
    apart, skewed : bool
        By :mod:`flwr_causal.data.check.far_values`.
    """

    name: str = field(metadata={"fact": Fact("names", "name", "name")})
    kind: Kind = field(
        metadata={"fact": Fact("kinds", "numeric, boolean, category or other", "text")}
    )
    missing: int = fact(0, "number of missing values", "count")
    infinite: int = fact(0, "number of infinite values", "count")
    distinct_one: bool = fact(False, "whether the kept rows hold one value only", "flag")
    far: int = fact(
        0,
        "number of the kept rows whose value is far outside all others, as codes of missing values "
        "are; not which value",
        "count",
    )
    texts: int = fact(
        0,
        "number of different values in the kept rows of a column that holds no numbers, at most "
        "one more than `max-states`",
        "count",
    )
    copy_of: int | None = fact(
        None, "the first column with the same values in every kept row", "position"
    )
    mean: float = fact(
        0.0, "mean of the kept rows; 0 of a column that is no number", "number", "sums", key="means"
    )
    remainder: float = fact(
        0.0,
        "sum of the deviations from that mean, a rounding error",
        "number",
        "sums",
        key="remainders",
    )
    squares: float = fact(0.0, "sum of the squared deviations from that mean", "square", "sums")
    distinct: int = fact(0, "number of different values in the kept rows", "count", "states")
    whole: bool = fact(False, "whether all values are whole numbers", "flag", "states")
    values: str = fact(
        "",
        "what its values are in the table: bool, int, float or str; empty where they are of "
        "several types",
        "text",
        "states",
    )
    repeated: bool = fact(
        False,
        "whether it is a number whose values are not named, of which one is in more than half of "
        "the kept rows; not which value",
        "flag",
        "states",
    )
    states: tuple[str, ...] = fact(
        (),
        "the different values, of columns that have at most `max-states` of them (of numbers that "
        "are not whole at most 10, and none where these are cut into intervals); neither how often "
        "nor in which rows they occur",
        "name",
        "states",
        "state",
        lengths=Fact(
            "num-states", "how many of the states below are its own", "count", "states", "column"
        ),
    )
    combination_of: tuple[int, ...] = fact(
        (),
        "which columns it is a linear combination of in every kept row, where there are more rows "
        "than columns; not by which factors",
        "text",
        "relations",
        forms=(
            lambda positions: " ".join(map(str, positions)),
            lambda text: tuple(map(int, str.split(text))),
        ),
    )
    dominated: bool = fact(
        False,
        "whether one row holds more than half of that sum, but not which row",
        "flag",
        "relations",
    )
    apart: bool = fact(
        False,
        "whether a few of its values, at most one in twenty, lie apart from all others; not which",
        "flag",
        "relations",
    )
    skewed: bool = fact(
        False,
        "whether its values are positive, and their logarithms far less skewed than they are",
        "flag",
        "relations",
    )
    stray: int = fact(
        0,
        "of a column of text most of whose values are numbers, how many are none; neither which "
        "nor where",
        "count",
    )

    @property
    def is_number(self) -> bool:
        """Whether the linear methods can use the column."""
        return self.kind in NUMBERS

    @property
    def hides_states(self) -> bool:
        """Whether it has more different values than may be named."""
        return self.distinct > len(self.states)


@dataclass(frozen=True)
class TableReport:
    """A party's report on its table.

    Each field says what it is, but for those below. A field that has its default is left out of
    :meth:`to_dict`.

    Parameters
    ----------
    withheld : bool
        Whether all numbers of rows and sums are withheld, because the party sends them in a secure
        sum: they are then 0 here, and the party has checked them itself.
    columns : tuple of ColumnReport
        In the table's order.
    has_sums, has_states, has_relations : bool
        Whether the columns' fields of these parts were found.
    level_rows : int or None
        None: the rows behind ``mean`` and ``remainder`` are all that are kept. With 0 the party has
        no mean to report, and its means are 0.
    targets : tuple of tuple of str
        () is among them for rows without an intervention.
    """

    rows: int = field(metadata={"fact": Fact("rows", "rows that are kept for training", "count")})
    dropped_rows: int = field(
        metadata={
            "fact": Fact(
                "dropped-rows", "rows left out because of missing or infinite values", "count"
            )
        }
    )
    columns: tuple[ColumnReport, ...]
    has_sums: bool = field(
        metadata={"fact": Fact("has-sums", "whether the sums below are part of the report", "flag")}
    )
    has_states: bool = False
    has_relations: bool = False
    withheld: bool = fact(
        False,
        "with secure aggregation, and of `moments` with epsilon, 1: numbers of rows and values "
        "below, but `infinite`, are then 0, the sums and all that follows from them are left out; "
        "`distinct` then counts the states below, and one more where there are more values",
        "flag",
    )
    leaves_out: bool = fact(
        False,
        "whether the node leaves out columns that look like identifiers, which it does not name",
        "flag",
    )
    repeats: bool = fact(
        False,
        "whether a hundredth of the rows, and five of them at least, repeat an earlier row in all "
        "columns, of which one has many different values",
        "flag",
    )
    level_rows: int | None = fact(
        None,
        "rows behind the means, where these are of the rows that are not perturbed "
        "(`center='phase'`)",
        "count",
        "series",
    )
    step: str = fact("", "length of a time step, where a column has the times", "text", "series")
    unlike_series: bool = fact(
        False,
        'where it decides what `center="auto"` is: whether the levels of its series differ beyond '
        "chance, given their lags; not by how much",
        "flag",
        "series",
    )
    notes: tuple[str, ...] = fact(
        (), "how many series are too short for the order", "text", "series", "note"
    )
    targets: tuple[tuple[str, ...], ...] = fact(
        (),
        "the different sets of columns on which known interventions act, as JSON lists, if there "
        "are any; not in how many or which rows",
        "text",
        "interventions",
        "note",
        forms=(json.dumps, _names),
    )
    has_ids: bool = fact(False, "whether there is a column of ids", "flag", "ids")
    ids_problem: str = fact(
        "", "how many ids are missing, repeat or have lost digits, if any", "text", "ids"
    )
    ids_kind: str = fact(
        "",
        "whether the ids are numbers, text, or text of digits that no number is written as, such "
        "as 007",
        "text",
        "ids",
    )

    @classmethod
    def of_names(cls, names: Iterable[object]) -> TableReport:
        """Return a report that depends on nothing but the names of the columns."""
        columns = tuple(ColumnReport(str(name), "numeric") for name in names)
        return cls(0, 0, columns, has_sums=False, withheld=True)

    @property
    def has_rows(self) -> bool:
        """Whether the table has rows that are kept."""
        return self.rows > 0 or self.withheld

    def without_numbers(self, *, infinite: bool) -> TableReport:
        """Return the report with all numbers of rows and sums withheld, and what follows from them.

        With ``infinite`` the numbers of infinite values remain. Names, kinds, which columns are
        constant or copies, how many different texts they hold, and named states remain. Of how many
        values a column has that are not named, only remains that there are more.
        """
        columns = tuple(
            ColumnReport(
                one.name,
                one.kind,
                infinite=one.infinite if infinite else 0,
                distinct_one=one.distinct_one,
                texts=one.texts,
                copy_of=one.copy_of,
                distinct=len(one.states) + one.hides_states,
                whole=one.whole,
                values=one.values,
                states=one.states,
            )
            for one in self.columns
        )
        return TableReport(
            0,
            0,
            columns,
            has_sums=False,
            has_states=self.has_states,
            step=self.step,
            unlike_series=self.unlike_series,
            has_ids=self.has_ids,
            ids_problem=self.ids_problem,
            ids_kind=self.ids_kind,
            targets=self.targets,
            withheld=True,
        )

    @property
    def tells_combinations(self) -> bool:
        """Whether there are rows enough that a combination of columns cannot be chance."""
        return self.has_relations and tells_combinations(
            self.rows, sum(c.is_number for c in self.columns)
        )

    @property
    def rows_of_means(self) -> int:
        """The number of rows behind ``mean`` and ``remainder``."""
        return self.rows if self.level_rows is None else self.level_rows

    def rows_with(self, column: ColumnReport) -> int:
        """Return how many of the rows that are kept have a value of a column of numbers."""
        return self.rows - (0 if self.dropped_rows else column.missing)

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
        return not self.withheld and column.missing == self.rows + self.dropped_rows

    def to_dict(self) -> dict[str, int | str | list[str] | list[int] | list[float]]:
        """Return plain ints and lists of one type each, fit for a Flower ConfigRecord."""
        values: dict[str, Any] = {}
        for own, entry in facts_of(TableReport):
            value = getattr(self, own.name)
            if value != own.default:
                values |= entry.write(value)
        for own, entry in facts_of(ColumnReport, "column"):
            has = entry.part is None or getattr(self, f"has_{entry.part}")
            # That there are no sums is said by has-sums, of the other parts by missing keys.
            if has or entry.part == "sums":
                values |= entry.write([getattr(c, own.name) for c in self.columns if has])
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TableReport:
        """Build a report from :meth:`to_dict`'s result.

        Raises
        ------
        DataError
            The values are no valid report.
        """
        try:
            has: dict[Part | None, bool] = {
                None: True,
                "sums": bool(values["has-sums"]),
                "states": "states" in values,
                "relations": "combination-of" in values,
            }
            lists = {
                own.name: entry.read(values)
                for own, entry in facts_of(ColumnReport, "column")
                if has[entry.part]
            }
            number = len(lists["name"])
            if any(len(column) != number for column in lists.values()):
                raise ValueError(f"{number} columns, but not as many of each fact")
            report = cls(
                columns=tuple(
                    ColumnReport(**dict(zip(lists, column, strict=True)))
                    for column in zip(*lists.values(), strict=True)
                ),
                has_states=has["states"],
                has_relations=has["relations"],
                **{
                    own.name: entry.read(values)
                    for own, entry in facts_of(TableReport)
                    if own.default is MISSING or entry.key in values
                },
            )
            report._check()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"the report of the table is malformed ({error!r})") from error
        return report

    def _check(self) -> None:
        """Raise a ValueError for values that no entry shows to be impossible by itself."""
        number = len(self.columns)
        if not {column.kind for column in self.columns} <= set(get_args(Kind)):
            raise ValueError(f"unknown kinds in {[column.kind for column in self.columns]}")
        if not {column.values for column in self.columns} <= {"", *VALUES}:
            raise ValueError(
                f"unknown types of values in {[column.values for column in self.columns]}"
            )
        if any((column.copy_of or 0) >= number for column in self.columns):
            raise ValueError("a copy of a column that is not there")
        if not all(0 <= k < number for column in self.columns for k in column.combination_of):
            raise ValueError("a combination of columns that are not there")
        if self.level_rows is not None and not 0 <= self.level_rows <= self.rows:
            raise ValueError(f"{self.level_rows} of {self.rows} rows are behind the means")


@dataclass(frozen=True)
class TotalReport(TableReport):
    """The report on the rows of all parties together, from a secure sum.

    Parameters
    ----------
    between : tuple of float
        Of each column the sum over parties of n_k times the squared deviation of the party's mean
        from that of all rows.
    """

    between: tuple[float, ...] = ()

"""A party's report on its table, sent before training.

A report holds names, types, counts and flags, and where the method centres or scales, three sums
a column. Only where the method asks for states (those on categories do, the others never) it also
holds the different values of each column that has few of them, without saying how often or in which
rows they occur. It never holds the values of a column that has many, nor a row.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from flwr_causal.core.discrete.discrete import VALUES
from flwr_causal.core.received import json_of
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


Kind = Literal["numeric", "boolean", "category", "other"]

#: The states of each of several columns.
States = tuple[tuple[str, ...], ...]

#: The kinds that the linear methods can use.
NUMBERS: tuple[Kind, ...] = ("numeric", "boolean")


@dataclass(frozen=True)
class ColumnReport:
    """A party's report on one column.

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
    far : int
        In how many of the kept rows it has values far outside all others
        (:mod:`flwr_causal.data.check.far_values`).
    copy_of : int or None
        Position of the first column with the same values in every kept row, else None.
    mean, remainder, squares : float
        With sums only, over the kept rows: the mean as a float64; the sum of the deviations from
        that number (not quite zero, since a mean near 1e8 is itself rounded by 1e-8); the sum of
        their squares (infinite where float64 cannot hold it). Else 0.
    distinct : int
        With states only: the number of different values in the kept rows. Else 0.
    whole : bool
        With states only: whether it is numeric and all its values are whole numbers.
    values : {"", "bool", "int", "float", "str"}
        With states only: what its values are in the table; empty where they are of several types.
    repeated : bool
        With states only: whether it is numeric, its values are not named, and one value is in more
        than half of the kept rows.
    states : tuple of str
        With states only: the different values in the kept rows as texts, sorted; empty where the
        policy does not let so many be named.
    combination_of : tuple of int
        With relations only: positions of the earlier columns whose linear combination it is in
        every kept row; empty where it is none, or the rows are too few to find out.
    stray : int
        Of a column of text most of whose values are numbers: how many are none. Else 0.
    dominated : bool
        With relations only: whether one row holds more than half of ``squares``, which cannot be
        chance.
    """

    name: str
    kind: Kind
    missing: int = 0
    infinite: int = 0
    distinct_one: bool = False
    far: int = 0
    copy_of: int | None = None
    mean: float = 0.0
    remainder: float = 0.0
    squares: float = 0.0
    distinct: int = 0
    whole: bool = False
    values: str = ""
    repeated: bool = False
    states: tuple[str, ...] = ()
    combination_of: tuple[int, ...] = ()
    dominated: bool = False
    stray: int = 0

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
    has_states : bool
        Whether the columns' ``distinct``, ``whole``, ``repeated`` and ``states`` were.
    level_rows : int or None
        The rows behind ``mean`` and ``remainder``, where these are not all that are kept (of time
        series, the rows that are not under a perturbation); None if they are. With 0 the party has
        no mean to report, and its means are 0.
    has_ids : bool
        Whether the table has ids by which rows of several parties may be aligned.
    notes : tuple of str
        Remarks on the table for the user, one sentence each; they hold no values of it.
    has_relations : bool
        Whether the columns' ``combination_of`` and ``dominated`` were found.
    step : str
        The length of a time step, with its unit; empty without a column of times.
    targets : tuple of tuple of str
        The different sets of columns on which known interventions act in some of the kept rows,
        () among them for rows without one; empty if there are no interventions.
    withheld : bool
        Whether all numbers of rows and sums are withheld, because the party sends them in a secure
        sum: they are then 0 here, and the party has checked them itself.
    ids_problem : str
        Why rows cannot be aligned by the ids; "" if they can, or if there are none.
    ids_kind : {"", "numbers", "text", "digits"}
        What the ids are; "digits": text, of which some is a number in another spelling than a
        number's, as "007". Empty if there are none.
    """

    rows: int
    dropped_rows: int
    columns: tuple[ColumnReport, ...]
    has_sums: bool
    has_states: bool = False
    level_rows: int | None = None
    has_ids: bool = False
    notes: tuple[str, ...] = ()
    has_relations: bool = False
    step: str = ""
    targets: tuple[tuple[str, ...], ...] = ()
    withheld: bool = False
    ids_problem: str = ""
    ids_kind: str = ""

    @classmethod
    def of_names(cls, names: Iterable[object]) -> TableReport:
        """Return a report that depends on nothing but the names of the columns."""
        columns = tuple(ColumnReport(str(name), "numeric") for name in names)
        return cls(0, 0, columns, has_sums=False, withheld=True)

    @property
    def has_rows(self) -> bool:
        """Whether the table has rows that are kept."""
        return self.rows > 0 or self.withheld

    def without_numbers(self) -> TableReport:
        """Return the report with all numbers of rows and sums withheld, and what follows from them.

        Names, kinds, which columns are constant or copies, and named states remain. Of how many
        values a column has that are not named, only remains that there are more.
        """
        columns = tuple(
            ColumnReport(
                one.name,
                one.kind,
                distinct_one=one.distinct_one,
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
        columns = self.columns
        sums = columns if self.has_sums else ()
        values: dict[str, int | str | list[str] | list[int] | list[float]] = {
            "rows": self.rows,
            "dropped-rows": self.dropped_rows,
            "has-sums": int(self.has_sums),
            "names": [column.name for column in columns],
            "kinds": [str(column.kind) for column in columns],
            "missing": [column.missing for column in columns],
            "infinite": [column.infinite for column in columns],
            "stray": [column.stray for column in columns],
            "distinct-one": [int(column.distinct_one) for column in columns],
            "far": [column.far for column in columns],
            "copy-of": [-1 if column.copy_of is None else column.copy_of for column in columns],
            "means": [column.mean for column in sums],
            "remainders": [column.remainder for column in sums],
            "squares": [column.squares for column in sums],
        }
        if self.has_states:
            values["distinct"] = [column.distinct for column in columns]
            values["whole"] = [int(column.whole) for column in columns]
            values["values"] = [column.values for column in columns]
            values["repeated"] = [int(column.repeated) for column in columns]
            texts, counts = pack_states([column.states for column in columns])
            values |= {"states": texts, "num-states": counts}
        if self.has_relations:
            values["combination-of"] = [" ".join(map(str, c.combination_of)) for c in columns]
            values["dominated"] = [int(column.dominated) for column in columns]
        if self.level_rows is not None:
            values["level-rows"] = self.level_rows
        if self.step:
            values["step"] = self.step
        if self.has_ids:
            values["has-ids"] = 1
        if self.ids_problem:
            values["ids-problem"] = self.ids_problem
        if self.ids_kind:
            values["ids-kind"] = self.ids_kind
        if self.notes:
            values["notes"] = list(self.notes)
        if self.withheld:
            values["withheld"] = 1
        if self.targets:
            values["targets"] = [json.dumps(one) for one in self.targets]
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
            has_sums, has_states = bool(values["has-sums"]), "states" in values
            has_relations = "combination-of" in values
            if not set(values["kinds"]) <= set(get_args(Kind)):
                raise ValueError(f"unknown kinds in {values['kinds']}")
            number = len(values["names"])
            facts: dict[str, Sequence[Any]] = {
                "name": [str(name) for name in values["names"]],
                "kind": values["kinds"],
                "missing": [int(count) for count in values["missing"]],
                "infinite": [int(count) for count in values["infinite"]],
                "stray": [int(count) for count in values["stray"]],
                "distinct_one": [bool(flag) for flag in values["distinct-one"]],
                "far": [int(count) for count in values["far"]],
                "copy_of": [None if k < 0 else int(k) for k in values["copy-of"]],
            }
            if max(values["copy-of"], default=-1) >= number:
                raise ValueError("a copy of a column that is not there")
            if has_sums:
                facts["mean"] = [float(value) for value in values["means"]]
                facts["remainder"] = [float(value) for value in values["remainders"]]
                facts["squares"] = [float(value) for value in values["squares"]]
            if has_states:
                facts["distinct"] = [int(count) for count in values["distinct"]]
                facts["whole"] = [bool(flag) for flag in values["whole"]]
                facts["values"] = values["values"]
                if not set(facts["values"]) <= {"", *VALUES}:
                    raise ValueError(f"unknown types of values in {values['values']}")
                facts["repeated"] = [bool(flag) for flag in values["repeated"]]
                facts["states"] = unpack_states(values["states"], values["num-states"])
            if has_relations:
                facts["combination_of"] = [
                    tuple(map(int, text.split())) for text in values["combination-of"]
                ]
                facts["dominated"] = [bool(flag) for flag in values["dominated"]]
                if not all(0 <= k < number for own in facts["combination_of"] for k in own):
                    raise ValueError("a combination of columns that are not there")
            if any(len(column) != number for column in facts.values()):
                raise ValueError(f"{number} columns, but not as many of each fact")
            columns = tuple(
                ColumnReport(**{fact: column[k] for fact, column in facts.items()})
                for k in range(number)
            )
            rows, dropped = int(values["rows"]), int(values["dropped-rows"])
            level_rows = int(values["level-rows"]) if "level-rows" in values else None
            if level_rows is not None and not 0 <= level_rows <= rows:
                raise ValueError(f"{level_rows} of {rows} rows are behind the means")
            notes = tuple(str(note) for note in values.get("notes", ()))
            has_ids = bool(values.get("has-ids", 0))
            targets = tuple(_names(text) for text in values.get("targets", ()))
            return cls(
                rows,
                dropped,
                columns,
                has_sums,
                has_states,
                level_rows,
                has_ids,
                notes,
                has_relations,
                str(values.get("step", "")),
                targets,
                bool(values.get("withheld", 0)),
                str(values.get("ids-problem", "")),
                str(values.get("ids-kind", "")),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(f"the report of the table is malformed ({error!r})") from error


def _names(text: str) -> tuple[str, ...]:
    """Return the texts of a JSON list."""
    listed = json_of(text)
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise ValueError(f"no list of names: {text}")
    return tuple(listed)


def tells_combinations(rows: int, columns: int) -> bool:
    """Whether rows are so many that some column need not be a combination of others, or nearly."""
    return rows > columns + 1


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

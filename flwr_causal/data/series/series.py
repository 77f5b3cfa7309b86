"""The time series in a party's table: the rows of each, their order, and where they are cut."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from flwr_causal.data.check.columns import (
    all_columns,
    as_numbers,
    find_columns,
    find_numbers,
    kind_of,
)
from flwr_causal.data.check.party_table import complete_rows
from flwr_causal.data.check.policy import Policy
from flwr_causal.data.check.report import NUMBERS
from flwr_causal.data.roles import SERIES
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IndexArray

#: The fields behind :attr:`Layout.columns`.
OPTIONS = ("series_column", "time_column", "phase_column")
#: Steps that differ by less than this share of the smallest one are equal.
STEP_TOLERANCE = 1e-6
_DATES = "write times as numbers, or as dates like 2020-01-31 or 2020-01-31 12:00"


@dataclass(frozen=True)
class Layout:
    """How a party's table holds time series.

    Parameters
    ----------
    series_column : str, default ""
        The column whose values identify the series; they never leave the party. The rows of one
        series need not be adjacent. A column called ``(series)``, as a list of series gets it,
        identifies them too. With neither the table is one series.
    time_column : str, default ""
        The column of times: numbers or dates, ascending in steps of equal length within each
        series. Default: the rows of a series follow each other, one step apart.
    gaps : {"fail", "split"}, default "fail"
        The effect of a longer step, or of a row with a missing value: an error, or the start of a
        new series after it.
    phase_column : str, default ""
        The column that marks the rows under a known perturbation: booleans, or 0 and 1.
    perturbed : tuple of two floats, optional
        The rows from the first to the second time, both included, are under a perturbation. Instead
        of ``phase_column``; needs ``time_column`` with numbers.
    order : int, default 1
        p, the number of lags, at least 1.

    Raises
    ------
    ConfigError
        For a value out of range, or columns that contradict each other.
    """

    series_column: str = ""
    time_column: str = ""
    gaps: Literal["fail", "split"] = "fail"
    phase_column: str = ""
    perturbed: tuple[float, float] | None = None
    order: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.order, bool) or not isinstance(self.order, int) or self.order < 1:
            raise ConfigError(f"order is {self.order!r}: give the number of lags, 1 or more")
        if self.gaps not in ("fail", "split"):
            raise ConfigError(f"gaps is {self.gaps!r}: choose 'fail' or 'split'")
        used = [name for name in self.columns if name]
        twice = [name for name in used if used.count(name) > 1]
        if twice:
            raise ConfigError(
                f"column {twice[0]!r} has two roles: {', '.join(OPTIONS)} must be different ones"
            )
        if self.perturbed is None:
            return
        object.__setattr__(self, "perturbed", tuple(self.perturbed))
        if len(self.perturbed) != 2 or not self.perturbed[0] <= self.perturbed[1]:
            raise ConfigError(
                f"perturbed is {self.perturbed!r}: give the first and the last perturbed time"
            )
        if self.phase_column or not self.time_column:
            raise ConfigError(
                "perturbed is a range of times: it needs time_column, and no phase_column"
            )

    @property
    def columns(self) -> tuple[str, str, str]:
        """The columns that are no variables: of series, times and phases; empty if not named."""
        return self.series_column, self.time_column, self.phase_column


@dataclass(frozen=True, eq=False)
class Series:
    """One series of T steps.

    Parameters
    ----------
    values : float64 array of shape (T, d)
        Finite, in the order of time.
    names : tuple of str
        The d variables.
    phase : bool array of shape (T,) or None
        Which steps are under a perturbation; None where nothing says so.
    rows : int array of shape (T,)
        Where the steps stand in the party's table, from 0.
    """

    values: FloatArray
    names: tuple[str, ...]
    phase: BoolArray | None
    rows: IndexArray


def find_series(
    frame: pd.DataFrame,
    layout: Layout,
    policy: Policy | None = None,
    names: Sequence[str] | None = None,
) -> list[Series]:
    """Return the series of a party's table, in the order in which they first appear.

    Parameters
    ----------
    frame : DataFrame
        The party's table, as :func:`flwr_causal.data.read.tables.read_table` returns it.
    layout : Layout
    policy : Policy, optional
        With ``missing_values="drop"`` rows with a missing or infinite value in any variable are
        left out, and the series is cut there, as with ``gaps="split"``.
    names : sequence of str, optional
        The variables. Default: all columns of numbers or booleans that have no other role. Which
        rows are complete does not depend on it.

    Returns
    -------
    list of Series
        Also those that are too short to be used, see :func:`long_enough`.

    Raises
    ------
    DataError
        The table lacks a column that an option names (checked first), or has no rows; a
        series' times are missing, descending, repeated or unequally spaced; a value is missing or
        infinite within a series; a phase is neither true nor false. Messages name series by their
        position, since ids may be private.
    """
    _check_roles(frame, layout)
    variables = value_columns(frame, layout)
    if len(frame) == 0:
        raise DataError("the table has no rows: a time series is needed")
    groups = _groups(frame, layout)
    starts = np.zeros(len(frame), dtype=np.bool_)
    phase = _phase(frame, layout)
    if layout.time_column:
        times = read_times(frame[layout.time_column])
        starts = find_gaps(times, groups, layout.time_column, split=layout.gaps == "split")
        if layout.perturbed is not None:
            if times.unit:
                raise DataError(
                    f"column {layout.time_column!r} of times holds dates, and 'perturbed' is a "
                    "range of numbers: mark the perturbed rows in a column, phase_column"
                )
            first, last = layout.perturbed
            phase = (times.values >= first) & (times.values <= last)
    complete = _complete(variables, groups, layout, policy or Policy())
    if names is None:
        columns = [column for column in all_columns(variables) if kind_of(column) in NUMBERS]
    else:
        columns = find_columns(variables, names)
    block = np.empty((len(frame), len(columns)))
    for position, column in enumerate(columns):
        block[:, position] = find_numbers(column)
    labels = tuple(str(column.name) for column in columns)
    pieces = [piece for rows in groups for piece in _cut(rows, starts, complete)]
    return [
        Series(block[rows], labels, None if phase is None else phase[rows], rows) for rows in pieces
    ]


def long_enough(series: Sequence[Series], order: int) -> tuple[list[Series], str]:
    """Return the series that have at least p + 2 steps, and so two rows, and a warning.

    Parameters
    ----------
    series : sequence of Series
    order : int
        p.

    Returns
    -------
    used : list of Series
    warning : str
        How many are left out; empty if none.

    Raises
    ------
    DataError
        If none is long enough.
    """
    needed = order + 2
    used = [one for one in series if len(one.values) >= needed]
    if not used:
        longest = max((len(one.values) for one in series), default=0)
        raise DataError(
            f"no series is long enough: order {order} needs {needed} steps in a row (order + 2), "
            f"the longest of {len(series)} has {longest}; lower the order, or give longer series"
        )
    if len(used) == len(series):
        return used, ""
    steps = sum(len(one.values) for one in series) - sum(len(one.values) for one in used)
    return used, (
        f"{len(series) - len(used)} of {len(series)} series ({steps} steps in all) are shorter "
        f"than the {needed} steps that order {order} needs, and are not used"
    )


def value_columns(frame: pd.DataFrame, layout: Layout) -> pd.DataFrame:
    """Return the table without the columns of series, times and phases.

    Raises
    ------
    DataError
        If no column is left.
    """
    roles = {SERIES, *layout.columns}
    kept = [position for position, name in enumerate(frame.columns) if name not in roles]
    if not kept:
        raise DataError(
            f"no column is left beside {', '.join(frame.columns)}, which tell series, times or "
            "phases: give at least one variable"
        )
    return frame.iloc[:, kept]


def _groups(frame: pd.DataFrame, layout: Layout) -> list[IndexArray]:
    """Return the rows of each series, in the order in which the series first appear."""
    keys = [frame[SERIES]] if SERIES in frame.columns else []
    if layout.series_column:
        ids = frame[layout.series_column]
        missing = ids.isna().to_numpy(dtype=np.bool_)
        if missing.any():
            raise DataError(
                f"column {layout.series_column!r} of series: {missing.sum()} missing (the first in "
                f"row {missing.argmax() + 1} of the table): every row must belong to a series"
            )
        keys.append(ids)
    if not keys:
        return [np.arange(len(frame))]
    codes = np.zeros(len(frame), dtype=np.intp)
    for key in keys:
        own, values = pd.factorize(key)
        # Numbers the pairs of codes in the order in which they occur.
        codes = pd.factorize(codes * len(values) + own)[0]
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes))[:-1])


def _phase(frame: pd.DataFrame, layout: Layout) -> BoolArray | None:
    """Return which rows the phase column marks."""
    if not layout.phase_column:
        return None
    column = frame[layout.phase_column]
    values: NDArray[Any] = (
        as_numbers(column) if kind_of(column) in NUMBERS else np.full(len(frame), np.nan)
    )
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        raise DataError(
            f"column {layout.phase_column!r} of phases: neither true nor false, 1 nor 0, in row "
            f"{int(wrong.argmax()) + 1} of the table: correct it"
        )
    return np.asarray(values == 1)


def _complete(
    variables: pd.DataFrame, groups: Sequence[IndexArray], layout: Layout, policy: Policy
) -> BoolArray:
    """Mark the rows without missing or infinite values; elsewhere these are an error."""
    if layout.gaps == "split" or policy.missing_values == "drop":
        dropping = Policy(missing_values="drop", text_columns=policy.text_columns)
        return complete_rows(variables, dropping)
    for column in all_columns(variables):
        if kind_of(column) not in NUMBERS:
            continue
        values = as_numbers(column)
        bad = ~np.isfinite(values)
        if not bad.any():
            continue
        number = next(k for k, rows in enumerate(groups) if bad[rows].any())
        step = int(bad[groups[number]].argmax())
        word = "missing" if np.isnan(values[groups[number][step]]) else "infinite"
        raise DataError(
            f"column {str(column.name)!r}: {word} in {place(groups, number, step)}, "
            f"{int(bad.sum())} such values in all: fill them in, leave the column out, or end the "
            "series before such a row and start a new one after it with gaps='split'"
        )
    return np.ones(len(variables), dtype=np.bool_)


def _cut(rows: IndexArray, starts: BoolArray, complete: BoolArray) -> list[IndexArray]:
    """Cut a series before rows that start a new one, and at incomplete rows."""
    whole = complete[rows]
    after_incomplete = np.r_[False, ~whole[:-1]]
    cuts = np.flatnonzero(starts[rows] | after_incomplete | ~whole)
    pieces = np.split(rows, cuts[cuts > 0])
    return [piece for piece in pieces if complete[piece[0]]]


def _check_roles(frame: pd.DataFrame, layout: Layout) -> None:
    """Check that the table has each column of series, times or phases once."""
    for field, name in zip(OPTIONS, layout.columns, strict=True):
        count = list(frame.columns).count(name)
        if not name or count == 1:
            continue
        if count:
            raise DataError(
                f"{field}={name!r}: column {name!r} is there {count} times in the table: "
                "rename all but one"
            )
        folded = {str(column).casefold(): column for column in frame.columns}
        close = get_close_matches(name.casefold(), folded, n=1)
        meant = f" (did you mean {folded[close[0]]!r}?)" if close else ""
        raise DataError(
            f"{field}={name!r}: column {name!r} is missing in the table, which has "
            f"{', '.join(frame.columns)}{meant}: add or rename the column, or correct the option"
        )


@dataclass(frozen=True, eq=False)
class Times:
    """Times of the rows of a table.

    Parameters
    ----------
    values : float64 array of shape (n,)
        Finite. Dates count from the earliest one.
    unit : {"", "seconds", "months"}
        Empty for times that were numbers; months for dates that are all on the same day of a month.
    """

    values: FloatArray
    unit: Literal["", "seconds", "months"] = ""

    def span(self, length: float) -> str:
        """Return a length of time as a text with its unit."""
        if self.unit == "seconds":
            return str(pd.Timedelta(seconds=length))
        return f"{length:.10g} {self.unit}".strip()


def place(groups: Sequence[IndexArray], number: int, step: int) -> str:
    """Name a row by its series' position and its own, all counted from 1; never by an id."""
    row = groups[number][step] + 1
    return f"series {number + 1} of {len(groups)}, step {step + 1} (row {row} of the table)"


def read_times(column: pd.Series) -> Times:
    """Return a column of times as numbers.

    Parameters
    ----------
    column : Series
        Numbers, or dates with or without a time of day, also as text in the ISO 8601 form, or
        lengths of time, or periods.

    Raises
    ------
    DataError
        A time is missing, or the column holds no times.
    """
    where = f"column {column.name!r} of times"
    missing = column.isna().to_numpy(dtype=np.bool_)
    if missing.any():
        raise DataError(
            f"{where}: {missing.sum()} missing (the first in row {missing.argmax() + 1} of the "
            "table): every row needs its time"
        )
    dtype = column.dtype
    kind = kind_of(column)
    if kind == "numeric":
        values = as_numbers(column)
        if not np.isfinite(values).all():
            row = int((~np.isfinite(values)).argmax()) + 1
            raise DataError(f"{where}: infinite in row {row} of the table: correct it")
        return Times(values)
    if isinstance(dtype, pd.PeriodDtype):
        return _from_dates(column.dt.to_timestamp())
    if pd.api.types.is_timedelta64_dtype(dtype):
        return Times(column.dt.total_seconds().to_numpy(dtype=np.float64), "seconds")
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return _from_dates(column)
    if kind == "boolean":
        raise DataError(f"{where} holds booleans: {_DATES}")
    dates = pd.to_datetime(column.astype(str), format="ISO8601", utc=True, errors="coerce")
    unread = dates.isna().to_numpy(dtype=np.bool_)
    if unread.any():
        row = int(unread.argmax()) + 1
        raise DataError(f"{where}: no time that can be read in row {row} of the table: {_DATES}")
    return _from_dates(dates)


def find_gaps(times: Times, groups: Sequence[IndexArray], name: str, *, split: bool) -> BoolArray:
    """Check the times within every series.

    Parameters
    ----------
    times : Times
        Of all n rows.
    groups : sequence of int array
        The rows of each series, in their order in the table.
    name : str
        The column of times.
    split : bool
        Whether unequal steps are gaps, not an error.

    Returns
    -------
    bool array of shape (n,)
        The rows that come more than one step after the row before in their series. The step is the
        smallest one that occurs in the table.

    Raises
    ------
    DataError
        Times descend or repeat within a series, or steps are unequal and ``split`` is False; the
        message names the first such row.
    """
    gaps = np.zeros(len(times.values), dtype=np.bool_)
    steps = [np.diff(times.values[rows]) for rows in groups]
    for number, own in enumerate(steps):
        for bad, problem, remedy in (
            (own < 0, "earlier than", "sort the rows of each series by time"),
            (
                own == 0,
                "the same as",
                "remove the repetition, or tell series apart with series_column",
            ),
        ):
            if bad.any():
                where = place(groups, number, int(bad.argmax()) + 1)
                raise DataError(
                    f"column {name!r}: the time of {where} is {problem} that before it: {remedy}"
                )
    lengths = np.concatenate(steps) if steps else np.zeros(0)
    if len(lengths) == 0:
        return gaps
    smallest = float(lengths.min())
    # Differences of large numbers (seconds since 1970) carry those numbers' rounding.
    rounding = 4 * np.finfo(np.float64).eps * float(np.abs(times.values).max())
    longest = smallest * (1 + STEP_TOLERANCE) + rounding
    for number, own in enumerate(steps):
        late = own > longest
        if late.any() and not split:
            step = int(late.argmax())
            raise DataError(
                f"column {name!r}: {place(groups, number, step + 1)} comes "
                f"{times.span(own[step])} after the row before, where the smallest step of the "
                f"table is {times.span(smallest)}: add the missing rows, start a new series at "
                "each gap with gaps='split', or leave time_column out if each row is "
                "one step after the last"
            )
        gaps[groups[number][1:][late]] = True
    return gaps


def _from_dates(dates: pd.Series) -> Times:
    """Return dates as months where all are on one day of the month, else as seconds."""
    parts = dates.dt
    of_day = dates - parts.normalize()
    same_day = parts.day.nunique() == 1 or bool(parts.is_month_end.all())
    if same_day and of_day.nunique() == 1:
        months = 12.0 * (parts.year - parts.year.min()) + parts.month
        return Times(months.to_numpy(dtype=np.float64), "months")
    elapsed = dates - dates.min()
    return Times(elapsed.dt.total_seconds().to_numpy(dtype=np.float64), "seconds")

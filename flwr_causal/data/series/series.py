"""The time series in a party's table: the rows of each series, their order, and gaps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from flwr_causal.core.words import nearest
from flwr_causal.data.check.columns import (
    all_columns,
    as_numbers,
    find_columns,
    find_numbers,
    kind_of,
)
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import complete_rows
from flwr_causal.data.check.report import NUMBERS
from flwr_causal.data.roles import SERIES
from flwr_causal.errors import ConfigError, DataError, IncompleteError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IndexArray

#: The options of :attr:`SeriesLayout.columns`, in the same order.
OPTIONS = ("series_column", "time_column", "phase_column")
#: Time steps are the same number if they differ by less than this share: the rounding of times.
STEP_TOLERANCE = 1e-6
#: Time steps are equal if they differ from the usual step by less than this share of it. Clocks of
#: loggers jitter; a missing row doubles the step.
JITTER = 0.1
#: The offset from UTC behind a time of day.
_OFFSET = re.compile(r"(:\d\d(?:\.\d+)?) ?(?:[Zz]|[+-]\d\d(?::?\d\d)?)$")
_DATES = "write times as numbers, or as dates like 2020-01-31 or 2020-01-31 12:00"


@dataclass(frozen=True)
class SeriesLayout:
    """The layout of time series in a party's table.

    Parameters
    ----------
    series_column : str, default ""
        The column whose values identify the series; the values never leave the party. The rows of a
        series need not be adjacent. The column ``(series)`` of tables read from a list of series
        identifies series too. A table without either column is one series.
    time_column : str, default ""
        The column of times: numbers or dates, ascending in steps of equal length within each
        series, up to 10 % of jitter. Dates at one time of day in their own time zone are days,
        also where a clock change makes one of 23 hours. Default: the rows of a series are in
        temporal order, one step apart.
    gaps : {"fail", "split"}, default "fail"
        The effect of a longer step, or of a row with a missing value: an error, or the start of a
        new series after the gap.
    phase_column : str, default ""
        The column that marks the rows under a known perturbation: booleans, or 0 and 1.
    perturbed : tuple of two floats, optional
        First and last time of a known perturbation, an alternative to ``phase_column``. Needs a
        ``time_column`` of numbers.
    order : int, default 1
        p, the number of lags, at least 1.

    Raises
    ------
    ConfigError
        If a value is out of range, a column has two roles, or ``perturbed`` is given without
        ``time_column`` or together with ``phase_column``.
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
        """The columns of series, times and phases; an empty text for each that is not named."""
        return self.series_column, self.time_column, self.phase_column


@dataclass(frozen=True, eq=False)
class Series:
    """One series of T steps.

    Parameters
    ----------
    values : float64 array of shape (T, d)
        In the order of time; finite, but where missing values are kept.
    names : tuple of str
        The d variables.
    phase : bool array of shape (T,) or None
        The steps under a known perturbation; None if the layout names none.
    rows : int array of shape (T,)
        The row of each step in the party's table, counted from 0.
    """

    values: FloatArray
    names: tuple[str, ...]
    phase: BoolArray | None
    rows: IndexArray


def find_series(
    frame: pd.DataFrame,
    layout: SeriesLayout,
    handling: Handling | None = None,
    names: Sequence[str] | None = None,
) -> list[Series]:
    """Return the series of a party's table, in the order in which they first appear.

    Parameters
    ----------
    frame : DataFrame
        The party's table, as :func:`flwr_causal.data.read.tables.read_table` returns it.
    layout : SeriesLayout
        The layout of the series in the table.
    handling : Handling, optional
        With ``missing_values="drop"`` rows with a missing or infinite value in any variable are
        dropped, and a new series starts after them, as with ``gaps="split"``; with "em" they are
        kept. Default: the default one.
    names : sequence of str, optional
        The variables. Default: all columns of numbers or booleans without another role. The
        variables do not affect which rows are complete.

    Returns
    -------
    list of Series
        All series, including those too short to be used, see :func:`long_enough`.

    Raises
    ------
    DataError
        If the table lacks a column that the layout names or has no rows; if the times of a series
        are missing, descending, repeated or unequally spaced; if a value is missing or infinite
        within a series; or if a phase is neither true nor false. Messages name series by their
        position, because ids may be private.
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
                    f"column {layout.time_column!r} of times holds dates, but 'perturbed' is a "
                    "range of numbers: mark the perturbed rows in a column, and name it in "
                    "phase_column"
                )
            first, last = layout.perturbed
            phase = (times.values >= first) & (times.values <= last)
    complete = _complete(variables, groups, layout, handling or Handling())
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
    """Return the series of at least p + 2 steps, which give two rows of the lagged design.

    Parameters
    ----------
    series : sequence of Series
        The series of a party.
    order : int
        p, the number of lags.

    Returns
    -------
    used : list of Series
        The series that are long enough.
    warning : str
        The number of series that are not used, in words; empty if all are used.

    Raises
    ------
    DataError
        If no series is long enough.
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


def time_step(frame: pd.DataFrame, layout: SeriesLayout) -> str:
    """Return the step of the column of times, with its unit; empty if there is none.

    The usual step, in two digits, where steps differ by a clock's jitter.
    """
    if not layout.time_column:
        return ""
    times = read_times(frame[layout.time_column])
    steps = [np.diff(times.values[rows]) for rows in _groups(frame, layout)]
    lengths = np.concatenate(steps)
    if not len(lengths):
        return ""
    step, smallest = usual_step(lengths), float(lengths.min())
    exact = step <= smallest * (1 + STEP_TOLERANCE) + times.rounding
    return times.span(smallest if exact else float(f"{step:.1e}"))


def usual_step(lengths: FloatArray) -> float:
    """Return the length of a step: the median of those that are as long as the smallest, or nearly.

    Parameters
    ----------
    lengths : float64 array of shape (n,)
        Positive differences of consecutive times, gaps among them; n at least 1.
    """
    smallest = float(lengths.min())
    step = float(np.median(lengths[lengths <= smallest * (1 + JITTER) / (1 - JITTER)]))
    return step if smallest >= step * (1 - JITTER) else smallest


def value_columns(frame: pd.DataFrame, layout: SeriesLayout) -> pd.DataFrame:
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
            f"the table has no variable: its columns {', '.join(frame.columns)} are those of "
            "series, times or phases; add at least one column"
        )
    return frame.iloc[:, kept]


def _groups(frame: pd.DataFrame, layout: SeriesLayout) -> list[IndexArray]:
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


def _phase(frame: pd.DataFrame, layout: SeriesLayout) -> BoolArray | None:
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
    variables: pd.DataFrame, groups: Sequence[IndexArray], layout: SeriesLayout, handling: Handling
) -> BoolArray:
    """Return the rows without missing or infinite values; a DataError unless others are dropped.

    Where missing values are kept, all rows.
    """
    if handling.missing_values == "em":
        return np.ones(len(variables), dtype=np.bool_)
    if layout.gaps == "split" or handling.missing_values == "drop":
        dropping = Handling(missing_values="drop", text_columns=handling.text_columns)
        return complete_rows(variables, dropping)
    for column in all_columns(variables):
        is_number = kind_of(column) in NUMBERS
        if not is_number and handling.text_columns != "keep":
            continue
        lacking = column.isna().to_numpy(dtype=np.bool_)
        bad = ~np.isfinite(as_numbers(column)) if is_number else lacking
        if not bad.any():
            continue
        number = next(k for k, rows in enumerate(groups) if bad[rows].any())
        step = int(bad[groups[number]].argmax())
        word = "missing" if lacking[groups[number][step]] else "infinite"
        kind = IncompleteError if lacking[bad].all() else DataError
        raise kind(
            f"column {str(column.name)!r}: {word} in {place(groups, number, step)}, "
            f"{int(bad.sum())} such values in all: fill them in, leave the column out, or end the "
            "series before such a row and start a new one after it with gaps='split'"
        )
    return np.ones(len(variables), dtype=np.bool_)


def _cut(rows: IndexArray, starts: BoolArray, complete: BoolArray) -> list[IndexArray]:
    """Return the parts of a series between gaps and incomplete rows."""
    whole = complete[rows]
    after_incomplete = np.r_[False, ~whole[:-1]]
    cuts = np.flatnonzero(starts[rows] | after_incomplete | ~whole)
    pieces = np.split(rows, cuts[cuts > 0])
    return [piece for piece in pieces if complete[piece[0]]]


def _check_roles(frame: pd.DataFrame, layout: SeriesLayout) -> None:
    """Check that the table has each column of series, times or phases once."""
    for field, name in zip(OPTIONS, layout.columns, strict=True):
        count = list(frame.columns).count(name)
        if not name or count == 1:
            continue
        if count:
            raise DataError(
                f"{field}={name!r}: column {name!r} occurs {count} times in the table: "
                "rename all but one"
            )
        folded = {str(column).casefold(): column for column in frame.columns}
        close = nearest(name.casefold(), folded)
        meant = f" (did you mean {folded[close]!r}?)" if close else ""
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
        Empty for numbers; "months" for dates that all have the same day of the month.
    """

    values: FloatArray
    unit: Literal["", "seconds", "months"] = ""

    @property
    def rounding(self) -> float:
        """The rounding error of the difference of two times."""
        return float(4 * np.finfo(np.float64).eps * np.abs(self.values).max(initial=0.0))

    def span(self, length: float) -> str:
        """Return a length of time as a text with its unit."""
        if self.unit == "seconds":
            return str(pd.Timedelta(seconds=length))
        return f"{length:.10g} {self.unit}".strip()


def place(groups: Sequence[IndexArray], number: int, step: int) -> str:
    """Return the position of a row in words: its series, step and row, all counted from 1."""
    row = groups[number][step] + 1
    return f"series {number + 1} of {len(groups)}, step {step + 1} (row {row} of the table)"


def read_times(column: pd.Series) -> Times:
    """Return a column of times as numbers.

    Parameters
    ----------
    column : Series
        Numbers, dates with or without a time of day, texts in ISO 8601 form, time deltas, or
        periods. Whole numbers that all are days such as 20240131, or months such as 202401, of the
        years from 1900 to 2099, are dates.

    Raises
    ------
    DataError
        If a time is missing or infinite, or the column does not hold times.
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
        return _of_digits(values) or Times(values)
    if isinstance(dtype, pd.PeriodDtype):
        return _from_dates(column.dt.to_timestamp())
    if pd.api.types.is_timedelta64_dtype(dtype):
        return Times(column.dt.total_seconds().to_numpy(dtype=np.float64), "seconds")
    if isinstance(dtype, pd.DatetimeTZDtype):
        return _from_dates(column, column.dt.tz_localize(None))
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return _from_dates(column)
    if kind == "boolean":
        raise DataError(f"{where} holds booleans: {_DATES}")
    texts = column.astype(str)
    dates = pd.to_datetime(texts, format="ISO8601", utc=True, errors="coerce")
    unread = dates.isna().to_numpy(dtype=np.bool_)
    if unread.any():
        row = int(unread.argmax()) + 1
        raise DataError(f"{where}: the time in row {row} of the table cannot be read: {_DATES}")
    local = texts.str.replace(_OFFSET, r"\1", regex=True)
    return _from_dates(dates, pd.to_datetime(local, format="ISO8601", errors="coerce"))


def _of_digits(values: FloatArray) -> Times | None:
    """Return numbers that are dates in digits, 20240131 or 202401; None if some are none."""
    if not len(values) or (values != values.round()).any():
        return None
    for form, least, most in (("%Y%m%d", 19000101, 20991231), ("%Y%m", 190001, 209912)):
        if values.min() >= least and values.max() <= most:
            digits = pd.Series(values.astype(np.int64).astype(str))
            dates = pd.to_datetime(digits, format=form, errors="coerce")
            return None if dates.isna().any() else _from_dates(dates)
    return None


def find_gaps(times: Times, groups: Sequence[IndexArray], name: str, *, split: bool) -> BoolArray:
    """Check the times within every series, and return the rows after a gap.

    Parameters
    ----------
    times : Times
        The times of all n rows.
    groups : sequence of int array
        The rows of each series, in their order in the table.
    name : str
        The column of times, for messages.
    split : bool
        Whether a longer step is a gap. Otherwise it is an error.

    Returns
    -------
    bool array of shape (n,)
        The rows that are more than one step later than the previous row of their series, by more
        than :data:`JITTER` of it, see :func:`usual_step`.

    Raises
    ------
    DataError
        If times descend or repeat within a series, or steps are unequal and ``split`` is False; the
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
                "remove the repetition, or identify the series by series_column",
            ),
        ):
            if bad.any():
                where = place(groups, number, int(bad.argmax()) + 1)
                raise DataError(
                    f"column {name!r}: the time of {where} is {problem} the previous one: {remedy}"
                )
    lengths = np.concatenate(steps) if steps else np.zeros(0)
    if len(lengths) == 0:
        return gaps
    usual = usual_step(lengths)
    # Differences of large numbers (seconds since 1970) have the rounding errors of these numbers.
    longest = usual * (1 + JITTER) + times.rounding
    for number, own in enumerate(steps):
        late = own > longest
        if late.any() and not split:
            step = int(late.argmax())
            raise DataError(
                f"column {name!r}: {place(groups, number, step + 1)} is {times.span(own[step])} "
                f"later than the previous row, but the usual step of the table is "
                f"{times.span(usual)}: add the missing rows, start a new series at each gap "
                "with gaps='split', or omit time_column if consecutive rows are one step apart"
            )
        gaps[groups[number][1:][late]] = True
    return gaps


def _from_dates(dates: pd.Series, local: pd.Series | None = None) -> Times:
    """Return dates as months if all have the same day of the month, otherwise as seconds.

    Parameters
    ----------
    dates : Series
        Of datetimes, n rows.
    local : Series, optional
        The same as clocks show them. They count where all show one time of day: a day in which the
        clock changes is a day. Steps of other lengths are those of the time that has passed.
    """
    if local is not None and _times_of_day(local) == 1:
        dates = local
    parts = dates.dt
    same_day = parts.day.nunique() == 1 or bool(parts.is_month_end.all())
    if same_day and _times_of_day(dates) == 1:
        months = 12.0 * (parts.year - parts.year.min()) + parts.month
        return Times(months.to_numpy(dtype=np.float64), "months")
    elapsed = dates - dates.min()
    return Times(elapsed.dt.total_seconds().to_numpy(dtype=np.float64), "seconds")


def _times_of_day(dates: pd.Series) -> int:
    return int((dates - dates.dt.normalize()).nunique(dropna=False))

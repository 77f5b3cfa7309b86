"""A column of times as numbers, and the checks on them within each series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from flwr_causal.data.check.columns import FloatArray, as_numbers, kind_of
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    IntArray = NDArray[np.intp]
    BoolArray = NDArray[np.bool_]

__all__ = ["Times", "find_gaps", "place", "read_times"]

#: Steps that differ by less than this share of the smallest one are equal.
STEP_TOLERANCE = 1e-6

_DATES = "write times as numbers, or as dates like 2020-01-31 or 2020-01-31 12:00"


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
        """Return a length of time as people read it."""
        if self.unit == "seconds":
            return str(pd.Timedelta(seconds=length))
        return f"{length:.10g} {self.unit}".strip()


def place(groups: Sequence[IntArray], number: int, step: int) -> str:
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


def find_gaps(times: Times, groups: Sequence[IntArray], name: str, *, split: bool) -> BoolArray:
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
                "remove the repetition, or tell series apart with series-column",
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
                "each gap with gaps='split', or leave time-column out if each row is one step "
                "after the last"
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

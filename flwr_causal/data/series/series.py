"""The time series in a party's table: which rows belong to which, in which order, cut where."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.data.check.columns import (
    FloatArray,
    all_columns,
    as_numbers,
    find_columns,
    find_numbers,
    kind_of,
)
from flwr_causal.data.check.describe import complete_rows
from flwr_causal.data.check.policy import Policy
from flwr_causal.data.check.report import NUMBERS
from flwr_causal.data.read.tables import SERIES
from flwr_causal.data.series.series_layout import Layout
from flwr_causal.data.series.times import find_gaps, place, read_times
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    IntArray = NDArray[np.intp]
    BoolArray = NDArray[np.bool_]

__all__ = ["SERIES", "Layout", "Series", "find_series", "long_enough", "value_columns"]

#: The options behind :attr:`Layout.columns`.
OPTIONS = ("series-column", "time-column", "phase-column")


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
    rows: IntArray


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
        The table lacks a column that an option names (said before all else), or has no rows; a
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
                    "range of numbers: mark the perturbed rows in a column, phase-column"
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


def _groups(frame: pd.DataFrame, layout: Layout) -> list[IntArray]:
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
    variables: pd.DataFrame, groups: Sequence[IntArray], layout: Layout, policy: Policy
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


def _cut(rows: IntArray, starts: BoolArray, complete: BoolArray) -> list[IntArray]:
    """Cut a series before rows that start a new one, and at incomplete rows."""
    whole = complete[rows]
    after_incomplete = np.r_[False, ~whole[:-1]]
    cuts = np.flatnonzero(starts[rows] | after_incomplete | ~whole)
    pieces = np.split(rows, cuts[cuts > 0])
    return [piece for piece in pieces if complete[piece[0]]]


def _check_roles(frame: pd.DataFrame, layout: Layout) -> None:
    """Check that each column that tells series, times or phases is there once."""
    for option, name in zip(OPTIONS, layout.columns, strict=True):
        count = list(frame.columns).count(name)
        if not name or count == 1:
            continue
        if count:
            raise DataError(
                f"{option}={name!r}: column {name!r} is there {count} times in the table: rename "
                "all but one"
            )
        folded = {str(column).casefold(): column for column in frame.columns}
        close = get_close_matches(name.casefold(), folded, n=1)
        meant = f" (did you mean {folded[close[0]]!r}?)" if close else ""
        raise DataError(
            f"{option}={name!r}: column {name!r} is missing in the table, which has "
            f"{', '.join(frame.columns)}{meant}: add or rename the column, or correct the option"
        )

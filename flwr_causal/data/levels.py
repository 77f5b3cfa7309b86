"""The levels of time series: what centring subtracts, and what a party reports of its series."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.data.columns import all_columns, kind_of
from flwr_causal.data.describe import describe
from flwr_causal.data.report import NUMBERS
from flwr_causal.data.series import find_series, long_enough, value_columns
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.data.columns import FloatArray
    from flwr_causal.data.policy import Policy
    from flwr_causal.data.report import TableReport
    from flwr_causal.data.series import Series
    from flwr_causal.data.series_layout import Layout

__all__ = ["Centering", "center", "describe_series"]

#: One mean of all series of all parties, each series its own, or one for each known perturbation.
Centering = Literal["global", "series", "phase"]


def center(
    series: Sequence[Series], mean: FloatArray | None = None, by: Centering = "global"
) -> list[Series]:
    """Return the series with their level subtracted.

    Parameters
    ----------
    series : sequence of Series
        Of d variables each.
    mean : float64 array of shape (d,), optional
        The level that all parties agreed on; needed for all but "series".
    by : {"global", "series", "phase"}, default "global"
        "global" subtracts the given mean. "series" subtracts each series' own mean. "phase" takes a
        known perturbation for an unknown constant input to that series: its perturbed steps lose
        their own mean, the other steps the given one, which is to be that of unperturbed steps.

    Returns
    -------
    list of Series

    Raises
    ------
    ConfigError
        For an unknown way, a mean that is missing or of the wrong shape, or "phase" where nothing
        marks the perturbed steps.
    """
    if by not in ("global", "series", "phase"):
        raise ConfigError(f"center is {by!r}: choose 'global', 'series' or 'phase'")
    if by == "series":
        return [replace(one, values=one.values - _mean(one.values)) for one in series]
    result = []
    for one in series:
        if mean is None or np.shape(mean) != (len(one.names),):
            raise ConfigError(
                f"center={by!r} needs the agreed mean of the {len(one.names)} variables, got "
                f"{'none' if mean is None else f'shape {np.shape(mean)}'}"
            )
        values = one.values - mean
        if by == "phase":
            if one.phase is None:
                raise ConfigError(
                    "center='phase' needs to know the perturbed steps: give phase-column, or "
                    "time-column and perturbed"
                )
            if one.phase.any():
                perturbed = one.values[one.phase]
                values[one.phase] = perturbed - _mean(perturbed)
        result.append(replace(one, values=values))
    return result


def describe_series(
    frame: pd.DataFrame,
    layout: Layout,
    policy: Policy | None = None,
    *,
    sums: bool = False,
    by: Centering = "global",
) -> TableReport:
    """Report on a party's series as :func:`~flwr_causal.data.describe.describe` does on rows.

    Everything is said of the steps that have p steps before them: one row of the lagged design
    each. So the agreement's mean, variance and number of rows are those of the rows that are
    learned from, whichever party a series lies with.

    Parameters
    ----------
    frame : DataFrame
        The party's table.
    layout : Layout
        The columns of series, times and phases are no variables and are not reported.
    policy : Policy, optional
        The federation's policy.
    sums : bool
        Compute the sums that centring and scaling need; they then leave the party.
    by : {"global", "series", "phase"}, default "global"
        How the series will be centred. The squares are those of the values so centred (with this
        party's own mean for the agreed one), and with "phase" the mean is that of the unperturbed
        steps; a party then counts by all its rows in the mean over parties.

    Returns
    -------
    TableReport
        With ``rows = sum_m (T_m - p)`` over the series that are long enough.

    Raises
    ------
    DataError
        What :func:`~flwr_causal.data.series.find_series` and
        :func:`~flwr_causal.data.series.long_enough` raise; with "phase" also if all steps are
        perturbed.
    ConfigError
        As :func:`center`.
    """
    series, _ = long_enough(find_series(frame, layout, policy), layout.order)
    p = layout.order
    variables = value_columns(frame, layout)
    rows = np.concatenate([one.rows[p:] for one in series])
    # Incomplete rows are cut away already: only text can still have missing values.
    report = describe(variables.iloc[rows], policy, sums=sums)
    if by == "global":
        return report
    unperturbed = [one.values[p:] for one in series]
    if by == "phase":
        unperturbed = [
            one.values[p:] if one.phase is None else one.values[p:][~one.phase[p:]]
            for one in series
        ]
    levels = np.vstack(unperturbed)
    if len(levels) == 0:
        raise DataError(
            "all steps are under a perturbation, so that the level without one is unknown: give "
            "unperturbed steps too, or use center='series'"
        )
    mean = _mean(levels)
    rest = (levels - mean).mean(axis=0) * report.rows
    centered = np.vstack([one.values[p:] for one in center(series, mean, by)])
    columns = list(report.columns)
    # The series hold the columns of numbers only, in their order.
    kinds = [kind_of(column) for column in all_columns(variables)]
    for own, position in enumerate(k for k, kind in enumerate(kinds) if kind in NUMBERS):
        deviations = centered[:, own]
        flat = bool((deviations == 0).all())
        columns[position] = replace(columns[position], distinct_one=flat)
        if sums:
            columns[position] = replace(
                columns[position],
                mean=float(mean[own]),
                remainder=float(rest[own]),
                squares=float(deviations @ deviations),
            )
    return replace(report, columns=tuple(columns))


def _mean(values: FloatArray) -> FloatArray:
    """Return the means (d,); that of equal numbers is that number, which rounding may miss."""
    same = (values == values[0]).all(axis=0)
    return np.asarray(np.where(same, values[0], values.mean(axis=0)))

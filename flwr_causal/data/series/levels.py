"""The levels of time series: centring by them, and a party's report on its series."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.series.design import lagged_rows
from flwr_causal.data.check.columns import all_columns, kind_of
from flwr_causal.data.check.party_table import describe
from flwr_causal.data.check.report import NUMBERS
from flwr_causal.data.series.series import find_series, long_enough, value_columns
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.data.check.policy import Policy
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.series.series import Layout, Series


#: One mean of all series of all parties, each series its own, or one for each known perturbation.
Centering = Literal["global", "series", "phase"]


def centered_rows(
    series: Sequence[Series],
    order: int,
    mean: FloatArray | None = None,
    by: Centering = "global",
) -> list[FloatArray]:
    """Return the rows [x_t, x_{t-1}, ..., x_{t-p}] of each series with their level subtracted.

    Parameters
    ----------
    series : sequence of Series
        Of d variables each.
    order : int
        p.
    mean : float64 array of shape (d,), optional
        The level that all parties agreed on; needed for all but "series".
    by : {"global", "series", "phase"}, default "global"
        "global" subtracts the given mean. "series" subtracts each series' own mean. "phase" treats
        a known perturbation as an unknown constant input to that series: from the rows whose step t
        is perturbed it subtracts their own mean, lags included, as an intercept for these rows
        does; from the other rows the given mean, which must be that of unperturbed steps.

    Returns
    -------
    list of float64 arrays of shape (T - p, d (1 + p))

    Raises
    ------
    ConfigError
        For an unknown way, a mean that is missing or of the wrong shape, or "phase" where nothing
        marks the perturbed steps.
    """
    if by not in ("global", "series", "phase"):
        raise ConfigError(f"center is {by!r}: choose 'global', 'series' or 'phase'")
    result = []
    for one in series:
        level = _mean(one.values) if by == "series" else mean
        if level is None or np.shape(level) != (len(one.names),):
            raise ConfigError(
                f"center={by!r} needs the agreed mean of the {len(one.names)} variables, got "
                f"{'none' if mean is None else f'shape {np.shape(mean)}'}"
            )
        rows = lagged_rows([one.values - level], order)
        if by == "phase":
            perturbed = perturbed_rows(one, order)
            if perturbed.any():
                rows[perturbed] -= _mean(rows[perturbed])
        result.append(rows)
    return result


def perturbed_rows(one: Series, order: int) -> BoolArray:
    """Mark the rows of a series whose step t is under a perturbation, shape (T - p,).

    Raises
    ------
    ConfigError
        If nothing marks the perturbed steps.
    """
    if one.phase is None:
        raise ConfigError(
            "center='phase' needs to know the perturbed steps: give phase_column, or "
            "time_column and perturbed"
        )
    return one.phase[order:]


def describe_series(
    frame: pd.DataFrame,
    layout: Layout,
    policy: Policy | None = None,
    *,
    sums: bool = False,
    by: Centering = "global",
) -> TableReport:
    """Report on a party's series as :func:`describe` does on rows.

    The report covers the steps that have p steps before them: one row of the lagged design each.
    So the agreement's mean, variance and number of rows are those of the rows of the training,
    whichever party holds a series.

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
        steps, whose number (``level_rows``) leaves the party too.

    Returns
    -------
    TableReport
        With ``rows = sum_m (T_m - p)`` over the series that are long enough; a note says how many
        are not.

    Raises
    ------
    DataError
        What :func:`~flwr_causal.data.series.series.find_series` and
        :func:`~flwr_causal.data.series.series.long_enough` raise.
    ConfigError
        As :func:`centered_rows`.
    """
    series, warning = long_enough(find_series(frame, layout, policy), layout.order)
    p = layout.order
    variables = value_columns(frame, layout)
    rows = np.concatenate([one.rows[p:] for one in series])
    # Incomplete rows are cut away already: only text can still have missing values.
    report = describe(variables.iloc[rows], policy, sums=sums)
    if warning:
        report = replace(report, notes=(warning,))
    if by == "global":
        return report
    levels = np.vstack(
        [
            one.values[p:][~perturbed_rows(one, p)] if by == "phase" else one.values[p:]
            for one in series
        ]
    )
    # Without a single unperturbed step the level has no rows behind it, and no weight.
    mean = _mean(levels) if len(levels) else np.zeros(levels.shape[1])
    rest = (levels - mean).sum(axis=0)
    centered = np.vstack(centered_rows(series, p, mean, by))
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
    level_rows = len(levels) if by == "phase" else None
    return replace(report, columns=tuple(columns), level_rows=level_rows)


def _mean(values: FloatArray) -> FloatArray:
    """Return the means (d,); that of equal numbers is that number, which rounding may miss."""
    same = (values == values[0]).all(axis=0)
    return np.asarray(np.where(same, values[0], values.mean(axis=0)))

"""Centring of time series, and a party's report on its series."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.linear.levels import Levels, unit_products
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.data.check.columns import all_columns, kind_of
from flwr_causal.data.check.party_table import describe
from flwr_causal.data.check.report import NUMBERS
from flwr_causal.data.series.series import find_series, long_enough, time_step, value_columns
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.series.series import Series, SeriesLayout


#: Values of ``center`` that subtract the means of units of their own, with the name of such a unit.
OWN_LEVELS = {"party": "party", "series": "series"}
#: Centring by one mean of all parties, by each series' mean, or by phase: see `centered_rows`.
Centering = Literal["global", "series", "phase"]


def require_varying(flat: Sequence[str], unit: str) -> None:
    """Raise a DataError if there are columns that vary between units only.

    Parameters
    ----------
    flat : sequence of str
        These columns.
    unit : str
        The name of a unit, see :data:`OWN_LEVELS`.
    """
    if flat:
        raise DataError(
            f"column {flat[0]!r} does not vary within any {unit}, only between them: leave it out, "
            "or use center='global'"
        )


def centered_rows(
    series: Sequence[Series],
    order: int,
    mean: FloatArray | None = None,
    by: Centering = "global",
) -> list[FloatArray]:
    """Return the centred rows [x_t, x_{t-1}, ..., x_{t-p}] of each series.

    Parameters
    ----------
    series : sequence of Series
        Series of d variables each.
    order : int
        p, the number of lags.
    mean : float64 array of shape (d,), optional
        The mean that all parties agreed on; needed unless ``by`` is "series".
    by : {"global", "series", "phase"}, default "global"
        "global" subtracts ``mean``. "series" subtracts the mean of each series. "phase" treats a
        known perturbation as a constant input of unknown size: the rows whose step t is perturbed
        are centred by their own mean, lags included, which amounts to an intercept for these rows;
        ``mean``, which must be the mean of the unperturbed steps, is subtracted from the others.

    Returns
    -------
    list of float64 arrays of shape (T - p, d (1 + p))
        The rows of each series.

    Raises
    ------
    ConfigError
        If ``by`` is unknown, the mean is missing or has the wrong shape, or ``by`` is "phase" and
        the perturbed steps are not known.
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
    layout: SeriesLayout,
    handling: Handling | None = None,
    *,
    sums: bool = False,
    relations: bool = False,
    by: Centering = "global",
    tells_levels: bool = False,
) -> TableReport:
    """Return the report on a party's series; the counterpart of :func:`describe` for series.

    The report covers the steps with p earlier steps, each of which is a row of the lagged design.
    Mean, variance and number of rows of the agreement are therefore those of the training rows.

    Parameters
    ----------
    frame : DataFrame
        The party's table.
    layout : SeriesLayout
        The layout of the series. Columns of series, times and phases are not reported.
    handling : Handling, optional
        Of the run. Default: the default one.
    sums : bool, default False
        Whether the report holds the sums that centring and scaling need; the sums leave the party.
    relations : bool, default False
        As for :func:`describe`, of the steps' own values.
    by : {"global", "series", "phase"}, default "global"
        The centring of the training, see :func:`centered_rows`. Squares are those of the centred
        values, with this party's mean in place of the agreed mean. With "phase" the mean is that of
        the unperturbed steps, whose number (``level_rows``) leaves the party too.
    tells_levels : bool, default False
        Whether the report says if the levels of the series differ.

    Returns
    -------
    TableReport
        ``rows`` is the sum of ``T_m - p`` over the series that are long enough; a note states how
        many are not.

    Raises
    ------
    DataError
        If :func:`~flwr_causal.data.series.series.find_series` or
        :func:`~flwr_causal.data.series.series.long_enough` raises it.
    ConfigError
        If :func:`centered_rows` raises it.
    """
    series, warning = long_enough(find_series(frame, layout, handling), layout.order)
    p = layout.order
    variables = value_columns(frame, layout)
    rows = np.concatenate([one.rows[p:] for one in series])
    # Incomplete rows are dropped already: only columns of texts can have missing values here.
    states = handling is not None and handling.names_states
    report = describe(variables.iloc[rows], handling, sums=sums, states=states, relations=relations)
    if states:
        every = describe(
            variables.iloc[np.concatenate([one.rows for one in series])], handling, states=True
        )
        report = _with_states_of(report, every)
    unlike = tells_levels and _unlike(series, p)
    report = replace(report, step=time_step(frame, layout), unlike_series=unlike)
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
    # Without unperturbed steps the mean is of no rows, and has no weight in the agreement.
    mean = _mean(levels) if len(levels) else np.zeros(levels.shape[1])
    rest = (levels - mean).sum(axis=0)
    centered = np.vstack(centered_rows(series, p, mean, by))
    columns = list(report.columns)
    # The series hold only the columns of numbers, in the order of the table.
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


def _unlike(series: Sequence[Series], order: int) -> bool:
    """Return whether the levels of series differ, given their lags: see `core.linear.levels`."""
    if len(series) < 2 or not series[0].values.shape[1]:
        return False
    rows = [lagged_rows([one.values], order) for one in series]
    rows = [own[np.isfinite(own).all(axis=1)] for own in rows]  # without missing cells
    units = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
    every = np.concatenate(rows)
    if len(every) <= every.shape[1] + len(rows):
        return False
    every = every - every.mean(axis=0)
    names = [str(place) for place in range(every.shape[1])]
    products = unit_products(every, units) / len(every)
    levels = Levels.of(products, len(every), names, series[0].values.shape[1])
    return bool(levels.differ.any())


def _with_states_of(report: TableReport, every: TableReport) -> TableReport:
    """Return a report with the states of all steps: the first p are lags of others."""
    columns = [
        replace(
            own,
            texts=min(of_all.texts, report.rows),
            distinct=min(of_all.distinct, report.rows),
            whole=of_all.whole,
            values=of_all.values,
            repeated=of_all.repeated,
            states=of_all.states,
        )
        for own, of_all in zip(report.columns, every.columns, strict=True)
    ]
    return replace(report, columns=tuple(columns))


def _mean(values: FloatArray) -> FloatArray:
    """Return the means (d,); exactly the common value for a column of equal numbers."""
    same = (values == values[0]).all(axis=0)
    return np.asarray(np.where(same, values[0], values.mean(axis=0)))

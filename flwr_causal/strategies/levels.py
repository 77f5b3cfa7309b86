"""``center="auto"`` of methods that train on rows: levels by what the parties report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.levels import SeenLevels, unlike_spreads
from flwr_causal.core.words import some
from flwr_causal.data.check.checks import some_parties
from flwr_causal.doubts.levels import NAMED, levels_in_words
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport, TotalReport


def take_levels_out(reports: Mapping[str, TableReport], agreement: Agreement) -> None:
    """Raise the error that sets ``center="party"`` where the parties' levels differ by the reports.

    Not where columns vary between parties only.
    """
    names, (counts, means, squares) = agreement.names, _reported(reports, agreement.names)
    between = (counts * (means - agreement.mean) ** 2).sum(axis=0)
    units = (counts > 0).sum(axis=0).astype(np.float64)
    assume_levels(names, counts.sum(axis=0), squares.sum(axis=0), units, between)


def take_series_levels_out(reports: Mapping[str, TableReport]) -> None:
    """Raise the error that sets ``center="series"`` where a party's series differ in level."""
    told = [party for party, report in reports.items() if report.unlike_series]
    if not told:
        return
    error = DataError("The levels of the series differ.")
    error.settings = {"center": "series"}
    error.assumed = (
        f"Assumed center='series': the levels of the series differ, given their lags, at "
        f"{some_parties(told)}. center='global' takes differences between them for effects too.",
    )
    raise error


def draw_parties(reports: Mapping[str, TableReport], names: Sequence[str]) -> None:
    """Raise the error that sets ``resample="parties"`` where spreads differ between parties.

    Replicates of rows alone are then too sure of what few parties decide.
    """
    counts, _, squares = _reported(reports, names)
    variances = np.divide(squares, counts, out=np.zeros_like(squares), where=counts > 0)
    unlike = unlike_spreads(variances, counts)
    if not unlike.any():
        return
    found = [f"{names[j]!r} at {list(reports)[k]}" for k, j in np.argwhere(unlike)]
    error = DataError("The spreads of columns differ between the parties.")
    error.settings = {"resample": "parties"}
    error.assumed = (
        "Assumed resample='parties': the spreads of columns differ between the parties "
        f"({some(found, NAMED)}). Replicates are of some of the parties, and confidences those of "
        "what they have in common; resample='rows' draws rows of all parties.",
    )
    raise error


def _reported(
    reports: Mapping[str, TableReport], names: Sequence[str]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the rows, means and sums of squares that parties report, (K, d) each."""
    found = np.zeros((3, len(reports), len(names)))
    for k, report in enumerate(reports.values()):
        columns = {one.name: one for one in report.columns}
        for j, name in enumerate(names):
            if name in columns and report.has_sums:
                own = columns[name]
                n = report.rows_with(own)
                found[:, k, j] = n, own.mean + own.remainder / max(n, 1), own.squares
    return found[0], found[1], found[2]


def take_total_levels_out(total: TotalReport, num_parties: int) -> None:
    """Raise the same error by a secure sum over all parties."""
    between = np.array(total.between)
    counts = np.array([total.rows_with(one) for one in total.columns], dtype=np.float64)
    within = np.array([one.squares for one in total.columns]) - between
    assume_levels(total.names, counts, within, np.full(len(counts), float(num_parties)), between)


def assume_levels(
    names: Sequence[str],
    counts: FloatArray,
    within: FloatArray,
    units: FloatArray,
    between: FloatArray,
) -> None:
    """Raise the error that sets ``center="party"`` where levels differ, by sums of squares."""
    counts = np.maximum(counts, 1.0)
    found = SeenLevels.of(counts, np.zeros(len(counts)), within + between, units, between)
    if found.differ.any() and not found.flat.any():
        listed = levels_in_words(names, found.shares, found.differ)
        error = DataError(f"The levels of the parties differ ({listed}).")
        error.settings = {"center": "party"}
        error.assumed = (
            f"Assumed center='party': the levels of the parties differ (in standard deviations: "
            f"{listed}). center='global' takes differences between them for effects too.",
        )
        raise error

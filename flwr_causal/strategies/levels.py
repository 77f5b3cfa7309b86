"""``center="auto"`` of methods that train on rows: levels by the parties' reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.levels import SeenLevels, unlike_spreads
from flwr_causal.core.words import some
from flwr_causal.data.check.agreement import reported_sums
from flwr_causal.data.check.checks import some_parties
from flwr_causal.doubts.tables import NAMED, levels_in_words
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport, TotalReport

# What the other value of ``center`` does.
ABOUT_ONE_MEAN = "center='global' takes differences between them for effects too."


def take_levels_out(reports: Mapping[str, TableReport], agreement: Agreement) -> None:
    """Raise the error that sets ``center="party"`` where the parties' levels differ by the reports.

    Not where columns vary between parties only.
    """
    told = reported_sums(reports, agreement.names)
    means = told.means + told.remainders / np.maximum(told.rows, 1)
    between = (told.rows * (means - agreement.mean) ** 2).sum(axis=0)
    counts, within = told.rows.sum(axis=0), told.squares.sum(axis=0)
    units = (told.rows > 0).sum(axis=0).astype(np.float64)
    assume_levels(agreement.names, counts, within, units, between)


def take_series_levels_out(reports: Mapping[str, TableReport]) -> None:
    """Raise the error that sets ``center="series"`` where a party's series differ in level."""
    told = [party for party, report in reports.items() if report.unlike_series]
    if not told:
        return
    raise _assuming(
        {"center": "series"},
        "The levels of the series differ.",
        "Assumed center='series': the levels of the series differ, given their lags, at "
        f"{some_parties(told)}. {ABOUT_ONE_MEAN}",
    )


def draw_parties(reports: Mapping[str, TableReport], names: Sequence[str]) -> None:
    """Raise the error that sets ``resample="parties"`` where spreads differ between parties.

    Replicates of rows alone are then too sure of what few parties decide.
    """
    told = reported_sums(reports, names)
    unlike = unlike_spreads(told.squares / np.maximum(told.rows, 1), told.rows)
    if not unlike.any():
        return
    found = [f"{names[j]!r} at {list(reports)[k]}" for k, j in np.argwhere(unlike)]
    raise _assuming(
        {"resample": "parties"},
        "The spreads of columns differ between the parties.",
        "Assumed resample='parties': the spreads of columns differ between the parties "
        f"({some(found, NAMED)}). Replicates are of some of the parties, and confidences those of "
        "what they have in common; resample='rows' draws rows of all parties.",
    )


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
        raise _assuming(
            {"center": "party"},
            f"The levels of the parties differ ({listed}).",
            "Assumed center='party': the levels of the parties differ (in standard deviations: "
            f"{listed}). {ABOUT_ONE_MEAN}",
        )


def _assuming(settings: Mapping[str, object], problem: str, warning: str) -> DataError:
    """Return the error of a problem that settings mend where their options are "auto"."""
    error = DataError(problem)
    error.settings, error.assumed = settings, (warning,)
    return error

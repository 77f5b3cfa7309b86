"""``center="auto"`` of methods that train on rows: levels by what the parties report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.levels import SeenLevels
from flwr_causal.doubts.levels import levels_in_words
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
    names, held = agreement.names, [{c.name: c for c in one.columns} for one in reports.values()]
    shape = (len(held), len(names))
    counts, means, squares = (np.zeros(shape) for _ in range(3))
    for k, (report, columns) in enumerate(zip(reports.values(), held, strict=True)):
        for j, name in enumerate(names):
            if name in columns and report.has_sums:
                own = columns[name]
                counts[k, j] = n = report.rows_with(own)
                means[k, j] = own.mean + own.remainder / max(n, 1)
                squares[k, j] = own.squares
    between = (counts * (means - agreement.mean) ** 2).sum(axis=0)
    units = (counts > 0).sum(axis=0).astype(np.float64)
    assume_levels(names, counts.sum(axis=0), squares.sum(axis=0), units, between)


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

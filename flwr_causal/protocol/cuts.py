"""The exchange in which parties agree on cut points of numeric columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.contract import ReplyContext


def _decreasing(arrays: Arrays, known: ReplyContext) -> str:
    """Return whether fewer rows lie below a higher threshold."""
    order = np.argsort(known.sent["thresholds"], axis=1)
    counts = np.take_along_axis(arrays["counts"].astype(np.int64), order, axis=1)
    return "fewer rows lie below a higher threshold" if (np.diff(counts) < 0).any() else ""


CUTS = Exchange(
    "cuts",
    "cut points that divide columns into equally full intervals, by narrowing brackets",
    sends=(
        # Exact, so that parties and server compare with the same numbers.
        Sent("thresholds", "numbers to compare with", ("columns", "thresholds"), exact=True),
    ),
    returns=(
        Disclosure(
            "counts",
            "number of the party's rows at or below each threshold",
            ("columns", "thresholds"),
            "count",
            "sum",
            cumulative=True,
        ),
    ),
    contradiction=_decreasing,
    same_parties=True,
    when="before the training, if numeric columns are cut into intervals",
)

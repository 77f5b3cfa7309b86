"""The exchange in which parties agree on the cut points of columns of numbers."""

from __future__ import annotations

from flwr_causal.protocol.exchange import Disclosure, Exchange, Sent

CUTS = Exchange(
    "cuts",
    "cut points that divide columns into equally full intervals, by narrowing brackets",
    sends=(
        # The parties must compare with the very numbers that the server works with.
        Sent("thresholds", "numbers to compare with", ("columns", "thresholds"), exact=True),
    ),
    returns=(
        Disclosure(
            "counts",
            "how many of the party's rows lie at or below each threshold",
            ("columns", "thresholds"),
            "count",
            "sum",
        ),
    ),
    when="before the training, where columns of numbers are cut into intervals",
)

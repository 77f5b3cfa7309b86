"""The exchange that finds the rows which parties have in common, by hashes of ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange
from flwr_causal.contract.when import DIFFERENT, POOLED, When

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.contract import ReplyContext


def _repeated(arrays: Arrays, known: ReplyContext) -> str:
    """Return a complaint if rows have the same hash, else ""."""
    hashes = arrays.get("hashes")
    if hashes is None:
        return ""
    different = len(np.unique(hashes.astype(np.uint8), axis=0))
    if different == len(hashes):
        return ""
    return (
        f"only {different} of the hashes of {len(hashes)} ids differ: rows are aligned by ids, one "
        "row each"
    )


ALIGN = Exchange(
    "align",
    "which rows all parties have",
    returns=(
        Disclosure(
            "hashes",
            "keyed hashes of the ids, under a secret that the server does not know; with lags one "
            "hash of the ids of all steps of a row",
            ("n", 16),
            "bytes",
            rows="each row of the party",
            optional=True,
            dtype="uint8",
        ),
    ),
    timing="parties have ids and a secret",
    # In fedpc also to weigh combinations of clusters, and to measure how columns depend.
    when=DIFFERENT
    | When(weights=("auto", "em"), training=("auto", "sums", "one-pass"), trained="") & ~POOLED,
    weight="one",
    same_parties=True,
    open=True,
    contradiction=_repeated,
)

"""Exchanges of LiNGAM (Shimizu et al. 2006): second moments, then means of bounded functions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.protocol.contract import Contract
from flwr_causal.protocol.options import SeriesPartyOptions
from flwr_causal.protocol.second_moments import num_columns
from flwr_causal.sources.sums import SUMS

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.contract import ReplyContext
    from flwr_causal.protocol.setup import Setup

# The largest value of u exp(-u^2 / 2), and what rounding may add.
LARGEST_SKEW = float(np.exp(-0.5)) + 1e-5


def impossible_means(arrays: Arrays, known: ReplyContext) -> str:
    """Return whether ``skew`` holds values that no mean of the function has.

    Parameters
    ----------
    arrays : dict
        ``skew`` of shape (q,).
    known : ReplyContext

    Returns
    -------
    str
        What is wrong, in words; "" if nothing is.
    """
    largest = float(np.abs(arrays["skew"]).max(initial=0.0))
    if largest <= LARGEST_SKEW:
        return ""
    return f"'skew' reaches {largest:.3g}, but u exp(-u^2 / 2) is at most {LARGEST_SKEW:.3g}"


RESIDUALS = Exchange(
    "residuals",
    "how far the residuals of some regressions are from Gaussian",
    sends=(
        Sent(
            "directions",
            "the combinations of 1 and the columns that are the standardised residuals u",
            ("q", "s"),
        ),
    ),
    returns=(
        Disclosure(
            "tails",
            "mean of log cosh u of each residual over the party's rows",
            ("q",),
            "non-negative",
            "mean",
            # The mean square of u is 1, and log cosh u is at most |u|.
            bound=lambda setup: 2.0,
        ),
        Disclosure(
            "skew",
            "mean of u exp(-u^2 / 2) of each residual over the party's rows",
            ("q",),
            combine="mean",
            bound=lambda setup: LARGEST_SKEW,
        ),
    ),
    timing="until no move of a variable in the causal order improves the score",
    same_parties=True,
    contradiction=impossible_means,
)


def dimensions(setup: Setup) -> dict[str, int]:
    """Return s, the number of columns of the rows [1, z]; they are one set."""
    return {"s": 1 + num_columns(setup), "folds": 1}


CONTRACT = Contract(
    "lingam",
    (replace(SUMS, sends=()), RESIDUALS),
    dimensions,
    ("sums", "relations", "series"),
    options=SeriesPartyOptions,
)

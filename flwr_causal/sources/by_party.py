"""Sums of each party by itself, or of each group that adds up securely: to compare parties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.contract.answers import answers
from flwr_causal.contract.exchange import Disclosure, Exchange
from flwr_causal.errors import FederationError
from flwr_causal.protocol.second_moments import SCORES, impossible_products, largest_sums
from flwr_causal.runtime.algorithm import Ask
from flwr_causal.sources.products import Products

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.contract.answers import Asked
    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.core.blocks.design import Design
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.sources.rows import DesignRows

#: Fewest parties, or groups, between which mechanisms can differ.
LEAST_PARTS = 2

PARTS = Exchange(
    "sums by party",
    "the same of each party: the server looks for how the party differs from the others",
    sends=(SCORES,),
    returns=(
        Disclosure(
            "moments",
            "X_k^T X_k / n_k of the rows [1, z], see the exchange 'sums'; of groups that add up "
            "securely the group's",
            ("s", "s"),
            "second-moments",
            "mean",
            bound=largest_sums,
        ),
    ),
    timing="in place of 'sums'",
    most=1,
    single_means=True,
    same_parties=True,
    contradiction=impossible_products,
)


def products_by_party(agreement: Agreement, design: Design) -> Generator[Step, Any, Products]:
    """Ask for the products of each party's rows; those of all rows are their sum.

    Raises
    ------
    FederationError
        If there are those of one party, or group of parties, only.
    """
    replies = yield Ask(PARTS)
    parts = sums_by_party(replies, agreement)
    total = np.sum([*parts.values()], axis=0)
    agreement = agreement.with_rows(replies.rows)
    return Products(agreement, design, total[None] / total[0, 0], parts=parts)


def sums_by_party(replies: Replies, agreement: Agreement) -> dict[str, FloatArray]:
    """Return the sums of products of each party, or group, from mean ``moments``.

    Raises
    ------
    FederationError
        If there are the moments of one party, or group of parties, only.
    """
    means = replies.of("moments")
    if len(means) < LEAST_PARTS:
        raise FederationError(
            "unknown_targets=True and local_graphs=True compare parties, and there are the moments "
            f"of {', '.join(means)} only: start the run again once others can answer, or leave the "
            "option out."
        )

    def rows(name: str) -> int:
        # Of a group the rows of those parties that are in its sum.
        return replies.sums[name].rows if name in replies.sums else agreement.rows[name]

    return {name: rows(name) * own for name, own in means.items()}


@answers(PARTS)
def products_of_party(rows: DesignRows, asked: Asked) -> Arrays:
    """Return the mean products of a party's rows [1, z]."""
    return {"moments": rows.mean_products(rows.sum_rows())}

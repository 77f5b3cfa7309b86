"""Moments (Ng & Zhang 2022, section 4): the party's side.

The answers of sources of products are in their files in ``sources/``; those of joined columns
are in ``clients.columns``.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.clients.columns import ColumnsClient
from flwr_causal.clients.design import DesignClient
from flwr_causal.contract.answers import Asked, answers
from flwr_causal.core.blocks.logistic import expected_sums_of_rows, sums_of_rows
from flwr_causal.data.series.levels import centered_rows
from flwr_causal.errors import FederationError
from flwr_causal.protocol.moments import CONTRACT, REGRESSIONS, regressed
from flwr_causal.protocol.release import sharing
from flwr_causal.protocol.second_moments import sent_design
from flwr_causal.sources import by_party, completed, normal_scores, released, sums

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray
    from flwr_causal.data.check.handling import Handling
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.moments import MomentsPartyOptions


class MomentsClient(ColumnsClient, DesignClient):
    """Sends products of its rows, by the source that the options choose.

    **What leaves the party**: :mod:`flwr_causal.protocol.moments` declares it.
    """

    contract: ClassVar[Contract] = CONTRACT
    options: MomentsPartyOptions

    counts_of_rows = normal_scores.counts_of_rows
    sums_of_products = sums.sums_of_products
    products_of_party = by_party.products_of_party
    sums_of_seen = completed.sums_of_seen
    own_products = completed.own_products
    expected_products = completed.expected_products
    octaves, release = released.octaves, released.release

    def describe(self, handling: Handling) -> TableReport:
        """Report the table, and whether it has ids."""
        return self.with_ids(super().describe(handling))

    @property
    def sharing(self) -> int:
        """Among how many parties the noise of the release is shared."""
        return sharing(self.setup)

    def _product_columns(self, asked: Asked) -> tuple[Sequence[str], BoolArray]:
        design, held = sent_design(self.setup), super()._product_columns(asked)[1]
        return design.columns, np.repeat(np.tile(held, 1 + self.order), design.widths)

    def _product_values(self, asked: Asked) -> FloatArray:
        if not self.setup.states:
            return super()._product_values(asked)
        held = self._product_columns(asked)[1]
        rows = np.concatenate([*self.sum_rows()])[asked["rows"]]
        return np.where(held, rows, 0.0)

    def _centered_rows(self) -> FloatArray:
        if self.order == 0:
            return super()._centered_rows()
        mean = self._held_values(self.setup.mean)
        return np.concatenate(centered_rows(self.series(), self.order, mean, self.centering))

    @answers(REGRESSIONS)
    def regression_sums(self, asked: Asked) -> Arrays:
        """Return the sums of a Newton step of the regressions of categories on their causes.

        Raises
        ------
        FederationError
            If the coefficients are those of others.
        """
        families, weights = regressed(asked.values, self.setup), asked["weights"]
        if len(weights) != sum(family.num_weights for family in families):
            raise FederationError("The coefficients that the server sent are of other causes.")
        incomplete = self.setup.handling.missing_values == "em"
        estimate = completed.estimate_of(asked).of_set(0) if incomplete else None
        parts = [
            sums_of_rows(families, rows, weights, acted)
            if estimate is None
            else expected_sums_of_rows(families, rows, weights, estimate)
            for rows, acted in self.rows_with_targets()
        ]
        logs, gradient, information = (
            reduce(np.add, part) / self.num_rows for part in zip(*parts, strict=True)
        )
        return {"log-likelihoods": logs, "gradient": gradient, "information": information}

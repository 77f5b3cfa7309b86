"""LiNGAM (Shimizu et al. 2006): the party's side."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.clients.linear import SeriesClient
from flwr_causal.contract.answers import Asked, answers
from flwr_causal.core.linear.negentropy import mean_functions
from flwr_causal.protocol.lingam import CONTRACT, RESIDUALS
from flwr_causal.sources import sums

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.contract import Contract


class LingamClient(SeriesClient):
    """Sends second moments of the party's rows, then means of functions of residuals.

    **What leaves the party**: :mod:`flwr_causal.protocol.lingam` declares it.
    """

    contract: ClassVar[Contract] = CONTRACT

    sums_of_products = sums.sums_of_products

    @answers(RESIDUALS)
    def functions_of_residuals(self, asked: Asked) -> Arrays:
        """Return the means of both functions of every residual."""
        directions = asked["directions"]
        rows = (np.column_stack([np.ones(len(own)), own]) for own in self.sum_rows())
        parts = (len(own) * mean_functions(own, directions) for own in rows)
        tails, skew = (reduce(np.add, parts) / self.num_rows).T
        return {"tails": tails, "skew": skew}

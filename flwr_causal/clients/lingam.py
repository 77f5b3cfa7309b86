"""LiNGAM (Shimizu et al. 2006): the party's side."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.clients.base import Asked, answers
from flwr_causal.clients.linear import SeriesClient
from flwr_causal.core.linear.negentropy import mean_functions
from flwr_causal.protocol.lingam import CONTRACT, RESIDUALS, SUMS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.protocol.contract import Contract


class LingamClient(SeriesClient):
    """Sends second moments of the party's rows, then means of functions of residuals.

    **What leaves the party**: :mod:`flwr_causal.protocol.lingam` declares it.
    """

    contract: ClassVar[Contract] = CONTRACT

    def _pieces(self) -> Iterator[FloatArray]:
        """Yield the party's centred and scaled rows, with their lags and levels for series."""
        if self.order:
            yield self.leveled_rows(self.series(), self.order)
        else:
            yield from self.design_pieces()

    @answers(SUMS)
    def second_moments(self, asked: Asked) -> Arrays:
        """Return the second moments of the rows."""
        products = reduce(np.add, (rows.T @ rows for rows in self._pieces()))
        return {"moments": products[None] / self.num_rows}

    @answers(RESIDUALS)
    def functions_of_residuals(self, asked: Asked) -> Arrays:
        """Return the means of both functions of every residual."""
        directions = asked["directions"]
        parts = (len(rows) * mean_functions(rows, directions) for rows in self._pieces())
        tails, skew = (reduce(np.add, parts) / self.num_rows).T
        return {"tails": tails, "skew": skew}

"""LiNGAM (Shimizu et al. 2006): the party's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from flwr_causal.clients.base import Asked, answers
from flwr_causal.clients.linear import SeriesClient
from flwr_causal.core.linear.negentropy import mean_functions
from flwr_causal.protocol.lingam import CONTRACT, RESIDUALS, SUMS

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.protocol.exchange import Contract


class LingamClient(SeriesClient):
    """Sends second moments of the party's rows, then means of functions of residuals.

    **What leaves the party**: :mod:`flwr_causal.protocol.lingam` declares it.
    """

    contract: ClassVar[Contract] = CONTRACT

    def count_rows(self) -> int:
        """Count the rows of the design; for series, the steps with all their lags."""
        return len(self._rows)

    @property
    def _rows(self) -> FloatArray:
        """The party's centred and scaled rows, prepared once a process."""
        rows: FloatArray = self.once("rows", self._prepared)
        return rows

    def _prepared(self) -> FloatArray:
        return self.leveled_rows(self.series(), self.order) if self.order else self.design()

    @answers(SUMS)
    def second_moments(self, asked: Asked) -> Arrays:
        """Return the second moments of the rows."""
        rows = self._rows
        return {"moments": (rows.T @ rows / len(rows))[None]}

    @answers(RESIDUALS)
    def functions_of_residuals(self, asked: Asked) -> Arrays:
        """Return the means of both functions of every residual."""
        tails, skew = mean_functions(self._rows, asked["directions"]).T
        return {"tails": tails, "skew": skew}

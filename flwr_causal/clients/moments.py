"""Moments (Ng & Zhang 2022, section 4): the party's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.clients.series import SeriesClient
from flwr_causal.core.folds import stretches
from flwr_causal.data.levels import perturbed_rows
from flwr_causal.wire import Disclosure, Scalar

if TYPE_CHECKING:
    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]


class MomentsClient(SeriesClient):
    """Sends one array: the second moments of its centred and scaled rows.

    **What leaves the party**: ``moments``, X_k^T X_k / n_k, as one d x d array (two where rows
    are held out to choose the sparsity: one for each fold), with the weight n_k. Of time series
    the rows are [1, g, x_t, x_{t-1}, ..., x_{t-p}], where g is 1 but for rows under a perturbation
    that have lost a level of their own, and the array (2 + m) x (2 + m) with m = d (1 + p) (five
    where something is chosen by held-out error).
    """

    discloses: ClassVar[tuple[Disclosure, ...]] = (
        Disclosure("moments", "X_k^T X_k / n_k of each fold of the rows", ("*", "s", "s")),
    )

    @property
    def dimensions(self) -> dict[str, int]:
        """d, m for the columns of the design, and s for those of the sums."""
        sizes = super().dimensions
        return {**sizes, "s": sizes["m"] + 2 if self.order else sizes["d"]}

    def fit(
        self, parameters: list[NDArray[Any]], config: dict[str, Scalar]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        """Return the second moments, weighted by the number of rows."""
        folds = self._steps() if self.order else self.folds(self.design())
        total = sum(map(len, folds))
        return [np.stack([fold.T @ fold / total for fold in folds])], total, {}

    def _steps(self) -> list[FloatArray]:
        """Return the rows [1, g, z] of the series by fold; g marks those that share one level."""
        series, setup = self.series(), self.setup
        rows = np.concatenate(self.designs(series))
        level = np.ones(len(rows))
        if setup.options["center"] == "phase":
            level = 1.0 - np.concatenate([perturbed_rows(one, self.order) for one in series])
        rows = np.column_stack([np.ones(len(rows)), level, rows])
        count = int(setup.options["folds"])
        if count == 1:
            return [rows]
        fold = stretches([len(one.values) - self.order for one in series], count)
        return [rows[fold == k] for k in range(count)]

"""Moments (Ng & Zhang 2022, section 4): the party's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.clients.linear import LinearClient
from flwr_causal.wire import Disclosure, Scalar

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MomentsClient(LinearClient):
    """Sends one array: the second moments of its centred and scaled rows.

    **What leaves the party**: ``moments``, X_k^T X_k / n_k, as one d x d array (two where rows
    are held out to choose the sparsity: one for each fold), with the weight n_k.
    """

    discloses: ClassVar[tuple[Disclosure, ...]] = (
        Disclosure("moments", "X_k^T X_k / n_k of each fold of the rows", ("*", "d", "d")),
    )

    def fit(
        self, parameters: list[NDArray[Any]], config: dict[str, Scalar]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        """Return the second moments, weighted by the number of rows."""
        design = self.design()
        seconds = [fold.T @ fold / len(design) for fold in self.folds(design)]
        return [np.stack(seconds)], len(design), {}

"""Gains of the Gaussian BIC, from second moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.moments import Moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.discrete.families import Families


class MomentGains:
    """Gains of the Gaussian BIC from second moments.

    ``s(y | S) = -n/2 log var(y | S) - |S| log(n) / 2``, so that the gain of x is
    ``-n/2 log(1 - r^2) - log(n) / 2`` with r the partial correlation of x and y given S.

    Parameters
    ----------
    moments : Moments, or sequence of Moments
        Number of rows and covariances of all d variables. A sequence has the moments of the rows
        that inform about each variable's mechanism, one entry for each variable.
    """

    def __init__(self, moments: Moments | Sequence[Moments]) -> None:
        single = isinstance(moments, Moments)
        each = [moments] * moments.d if isinstance(moments, Moments) else list(moments)
        known: dict[int, FloatArray] = {}
        for own in each[:1] if single else each:
            if id(own) not in known:
                known[id(own)] = _correlations(own)
        self._n = [own.n for own in each]
        self._correlations = [known[id(own)] for own in each]

    def enough(self, num_operators: int) -> bool:
        """Return False: every gain can be computed here."""
        return False

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Compute the wanted gains of some rows of ``families``."""
        for row, mask in zip(rows, wanted, strict=True):
            y, size = int(families.owners[row]), int(families.sizes[row])
            gains = self._gains(y, families.members[row, :size])
            families.gains[row, mask] = gains[mask]

    def _gains(self, y: int, given: IntArray) -> FloatArray:
        """Return the gain of every variable as a further parent of y, shape (d,)."""
        n, C = self._n[y], self._correlations[y]
        if len(given):
            # Parents may be linearly dependent, which solve would refuse.
            coefficients = np.linalg.lstsq(C[np.ix_(given, given)], C[given], rcond=None)[0]
            with_y = C[y] - C[y, given] @ coefficients
            variances = np.diag(C) - np.einsum("sj,sj->j", C[given], coefficients)
        else:
            with_y, variances = C[y], np.diag(C).copy()
        # A variable that S determines gains nothing.
        known = variances <= 1e-10 * np.diag(C)
        variances = np.where(known, 1.0, variances)
        squared = np.where(known | known[y], 0.0, with_y**2 / (variances * variances[y]))
        # The gain of a variable that determines y is bounded.
        squared = np.clip(squared, 0.0, 1.0 - 1e-12)
        return np.asarray(-0.5 * n * np.log1p(-squared) - 0.5 * np.log(n))


def _correlations(moments: Moments) -> FloatArray:
    """Return correlations, (d, d), so that the test for linear dependence has no units."""
    spread = np.sqrt(np.diag(moments.second))
    spread[spread == 0.0] = 1.0
    return np.asarray(moments.second / np.outer(spread, spread))

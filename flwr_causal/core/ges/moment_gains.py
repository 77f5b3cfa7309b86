"""Gains of the Gaussian BIC, from second moments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.compiled import compiled_in_place
from flwr_causal.core.linear.gaussian_scores import COLLINEAR
from flwr_causal.core.linear.moments import SampleMoments, distinct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.discrete.families import Families


class MomentGains:
    """Gains of the Gaussian BIC from second moments.

    ``s(y | S) = -n_y/2 log var(y | S) - |S| log(n) / 2``, so that the gain of x is
    ``-n_y/2 log(1 - r^2) - log(n) / 2`` with r the partial correlation of x and y given S, n_y the
    number of rows that inform about y's mechanism, and n their mean over the variables; log(n) / 2
    is the cost of an edge unless another one is given.

    Parameters
    ----------
    moments : SampleMoments, or sequence of SampleMoments
        Number of rows and covariances of all d variables. A sequence has the moments of the rows
        that inform about each variable's mechanism, one entry for each variable.
    cost : float, optional
        Of an edge. Default: that of the BIC, ``log(n) / 2``.
    """

    def __init__(
        self, moments: SampleMoments | Sequence[SampleMoments], cost: float | None = None
    ) -> None:
        each = [moments] * moments.d if isinstance(moments, SampleMoments) else list(moments)
        parts, self._which = distinct(each)
        # Correlations, so that the test for linear dependence has no units.
        self._correlations = np.array([part.correlations for part in parts])
        self._n = np.array([own.n for own in each], dtype=np.float64)
        self._cost = 0.5 * math.log(self._n.mean()) if cost is None else cost

    def must_stop(self) -> bool:
        """Return False: every gain can be computed here."""
        return False

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Compute the wanted gains of some rows of ``families``."""
        size = int(families.sizes[rows].max(initial=0))
        work = np.empty((size, len(self._n)))
        _fill(families, rows, wanted, self._correlations, self._which, self._n, self._cost, work)


@compiled_in_place
def _fill(
    families: Families,
    rows: IntArray,
    wanted: BoolArray,
    correlations: FloatArray,
    which: IntArray,
    counts: FloatArray,
    cost: float,
    work: FloatArray,
) -> None:
    """Write the wanted gains.

    Parameters
    ----------
    correlations : ndarray of shape (p, d, d)
    which : ndarray of int64, shape (d,)
        The correlations of each variable's rows.
    counts : ndarray of shape (d,)
        The number of these rows.
    cost : float
        Of an edge.
    work : ndarray of shape (most parents, d)
        Scratch space: rows of the inverse Cholesky factor of the parents' correlations, multiplied
        by the parents' correlations with all variables.
    """
    d = len(which)
    for k in range(len(rows)):
        row = rows[k]
        y, size, members = families.owners[row], families.sizes[row], families.members[row]
        C, n = correlations[which[y]], counts[y]
        for s in range(size):
            parent = members[s]
            pivot = C[parent, parent]
            for r in range(s):
                pivot -= work[r, parent] * work[r, parent]
            # A parent that the others determine adds nothing to them.
            scale = 1.0 / math.sqrt(pivot) if pivot > COLLINEAR else 0.0
            for x in range(d):
                value = C[parent, x]
                for r in range(s):
                    value -= work[r, parent] * work[r, x]
                work[s, x] = scale * value
        own = C[y, y]
        for s in range(size):
            own -= work[s, y] * work[s, y]
        for x in range(d):
            if not wanted[k, x]:
                continue
            variance, with_y = C[x, x], C[y, x]
            for s in range(size):
                variance -= work[s, x] * work[s, x]
                with_y -= work[s, y] * work[s, x]
            squared = 0.0
            # A variable that the parents determine gains nothing, and neither does any for y then.
            if variance > COLLINEAR and own > COLLINEAR:
                # The gain of a variable that determines y is bounded.
                squared = min(max(with_y * with_y / (variance * own), 0.0), 1.0 - 1e-12)
            families.gains[row, x] = -0.5 * n * math.log1p(-squared) - cost

"""Compiled coordinate descent for the lasso on second moments.

Reference
---------
Friedman, Hastie, Tibshirani: Regularization paths for generalized linear models via coordinate
descent, Journal of Statistical Software 33 (2010), sections 2.2 (covariance updates) and 2.6.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.compiled import compiled

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray


@compiled
def descend(
    gram: FloatArray,
    products: FloatArray,
    penalties: FloatArray,
    weights: FloatArray,
    tolerances: FloatArray,
    max_sweeps: int,
) -> int:
    """Minimise ``1/2 a^T G a - g^T a + sum_i penalty_i |a_i|`` for every target, in place.

    A sweep over all causes is followed by sweeps over the causes of nonzero weight until these no
    longer change. The descent ends with a sweep over all causes that changes no weight by more than
    the tolerance.

    Parameters
    ----------
    gram
        ``(q, q)`` second moments G of the causes.
    products
        ``(d, q)`` second moments g of each target with the causes.
    penalties
        ``(d, q)`` penalties of the absolute weights; infinite for edges that are not allowed.
    weights
        ``(d, q)`` start, overwritten by the solution.
    tolerances
        ``(d,)`` largest change ``|delta_i| sqrt(G_ii)`` at the end, in the targets' units.
    max_sweeps
        Largest number of sweeps of one target.

    Returns
    -------
    The number of targets that did not converge in ``max_sweeps`` sweeps.
    """
    num_targets, num_causes = products.shape
    moving = 0
    for j in range(num_targets):
        a = weights[j]
        # Covariance of the residual with the causes, the negative gradient of the loss.
        left = np.empty(num_causes)
        everything = True
        done = False
        for _ in range(max_sweeps):
            if everything:
                # Computed anew, so that the rounding errors of many updates do not add up.
                left[:] = products[j]
                for i in range(num_causes):
                    if a[i] != 0.0:
                        left -= gram[i] * a[i]
            largest = 0.0
            for i in range(num_causes):
                if not everything and a[i] == 0.0:
                    continue
                variance = gram[i, i]
                if variance <= 0.0:
                    continue
                free = left[i] + variance * a[i]
                size = max(abs(free) - penalties[j, i], 0.0) / variance
                change = math.copysign(size, free) - a[i]
                if change != 0.0:
                    a[i] += change
                    left -= gram[i] * change
                    largest = max(largest, abs(change) * math.sqrt(variance))
            still = largest <= tolerances[j]
            done = still and everything
            if done:
                break
            everything = still
        if not done:
            moving += 1
    return moving

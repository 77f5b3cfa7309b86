"""The most probable numbers when it is their transforms that are normal or t distributed.

The density of a number is that of its transform times the transform's slope, so its peak is not
where the transform has its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.leaves import yeo_johnson

if TYPE_CHECKING:
    from flwr_causal.core.circuits.leaves.elliptical_law import Conditional, FloatArray

IntArray = NDArray[np.int64]

#: Steps of the ascent at most, and the change (in standard deviations) below which a row rests.
MAX_STEPS = 200
TOLERANCE = 1e-9


def densest(given: Conditional, powers: FloatArray, reach: FloatArray) -> FloatArray:
    """Return the transforms of numbers at a local maximum of their density.

    Parameters
    ----------
    given : Conditional
        Of the m transformed numbers, in n rows.
    powers, reach : ndarray of float64, shape (m,)

    Returns
    -------
    ndarray of float64, shape (n, m)
        Reached from the conditional means by steps that only go up: never less probable than they.
    """
    m = len(powers)
    precision = np.linalg.inv(given.matrix)
    spreads = given.spreads
    sds = np.sqrt(np.diag(given.matrix))

    def height(point: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return log density without constants, the squared distance, and the slope's gradient."""
        away = point - given.means[rows]
        squares = np.einsum("ij,jk,ik->i", away, precision, away) / spreads[rows]
        original = yeo_johnson.inverse(point, powers, reach)
        log_slopes = yeo_johnson.transform(original, powers, reach)[1]
        logs = yeo_johnson.signed_log(original)
        side = np.where(logs < 0, 2.0 - powers, powers)
        gradient = (powers - 1.0) * np.exp(-side * np.abs(logs))
        gradient[np.abs(original) >= reach] = 0.0  # the slope of a line is constant
        if math.isinf(given.dof):
            return log_slopes.sum(axis=1) - 0.5 * squares, squares, gradient
        fall = 0.5 * (given.dof + m) * np.log1p(squares / (given.dof - 2))
        return log_slopes.sum(axis=1) - fall, squares, gradient

    point = np.array(given.means)
    rows: IntArray = np.arange(len(point), dtype=np.int64)
    sizes = np.ones(len(point))
    for _ in range(MAX_STEPS):
        if len(rows) == 0:
            break
        here, squares, gradient = height(point[rows], rows)
        # The gradient in the metric of the covariance: of a normal distribution with a constant
        # slope a full step goes straight to the peak.
        factor = np.ones(len(rows))
        if not math.isinf(given.dof):
            factor = (given.dof - 2 + squares) / (given.dof + m)
        pull = (factor * spreads[rows])[:, None] * (gradient @ given.matrix)
        step = sizes[rows, None] * (given.means[rows] - point[rows] + pull)
        there = height(point[rows] + step, rows)[0]
        better = there > here
        point[rows[better]] += step[better]
        sizes[rows] *= np.where(better, 1.5, 0.4)
        np.minimum(sizes, 1.0, out=sizes)
        moving = (np.abs(step) > TOLERANCE * sds * np.sqrt(spreads[rows])[:, None]).any(axis=1)
        rows = rows[moving]
    return point

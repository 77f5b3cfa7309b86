"""Powers of the Yeo-Johnson transform chosen from sums over rows, and the coordinates they make.

A column is given the power under which it is most likely to be Gaussian within each class. For a
grid of powers that takes the sums of the transformed column and of its squares; of the slopes' logs
one sum for all powers, since they are linear in the power.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.leaves.yeo_johnson import of_signed_log, signed_log

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import FloatArray, IntArray

# A power that squeezes a column so that its deviation is below this share of its values would
# cost the density most of its digits; such powers are not chosen.
LEAST_RELATIVE_SLOPE = 1e-9
# Transformed values beyond this are cut off: sums of their squares stay finite, as what is sent has
# to be, and a power with such a value is not chosen.
LARGEST = 1e140
# Rows transformed at once with all powers.
CHUNK = 4096


class Coordinates(NamedTuple):
    """How numbers are transformed before second moments are taken of them, each of shape (d,).

    Parameters
    ----------
    scale : ndarray of float
        Standard deviation of a column; ``u = x / scale``.
    middle : ndarray of float
        Mean of u, about which the power acts.
    reach : ndarray of float
        ``|u|`` beyond which the transform goes on as a straight line.
    powers : ndarray of float
        Of Yeo and Johnson; 1 leaves a column as it is.
    center, unit : ndarray of float
        Mean and deviation of the relative transform.
    """

    scale: FloatArray
    middle: FloatArray
    reach: FloatArray
    powers: FloatArray
    center: FloatArray
    unit: FloatArray

    def apply(self, numbers: FloatArray) -> FloatArray:
        """Transform numbers (n, d): mean 0 and deviation 1 over all parties' rows."""
        t = relative_transform(numbers / self.scale, self.middle, self.powers, self.reach)
        return np.asarray((t - self.center) / self.unit)


def relative_transform(
    u: ArrayLike, middle: ArrayLike, power: ArrayLike, reach: ArrayLike
) -> FloatArray:
    """``(transform(u) - transform(middle)) / slope(middle)`` without cancellation.

    Near the middle this is about ``u - middle`` whatever the power, so sums of it and of its square
    keep their digits where those of the transformed values themselves would lose all.

    Parameters
    ----------
    u, middle, power, reach : array_like
        They broadcast; ``reach`` exceeds ``|middle|``.
    """
    values, center = np.asarray(u, dtype=np.float64), np.asarray(middle, dtype=np.float64)
    powers, limit = np.asarray(power, dtype=np.float64), np.asarray(reach, dtype=np.float64)
    inside = np.clip(values, -limit, limit)
    logs, start = signed_log(inside), signed_log(center)
    # Away from zero, in the direction of the middle: log(1 + |u|) less that of the middle.
    sign = np.where(center < 0, -1.0, 1.0)
    side = np.where(center < 0, 2.0 - powers, powers)
    way = sign * (logs - start)
    flat = np.abs(side) < 1e-12
    grown = np.where(flat, way, np.expm1(side * way) / np.where(flat, 1.0, side))
    same = sign * np.exp(np.abs(start)) * grown
    across = of_signed_log(logs, powers) - of_signed_log(start, powers)
    across = across * np.exp(-(powers - 1.0) * start)
    relative = np.where(sign * logs >= 0, same, across)
    relative = relative + (values - inside) * np.exp((powers - 1.0) * (logs - start))
    return np.where(powers == 1.0, values - center, relative)


def power_sums(
    u: FloatArray, middle: FloatArray, powers: FloatArray, reach: FloatArray
) -> FloatArray:
    """Return sums over rows of the relative transform and of its square, for every power.

    Parameters
    ----------
    u : ndarray of float, shape (n, d)
    middle : ndarray of float, shape (d,)
    powers : ndarray of float, shape (p,)
    reach : ndarray of float, shape (d,)

    Returns
    -------
    ndarray of float, shape (2, d, p)
        Where a power overflows the square is at least that of ``LARGEST``, and
        :func:`choose_powers` passes over the power.
    """
    sums = np.zeros((2, u.shape[1], len(powers)))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(u), CHUNK):
            rows = u[start : start + CHUNK, :, None]
            t = relative_transform(rows, middle[:, None], powers, reach[:, None])
            t = np.clip(np.nan_to_num(t, nan=LARGEST), -LARGEST, LARGEST)
            sums[0] += t.sum(axis=0)
            sums[1] += (t**2).sum(axis=0)
    return sums


def log_sums(u: FloatArray, reach: FloatArray) -> FloatArray:
    """Sum ``sign(u) log(1 + |u|)`` over rows: log slopes, per unit of the power less 1, (d,)."""
    return np.asarray(signed_log(np.clip(u, -reach, reach)).sum(axis=0))


def choose_powers(
    counts: FloatArray,
    logs: FloatArray,
    sums: FloatArray,
    middle: FloatArray,
    powers: FloatArray,
    penalty: float = 0.0,
) -> IntArray:
    """Choose the most likely power of every column.

    Parameters
    ----------
    counts : ndarray of float, shape (C,)
        Rows of each class.
    logs : ndarray of float, shape (C, d)
        :func:`log_sums` of each class.
    sums : ndarray of float, shape (C, 2, d, p)
        :func:`power_sums` of each class.
    middle : ndarray of float, shape (d,)
        The one of the sums.
    powers : ndarray of float, shape (p,)
    penalty : float
        Nats a row that a unit of ``|power - 1|`` must gain: small tables choose extreme powers.

    Returns
    -------
    ndarray of int, shape (d,)
        Index of the power. Variances of the classes are shrunk by one row of the total variance.
    """
    n = counts.sum()
    first, second = sums[:, 0], sums[:, 1]
    each = counts[:, None, None]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        total = second.sum(axis=0) / n - (first.sum(axis=0) / n) ** 2
        scatter = np.maximum(second - first**2 / np.maximum(each, 1.0), 0.0)
        variances = (scatter + total) / (each + 1.0)
        likelihood = -0.5 * (each * np.log(variances)).sum(axis=0)
        # The slope at the middle was divided out of the transformed values.
        start = signed_log(middle)
        likelihood += (powers - 1.0) * (logs.sum(axis=0) - n * start)[:, None]
        likelihood -= penalty * n * np.abs(powers - 1.0)
        size = np.abs(of_signed_log(start[:, None], powers))
        precise = (powers - 1.0) * start[:, None] >= np.log(LEAST_RELATIVE_SLOPE * size)
        bounded = second.sum(axis=0) < LARGEST**2
    usable = np.isfinite(likelihood) & bounded & precise & (total > 0)
    # Where nothing is usable the identity does least harm.
    identity = int(np.abs(powers - 1.0).argmin())
    best = np.where(usable, likelihood, -np.inf).argmax(axis=1)
    return np.where(usable.any(axis=1), best, identity)

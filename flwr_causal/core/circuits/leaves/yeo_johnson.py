"""The transform of Yeo and Johnson (2000), which makes skewed numbers more normal.

With s = sign(u) log(1 + |u|) the transform of u is ``expm1(power s) / power`` for s >= 0 and
``-expm1(-(2 - power) s) / (2 - power)`` for s < 0. For powers below 0 and above 2 its values are
bounded, so that a normal distribution of the transformed number would have mass beyond the bound.
Therefore the transform continues as its tangent where |u| exceeds a ``reach``. It then takes all
values, and every density of the transformed number defines a density of the number.

Arrays broadcast: numbers of shape (n, k) with powers and reaches of shape (k,).

References
----------
Yeo & Johnson: A new family of power transformations, Biometrika 2000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import FloatArray

#: Default of the reach: in units of the scale of a column, larger than nearly all values.
DEFAULT_REACH = 100.0


def signed_log(numbers: ArrayLike) -> FloatArray:
    """Return sign(u) log(1 + |u|)."""
    given = np.asarray(numbers, dtype=np.float64)
    return np.copysign(np.log1p(np.abs(given)), given)


def signed_exp(logs: ArrayLike) -> FloatArray:
    """Return the numbers of signed logarithms."""
    given = np.asarray(logs, dtype=np.float64)
    return np.copysign(np.expm1(np.abs(given)), given)


def of_signed_log(logs: FloatArray, powers: ArrayLike) -> FloatArray:
    """Return the transforms of numbers from their signed logarithms, within the reach."""
    side = np.where(logs < 0, 2.0 - np.asarray(powers), powers)
    scaled = expm1_over(side, np.abs(logs))
    return np.copysign(scaled, logs)


def transform(
    numbers: FloatArray, powers: ArrayLike, reach: ArrayLike = DEFAULT_REACH
) -> tuple[FloatArray, FloatArray]:
    """Return the transformed numbers and the log of the transform's slope at each."""
    inside = np.clip(numbers, -np.asarray(reach), reach)
    logs = signed_log(inside)
    slopes = (np.asarray(powers) - 1.0) * logs
    transformed = of_signed_log(logs, powers)
    beyond = numbers - inside
    if np.any(beyond != 0):
        transformed = transformed + beyond * np.exp(slopes)
    return transformed, slopes


def inverse(
    transformed: FloatArray, powers: ArrayLike, reach: ArrayLike = DEFAULT_REACH
) -> FloatArray:
    """Return the numbers from their transforms."""
    limit = np.log1p(np.asarray(reach, dtype=np.float64))
    lower, upper = of_signed_log(-limit, powers), of_signed_log(limit, powers)
    inside = np.clip(transformed, lower, upper)
    side = np.where(inside < 0, 2.0 - np.asarray(powers), powers)
    logs = np.copysign(_log1p_over(side, np.abs(inside)), inside)
    logs = np.clip(logs, -limit, limit)  # rounding near a bound must not leave the reach
    beyond = transformed - inside
    numbers = signed_exp(logs)
    if np.any(beyond != 0):
        slopes = (np.asarray(powers) - 1.0) * np.where(beyond > 0, limit, -limit)
        numbers = numbers + np.where(beyond != 0, beyond * np.exp(-slopes), 0.0)
    return numbers


def expm1_over(power: FloatArray, logs: FloatArray) -> FloatArray:
    """Return (exp(p a) - 1) / p, which is a for p = 0."""
    flat = np.abs(power) < 1e-12
    safe = np.where(flat, 1.0, power)
    return np.where(flat, logs, np.expm1(safe * logs) / safe)


def _log1p_over(power: FloatArray, values: FloatArray) -> FloatArray:
    """Return log(1 + p t) / p, which is t for p = 0: the inverse of `expm1_over`."""
    flat = np.abs(power) < 1e-12
    safe = np.where(flat, 1.0, power)
    # At the end of the reach 1 + p t may be rounded to 0.
    inner = np.maximum(safe * values, -1.0 + np.finfo(np.float64).tiny)
    with np.errstate(divide="ignore"):
        return np.where(flat, values, np.log1p(inner) / safe)

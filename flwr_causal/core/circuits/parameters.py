"""Parameters of nodes as they are kept: checked, read-only float64."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import FloatArray


#: Given probabilities may miss the sum 1 by this much; they are then divided by their sum.
TOLERANCE = 1e-9
#: Rounding of a sum that is 1. Below it nothing is divided, so that what is read back is the same.
ROUNDING = 1e-14


def numbers(what: str, given: ArrayLike, ndim: int | None = None) -> FloatArray:
    """Return a read-only copy; a ConfigError unless all entries are finite numbers."""
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what} must be numbers ({error})") from error
    if ndim is not None and array.ndim != ndim:
        raise ConfigError(f"{what} must have {ndim} axes, got the shape {array.shape}")
    if not np.isfinite(array).all():
        raise ConfigError(f"{what} must be finite, got {array[~np.isfinite(array)][0]}")
    array.setflags(write=False)
    return array


def positive(what: str, given: ArrayLike) -> FloatArray:
    """Return a read-only copy; a ConfigError unless all entries are above 0."""
    array = numbers(what, given)
    if (array <= 0).any():
        raise ConfigError(f"{what} must be above 0, got {array[array <= 0][0]}")
    return array


def probabilities(what: str, given: ArrayLike, ndim: int = 1) -> FloatArray:
    """Return a read-only copy whose last axis sums to 1; a ConfigError if it is no distribution."""
    array = numbers(what, given, ndim)
    if array.size == 0:
        raise ConfigError(f"{what} are empty")
    if (array < 0).any():
        raise ConfigError(f"{what} must not be negative, got {array.min()}")
    totals = array.sum(axis=-1, keepdims=True)
    error = np.abs(totals - 1.0).max()
    if error > TOLERANCE:
        raise ConfigError(f"{what} must sum to 1, got {totals.flat[np.abs(totals - 1).argmax()]}")
    if error > ROUNDING * array.shape[-1]:
        array = array / totals
        array.setflags(write=False)
    return array


def scope_of(given: Iterable[int]) -> tuple[int, ...]:
    """Return columns as a tuple; a ConfigError unless they ascend and there is one."""
    scope = tuple(int(column) for column in given)
    if not scope or scope[0] < 0 or any(a >= b for a, b in pairwise(scope)):
        raise ConfigError(f"a scope holds ascending columns, at least one, got {scope}")
    return scope

"""Arrays and names as a graph keeps them: checked, copied, read-only."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray


def distinct_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return variable names as a tuple of strings.

    Raises
    ------
    DataError
        If a name repeats, or a single string was given.
    """
    if isinstance(names, str):
        raise DataError(f"names is the string {names!r}: give a sequence of names")
    result = tuple(str(name) for name in names)
    repeated = [name for name, count in Counter(result).items() if count > 1]
    if repeated:
        raise DataError(f"names repeat: {', '.join(repeated)}; rename or drop columns")
    return result


def frozen_numbers(
    field: str, given: ArrayLike | None, shape: tuple[int, ...], names: Sequence[str]
) -> FloatArray | None:
    """Return a read-only float64 copy of shape ``(..., d, d)``, or None for None.

    Raises
    ------
    DataError
        If the shape differs, or an entry is no finite number; the message names the edge.
    """
    if given is None:
        return None
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{field} holds something that is not a number") from None
    _check_shape(field, array.shape, shape)
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        cause, effect = (names[k] for k in bad[0][-2:])
        raise DataError(f"{field} is not finite at {cause} -> {effect}")
    array += 0.0  # turns -0.0 into 0.0, which would print as an edge
    array.setflags(write=False)
    return array


def frozen_booleans(
    field: str, given: ArrayLike | None, shape: tuple[int, ...]
) -> BoolArray | None:
    """Return a read-only boolean copy of the given shape, or None for None.

    Raises
    ------
    DataError
        If the shape differs.
    """
    if given is None:
        return None
    array = np.array(given, dtype=bool)
    _check_shape(field, array.shape, shape)
    array.setflags(write=False)
    return array


def _check_shape(field: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise a DataError unless the shapes are the same."""
    if shape != expected:
        raise DataError(
            f"{field} has shape {shape}, expected {expected} for {expected[-1]} variables"
        )

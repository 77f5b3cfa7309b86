"""One column between what a user gives and the numbers that a circuit works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = NDArray[np.float64]


def states_of(column: Any, named: bool) -> tuple[Any, ...] | None:
    """Return the states of a frame's column, or None for a number.

    Parameters
    ----------
    column : Series
    named : bool
        It is a category whatever it holds.
    """
    import pandas as pd

    if isinstance(column.dtype, pd.CategoricalDtype):
        return tuple(column.cat.categories.tolist())
    number = pd.api.types.is_numeric_dtype(column.dtype)
    if number and not named and not pd.api.types.is_bool_dtype(column.dtype):
        return None
    present = column.dropna().unique().tolist()
    try:
        return tuple(sorted(present))
    except TypeError:  # texts beside numbers have no order of their own
        return tuple(sorted(present, key=lambda state: (type(state).__name__, str(state))))


def encoded_states(name: str, column: Any, states: Sequence[Any]) -> FloatArray:
    """Return the index of each row's state, NaN where it is missing, shape (n,)."""
    import pandas as pd

    codes, present = pd.factorize(column)
    index_of = {state: float(k) for k, state in enumerate(states)}
    # The last entry is what the code of a missing value, -1, finds.
    indices = np.full(len(present) + 1, np.nan)
    for k, value in enumerate(present):
        if value not in index_of:
            raise DataError(
                f"column {name!r} holds {value!r}, which is none of its states "
                f"{_listed(states)}: correct the value, or leave it empty"
            )
        indices[k] = index_of[value]
    return np.asarray(indices[codes])


def without_unseen(column: Any, states: Sequence[Any]) -> tuple[Any, int]:
    """Return a column in which values that are none of the states are missing, and their number."""
    import pandas as pd

    codes, present = pd.factorize(column)
    known = set(states)
    unseen = np.array([value not in known for value in present] + [False], dtype=np.bool_)[codes]
    return (column.astype(object).where(~unseen) if unseen.any() else column), int(unseen.sum())


def encoded_number(name: str, column: Any) -> FloatArray:
    """Return a column of numbers, NaN where they are missing, shape (n,)."""
    import pandas as pd

    try:
        values: FloatArray = pd.to_numeric(column).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise DataError(f"column {name!r} must hold numbers ({error})") from error
    if np.isinf(values).any():
        raise DataError(f"column {name!r} holds an infinite number: leave the value empty")
    return values


def encoded_interval(name: str, column: Any, edges: Sequence[float]) -> FloatArray:
    """Return the index of each row's interval, NaN where it is missing, shape (n,)."""
    values = encoded_number(name, column)
    intervals = np.searchsorted(np.asarray(edges), values, side="left").astype(np.float64)
    intervals[np.isnan(values)] = np.nan
    return intervals


def decoded_states(values: FloatArray, states: Sequence[Any]) -> NDArray[Any]:
    """Return the states of indices: numbers stay an array of numbers where none is missing."""
    missing = np.isnan(values)
    labels = np.empty(len(states) + 1, dtype=object)
    labels[:-1] = states
    labels[-1] = np.nan
    found = labels[np.where(missing, len(states), values).astype(np.int64)]
    kinds = {type(state) for state in states}
    if len(kinds) == 1 and kinds <= {bool, int, float} and not missing.any():
        return found.astype(kinds.pop())
    return found


def decoded_interval(
    values: FloatArray, edges: Sequence[float], rng: np.random.Generator | None
) -> FloatArray:
    """Return a number inside each interval: drawn uniformly, or without `rng` its middle."""
    inner = np.asarray(edges, dtype=np.float64)
    if len(inner) == 0:
        bounds = np.array([-0.5, 0.5])
    else:
        widths = np.diff(inner) if len(inner) > 1 else np.ones(1)
        bounds = np.concatenate(([inner[0] - widths[0]], inner, [inner[-1] + widths[-1]]))
    missing = np.isnan(values)
    index = np.where(missing, 0, values).astype(np.int64)
    share = np.full(len(values), 0.5) if rng is None else rng.random(len(values))
    numbers = bounds[index] + share * (bounds[index + 1] - bounds[index])
    numbers[missing] = np.nan
    return np.asarray(numbers)


def _listed(states: Sequence[Any]) -> str:
    shown = ", ".join(repr(state) for state in states[:10])
    return shown + (", ..." if len(states) > 10 else "")

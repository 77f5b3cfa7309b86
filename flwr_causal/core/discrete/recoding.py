"""Rows of any table by the codes of a model's states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.discrete.discrete import DiscreteTable, as_discrete
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def codes_of(
    frame: Any, names: tuple[str, ...], states: tuple[tuple[str, ...], ...]
) -> NDArray[np.uint8]:
    """Return the rows of a table by the codes of given states.

    Parameters
    ----------
    frame : DataFrame, array of shape (n, d), or DiscreteTable
        Columns are found by name, in any order, and others are passed over; the columns of an
        array are in the order of ``names``.
    names, states : tuple
        The d variables and the states of each.

    Returns
    -------
    ndarray of uint8, shape (d, n)

    Raises
    ------
    DataError
        If a variable is missing, or a value is none of its states.
    """
    if isinstance(frame, DiscreteTable):
        return _recoded(frame, names, states)
    if not hasattr(frame, "columns"):
        import pandas as pd

        array = np.asarray(frame)
        if array.ndim != 2 or array.shape[1] != len(names):
            raise DataError(
                f"an array of {len(names)} columns was expected, got shape {array.shape}"
            )
        frame = pd.DataFrame(array, columns=pd.Index(names))
    return as_discrete(frame, names, states).codes


def _recoded(
    table: DiscreteTable, names: tuple[str, ...], states: tuple[tuple[str, ...], ...]
) -> NDArray[np.uint8]:
    """Return the codes of a table whose variables and states may stand in another order."""
    missing = [name for name in names if name not in table.names]
    if missing:
        raise DataError(f"the table has no column {missing[0]!r}")
    result = np.empty((len(names), table.codes.shape[1]), dtype=np.uint8)
    for j, (name, known) in enumerate(zip(names, states, strict=True)):
        position = {state: code for code, state in enumerate(known)}
        column = table.names.index(name)
        lookup = np.array([position.get(state, -1) for state in table.states[column]], dtype=int)
        codes = lookup[table.codes[column]]
        if (codes < 0).any():
            raise DataError(f"column {name!r} has a value that is none of its {len(known)} states")
        result[j] = codes
    return result

"""The fold of a row: a hash of its values.

All parties fold alike however the rows are split among them, so that sums per fold are those of the
pooled rows. Rows that are equal in every value share a fold, which also keeps a copy of a row out
of the rows that judge it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray

# Constants of the SplitMix64 generator (Steele, Lea & Flood 2014).
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def row_folds(values: FloatArray, num_folds: int, seed: int) -> IntArray:
    """Fold of each row, a hash of its values.

    Parameters
    ----------
    values : ndarray of float, shape (n, m)
        In the same order of columns at every party.
    num_folds : int
    seed : int

    Returns
    -------
    ndarray of int, shape (n,)
        Equal rows have equal folds; different rows fall into folds as if drawn at random.
    """
    # -0.0 and 0.0 are equal, their bits are not
    bits = np.ascontiguousarray(values + 0.0, dtype=np.float64).view(np.uint64)
    state = np.full(len(values), np.uint64(seed % 2**64), dtype=np.uint64)
    for column in bits.T:
        state = _mixed(state ^ column)
    return (state % np.uint64(num_folds)).astype(np.int64)


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """One step of SplitMix64; arrays of uint64 wrap around without a warning."""
    state = state + _STEP
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return state ^ (state >> np.uint64(31))

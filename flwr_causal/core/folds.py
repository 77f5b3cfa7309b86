"""Splits of a party's rows into training and held-out rows, and of time series into folds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# One in this many rows is held out.
SHARE = 4
# Number of folds of a cross-validation.
NUM_FOLDS = 5


def num_held_out(num_rows: NDArray[np.int_] | int) -> NDArray[np.int_]:
    """Return the number of held-out rows among a party's rows; server and parties use this rule."""
    return np.asarray(num_rows) // SHARE


def split_rows(num_rows: int, seed: int) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """Return the indices of the training rows and of the held-out rows, drawn with the seed."""
    order = np.random.default_rng(seed).permutation(num_rows)
    held_out = int(num_held_out(num_rows))
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def stretches(lengths: Sequence[int], num_folds: int = NUM_FOLDS) -> NDArray[np.int_]:
    """Return the fold of each row of several time series, which are split into contiguous parts.

    Parameters
    ----------
    lengths : sequence of int
        Number of rows of each series.
    num_folds : int, default 5
        Number of folds.

    Returns
    -------
    ndarray of int, shape (sum of lengths,)
        The first part of every series is in the first fold, and so on. Series with fewer rows than
        folds start at different folds in turn, so that the folds have about equal sizes.
    """
    if not lengths:
        return np.zeros(0, dtype=np.int_)
    folds = []
    for start, length in enumerate(lengths):
        stretch = np.array_split(np.arange(length), num_folds)
        fold = np.repeat(np.arange(num_folds), [len(rows) for rows in stretch])
        folds.append((fold + start) % num_folds if length < num_folds else fold)
    return np.concatenate(folds)

"""The split of a party's rows: into training and held-out rows, and into stretches of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# A quarter of the rows is held out: enough to compare graphs, and most rows train.
SHARE = 4
# Folds of a cross-validation.
NUM_FOLDS = 5


def num_held_out(num_rows: NDArray[np.int_] | int) -> NDArray[np.int_]:
    """Return how many of a party's rows are held out; the server counts with the same rule."""
    return np.asarray(num_rows) // SHARE


def split_rows(num_rows: int, seed: int) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """Return the indices of the rows to learn from and of those held out, at random by the seed."""
    order = np.random.default_rng(seed).permutation(num_rows)
    held_out = int(num_held_out(num_rows))
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def stretches(lengths: Sequence[int], num_folds: int = NUM_FOLDS) -> NDArray[np.int_]:
    """Return the fold of each row of several series: every series is cut into stretches of time.

    Parameters
    ----------
    lengths : sequence of int
        Number of rows of each series.
    num_folds : int

    Returns
    -------
    ndarray of int, shape (sum of lengths,)
        The first stretch of every series is in the first fold, and so on. Series of fewer rows than
        there are folds start at different folds in turn, so that all folds get about as many.
    """
    if not lengths:
        return np.zeros(0, dtype=np.int_)
    folds = []
    for start, length in enumerate(lengths):
        stretch = np.array_split(np.arange(length), num_folds)
        fold = np.repeat(np.arange(num_folds), [len(rows) for rows in stretch])
        folds.append((fold + start) % num_folds if length < num_folds else fold)
    return np.concatenate(folds)

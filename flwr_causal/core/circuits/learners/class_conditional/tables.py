"""Categories: independent of the numbers and of each other given the class.

The tables of all categories lie side by side in one array, so that a party sends one array of
counts whatever categories there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray


#: Rows of all classes' shares that a class is given beforehand, and rows of equal shares that all
#: classes together are: no state has the probability 0 because a class was not seen with it.
SMOOTHING = 1.0


def tables_of(
    categories: IntArray, groups: IntArray, num_groups: int, sizes: IntArray
) -> FloatArray:
    """Count rows by group and state.

    Parameters
    ----------
    categories : ndarray of int, shape (n, k)
        States of the k categories.
    groups : ndarray of int, shape (n,)
    num_groups : int
    sizes : ndarray of int, shape (k,)
        Numbers of states.

    Returns
    -------
    ndarray of float, shape (num_groups, sum of sizes)
    """
    counts = np.zeros((num_groups, int(sizes.sum())))
    for j, start in enumerate(starts_of(sizes)):
        np.add.at(counts, (groups, start + categories[:, j]), 1.0)
    return counts


def probabilities(counts: FloatArray, sizes: IntArray) -> FloatArray:
    """Return the probabilities of the states in each class, smoothed by those of all classes.

    Parameters
    ----------
    counts : ndarray of float, shape (..., C, sum of sizes)
    sizes : ndarray of int, shape (k,)

    Returns
    -------
    ndarray of float, shape (..., C, sum of sizes)
    """
    result = np.empty(counts.shape)
    for start, size in zip(starts_of(sizes), sizes, strict=True):
        own = counts[..., start : start + size]
        everyone = own.sum(axis=-2, keepdims=True) + SMOOTHING / size
        shares = everyone / everyone.sum(axis=-1, keepdims=True)
        smoothed = own + SMOOTHING * shares
        result[..., start : start + size] = smoothed / smoothed.sum(axis=-1, keepdims=True)
    return result


def log_probabilities(categories: IntArray, tables: FloatArray, sizes: IntArray) -> FloatArray:
    """Return the log probability of each category of rows under each class.

    Parameters
    ----------
    categories : ndarray of int, shape (n, k)
    tables : ndarray of float, shape (C, sum of sizes)
        Probabilities.
    sizes : ndarray of int, shape (k,)

    Returns
    -------
    ndarray of float, shape (n, C, k)
    """
    places = categories + starts_of(sizes)
    return np.log(tables)[:, places].transpose(1, 0, 2)


def starts_of(sizes: Sequence[int] | IntArray) -> IntArray:
    """Where the table of each category begins."""
    return (np.cumsum(sizes) - sizes).astype(np.int64)

"""Tables of categories by class, and the probabilities of their states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan

#: Pseudo rows of each class, distributed over the states as the rows of all classes are, and pseudo
#: rows of all classes together, spread evenly over the states. So no state has the probability 0.
SMOOTHING = 1.0


def tables_of(
    categories: IntArray, groups: IntArray, num_groups: int, sizes: Sequence[int]
) -> FloatArray:
    """Count rows by group and state.

    Parameters
    ----------
    categories : ndarray of int, shape (n, k)
        States of the k categories.
    groups : ndarray of int, shape (n,)
    num_groups : int
    sizes : sequence of int, length k
        Numbers of states.

    Returns
    -------
    ndarray of float, shape (num_groups, sum of sizes)
    """
    counts = np.zeros((num_groups, sum(sizes)))
    for j, start in enumerate(starts_of(sizes)):
        np.add.at(counts, (groups, start + categories[:, j]), 1.0)
    return counts


def by_category(tables: FloatArray, plan: TrainingPlan) -> FloatArray:
    """Return the rows that the states of each category count together.

    Parameters
    ----------
    tables : ndarray of float, shape (..., sum of sizes)
    plan : TrainingPlan

    Returns
    -------
    ndarray of float, shape (..., number of categories)
    """
    if not plan.sizes:
        return tables[..., :0]
    return np.asarray(np.add.reduceat(tables, starts_of(plan.sizes), axis=-1))


def probabilities(counts: FloatArray, sizes: Sequence[int]) -> FloatArray:
    """Return the probabilities of the states in each class, smoothed towards those of all classes.

    Parameters
    ----------
    counts : ndarray of float, shape (..., C, sum of sizes)
    sizes : sequence of int, length k

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


def log_probabilities(categories: IntArray, tables: FloatArray, sizes: Sequence[int]) -> FloatArray:
    """Return the log probability of each category of rows under each class.

    Parameters
    ----------
    categories : ndarray of int, shape (n, k)
    tables : ndarray of float, shape (C, sum of sizes)
        Probabilities.
    sizes : sequence of int, length k

    Returns
    -------
    ndarray of float, shape (n, C, k)
    """
    places = categories + starts_of(sizes)
    return np.log(tables)[:, places].transpose(1, 0, 2)


def starts_of(sizes: Sequence[int]) -> IntArray:
    """Return the first state of each category among the states of all."""
    return (np.cumsum(sizes) - sizes).astype(np.int64)

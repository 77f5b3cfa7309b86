"""The rows of a party for class-conditional circuits, and tables of their categories by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.learners.training_by_sums import row_folds
from flwr_causal.core.words import by_name
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan

NUM_FOLDS = 5


class ClassedRows(NamedTuple):
    """Rows of a party: numbers (n, d), classes (n,), folds (n,) and states of categories (n, k)."""

    numbers: FloatArray
    classes: IntArray
    folds: IntArray
    categories: IntArray


def rows_of(values: FloatArray, plan: TrainingPlan) -> ClassedRows:
    """Return a party's rows without the classes that it leaves out; see ``TrainingPlan.min_rows``.

    Folds of fewer than ``min_rows`` rows are joined with others. If it is above 1 the folds
    therefore depend on how rows are divided among parties.

    Raises
    ------
    DataError
        If a value is missing or infinite.
    """
    numbers = np.ascontiguousarray(values[:, plan.numbers], dtype=np.float64)
    bad = ~np.isfinite(numbers).all(axis=0)
    if bad.any():
        listed = ", ".join(plan.names[plan.numbers[j]] for j in np.flatnonzero(bad))
        raise DataError(
            f"missing or infinite values in columns {listed}: sums need complete rows, drop or fill"
        )
    classes = plan.classes_of(values)
    states = values[:, plan.categories]
    if not ((states >= 0) & (states < np.array(plan.sizes)) & (states == np.floor(states))).all():
        raise DataError(
            "a category is missing in some rows, or none of its states: drop those rows, or make "
            "the missing value a state"
        )
    categories = states.astype(np.int64)
    # By names, so that the order of columns decides no fold.
    ordered = by_name([plan.names[j] for j in (*plan.numbers, *plan.categories)])
    hashed = np.column_stack((numbers, categories))[:, ordered]
    folds = row_folds(np.column_stack((hashed, classes)), NUM_FOLDS, plan.seed)
    kept = np.bincount(classes, minlength=plan.num_classes)[classes] >= plan.min_rows
    rows = ClassedRows(numbers[kept], classes[kept], folds[kept], categories[kept])
    return rows._replace(folds=_large_folds(rows, plan)) if plan.min_rows > 1 else rows


def _large_folds(rows: ClassedRows, plan: TrainingPlan) -> IntArray:
    """Return the fold of each row, where no class has a fold with fewer than ``min_rows`` rows.

    The smaller folds of a class are joined to one, or to its largest fold if the one is too small.
    """
    folds = rows.folds.copy()
    for c in range(plan.num_classes):
        of_class = np.flatnonzero(rows.classes == c)
        sizes = np.bincount(folds[of_class], minlength=NUM_FOLDS)
        small = np.flatnonzero((sizes > 0) & (sizes < plan.min_rows))
        if len(small):
            enough = sizes[small].sum() >= plan.min_rows
            moved = of_class[np.isin(folds[of_class], small)]
            folds[moved] = small[0] if enough else int(sizes.argmax())
    return folds


# -- tables of categories -------------------------------------------------------------------------

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
        counted = counts[..., start : start + size]
        everyone = counted.sum(axis=-2, keepdims=True) + SMOOTHING / size
        shares = everyone / everyone.sum(axis=-1, keepdims=True)
        smoothed = counted + SMOOTHING * shares
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

"""A party's rows: their numbers, categories, classes and folds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.learners.folds import row_folds
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.learners.training_by_sums import Plan


NUM_FOLDS = 5


class Rows(NamedTuple):
    """Rows of a party: numbers (n, d), class (n,), fold (n,) and categories (n, k) of each."""

    numbers: FloatArray
    classes: IntArray
    folds: IntArray
    categories: IntArray


def rows_of(values: FloatArray, plan: Plan) -> Rows:
    """Return the rows that count; see ``Plan.min_rows``.

    Folds of fewer rows are joined, so that with ``min_rows`` above 1 they depend on who holds which
    rows.

    Raises
    ------
    DataError
        If a value is missing or infinite: sums need complete rows. Queries of the circuit do not.
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
    folds = row_folds(np.column_stack((numbers, categories, classes)), NUM_FOLDS, plan.seed)
    kept = np.bincount(classes, minlength=plan.num_classes)[classes] >= plan.min_rows
    rows = Rows(numbers[kept], classes[kept], folds[kept], categories[kept])
    return rows._replace(folds=_large_folds(rows, plan)) if plan.min_rows > 1 else rows


def _large_folds(rows: Rows, plan: Plan) -> IntArray:
    """Fold of each row, such that no class has a fold of fewer rows than may be summed.

    The small folds of a class become one, or join its largest where that is small too.
    """
    folds = rows.folds.copy()
    for c in range(plan.num_classes):
        own = np.flatnonzero(rows.classes == c)
        sizes = np.bincount(folds[own], minlength=NUM_FOLDS)
        small = np.flatnonzero((sizes > 0) & (sizes < plan.min_rows))
        if len(small):
            enough = sizes[small].sum() >= plan.min_rows
            moved = own[np.isin(folds[own], small)]
            folds[moved] = small[0] if enough else int(sizes.argmax())
    return folds

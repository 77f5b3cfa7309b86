"""A party's rows: their numbers, categories, classes and folds, and what parties agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.learners.folds import row_folds
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.domain import Domain


NUM_FOLDS = 5


class Plan(NamedTuple):
    """What all parties agree on before the first sum.

    Parameters
    ----------
    names : tuple of str
        Of the columns that are numbers.
    columns : tuple of int
        Where these are in the domain.
    target : int or None
        Column of the class; None: there is none, all rows are of one class.
    num_classes : int
        States of the target.
    seed : int
        Of the hash that folds rows.
    min_rows : int
        A party leaves out its rows of a class where it has fewer than so many: a sum over one row
        is the row. Folds of fewer rows are joined, so that they depend on who holds which rows;
        with 1 they do not, nothing is left out, and sums are those of the pooled rows.
    categories : tuple of int
        Columns of the other categories.
    sizes : tuple of int
        Their numbers of states.
    """

    names: tuple[str, ...]
    columns: tuple[int, ...]
    target: int | None
    num_classes: int
    seed: int = 0
    min_rows: int = 1
    categories: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()


def plan_for(
    domain: Domain,
    target: str | None,
    *,
    seed: int = 0,
    min_rows: int = 1,
) -> Plan:
    """Return the plan of a domain's columns.

    Raises
    ------
    ConfigError
        If the target has no states, there is no number, or an option is out of range.
    """
    if min_rows < 1:
        raise ConfigError(f"at least 1 row is needed, got min_rows = {min_rows}")
    states = domain.num_states
    place = None if target is None else domain.index(target)
    if place is not None and states[place] == 0:
        raise ConfigError(f"the target {target!r} holds numbers: make it a category")
    others = [j for j in range(len(states)) if j != place]
    columns = tuple(j for j in others if states[j] == 0)
    categories = tuple(j for j in others if states[j])
    if not columns:
        raise ConfigError(
            "a class-conditional circuit needs a number beside its target, but all columns have "
            "states: learn a circuit of categories, as learn_spn does"
        )
    return Plan(
        tuple(domain.names[j] for j in columns),
        columns,
        place,
        1 if place is None else int(states[place]),
        seed,
        min_rows,
        categories,
        tuple(int(states[j]) for j in categories),
    )


class Rows(NamedTuple):
    """Rows of a party: numbers (n, d), class (n,), fold (n,) and categories (n, k) of each."""

    numbers: FloatArray
    classes: IntArray
    folds: IntArray
    categories: IntArray


def rows_of(values: FloatArray, plan: Plan) -> Rows:
    """Return the rows that count; see ``Plan.min_rows``.

    Raises
    ------
    DataError
        If a value is missing or infinite: sums need complete rows. Queries of the circuit do not.
    """
    numbers = np.ascontiguousarray(values[:, plan.columns], dtype=np.float64)
    bad = ~np.isfinite(numbers).all(axis=0)
    if bad.any():
        listed = ", ".join(plan.names[j] for j in np.flatnonzero(bad))
        raise DataError(
            f"missing or infinite values in columns {listed}: sums need complete rows, drop or fill"
        )
    if plan.target is None:
        classes = np.zeros(len(numbers), dtype=np.int64)
    else:
        labels = values[:, plan.target]
        if not np.isin(labels, np.arange(plan.num_classes)).all():
            raise DataError(
                "the target is missing in some rows, or none of its states: drop those rows"
            )
        classes = labels.astype(np.int64)
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

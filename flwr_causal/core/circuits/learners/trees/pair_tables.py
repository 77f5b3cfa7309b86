"""A Chow-Liu tree from counts of pairs of states, of columns that no party holds together.

A party marks the state of each of its columns in each row. Products of the marks of two parties,
added up over their common rows, count the pairs of states (:mod:`flwr_causal.protocol.products`).
Where all parties know the class, marks are those of a state within a class, and there is a tree for
each class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.circuits.learners.trees.learner import TreesTrained
from flwr_causal.core.circuits.learners.trees.pair_sums import Layout, encode
from flwr_causal.core.circuits.learners.trees.trees import Mixtures, prior_cells, shrunk_trees
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.learners.training_by_sums import Plan


def owners(plan: Plan) -> IntArray:
    """Return the variable of each mark, shape (C total,): all states of a class, then the next."""
    states = np.repeat(np.array(plan.columns, dtype=np.int64), plan.sizes)
    return np.tile(states, plan.num_classes)


def marks(values: FloatArray, plan: Plan) -> FloatArray:
    """Return 1 for the state of each variable within the class of each row, else 0.

    Classes of fewer rows than ``plan.min_rows`` have no marks.

    Parameters
    ----------
    values : ndarray of float64, shape (n, number of variables)
        As ``Domain.encode`` makes them; a missing value has no mark.
    plan : Plan

    Returns
    -------
    ndarray of float64, shape (n, C total)
    """
    codes, classes = encode(values[:, plan.columns], plan.sizes), plan.classes_of(values)
    states = Layout(plan.sizes, complete=False).design(codes)[:, 1:].astype(np.float64)
    counted = np.bincount(classes, minlength=plan.num_classes) >= plan.min_rows
    own = np.eye(plan.num_classes)[classes] * counted
    return np.asarray((own[:, :, None] * states[:, None]).reshape(len(values), -1))


def trained(plan: Plan, products: FloatArray) -> TreesTrained:
    """Return the tree of each class, that of the learner "trees" with one component.

    Parameters
    ----------
    plan : Plan
    products : ndarray of float, shape (C total, C total)
        Of :func:`marks`. Each pair of variables may be counted in other rows.

    Raises
    ------
    DataError
        If no class has rows.
    """
    layout = Layout(plan.sizes, complete=False)
    shape = (plan.num_classes, layout.total) * 2
    counts = np.einsum("cicj->cij", products.reshape(shape))
    states = np.diagonal(counts, axis1=1, axis2=2)
    rows = np.add.reduceat(states, layout.first, axis=1).max(axis=1)
    if not rows.any():
        raise DataError(f"no class has {plan.min_rows} rows: nothing to learn")
    pooled, mixtures = counts.sum(axis=0), []
    for own in counts:
        packed, cells = layout.packed_pairs(own)[None], prior_cells(layout, own, pooled)
        trees = shrunk_trees(layout, packed, cells, plan.learner.strengths)
        mixtures.append(Mixtures(trees, np.zeros((1, 1))))
    return TreesTrained(plan, rows, tuple(mixtures))

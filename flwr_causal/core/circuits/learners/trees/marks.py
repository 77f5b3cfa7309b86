"""Marks of states, whose products count pairs and triples of states that no party holds together.

A party marks the state of each of its columns in each row. Products of the marks of two parties,
added up over their common rows, count the pairs of states (:mod:`flwr_causal.protocol.products`).
Marks of pairs of states of a party's own variables count triples
(:mod:`flwr_causal.core.circuits.learners.trees.triple_tables`). Where all parties know the class,
marks are those of a state within a class, and there are trees for each class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.circuits.learners.trees.learner import class_mixture
from flwr_causal.core.circuits.learners.trees.pair_sums import StateLayout, encode
from flwr_causal.core.circuits.learners.trees.triple_tables import class_nodes
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan
    from flwr_causal.core.circuits.learners.trees.triple_tables import Joints


def owners(plan: TrainingPlan, joints: Joints) -> IntArray:
    """Return the variable of each mark, shape (C L,): all of a class, then those of the next.

    A mark of a pair has the holders of its first variable, which are those of its second.
    """
    columns = np.array(plan.columns, dtype=np.int64)
    own = np.append(np.repeat(columns, plan.sizes), columns[joints.first_of_pairs])
    return np.tile(own, plan.num_classes)


def wanted(plan: TrainingPlan, joints: Joints) -> BoolArray:
    """Return which products of marks are needed, (C L, C L): of a class, not pairs with pairs."""
    pairs = np.arange(len(owners(plan, joints)) // plan.num_classes) >= sum(plan.sizes)
    return np.kron(np.eye(plan.num_classes, dtype=np.bool_), ~(pairs[:, None] & pairs))


def marks(
    values: FloatArray, plan: TrainingPlan, joints: Joints, patterns: IntArray | None = None
) -> FloatArray:
    """Return 1 for the state of each variable within the class of each row, else 0.

    Rows of a class of which there are fewer than ``plan.min_rows`` in a pattern have no marks: the
    parties of the pattern all know these rows and their class, so that all leave out the same.

    Parameters
    ----------
    values : ndarray of float64, shape (n, number of variables)
        As ``Domain.encode`` makes them; a missing value has no mark.
    plan : TrainingPlan
    joints : Joints
    patterns : ndarray of int64, shape (n,), optional
        The pattern of each row, rows that the same parties have. Default: all are of one. Without
        classes the plan of products has checked that there are enough rows of all patterns.

    Returns
    -------
    ndarray of float64, shape (n, C L)
        Of L marks of a class the first are those of single states, the others those of pairs.
    """
    codes, classes = encode(values[:, plan.columns], plan.sizes), plan.classes_of(values)
    states = StateLayout(plan.sizes, complete=False).design(codes)
    own = np.hstack([states[:, 1:], joints.layout.design(joints.codes(codes))[:, 1:]])
    cells = classes
    if patterns is not None and plan.num_classes > 1:
        cells = patterns * plan.num_classes + classes
    counted = np.bincount(cells)[cells] >= plan.min_rows
    within = np.eye(plan.num_classes)[classes] * counted[:, None]
    return np.asarray((within[:, :, None] * own[:, None]).reshape(len(values), -1))


def num_left_out(plan: TrainingPlan, joints: Joints, products: FloatArray, known: IntArray) -> int:
    """Return how many rows have no marks, of the variable for which these are most.

    Parameters
    ----------
    plan : TrainingPlan
    joints : Joints
    products : ndarray of float, shape (C L, C L)
        Of :func:`marks`.
    known : ndarray of int64, shape (C L,)
        How many rows the holders of each mark's variable have.
    """
    counted = np.diagonal(products).reshape(plan.num_classes, -1)[:, : sum(plan.sizes)].sum(axis=0)
    first = StateLayout(plan.sizes, complete=False).first
    return int((known[first] - np.add.reduceat(counted, first)).max())


def trained(
    domain: Domain,
    plan: TrainingPlan,
    joints: Joints,
    products: FloatArray,
    target: int | None = None,
) -> Circuit:
    """Return the circuit of counts of pairs and triples.

    Parameters
    ----------
    domain : Domain
    plan : TrainingPlan
    joints : Joints
    products : ndarray of float, shape (C L, C L)
        Of :func:`marks`. Each pair of variables may be counted in other rows.
    target : int, optional
        The variable that the circuit is to predict; not that of the plan. Default: the circuit is
        a density.

    Raises
    ------
    DataError
        If no class has rows.
    """
    layout = StateLayout(plan.sizes, complete=False)
    length = len(products) // plan.num_classes
    counts = np.einsum("cicj->cij", products.reshape((plan.num_classes, length) * 2))
    states = np.diagonal(counts, axis1=1, axis2=2)[:, : layout.total]
    rows = np.add.reduceat(states, layout.first, axis=1).max(axis=1)
    if not rows.any():
        raise DataError(f"no class has {plan.min_rows} rows: nothing to learn")
    variables = [domain.variables[j] for j in plan.columns]
    ordered = np.array([one.edges is not None and not one.missing_state for one in variables])
    place = None if target is None else plan.columns.index(target)
    nodes = class_nodes(joints, counts, ordered, plan.columns, place)
    return class_mixture(domain, plan, rows, nodes)

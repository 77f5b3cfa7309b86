"""Marks of states, whose products count pairs and triples of states that no party holds together.

A party marks the state of each of its columns in each row. Products of the marks of two parties,
added up over their common rows, count the pairs of states (:mod:`flwr_causal.protocol.products`).
Marks of pairs of states of a party's own variables count triples
(:mod:`flwr_causal.core.circuits.learners.trees.triple_tables`). Where all parties know the class,
marks are those of a state within a class, and there are trees for each class.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class StateMarks:
    """The C L columns that are multiplied: for each of C classes L marks of states and of pairs.

    Parameters
    ----------
    plan : TrainingPlan
    joints : Joints
        Of the pairs.
    """

    plan: TrainingPlan
    joints: Joints

    @property
    def owners(self) -> IntArray:
        """The variable of each mark, shape (C L,): all of a class, then those of the next.

        A mark of a pair has the holders of its first variable, which are those of its second.
        """
        columns = np.array(self.plan.columns, dtype=np.int64)
        firsts = columns[self.joints.first_of_pairs]
        variables = np.append(np.repeat(columns, self.plan.sizes), firsts)
        return np.tile(variables, self.plan.num_classes)

    @property
    def wanted(self) -> BoolArray:
        """Which products are needed, (C L, C L): of a class, not pairs with pairs."""
        classes = self.plan.num_classes
        pairs = np.arange(len(self.owners) // classes) >= sum(self.plan.sizes)
        return np.kron(np.eye(classes, dtype=np.bool_), ~(pairs[:, None] & pairs))

    def values(self, rows: FloatArray, patterns: IntArray | None = None) -> FloatArray:
        """Return 1 for the state of each variable within the class of each row, else 0.

        Parameters
        ----------
        rows : ndarray of float64, shape (n, number of variables)
            As ``Domain.encode`` makes them; a missing value has no mark.
        patterns : ndarray of int64, shape (n,), optional
            The pattern of each row, see `TrainingPlan.indicators`.

        Returns
        -------
        ndarray of float64, shape (n, C L)
            Of L marks of a class the first are those of single states, the others those of pairs.
        """
        plan, joints = self.plan, self.joints
        codes = encode(rows[:, plan.columns], plan.sizes)
        states = StateLayout(plan.sizes, complete=False).design(codes)
        marks = np.hstack([states[:, 1:], joints.layout.design(joints.codes(codes))[:, 1:]])
        within = plan.indicators(plan.classes_of(rows), patterns)
        return np.asarray((within[:, :, None] * marks[:, None]).reshape(len(rows), -1))

    def num_left_out(self, products: FloatArray, known: IntArray) -> int:
        """Return how many rows have no marks, of the variable for which these are most.

        Parameters
        ----------
        products : ndarray of float, shape (C L, C L)
            Of the marks.
        known : ndarray of int64, shape (C L,)
            How many rows the holders of each mark's variable have.
        """
        plan = self.plan
        counted = np.diagonal(products).reshape(plan.num_classes, -1)[:, : sum(plan.sizes)]
        first = StateLayout(plan.sizes, complete=False).first
        return int((known[first] - np.add.reduceat(counted.sum(axis=0), first)).max())

    def trained(self, domain: Domain, products: FloatArray, target: int | None = None) -> Circuit:
        """Return the circuit of counts of pairs and triples.

        Parameters
        ----------
        domain : Domain
        products : ndarray of float, shape (C L, C L)
            Of the marks. Each pair of variables may be counted in other rows.
        target : int, optional
            The variable that the circuit is to predict; not that of the plan. Default: the circuit
            is a density.

        Raises
        ------
        DataError
            If no class has rows.
        """
        plan = self.plan
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
        nodes = class_nodes(self.joints, counts, ordered, plan.columns, place)
        return class_mixture(domain, plan, rows, nodes)

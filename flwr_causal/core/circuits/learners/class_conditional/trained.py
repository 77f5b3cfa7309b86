"""The parameters of class-conditional circuits, and the circuits themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.learners.class_conditional.categories import probabilities, starts_of
from flwr_causal.core.circuits.learners.class_conditional.moments import ClassMoments, members
from flwr_causal.core.circuits.learners.head import TrainedWithHead
from flwr_causal.core.circuits.leaves.elliptical import Elliptical
from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.leaves.yeo_johnson import of_signed_log, signed_log
from flwr_causal.core.circuits.model import CircuitModel, HeadPosterior
from flwr_causal.core.circuits.nodes import Product, Sum

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.class_conditional.moments import (
        BlockChoice,
        Coordinates,
    )
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan
    from flwr_causal.core.circuits.model import Posterior
    from flwr_causal.core.circuits.nodes import Leaf, Node


@dataclass(frozen=True, eq=False)
class ClassConditionalTrained(TrainedWithHead):
    """The parameters of the circuits.

    Parameters
    ----------
    plan : TrainingPlan
    counts : ndarray of float, shape (C,)
        Rows of each class.
    coordinates : Coordinates
    moments : ClassMoments
        Means (C, d) and covariances (C, d, d) of the coordinates.
    tables : ndarray of float, shape (C, states)
        Rows of each class and state, the categories side by side.
    choice : BlockChoice
        Degrees of freedom and blocks.
    """

    plan: TrainingPlan
    counts: FloatArray
    coordinates: Coordinates
    moments: ClassMoments
    tables: FloatArray
    choice: BlockChoice

    def model(self, domain: Domain) -> CircuitModel:
        """Return the circuit with the best density, and the posterior that predicts the class.

        The density has one leaf over all numbers for each class. The class is predicted by a second
        circuit with a leaf for each block of correlated numbers, or by a logistic head. Classes of
        which no party has a row have the likelihood 0.
        """
        plan, choice = self.plan, self.choice
        everything = np.zeros(len(plan.numbers), dtype=np.int64)
        density = Circuit(domain, self._root(everything, choice.dof))
        if plan.target is None:
            return CircuitModel(density)
        target = domain.names[plan.target]
        posterior: Posterior
        if self.head is None:
            posterior = Circuit(domain, self._root(choice.blocks, choice.block_dof))
        else:
            factors = self._factors(pieces(choice.blocks), choice.block_dof)
            posterior = HeadPosterior(domain, target, tuple(map(tuple, factors)), self.head)
        return CircuitModel(density, target, posterior, self.threshold)

    def _root(self, blocks: IntArray, dof: float) -> Node:
        """Return the root of a circuit with a leaf for each class and block, and each category."""
        target, num_classes = self.plan.target, self.plan.num_classes
        present = np.flatnonzero(self.counts > 0)
        factors_of = self._factors(members(blocks), dof)
        children: list[Node] = []
        for c in map(int, present):
            factors: list[Node] = list(factors_of[c])
            if target is not None:
                factors.append(Categorical(target, np.eye(num_classes)[c]))
            children.append(Product(factors) if len(factors) > 1 else factors[0])
        if target is None:
            return children[0]
        return Sum(children, self.counts[present] / self.counts.sum())

    def _factors(self, parts: list[IntArray], dof: float) -> list[list[Leaf]]:
        """Return the leaves of each class, over parts of the numbers and then the categories."""
        plan, moments = self.plan, self._transformed_moments()
        factors: list[list[Leaf]] = [
            [self._leaf(moments, c, part, dof) for part in parts] for c in range(plan.num_classes)
        ]
        tables = probabilities(self.tables, plan.sizes)
        starts = starts_of(plan.sizes)
        for leaves, row in zip(factors, tables, strict=True):
            for column, start, size in zip(plan.categories, starts, plan.sizes, strict=True):
                leaves.append(Categorical(column, row[start : start + size]))
        return factors

    def _transformed_moments(self) -> ClassMoments:
        """Return the moments of the transformed numbers, the parameters of the leaves.

        The sums are of `Coordinates`, which keep more digits. With a power of 1 the transformed
        number is the number divided by its scale.
        """
        known, moments = self.coordinates, self.moments
        start = signed_log(known.middle)
        slope = np.exp((known.powers - 1.0) * start)
        origin = of_signed_log(start, known.powers) + slope * known.center
        unit = slope * known.unit
        return ClassMoments(
            origin + unit * moments.means, unit[:, None] * moments.covariances * unit
        )

    def _leaf(self, moments: ClassMoments, which: int, part: IntArray, dof: float) -> Elliptical:
        """Return the leaf of some numbers in one class, from `_transformed_moments`."""
        known = self.coordinates
        scope = tuple(np.array(self.plan.numbers)[part].tolist())
        mean = moments.means[which, part]
        covariance = moments.covariances[which][np.ix_(part, part)]
        scale = known.scale[part]
        if (known.powers == 1.0).all():
            return Elliptical(scope, mean * scale, scale[:, None] * covariance * scale, dof)
        reach = known.reach[part]
        return Elliptical(scope, mean, covariance, dof, known.powers[part], scale, reach)


def pieces(blocks: IntArray) -> list[IntArray]:
    """Return the columns of each feature of a head: every column alone, then the larger blocks."""
    alone = [np.array([j]) for j in range(len(blocks))]
    return alone + [block for block in members(blocks) if len(block) > 1]

"""The circuits that a class-conditional training ends in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.learners.class_conditional.blocks import members
from flwr_causal.core.circuits.learners.class_conditional.shrinkage import ClassMoments
from flwr_causal.core.circuits.learners.class_conditional.tables import probabilities, starts_of
from flwr_causal.core.circuits.learners.head import TrainedWithHead
from flwr_causal.core.circuits.leaves.elliptical import Elliptical
from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.leaves.yeo_johnson import of_signed_log, signed_log
from flwr_causal.core.circuits.model import CircuitModel, HeadPosterior
from flwr_causal.core.circuits.nodes import Product, Sum

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.class_conditional.blocks import Choice
    from flwr_causal.core.circuits.learners.class_conditional.powers import Coordinates
    from flwr_causal.core.circuits.learners.training_by_sums import Plan
    from flwr_causal.core.circuits.model import Posterior
    from flwr_causal.core.circuits.nodes import Leaf, Node


@dataclass(frozen=True, eq=False)
class ClassConditionalTrained(TrainedWithHead):
    """All that the circuits are made of.

    Parameters
    ----------
    plan : Plan
    counts : ndarray of float, shape (C,)
        Rows of each class.
    coordinates : Coordinates
    moments : ClassMoments
        Means (C, d) and covariances (C, d, d), in the coordinates.
    tables : ndarray of float, shape (C, states)
        Rows of each class and state, the categories side by side.
    choice : Choice
        Tails and blocks.
    """

    plan: Plan
    counts: FloatArray
    coordinates: Coordinates
    moments: ClassMoments
    tables: FloatArray
    choice: Choice

    def model(self, domain: Domain) -> CircuitModel:
        """Return the circuit of the best density, and what predicts the class.

        The density has one leaf over all numbers for each class. The class is predicted by a
        circuit of the same sums whose leaves are over blocks of correlated numbers, or by a
        logistic head. Classes of which no party has a row are in neither: their likelihood is 0.
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
        """Return the root of a circuit with one leaf for each class and block, and category."""
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
        """Return for each class its leaves over parts of the numbers, and its categories."""
        plan, moments = self.plan, self._transformed_moments()
        factors: list[list[Leaf]] = [
            [self._leaf(moments, c, part, dof) for part in parts] for c in range(plan.num_classes)
        ]
        sizes = np.array(plan.sizes, dtype=np.int64)
        tables = probabilities(self.tables, sizes)
        for leaves, row in zip(factors, tables, strict=True):
            for column, start, size in zip(plan.categories, starts_of(sizes), sizes, strict=True):
                leaves.append(Categorical(column, row[start : start + size]))
        return factors

    def _transformed_moments(self) -> ClassMoments:
        """Return moments of the transformed numbers themselves, as leaves take them.

        Sums were taken of coordinates that keep more digits. Where powers are 1 the numbers are
        divided by their scale alone.
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
    """Columns of each leaf that a head weighs: every column alone, then blocks of several."""
    alone = [np.array([j]) for j in range(len(blocks))]
    return alone + [block for block in members(blocks) if len(block) > 1]

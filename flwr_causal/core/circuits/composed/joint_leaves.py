"""One party's numbers in mixtures that all parties train together: an elliptical leaf a component.

As `joint_trees.Table` for columns with states: in each exchange the party makes its part of every
component from how probable the components are for each of the common rows. Powers of the columns
are chosen once, by the party's own rows; covariances are shrunk as held-out rows of the party ask
for. Categories beside the class are independent of the numbers within a component.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.circuit import Circuit, moved
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.class_conditional.categories import (
    log_probabilities,
    probabilities,
    starts_of,
    tables_of,
)
from flwr_causal.core.circuits.learners.class_conditional.learner import (
    ClassConditional,
    ClassConditionalTrained,
    chosen_coordinates,
)
from flwr_causal.core.circuits.learners.class_conditional.moments import (
    BlockChoice,
    ClassMoments,
    ClassSums,
    choose_shrinkage,
    shrunk_moments,
)
from flwr_causal.core.circuits.learners.class_conditional.pattern import ColumnPatterns
from flwr_causal.core.circuits.learners.class_conditional.rows import NUM_FOLDS, rows_of
from flwr_causal.core.circuits.learners.training_by_sums import pooled
from flwr_causal.core.circuits.leaves.elliptical import (
    squared_norms,
    standard_log_density,
    whitened,
)
from flwr_causal.core.circuits.leaves.yeo_johnson import signed_log, transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.learners.class_conditional.moments import Coordinates
    from flwr_causal.core.circuits.learners.class_conditional.rows import ClassedRows
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan
    from flwr_causal.core.circuits.nodes import Node

#: Variance of a component that starts from a row, as a share of the variance of all rows.
START_SHARE = 0.15
#: Rows for each number of a component, and the most components.
ROWS_PER_PARAMETER = 4
MOST_COMPONENTS = 32


class JointLeaves(NamedTuple):
    """The party's part of K components.

    Parameters
    ----------
    counts : ndarray of float64, shape (K,)
        Rows of each.
    moments : ClassMoments
        Means (K, d) and covariances (K, d, d) of the numbers, in the coordinates.
    tables : ndarray of float64, shape (K, states)
        Rows of each state, the categories side by side.
    """

    counts: FloatArray
    moments: ClassMoments
    tables: FloatArray


@dataclass(frozen=True, eq=False)
class NumberTable:
    """A party's columns of the common rows, without the class.

    Parameters
    ----------
    domain : Domain
        Of these columns.
    plan : TrainingPlan
        Of a training without classes.
    rows : ClassedRows
    coordinates : Coordinates
    z : ndarray of float64, shape (n, d)
        The numbers in the coordinates.
    log_slopes : ndarray of float64, shape (n,)
        Log of the volume of the coordinates for each volume of the numbers.
    """

    domain: Domain
    plan: TrainingPlan
    rows: ClassedRows
    coordinates: Coordinates
    z: FloatArray
    log_slopes: FloatArray

    @classmethod
    def of(cls, domain: Domain, values: FloatArray) -> NumberTable:
        """Choose powers for values ``(n, number of variables)``."""
        plan = ClassConditional().plan(domain)
        scaled = pooled(chosen_coordinates(plan, ColumnPatterns.of(plan)), plan, [values])
        rows, known = rows_of(values, plan), scaled.coordinates
        slopes = transform(rows.numbers / known.scale, known.powers, known.reach)[1]
        slopes = slopes - (known.powers - 1.0) * signed_log(known.middle)
        slopes = slopes - np.log(known.unit * known.scale)
        return cls(domain, plan, rows, known, known.apply(rows.numbers), slopes.sum(axis=1))

    def start(self, anchors: IntArray) -> JointLeaves:
        """Return the party's part of the components that start from rows ``(E, K)``."""
        own = anchors.ravel()
        size = self.z.shape[1]
        covariance = np.cov(self.z.T, bias=True).reshape(size, size) + 1e-6 * np.eye(size)
        spread = np.broadcast_to(START_SHARE * covariance, (len(own), size, size))
        every = tables_of(
            self.rows.categories, np.zeros(len(self.z), dtype=np.int64), 1, self._sizes
        )
        tables = tables_of(self.rows.categories[own], np.arange(len(own)), len(own), self._sizes)
        tables = tables + every / len(self.z)
        return JointLeaves(np.ones(len(own)), ClassMoments(self.z[own], spread), tables)

    def products(self, shared: FloatArray) -> JointLeaves:
        """Return the party's part of components.

        Parameters
        ----------
        shared : ndarray of float, shape (n, E K)
            Responsibilities.
        """
        learner = ClassConditional()
        components, size = shared.shape[1], self.z.shape[1]
        counts = np.zeros((NUM_FOLDS, components))
        first = np.zeros((NUM_FOLDS, components, size))
        second = np.zeros((NUM_FOLDS, components, size, size))
        for fold in range(NUM_FOLDS):
            own = self.rows.folds == fold
            z, weights = self.z[own], shared[own]
            counts[fold], first[fold] = weights.sum(axis=0), weights.T @ z
            second[fold] = np.einsum("nk,ni,nj->kij", weights, z, z, optimize=True)
        folds = ClassSums(counts, first, second, np.zeros((components, size)))
        shrinkage = choose_shrinkage(folds, learner.diagonals, learner.pooled)
        total = folds.total()
        return JointLeaves(total.counts, shrunk_moments(total, shrinkage), self._tables(shared))

    #: Trees and products are the same for numbers.
    trees = products

    def log_densities(self, leaves: JointLeaves) -> FloatArray:
        """Return the log density of each row in each component, shape (n, K)."""
        whitening, log_dets = whitened(leaves.moments.covariances)
        result = np.empty((len(self.z), len(log_dets)))
        for k, (matrix, log_det) in enumerate(zip(whitening, log_dets, strict=True)):
            squares = squared_norms((self.z - leaves.moments.means[k]) @ matrix.T)
            result[:, k] = standard_log_density(squares, log_det, self.z.shape[1], np.inf)
        said = log_probabilities(
            self.rows.categories, probabilities(leaves.tables, self._sizes), self._sizes
        )
        return np.asarray(result + self.log_slopes[:, None] + said.sum(axis=2))

    def nodes(self, leaves: JointLeaves, columns: Sequence[int]) -> list[Node]:
        """Return the node of each component, over these columns of the party's domain."""
        components = len(leaves.counts)
        name = "component" + "_" * max(map(len, self.domain.names))  # a name that no column has
        extended = Domain((*self.domain.variables, Variable(name, tuple(range(components)))))
        trained = ClassConditionalTrained(
            ClassConditional(target=name).plan(extended),
            np.maximum(leaves.counts, 1.0),
            self.coordinates,
            leaves.moments,
            leaves.tables,
            BlockChoice(np.inf, np.inf, np.zeros(self.z.shape[1], dtype=np.int64)),
        )
        density = trained.model(extended).density
        assert isinstance(density, Circuit)
        places = dict(enumerate(columns))
        return [moved(density.conditional({name: k}).root, places) for k in range(components)]

    @property
    def _sizes(self) -> list[int]:
        return list(self.plan.sizes)

    def _tables(self, shared: FloatArray) -> FloatArray:
        """Count rows by component and state."""
        states = self.rows.categories + starts_of(self._sizes)
        tables = np.zeros((shared.shape[1], sum(self._sizes)))
        for own in states.T:
            np.add.at(tables.T, own, shared)
        return tables


def automatic_components(rows: int, presence: BoolArray) -> int:
    """Return how many components there are where that is not given.

    Parameters
    ----------
    rows : int
        That all parties have.
    presence : ndarray of bool, shape (parties, numbers)
    """
    sizes = presence.sum(axis=1)
    parameters = int((sizes * (sizes + 3) // 2).sum())
    return int(np.clip(rows // (ROWS_PER_PARAMETER * parameters), 1, MOST_COMPONENTS))

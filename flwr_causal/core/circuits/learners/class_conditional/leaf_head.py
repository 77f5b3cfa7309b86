"""The head of class-conditional circuits: its features, and the exchanges that train it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.contract.exchange import Sent
from flwr_causal.core.arrays import symmetric
from flwr_causal.core.circuits.learners.class_conditional.categories import log_probabilities
from flwr_causal.core.circuits.learners.class_conditional.exchanges import (
    COORDINATES,
    FOLD_MOMENTS,
    coordinates_of,
)
from flwr_causal.core.circuits.learners.class_conditional.moments import (
    ClassMoments,
    dof_of,
    leaf_log_density,
)
from flwr_causal.core.circuits.learners.class_conditional.rows import NUM_FOLDS, rows_of
from flwr_causal.core.circuits.learners.class_conditional.trained import pieces
from flwr_causal.core.circuits.learners.head import (
    ChoiceExchange,
    Features,
    HeadExchange,
    RowFeatures,
    ThresholdExchange,
)
from flwr_causal.core.circuits.leaves.elliptical import standard_log_density
from flwr_causal.core.circuits.model import LogisticHead

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays, TrainingPlan


class LeafFeatures(Features):
    """Log densities of columns, of blocks of columns, and of categories."""

    sent = (
        *COORDINATES,
        *FOLD_MOMENTS,
        Sent("blocks", "block of each column", ("columns",)),
        Sent("tails", "inverse degrees of freedom", (1,)),
    )
    num_folds = NUM_FOLDS

    @classmethod
    def of_rows(cls, values: FloatArray, plan: TrainingPlan, asked: Arrays) -> RowFeatures:
        """Return the features of a party's rows, from leaves that were made without their fold."""
        rows = rows_of(values, plan)
        z = coordinates_of(asked).apply(rows.numbers)
        d = z.shape[1]
        covariances = symmetric(asked["covariances"], d)
        blocks = pieces(asked["blocks"].astype(np.int64))[d:]
        dof = dof_of(asked["tails"])
        result = np.empty((len(z), plan.num_classes, d + len(blocks) + len(plan.sizes)))
        for fold in range(NUM_FOLDS):
            at = np.flatnonzero(rows.folds == fold)
            moments = ClassMoments(asked["means"][fold], covariances[fold])
            for c in range(plan.num_classes):
                result[at, c, :d] = _each_column(z[at], moments, c, float(dof[0]))
                for j, block in enumerate(blocks):
                    result[at, c, d + j] = leaf_log_density(z[at], block, moments, c, dof)[:, 0]
            log_states = log_probabilities(rows.categories[at], asked["tables"][fold], plan.sizes)
            result[at, :, d + len(blocks) :] = log_states
        return RowFeatures(result, rows.classes, rows.folds)


def _each_column(z: FloatArray, moments: ClassMoments, which: int, dof: float) -> FloatArray:
    """Return the log density of each column of rows (n, d) in one class, shape (n, d)."""
    variances = np.diagonal(moments.covariances[which])
    squares = (z - moments.means[which]) ** 2 / variances
    return standard_log_density(squares, np.log(variances), 1, dof)


def product_head(blocks: IntArray, num_categories: int, shares: FloatArray) -> LogisticHead:
    """Return the head whose posterior is that of the circuit of blocks: weights of 0 and 1.

    Parameters
    ----------
    blocks : ndarray of int, shape (d,)
    num_categories : int
    shares : ndarray of float, shape (C,)
        Shares of the classes in all rows.
    """
    sizes = np.bincount(blocks)[blocks]
    parts = pieces(blocks)
    weights = [float(len(part) > 1 or sizes[part[0]] == 1) for part in parts]
    with np.errstate(divide="ignore"):
        return LogisticHead(np.array(weights + [1.0] * num_categories), np.log(shares))


class LeavesHead(HeadExchange):
    """One Newton step of the head."""

    kind = LeafFeatures


class LeavesChoice(ChoiceExchange):
    """Errors and log losses of the head and of the circuit of blocks on held-out rows."""

    kind = LeafFeatures
    circuit_sent = (Sent("shares", "shares of the classes", ("classes",)),)

    @classmethod
    def circuit_log_posterior(
        cls, values: FloatArray, plan: TrainingPlan, asked: Arrays, features: FloatArray
    ) -> FloatArray:
        """Return the log posterior of the class (n, C) by leaves over blocks."""
        blocks = asked["blocks"].astype(np.int64)
        product = product_head(blocks, len(plan.categories), asked["shares"])
        return product.log_posterior(features)


class LeavesThreshold(ThresholdExchange):
    """Rows by class and log odds under the head, or under the circuit of blocks."""

    kind = LeafFeatures

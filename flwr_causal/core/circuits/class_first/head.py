"""The logistic head of a class-first circuit: log densities of its parts, weighted.

The features of a row are its log densities under univariate leaves and leaves over blocks of
numbers, and the log probabilities of its categories, in each class. Rows of a fold are seen by
parts made of the sums of the other folds, which the training of the circuit has already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.class_first.blocks import leaf_log_density, members
from flwr_causal.core.circuits.class_first.coordinates import Coordinates, dof_of, unpacked
from flwr_causal.core.circuits.class_first.shrinkage import ClassMoments
from flwr_causal.core.circuits.class_first.tables import log_probabilities
from flwr_causal.core.circuits.decision_threshold import log_odds_counts
from flwr_causal.core.circuits.leaves.elliptical_law import standard_log_density
from flwr_causal.core.circuits.logistic_head import Head, head_sums

if TYPE_CHECKING:
    from flwr_causal.core.circuits.class_first.rows import Plan, Rows

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Arrays = dict[str, FloatArray]


def pieces(blocks: IntArray) -> list[IntArray]:
    """Columns of each leaf: every column alone, then the blocks of several."""
    alone = [np.array([j]) for j in range(len(blocks))]
    return alone + [block for block in members(blocks) if len(block) > 1]


def product_head(blocks: IntArray, num_categories: int, shares: FloatArray) -> Head:
    """Return the head that multiplies the blocks and categories, as the circuit of blocks does.

    Parameters
    ----------
    blocks : ndarray of int, shape (d,)
    num_categories : int
    shares : ndarray of float, shape (C,)
        Of the classes among all rows.
    """
    sizes = np.bincount(blocks)[blocks]
    parts = pieces(blocks)
    weights = [float(len(part) > 1 or sizes[part[0]] == 1) for part in parts]
    with np.errstate(divide="ignore"):
        return Head(np.array(weights + [1.0] * num_categories), np.log(shares))


def features(rows: Rows, plan: Plan, asked: Arrays) -> FloatArray:
    """Log densities of a party's rows (n, C, m), of each part made without the row's fold."""
    z = Coordinates(*(asked[name] for name in Coordinates._fields)).apply(rows.numbers)
    covariances = unpacked(asked["covariances"], z.shape[1])
    d = z.shape[1]
    blocks = pieces(asked["blocks"].astype(np.int64))[d:]
    sizes = np.array(plan.sizes, dtype=np.int64)
    dof = dof_of(asked["tails"])
    result = np.empty((len(z), plan.num_classes, d + len(blocks) + len(sizes)))
    for fold in range(plan.num_folds):
        at = np.flatnonzero(rows.folds == fold)
        moments = ClassMoments(asked["means"][fold], covariances[fold])
        for c in range(plan.num_classes):
            result[at, c, :d] = _each_column(z[at], moments, c, float(dof[0]))
            for j, block in enumerate(blocks):
                result[at, c, d + j] = leaf_log_density(z[at], block, moments, c, dof)[:, 0]
        said = log_probabilities(rows.categories[at], asked["tables"][fold], sizes)
        result[at, :, d + len(blocks) :] = said
    return result


def _each_column(z: FloatArray, moments: ClassMoments, which: int, dof: float) -> FloatArray:
    """Log density of each column of rows (n, d) in one class, (n, d)."""
    variances = np.diagonal(moments.covariances[which])
    squares = (z - moments.means[which]) ** 2 / variances
    return standard_log_density(squares, np.log(variances), 1, dof)


def head_arrays(head: Head) -> Arrays:
    """Return a head as finite arrays."""
    present = head.biases > -np.inf
    return {
        "head_weights": head.weights,
        "head_biases": np.where(present, head.biases, 0.0),
        "head_present": present.astype(np.float64),
    }


def head_of(asked: Arrays) -> Head:
    """Opposite of :func:`head_arrays`."""
    return Head(
        asked["head_weights"], np.where(asked["head_present"] > 0, asked["head_biases"], -np.inf)
    )


def head_answer(rows: Rows, plan: Plan, asked: Arrays) -> Arrays:
    """Return what a Newton step needs of a party's rows; see :func:`logistic_head.head_sums`."""
    return head_sums(features(rows, plan, asked), rows.classes, head_of(asked))


def threshold_answer(rows: Rows, plan: Plan, asked: Arrays) -> Arrays:
    """Count a party's rows by class and log odds, for the threshold."""
    log_posterior = head_of(asked).log_posterior(features(rows, plan, asked))
    return {"log_odds": log_odds_counts(log_posterior, rows.classes)}

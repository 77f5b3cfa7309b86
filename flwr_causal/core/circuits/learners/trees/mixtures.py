"""Mixtures of trees during EM: several side by side, for each class and each start.

The mixtures of a class are an ensemble: they start from different draws, are trained by the same
exchanges, and their mean density is better than each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from flwr_causal.core.circuits.learners.trees.pair_sums import round_weights
from flwr_causal.core.circuits.learners.trees.tables import Trees

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays
    from flwr_causal.core.circuits.learners.trees.pair_sums import Codes


#: Rows that a component is given beforehand, so that none has a weight of 0.
PRIOR_ROWS = 0.1


@dataclass(frozen=True, eq=False)
class Mixtures:
    """Mixtures of one class.

    Parameters
    ----------
    trees : Trees
        Those of the first mixture, then of the second, and so on: E times K.
    log_weights : ndarray of float, shape (E, K)
    """

    trees: Trees
    log_weights: FloatArray

    @property
    def size(self) -> int:
        """Number of trees, E times K."""
        return self.trees.num_trees

    def log_joint(self, codes: Codes) -> FloatArray:
        """Log of weight times density, ``(n, E, K)``, of rows ``(d, n)``."""
        densities = self.trees.log_densities(codes)
        return densities.reshape(-1, *self.log_weights.shape) + self.log_weights

    def responsibilities(self, codes: Codes) -> FloatArray:
        """Probability of each component given the row and the mixture, rounded, ``(n, E K)``."""
        return responsibilities(self.log_joint(codes)).reshape(-1, self.size)

    def of_rows(self, codes: Codes, rows: slice) -> FloatArray:
        """Return the responsibilities of a slice of rows ``(d, n)``."""
        return self.responsibilities(codes[:, rows])

    def log_likelihood(self, codes: Codes) -> FloatArray:
        """Log of the mean density of the mixtures, ``(n,)``."""
        joint = self.log_joint(codes)
        return np.asarray(logsumexp(joint, axis=(1, 2)) - np.log(len(self.log_weights)))


def responsibilities(log_joint: FloatArray) -> FloatArray:
    """Normalise over the last axis; results are multiples of ``pair_sums.UNIT``."""
    shares = np.exp(log_joint - log_joint.max(axis=-1, keepdims=True))
    return round_weights(shares / shares.sum(axis=-1, keepdims=True))


def log_weights(rows: FloatArray) -> FloatArray:
    """Log weights of components from their numbers of rows, ``(..., K)``."""
    given = rows + PRIOR_ROWS
    return np.asarray(np.log(given / given.sum(axis=-1, keepdims=True)))


def to_arrays(mixtures: Sequence[Mixtures]) -> Arrays:
    """Return the mixtures of all classes as arrays to be sent."""
    return {
        "shapes": np.array([one.log_weights.shape for one in mixtures], dtype=np.float64),
        "log_weights": np.concatenate([one.log_weights.ravel() for one in mixtures]),
        "parents": np.concatenate([one.trees.parents for one in mixtures]).astype(np.float64),
        "seen": np.concatenate([one.trees.seen for one in mixtures]),
        "added": np.concatenate([one.trees.added for one in mixtures]),
    }


def from_arrays(num_states: Sequence[int], arrays: Mapping[str, FloatArray]) -> list[Mixtures]:
    """Opposite of :func:`to_arrays`."""
    trees = Trees(
        np.array(num_states, dtype=np.int64),
        arrays["parents"].astype(np.int64),
        arrays["seen"],
        arrays["added"],
    )
    result, first = [], 0
    for members, size in arrays["shapes"].astype(np.int64).tolist():
        last = first + members * size
        weights = arrays["log_weights"][first:last].reshape(members, size)
        result.append(Mixtures(trees.part(first, last), weights))
        first = last
    return result

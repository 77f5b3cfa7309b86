"""The distribution of one category."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.core.circuits.leaves.univariate import Univariate
from flwr_causal.core.circuits.nodes import Leaf, LeafBatch
from flwr_causal.core.circuits.parameters import probabilities, scope_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays, FloatArray


@dataclass(frozen=True, eq=False)
class Categorical(Univariate):
    """Probabilities of the states of a category.

    Parameters
    ----------
    column : int
    probabilities : array_like, shape (states,)
        Of sum 1.
    """

    column: int
    probabilities: FloatArray

    kind: ClassVar[str] = "categorical"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", scope_of([self.column]))
        checked = probabilities(f"the probabilities of column {self.column}", self.probabilities)
        object.__setattr__(self, "probabilities", checked)

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log probability of each row's state, 0 where it is missing, shape (n,)."""
        return _log_table(self.probabilities)[state_codes(values[:, 0], len(self.probabilities))]

    def _draws(self, count: int, rng: np.random.Generator) -> FloatArray:
        return draws_of(np.broadcast_to(self.probabilities, (count, len(self.probabilities))), rng)

    def _peak(self) -> float:
        return float(np.argmax(self.probabilities))

    def _mean_and_square(self) -> tuple[float, float]:
        index = np.arange(len(self.probabilities))
        return float(index @ self.probabilities), float(index**2 @ self.probabilities)

    @property
    def num_states(self) -> tuple[int, ...]:
        """Number of states."""
        return (len(self.probabilities),)

    @property
    def num_parameters(self) -> int:
        """Number of states less 1."""
        return len(self.probabilities) - 1

    def arrays(self) -> Arrays:
        """Return the probabilities."""
        return {"probabilities": self.probabilities}

    @classmethod
    def from_arrays(cls, scope: Sequence[int], arrays: Arrays) -> Categorical:
        """Return the leaf of given parameters."""
        return cls(scope[0], arrays["probabilities"])

    @classmethod
    def batch(cls, leaves: Sequence[Leaf]) -> LeafBatch:
        """Return categories, ready to be evaluated together."""
        return CategoricalBatch(leaves)


def bernoulli(column: int, p: float) -> Categorical:
    """Return the leaf of two states of which the second has probability p."""
    return Categorical(column, np.array([1.0 - p, p]))


def state_codes(column: FloatArray, num_states: int) -> NDArray[np.int64]:
    """Return states as whole numbers, and the number of states for a missing value."""
    return np.where(np.isnan(column), num_states, column).astype(np.int64)


def draws_of(rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw one state from the probabilities in each row, shape (n,)."""
    cumulative = np.cumsum(rows, axis=1)
    # Divided by its last element it ends in exactly 1, which no draw reaches, and an impossible
    # last state begins there: no state of probability 0 is ever drawn.
    cumulative = cumulative / cumulative[:, -1:]
    drawn: FloatArray = (rng.random((len(rows), 1)) >= cumulative).sum(axis=1).astype(np.float64)
    return drawn


def _log_table(given: FloatArray) -> FloatArray:
    """Logarithms, and 0 behind them for a missing value."""
    with np.errstate(divide="ignore"):
        return np.append(np.log(given), 0.0)


class CategoricalBatch(LeafBatch):
    """Categories as one long table of logarithms."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__(leaves)
        own = [leaf for leaf in leaves if isinstance(leaf, Categorical)]
        self._table = np.concatenate([_log_table(leaf.probabilities) for leaf in own])
        sizes = np.array([len(leaf.probabilities) for leaf in own])
        self._starts = np.cumsum(sizes + 1) - (sizes + 1)
        # Every column that occurs is turned into codes once.
        self._column, first, self._row = np.unique(
            np.array([leaf.column for leaf in own]), return_index=True, return_inverse=True
        )
        self._num_states = sizes[first][:, None]

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log probability of each leaf and row, shape (number of leaves, n)."""
        from flwr_causal.core.circuits.layer_kernels import looked_up

        codes: FloatArray = values.T[self._column]
        missing = np.isnan(codes)
        if missing.any():
            codes = np.where(missing, self._num_states, codes)
        result = np.empty((len(self.leaves), len(values)))
        looked_up(codes.astype(np.int32), self._row, self._starts, self._table, result)
        return result

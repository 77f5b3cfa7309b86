"""What the leaves over one column have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.nodes import Leaf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray


class Univariate(Leaf):
    """A leaf over one column; values have the shape (n, 1).

    A kind is a dataclass with a field ``column``, and says what a missing value is filled with.
    """

    column: int

    @abstractmethod
    def _draws(self, count: int, rng: np.random.Generator) -> FloatArray:
        """Return independent draws, shape (count,)."""

    @abstractmethod
    def _peak(self) -> float:
        """Return the most probable value."""

    @abstractmethod
    def _mean_and_square(self) -> tuple[float, float]:
        """Return E[x] and E[x^2]."""

    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Fill missing values by draws."""
        missing = np.isnan(values)
        filled = values.copy()
        filled[missing] = self._draws(int(missing.sum()), rng)
        return filled

    def mode(self, values: FloatArray) -> FloatArray:
        """Fill missing values by the most probable one."""
        return np.where(np.isnan(values), self._peak(), values)

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return E[x] and E[x^2] of each row, given its value if it has one."""
        mean, square = self._mean_and_square()
        missing = np.isnan(values)
        return np.where(missing, mean, values), np.where(missing, square, values**2)

    def restrict(self, scope: Sequence[int]) -> Leaf:
        """Return the leaf: there is nothing to leave out."""
        return self

    def condition(self, values: FloatArray) -> tuple[Leaf | None, float]:
        """Return None and the log density of the value, or the leaf and 0 if it is missing."""
        if np.isnan(values[0]):
            return self, 0.0
        return None, float(self.log_density(values[None, :])[0])

    def moved(self, columns: Sequence[int]) -> Leaf:
        """Return the same distribution of another column."""
        changed: Any = replace(self, column=int(columns[0]))  # type: ignore[type-var]
        return changed  # type: ignore[no-any-return]

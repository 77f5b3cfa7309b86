"""The normal distribution of one number."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.core.circuits.leaves.univariate import Univariate
from flwr_causal.core.circuits.nodes import Leaf, LeafBatch
from flwr_causal.core.circuits.parameters import numbers, positive, scope_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import Arrays, FloatArray

#: log sqrt(2 pi)
NORMALISER = 0.5 * math.log(2 * math.pi)


@dataclass(frozen=True, eq=False)
class Gaussian(Univariate):
    """The normal distribution.

    Parameters
    ----------
    column : int
    mean : float
    sd : float
        Standard deviation, above 0.
    """

    column: int
    mean: float
    sd: float

    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", scope_of([self.column]))
        object.__setattr__(self, "mean", float(numbers("the mean", self.mean)))
        object.__setattr__(self, "sd", float(positive("the standard deviation", self.sd)))

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each row, 0 where the value is missing, shape (n,)."""
        standard = (values[:, 0] - self.mean) / self.sd
        density = -0.5 * standard**2 - (math.log(self.sd) + NORMALISER)
        return np.where(np.isnan(density), 0.0, density)

    def _draws(self, count: int, rng: np.random.Generator) -> FloatArray:
        return rng.normal(self.mean, self.sd, count)

    def _peak(self) -> float:
        return self.mean

    def _mean_and_square(self) -> tuple[float, float]:
        return self.mean, self.sd**2 + self.mean**2

    @property
    def num_parameters(self) -> int:
        """Mean and standard deviation."""
        return 2

    def arrays(self) -> Arrays:
        """Return mean and standard deviation."""
        return {"mean": np.array(self.mean), "sd": np.array(self.sd)}

    @classmethod
    def from_arrays(cls, scope: Sequence[int], arrays: Arrays) -> Gaussian:
        """Return the leaf of given parameters."""
        return cls(scope[0], float(arrays["mean"]), float(arrays["sd"]))

    @classmethod
    def batch(cls, leaves: Sequence[Leaf]) -> LeafBatch:
        """Return normal distributions, ready to be evaluated together."""
        return GaussianBatch(leaves)


class GaussianBatch(LeafBatch):
    """Normal distributions as arrays of means and standard deviations."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__(leaves)
        own = [leaf for leaf in leaves if isinstance(leaf, Gaussian)]
        self._column = np.array([leaf.column for leaf in own])
        mean = np.array([leaf.mean for leaf in own])
        sd = np.array([leaf.sd for leaf in own])
        # (x - mean)^2 / (2 sd^2) as the square of a x + b.
        factor = math.sqrt(0.5) / sd
        self._parameters = (factor, -mean * factor, -(np.log(sd) + NORMALISER))

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each leaf and row, shape (number of leaves, n)."""
        from flwr_causal.core.circuits.layer_kernels import normal_densities

        result = np.empty((len(self.leaves), len(values)))
        columns = np.ascontiguousarray(values.T)
        normal_densities(columns, self._column, *self._parameters, result)
        return result

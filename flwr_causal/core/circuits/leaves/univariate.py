"""Leaves over one column: categories, normal distributions and histograms."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.circuits.nodes import (
    Leaf,
    LeafBatch,
    numbers,
    positive,
    probabilities,
    scope_of,
)
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays, FloatArray


class Univariate(Leaf):
    """A leaf over one column; values have the shape (n, 1).

    A subclass is a dataclass with a field ``column`` that implements draws, peak and moments.
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
        """Return E[x] and E[x^2] of each row; a given value is its own mean."""
        mean, square = self._mean_and_square()
        missing = np.isnan(values)
        return np.where(missing, mean, values), np.where(missing, square, values**2)

    def restrict(self, scope: Sequence[int]) -> Leaf:
        """Return the leaf itself."""
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


class CategoricalBatch(LeafBatch):
    """Categories as one long table of logarithms."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__(leaves)
        categories = [leaf for leaf in leaves if isinstance(leaf, Categorical)]
        self._table = np.concatenate([_log_table(leaf.probabilities) for leaf in categories])
        sizes = np.array([len(leaf.probabilities) for leaf in categories])
        self._starts = np.cumsum(sizes + 1) - (sizes + 1)
        # Each column is encoded once for all its leaves.
        self._column, first, self._row = np.unique(
            np.array([leaf.column for leaf in categories]), return_index=True, return_inverse=True
        )
        self._num_states = sizes[first][:, None]

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log probability of each leaf and row, shape (number of leaves, n)."""
        codes: FloatArray = values.T[self._column]
        missing = np.isnan(codes)
        if missing.any():
            codes = np.where(missing, self._num_states, codes)
        places = codes.astype(np.int64)[self._row]
        places += self._starts[:, None]
        return self._table[places]


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
    batch: ClassVar[type[LeafBatch]] = CategoricalBatch

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", scope_of([self.column]))
        checked = probabilities(f"the probabilities of column {self.column}", self.probabilities)
        object.__setattr__(self, "probabilities", checked)

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log probability of each row's state, 0 where it is missing, shape (n,)."""
        return _log_table(self.probabilities)[state_codes(values[:, 0], len(self.probabilities))]

    def tilted(self, heights: Mapping[int, FloatArray]) -> tuple[Leaf, float]:
        """Return the leaf of the products with heights, and the logarithm of their sum."""
        if self.column not in heights:
            return self, 0.0
        products = self.probabilities * heights[self.column]
        total = float(products.sum())
        return Categorical(self.column, products / total), math.log(total)

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


def state_codes(column: FloatArray, num_states: int) -> NDArray[np.int64]:
    """Return states as whole numbers, and the number of states for a missing value."""
    return np.where(np.isnan(column), num_states, column).astype(np.int64)


def draws_of(rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Draw one state from the probabilities in each row, shape (n,)."""
    cumulative = np.cumsum(rows, axis=1)
    # After the division the last entry is exactly 1, which no draw reaches, so that no state of
    # probability 0 is drawn, not even the last one.
    cumulative = cumulative / cumulative[:, -1:]
    drawn: FloatArray = (rng.random((len(rows), 1)) >= cumulative).sum(axis=1).astype(np.float64)
    return drawn


def _log_table(given: FloatArray) -> FloatArray:
    """Return the logarithms, followed by 0 for a missing value."""
    with np.errstate(divide="ignore"):
        return np.append(np.log(given), 0.0)


#: log sqrt(2 pi)
NORMALISER = 0.5 * math.log(2 * math.pi)


class GaussianBatch(LeafBatch):
    """Normal distributions as arrays of means and standard deviations."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__(leaves)
        normals = [leaf for leaf in leaves if isinstance(leaf, Gaussian)]
        self._column = np.array([leaf.column for leaf in normals])
        mean = np.array([leaf.mean for leaf in normals])
        sd = np.array([leaf.sd for leaf in normals])
        # (x - mean)^2 / (2 sd^2) as the square of a x + b.
        factor = math.sqrt(0.5) / sd
        self._factor, self._shift = factor[:, None], (-mean * factor)[:, None]
        self._constant = -(np.log(sd) + NORMALISER)[:, None]

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each leaf and row, shape (number of leaves, n)."""
        result = np.ascontiguousarray(values.T)[self._column]
        result *= self._factor
        result += self._shift
        np.square(result, out=result)
        np.subtract(self._constant, result, out=result)
        result[np.isnan(result)] = 0.0
        return np.asarray(result)


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
    batch: ClassVar[type[LeafBatch]] = GaussianBatch

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


class HistogramBatch(LeafBatch):
    """Histograms; the bins of the rows are found once for each column and edges."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__(leaves)
        groups: dict[tuple[int, bytes], list[int]] = {}
        histograms = [leaf for leaf in leaves if isinstance(leaf, Histogram)]
        for position, leaf in enumerate(histograms):
            groups.setdefault((leaf.column, leaf.edges.tobytes()), []).append(position)
        self._groups = []
        for (column, _), positions in groups.items():
            heights = np.stack([histograms[k]._log_heights for k in positions])
            tails = np.array([histograms[k].tail for k in positions])
            self._groups.append((column, histograms[positions[0]].edges, positions, heights, tails))

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each leaf and row, shape (number of leaves, n)."""
        result = np.empty((len(self.leaves), len(values)))
        for number, edges, positions, heights, tails in self._groups:
            column = values[:, number]
            density = heights[:, np.searchsorted(edges, column, side="right")]
            beyond = np.maximum(edges[0] - column, column - edges[-1])
            outside = beyond > 0
            if outside.any():
                density[:, outside] -= beyond[outside] / tails[:, None]
            density[:, np.isnan(column)] = 0.0
            result[positions] = density
        return result


@dataclass(frozen=True, eq=False)
class Histogram(Univariate):
    """Bins of constant density between two exponential tails; every number is possible.

    Parameters
    ----------
    column : int
    edges : array_like, shape (B + 1,)
        The bounds of the B bins, ascending; bin k holds ``edges[k] <= x < edges[k + 1]``.
    masses : array_like, shape (B + 2,)
        The probability of the lower tail, of each bin and of the upper tail; of sum 1.
    tail : float
        Mean distance of a value in a tail from the outermost edge, above 0.
    """

    column: int
    edges: FloatArray
    masses: FloatArray
    tail: float

    kind: ClassVar[str] = "histogram"
    batch: ClassVar[type[LeafBatch]] = HistogramBatch

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", scope_of([self.column]))
        edges = numbers("the edges", self.edges, 1)
        masses = probabilities(f"the masses of column {self.column}", self.masses)
        if len(edges) < 2 or (np.diff(edges) <= 0).any():
            raise ConfigError(f"the edges of column {self.column} must ascend, at least two")
        if len(masses) != len(edges) + 1:
            raise ConfigError(
                f"{len(edges)} edges need {len(edges) + 1} masses (the tails are the outermost "
                f"two), got {len(masses)}"
            )
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "masses", masses)
        object.__setattr__(self, "tail", float(positive("the scale of the tails", self.tail)))

    @property
    def _log_heights(self) -> FloatArray:
        """Log density of each bin, and of each tail at its edge, shape (B + 2,)."""
        widths = np.concatenate(([self.tail], np.diff(self.edges), [self.tail]))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.masses / widths))

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each row, 0 where the value is missing, shape (n,)."""
        column = values[:, 0]
        piece = np.searchsorted(self.edges, column, side="right")
        beyond = np.maximum(np.maximum(self.edges[0] - column, column - self.edges[-1]), 0.0)
        density = self._log_heights[piece] - beyond / self.tail
        return np.where(np.isnan(column), 0.0, density)

    def _draws(self, count: int, rng: np.random.Generator) -> FloatArray:
        piece = draws_of(np.broadcast_to(self.masses, (count, len(self.masses))), rng)
        lower, upper = piece == 0, piece == len(self.edges)
        bin_ = np.clip(piece - 1, 0, len(self.edges) - 2).astype(np.int64)
        drawn = rng.uniform(self.edges[bin_], self.edges[bin_ + 1])
        drawn[lower] = self.edges[0] - rng.exponential(self.tail, lower.sum())
        drawn[upper] = self.edges[-1] + rng.exponential(self.tail, upper.sum())
        return drawn

    def _peak(self) -> float:
        """Return the middle of the bin of highest density, or the inner end of a tail."""
        piece = int(np.argmax(self._log_heights))
        if piece == 0:  # the first edge itself belongs to the first bin
            return float(np.nextafter(self.edges[0], -np.inf))
        if piece == len(self.edges):
            return float(self.edges[-1])
        return float(0.5 * (self.edges[piece - 1] + self.edges[piece]))

    def _mean_and_square(self) -> tuple[float, float]:
        low, high, tail = self.edges[0], self.edges[-1], self.tail
        a, b = self.edges[:-1], self.edges[1:]
        means = np.concatenate(([low - tail], 0.5 * (a + b), [high + tail]))
        squares = np.concatenate(
            (
                [(low - tail) ** 2 + tail**2],
                (a**2 + a * b + b**2) / 3,
                [(high + tail) ** 2 + tail**2],
            )
        )
        return float(self.masses @ means), float(self.masses @ squares)

    @property
    def num_parameters(self) -> int:
        """The masses less 1, and the scale of the tails; the edges are a grid."""
        return len(self.masses)

    def arrays(self) -> Arrays:
        """Return edges, masses and the scale of the tails."""
        return {"edges": self.edges, "masses": self.masses, "tail": np.array(self.tail)}

    @classmethod
    def from_arrays(cls, scope: Sequence[int], arrays: Arrays) -> Histogram:
        """Return the leaf of given parameters."""
        return cls(scope[0], arrays["edges"], arrays["masses"], float(arrays["tail"]))

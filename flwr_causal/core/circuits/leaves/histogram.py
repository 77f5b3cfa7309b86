"""A piecewise constant density of one number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.core.circuits.leaves.categorical import draws_of
from flwr_causal.core.circuits.leaves.univariate import Univariate
from flwr_causal.core.circuits.nodes import Leaf, LeafBatch
from flwr_causal.core.circuits.parameters import numbers, positive, probabilities, scope_of
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import Arrays, FloatArray


@dataclass(frozen=True, eq=False)
class Histogram(Univariate):
    """Bins of constant density between two exponential tails, so that no number is impossible.

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
        """Return the middle of the highest bin, or the inner end of a tail that is higher."""
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

    @classmethod
    def batch(cls, leaves: Sequence[Leaf]) -> LeafBatch:
        """Return histograms, ready to be evaluated together."""
        return HistogramBatch(leaves)


class HistogramBatch(LeafBatch):
    """Histograms: those of the same column and edges find the bins of the rows together."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__(leaves)
        groups: dict[tuple[int, bytes], list[int]] = {}
        own = [leaf for leaf in leaves if isinstance(leaf, Histogram)]
        for position, leaf in enumerate(own):
            groups.setdefault((leaf.column, leaf.edges.tobytes()), []).append(position)
        self._groups = []
        for (column, _), positions in groups.items():
            heights = np.stack([own[k]._log_heights for k in positions])
            tails = np.array([own[k].tail for k in positions])
            self._groups.append((column, own[positions[0]].edges, positions, heights, tails))

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

"""Leaves over one column in EM: what is summed over rows for them, and what becomes of them.

Each is the most probable leaf given its sums and the priors of `leaf_priors`, so that a step of EM
climbs the log-likelihood plus the log prior.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import xlogy

from flwr_causal.core.circuits.leaves.categorical import Categorical
from flwr_causal.core.circuits.leaves.gaussian import Gaussian
from flwr_causal.core.circuits.leaves.histogram import Histogram
from flwr_causal.core.circuits.spn.leaf_priors import (
    MEAN_PSEUDO_ROWS,
    SPREAD_SHARE,
    location_and_spread,
    prior_masses,
    smoothed_normals,
    smoothed_tables,
    table_widths,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.circuits.nodes import FloatArray, Leaf

    IntArray = NDArray[np.int64]


class LeafUpdate(ABC):
    """Leaves of one kind over one column in EM: their sums over rows, and what becomes of them.

    Attributes
    ----------
    numbers : ndarray of int, shape (L,)
        Of the leaves in the circuit.
    """

    numbers: IntArray

    @abstractmethod
    def features(self, values: FloatArray) -> FloatArray:
        """Return what is summed over rows with the leaves' flows, (n, S); 0 if missing."""

    @abstractmethod
    def updated(self, sums: FloatArray) -> list[Leaf]:
        """Return the most probable leaves given sums (L, S)."""

    @abstractmethod
    def log_prior(self, leaves: Sequence[Leaf]) -> float:
        """Return the logarithm of the prior of leaves, up to a constant."""


class TableUpdate(LeafUpdate):
    """Categories, or histograms of the same bins.

    Parameters
    ----------
    numbers : sequence of int
    leaf : Categorical or Histogram
        One of them.
    values : ndarray of float64, shape (n, d)
    row_weights : ndarray of float64, shape (n,)
    smoothing : float
    """

    def __init__(
        self,
        numbers: Sequence[int],
        leaf: Categorical | Histogram,
        values: FloatArray,
        row_weights: FloatArray,
        smoothing: float,
    ) -> None:
        self.numbers = np.array(numbers)
        self._leaf = leaf
        self._widths = table_widths(leaf)
        self._smoothing = smoothing
        self._rows = np.vstack((np.eye(len(self._widths)), np.zeros(len(self._widths))))
        codes = self._codes(values)
        counts = np.bincount(codes, row_weights, minlength=len(self._rows)).astype(np.float64)
        self._prior = prior_masses(counts[:-1], self._widths)

    def _codes(self, values: FloatArray) -> IntArray:
        column = values[:, self._leaf.column]
        missing = np.isnan(column)
        if isinstance(self._leaf, Histogram):
            codes = np.searchsorted(self._leaf.edges, column, side="right")
        else:
            codes = np.where(missing, 0, column).astype(np.int64)
        return np.where(missing, len(self._widths), codes)

    def features(self, values: FloatArray) -> FloatArray:
        """Return the indicators of the entries."""
        return self._rows[self._codes(values)]

    def updated(self, sums: FloatArray) -> list[Leaf]:
        """Return leaves of the smoothed tables."""
        tables = smoothed_tables(sums, self._prior, self._smoothing)
        if isinstance(self._leaf, Histogram):
            kept = self._leaf
            return [Histogram(kept.column, kept.edges, table, kept.tail) for table in tables]
        return [Categorical(self._leaf.column, table) for table in tables]

    def log_prior(self, leaves: Sequence[Leaf]) -> float:
        """Return the log-likelihood of the pseudo rows."""
        tables = np.stack(
            [
                leaf.masses if isinstance(leaf, Histogram) else leaf.probabilities
                for leaf in leaves
                if isinstance(leaf, Histogram | Categorical)
            ]
        )
        return float(self._smoothing * xlogy(self._prior, tables).sum())


class NormalUpdate(LeafUpdate):
    """Normal distributions of one column; parameters as of `TableUpdate`, without a leaf."""

    def __init__(
        self,
        numbers: Sequence[int],
        column: int,
        values: FloatArray,
        row_weights: FloatArray,
        smoothing: float,
    ) -> None:
        self.numbers = np.array(numbers)
        self._column = column
        self._smoothing = smoothing
        known = ~np.isnan(values[:, column]) & (row_weights > 0)
        self._mean, self._spread = 0.0, 1.0
        if known.any():
            self._mean, self._spread = location_and_spread(
                values[known, column], row_weights[known]
            )

    def features(self, values: FloatArray) -> FloatArray:
        """Return 1, z and z^2."""
        z = (values[:, self._column] - self._mean) / self._spread
        known = ~np.isnan(z)
        z = np.where(known, z, 0.0)
        return np.column_stack((known, z, z**2))

    def updated(self, sums: FloatArray) -> list[Leaf]:
        """Return the smoothed normal distributions."""
        means, variances = smoothed_normals(sums[:, 0], sums[:, 1], sums[:, 2], self._smoothing)
        return [
            Gaussian(self._column, self._mean + self._spread * mean, self._spread * sd)
            for mean, sd in zip(means.tolist(), np.sqrt(variances).tolist(), strict=True)
        ]

    def log_prior(self, leaves: Sequence[Leaf]) -> float:
        """Return the logarithm of the normal and inverse-gamma prior."""
        own = [leaf for leaf in leaves if isinstance(leaf, Gaussian)]
        mean = (np.array([leaf.mean for leaf in own]) - self._mean) / self._spread
        sd = np.array([leaf.sd for leaf in own]) / self._spread
        pseudo = 0.5 * self._smoothing
        pull = MEAN_PSEUDO_ROWS * mean**2 + pseudo * SPREAD_SHARE**2
        return float((-0.5 * pull / sd**2 - pseudo * np.log(sd)).sum())


def leaf_updates(
    leaves: Sequence[Leaf], values: FloatArray, row_weights: FloatArray, smoothing: float
) -> list[LeafUpdate]:
    """Return the updates of all leaves over one column; others stay as they are."""
    groups: dict[tuple[str, int, bytes], list[int]] = {}
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, Categorical | Histogram | Gaussian):
            bins = b""
            if isinstance(leaf, Histogram):
                bins = leaf.edges.tobytes() + np.float64(leaf.tail).tobytes()
            groups.setdefault((leaf.kind, leaf.column, bins), []).append(number)
    updates: list[LeafUpdate] = []
    for (_, column, _), numbers in groups.items():
        first = leaves[numbers[0]]
        if isinstance(first, Categorical | Histogram):
            updates.append(TableUpdate(numbers, first, values, row_weights, smoothing))
        else:
            updates.append(NormalUpdate(numbers, column, values, row_weights, smoothing))
    return updates

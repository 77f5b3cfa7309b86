"""Families of numbers and categories in a Bayesian network: conditional Gaussian distributions.

The joint distribution of a variable and its parents is Gaussian in each configuration of the
categories among them. A number given its parents is then a linear regression of its own for each
configuration; a category given its parents has the probabilities that follow by Bayes' rule.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import logsumexp

from flwr_causal.core.arrays import frozen_floats
from flwr_causal.core.discrete.discrete import codes_of, label_names
from flwr_causal.core.discrete.mixed_moments import MixedTable
from flwr_causal.core.discrete.probabilities import drawn_states
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    import pandas as pd

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.discrete.mixed_moments import MixedSums


class MixedFamily(NamedTuple):
    """The joint distribution of a variable and its parents.

    Attributes
    ----------
    child : int
    categories, numbers : list of int
        Of the family, ascending.
    log_weights : ndarray
        The log-probability of each configuration of the categories (an axis for each).
    means : ndarray of shape (configurations..., m)
        Of the m numbers, standardised.
    covariances : ndarray of shape (configurations..., m, m)
    """

    child: int
    categories: list[int]
    numbers: list[int]
    log_weights: FloatArray
    means: FloatArray
    covariances: FloatArray

    @classmethod
    def of(
        cls, child: int, parents: Sequence[int], cards: Sequence[int], flat: Sequence[FloatArray]
    ) -> MixedFamily:
        """Return a family of its arrays, of any shape.

        Parameters
        ----------
        child, parents
            Variables.
        cards : sequence of int
            Number of states of each variable; 0: a number.
        flat : sequence of three ndarray
        """
        members = sorted((*parents, child))
        categories = [k for k in members if cards[k]]
        numbers = [k for k in members if not cards[k]]
        shape, m = [cards[k] for k in categories], len(numbers)
        sizes = (shape, [*shape, m], [*shape, m, m])
        arrays = [
            frozen_floats(np.reshape(np.array(own, dtype=np.float64), size))
            for own, size in zip(flat, sizes, strict=True)
        ]
        return cls(child, categories, numbers, *arrays)

    @classmethod
    def of_sums(
        cls,
        child: int,
        parents: Sequence[int],
        cards: Sequence[int],
        sums: MixedSums,
        equivalent_sample_size: float,
    ) -> MixedFamily:
        """Fit a family to counts and moments, with a uniform prior of its configurations."""
        smoothed = sums.counts + equivalent_sample_size / sums.counts.size
        means, _, shrunk = sums.gaussians()
        return cls.of(child, parents, cards, [np.log(smoothed / smoothed.sum()), means, shrunk])

    def log_density(self, rows: MixedTable) -> FloatArray:
        """Return the log-density of the variable given its parents, of standardised numbers."""
        if self.child in self.categories:
            logs = self._log_probabilities(rows)
            return np.asarray(logs[np.arange(rows.num_rows), rows.codes[self.child]])
        mean, deviation = self._regression(rows)
        z = (rows.values[self.child] - mean) / deviation
        return np.asarray(-0.5 * (z**2 + math.log(2.0 * math.pi)) - np.log(deviation))

    def draw(self, rows: MixedTable, rng: np.random.Generator) -> None:
        """Draw the variable given its parents in each row, in place."""
        if self.child in self.categories:
            rows.codes[self.child] = drawn_states(self._log_probabilities(rows), rng)
        else:
            mean, deviation = self._regression(rows)
            rows.values[self.child] = mean + deviation * rng.normal(size=rows.num_rows)

    def _regression(self, rows: MixedTable) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the standard deviation of a number given its parents, each (n,)."""
        cell = tuple(rows.codes[k] for k in self.categories)
        own = self.numbers.index(self.child)
        others = [i for i in range(len(self.numbers)) if i != own]
        among = self.covariances[..., others, :][..., others]
        across = self.covariances[..., own, others]
        slopes = np.linalg.solve(among, across[..., None])[..., 0]
        variances = self.covariances[..., own, own] - (slopes * across).sum(axis=-1)
        given = rows.values[[self.numbers[i] for i in others]].T - self.means[..., others][cell]
        mean = self.means[..., own][cell] + (given * slopes[cell]).sum(axis=-1)
        return mean, np.sqrt(np.broadcast_to(variances[cell], mean.shape))

    def _log_probabilities(self, rows: MixedTable) -> FloatArray:
        """Return the log-probability of each state of a category given its parents, (n, states)."""
        states = self.log_weights.shape[self.categories.index(self.child)]
        values = rows.values[self.numbers].T
        logs = np.zeros((rows.num_rows, states))
        for state in range(states):
            cell = tuple(
                np.full(rows.num_rows, state) if k == self.child else rows.codes[k]
                for k in self.categories
            )
            logs[:, state] = self.log_weights[cell]
            if self.numbers:
                roots = np.linalg.cholesky(self.covariances)
                z = np.linalg.solve(roots[cell], (values - self.means[cell])[..., None])[..., 0]
                deviations = np.diagonal(roots, axis1=-2, axis2=-1)
                logs[:, state] -= 0.5 * (z**2).sum(axis=1) + np.log(deviations).sum(axis=-1)[cell]
        return np.asarray(logs - logsumexp(logs, axis=1, keepdims=True))


def empty_rows(cards: IntArray, num_rows: int) -> MixedTable:
    """Return rows to be filled; parameters as in :class:`MixedTable`."""
    shape = len(cards), num_rows
    return MixedTable(cards, np.zeros(shape, dtype=np.uint8), np.zeros(shape))


def standardised_rows(
    frame: pd.DataFrame,
    names: Sequence[str],
    states: Sequence[tuple[Any, ...]],
    units: FloatArray,
) -> MixedTable:
    """Return a table's rows as states and standardised numbers.

    Parameters
    ----------
    frame : DataFrame
        Columns are matched by name.
    names : sequence of str
    states : sequence of tuple
        () for a number.
    units : ndarray of shape (2, d)
        Location and scale.

    Raises
    ------
    DataError
        If a variable is missing, or a value is none of its states or no finite number.
    """
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise DataError(f"the table has no column {missing[0]!r}")
    rows = empty_rows(np.array([len(own) for own in states], dtype=np.int64), len(frame))
    kept = np.flatnonzero(rows.cards).tolist()
    if kept:
        own_names = tuple(names[j] for j in kept)
        own_states = tuple(label_names(states[j]) for j in kept)
        rows.codes[kept] = codes_of(frame[list(own_names)], own_names, own_states)
    for j in np.flatnonzero(rows.cards == 0).tolist():
        numbers = np.asarray(frame[names[j]], dtype=np.float64)
        if not np.isfinite(numbers).all():
            raise DataError(f"column {names[j]!r} has missing or infinite values")
        rows.values[j] = (numbers - units[0, j]) / units[1, j]
    return rows

"""A Bayesian network of numbers and categories: conditional Gaussian families.

The joint distribution of a variable and its parents is Gaussian in each configuration of the
categories among them. A number given its parents is then a linear regression of its own for each
configuration; a category given its parents has the probabilities that follow by Bayes' rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from flwr_causal.core.arrays import frozen_floats
from flwr_causal.core.discrete.discrete import codes_of, label_names, labelled, plain_label
from flwr_causal.core.discrete.mixed_moments import MixedSums, MixedTable
from flwr_causal.core.discrete.probabilities import check_parents, drawn_states, parent_matrix
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.saved import read_record, undamaged, write_record
from flwr_causal.core.threads import SingleThreaded
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

    from flwr_causal.core.arrays import FloatArray

FORMAT = "flwr-causal mixed network 1"


@dataclass(frozen=True, eq=False)
class MixedNetwork(SingleThreaded):
    """A DAG with the joint distribution of each variable and its parents.

    Parameters
    ----------
    names : tuple of str
        The d variables.
    states : tuple of tuple of (str, int, float or bool)
        The labels of each category's states, the values of the table; () for a number.
    parents : tuple of tuple of int
        The parents of each variable, ascending.
    log_weights : tuple of ndarray
        Of each family, the log-probability of each configuration of its categories (an axis for
        each, ascending).
    means : tuple of ndarray, shape (configurations..., m)
        Of the family's m numbers, ascending, in units of ``scale`` from ``location``.
    covariances : tuple of ndarray, shape (configurations..., m, m)
    location, scale : ndarray of float64, shape (d,)
        0 and 1 for a category.

    Raises
    ------
    DataError
        If the parents have a directed cycle.
    """

    names: tuple[str, ...]
    states: tuple[tuple[Any, ...], ...]
    parents: tuple[tuple[int, ...], ...]
    log_weights: tuple[FloatArray, ...]
    means: tuple[FloatArray, ...]
    covariances: tuple[FloatArray, ...]
    location: FloatArray
    scale: FloatArray

    def __post_init__(self) -> None:
        states = tuple(tuple(map(plain_label, own)) for own in self.states)
        object.__setattr__(self, "states", states)
        for name in ("log_weights", "means", "covariances"):
            object.__setattr__(self, name, tuple(map(frozen_floats, getattr(self, name))))
        for name in ("location", "scale"):
            object.__setattr__(self, name, frozen_floats(getattr(self, name)))
        check_parents(self.names, self.parents)

    @classmethod
    def from_sums(
        cls,
        names: Sequence[str],
        states: Sequence[Sequence[Any]],
        parents: Sequence[Sequence[int]],
        families: Sequence[MixedSums],
        *,
        location: FloatArray,
        scale: FloatArray,
        equivalent_sample_size: float = 1.0,
    ) -> MixedNetwork:
        """Fit the network to the counts and moments of each variable with its parents.

        Parameters
        ----------
        names, states, parents, location, scale
            See the class.
        families : sequence of MixedSums
            Of the standardised numbers.
        equivalent_sample_size : float, default 1.0
            Weight of a uniform prior of the configurations, in rows.
        """
        weights, means, covariances = [], [], []
        for part in families:
            shape, m = part.counts.shape, len(part.numbers)
            smoothed = part.counts + equivalent_sample_size / part.counts.size
            own, _, shrunk = part.gaussians()
            weights.append(np.log(smoothed / smoothed.sum()))
            means.append(own.reshape(*shape, m))
            covariances.append(shrunk.reshape(*shape, m, m))
        return cls(
            tuple(names),
            tuple(tuple(own) for own in states),
            tuple(tuple(own) for own in parents),
            tuple(weights),
            tuple(means),
            tuple(covariances),
            location,
            scale,
        )

    @property
    def graph(self) -> CausalGraph:
        """The DAG."""
        return CausalGraph.from_array(parent_matrix(self.parents), self.names)

    def log_likelihood(self, frame: pd.DataFrame) -> FloatArray:
        """Return the log-likelihood of each row, shape (n,): a density for numbers.

        Parameters
        ----------
        frame : DataFrame
            Columns are matched by name.

        Raises
        ------
        DataError
            If a variable is missing, or a value is none of its states or no finite number.
        """
        table = self.table(frame)
        total = np.zeros(table.num_rows)
        for j in range(len(self.names)):
            if self.states[j]:
                logs = self._log_probabilities(j, table)
                total += logs[np.arange(table.num_rows), table.codes[j]]
            else:
                mean, deviation = self._regression(j, table)
                z = (table.values[j] - mean) / deviation
                log_density = -0.5 * (z**2 + math.log(2.0 * math.pi)) - np.log(deviation)
                total += log_density - math.log(self.scale[j])
        return total

    def sample(
        self, num_rows: int, seed: int | Sequence[int] | np.random.Generator | None = None
    ) -> pd.DataFrame:
        """Sample independent rows; the same seed gives the same rows."""
        import pandas as pd

        if num_rows < 0:
            raise ConfigError(f"the number of rows is {num_rows}: it must not be negative")
        rng = np.random.default_rng(seed)
        d = len(self.names)
        table = MixedTable(
            np.array([len(own) for own in self.states], dtype=np.int64),
            np.zeros((d, num_rows), dtype=np.uint8),
            np.zeros((d, num_rows)),
        )
        for j in topological_order(parent_matrix(self.parents)):
            if self.states[j]:
                table.codes[j] = drawn_states(self._log_probabilities(j, table), rng)
            else:
                mean, deviation = self._regression(j, table)
                table.values[j] = mean + deviation * rng.normal(size=num_rows)
        columns: dict[str, Any] = {}
        for j, name in enumerate(self.names):
            if self.states[j]:
                columns[name] = labelled(self.states[j], table.codes[j])
            else:
                columns[name] = self.location[j] + self.scale[j] * table.values[j]
        return pd.DataFrame(columns, columns=pd.Index(self.names))

    def table(self, frame: pd.DataFrame) -> MixedTable:
        """Return a table's rows as states and standardised numbers."""
        missing = [name for name in self.names if name not in frame.columns]
        if missing:
            raise DataError(f"the table has no column {missing[0]!r}")
        d, n = len(self.names), len(frame)
        cards = np.array([len(own) for own in self.states], dtype=np.int64)
        codes, values = np.zeros((d, n), dtype=np.uint8), np.zeros((d, n))
        kept = [j for j in range(d) if cards[j]]
        if kept:
            names = tuple(self.names[j] for j in kept)
            states = tuple(label_names(self.states[j]) for j in kept)
            codes[kept] = codes_of(frame[list(names)], names, states)
        for j in np.flatnonzero(cards == 0).tolist():
            numbers = np.asarray(frame[self.names[j]], dtype=np.float64)
            if not np.isfinite(numbers).all():
                raise DataError(f"column {self.names[j]!r} has missing or infinite values")
            values[j] = (numbers - self.location[j]) / self.scale[j]
        return MixedTable(cards, codes, values)

    def save(self, path: str | Path) -> None:
        """Write the network to a JSON file, without loss."""
        parts = zip(self.log_weights, self.means, self.covariances, strict=True)
        content = {
            "format": FORMAT,
            "names": self.names,
            "states": self.states,
            "parents": self.parents,
            "families": [[part.ravel().tolist() for part in family] for family in parts],
            "location": self.location.tolist(),
            "scale": self.scale.tolist(),
        }
        write_record(path, "model", content)

    @classmethod
    def load(cls, path: str | Path) -> MixedNetwork:
        """Return the network of a file that :meth:`save` wrote.

        Raises
        ------
        DataError
            If the file is not JSON, or holds no valid network.
        """
        content = read_record(path, "mixed network", FORMAT)
        with undamaged(path, "a damaged network"):
            states = tuple(tuple(own) for own in content["states"])
            parents = tuple(tuple(own) for own in content["parents"])
            families: list[list[FloatArray]] = []
            for j, parts in enumerate(content["families"]):
                members = sorted((*parents[j], j))
                shape = [len(states[k]) for k in members if states[k]]
                m = sum(not states[k] for k in members)
                sizes = (shape, [*shape, m], [*shape, m, m])
                pairs = zip(parts, sizes, strict=True)
                families.append([np.array(flat, np.float64).reshape(size) for flat, size in pairs])
            weights, means, covariances = zip(*families, strict=True)
            return cls(
                tuple(content["names"]),
                states,
                parents,
                weights,
                means,
                covariances,
                np.array(content["location"]),
                np.array(content["scale"]),
            )

    def _members(self, j: int) -> tuple[list[int], list[int]]:
        """Return the categories and the numbers of a family, ascending."""
        members = sorted((*self.parents[j], j))
        categories = [k for k in members if self.states[k]]
        return categories, [k for k in members if not self.states[k]]

    def _regression(self, j: int, table: MixedTable) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the standard deviation of a number given its parents, each (n,)."""
        categories, numbers = self._members(j)
        cell = tuple(table.codes[k] for k in categories)
        own, others = numbers.index(j), [i for i, k in enumerate(numbers) if k != j]
        covariances = self.covariances[j]
        among = covariances[..., others, :][..., others]
        across = covariances[..., own, others]
        slopes = np.linalg.solve(among, across[..., None])[..., 0]
        variances = covariances[..., own, own] - (slopes * across).sum(axis=-1)
        means = self.means[j]
        given = table.values[[numbers[i] for i in others]].T - means[..., others][cell]
        mean = means[..., own][cell] + (given * slopes[cell]).sum(axis=-1)
        return mean, np.sqrt(np.broadcast_to(variances[cell], mean.shape))

    def _log_probabilities(self, j: int, table: MixedTable) -> FloatArray:
        """Return the log-probability of each state of a category given its parents, (n, states)."""
        categories, numbers = self._members(j)
        values = table.values[numbers].T
        logs = np.zeros((table.num_rows, len(self.states[j])))
        for state in range(len(self.states[j])):
            cell = tuple(
                np.full(table.num_rows, state) if k == j else table.codes[k] for k in categories
            )
            logs[:, state] = self.log_weights[j][cell]
            if numbers:
                roots = np.linalg.cholesky(self.covariances[j])
                z = np.linalg.solve(roots[cell], (values - self.means[j][cell])[..., None])[..., 0]
                deviations = np.diagonal(roots, axis1=-2, axis2=-1)
                logs[:, state] -= 0.5 * (z**2).sum(axis=1) + np.log(deviations).sum(axis=-1)[cell]
        result: FloatArray = logs - logsumexp(logs, axis=1, keepdims=True)
        return result

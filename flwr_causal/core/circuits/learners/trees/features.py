"""Features of a logistic head: log probabilities of states and of pairs of states by class.

Under a class a state has a probability, and a pair of states one that is more or less than the
product. The logarithms of both, from counts of pairs for each class, are what any tree over the
variables can say; a head (:mod:`flwr_causal.core.circuits.learners.head`) weighs them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.circuits.learners.training_by_sums import symmetric, upper_triangles
from flwr_causal.core.circuits.learners.trees.pair_sums import Layout, encode
from flwr_causal.core.circuits.learners.trees.priors import prior_cells, shares, softened
from flwr_causal.core.circuits.learners.trees.tables import mutual_information
from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.leaves.univariate import Categorical

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.learners.training_by_sums import Arrays, Plan
    from flwr_causal.core.circuits.learners.trees.pair_sums import Codes
    from flwr_causal.core.circuits.nodes import Leaf


@dataclass(frozen=True, eq=False)
class PairFeatures:
    """Log probabilities of states, and log ratios of pairs to their product, by class.

    Parameters
    ----------
    plan : Plan
    logs : ndarray of float, shape (C, total, total)
        Log probabilities of pairs of states; on the diagonal those of states.
    pairs : ndarray of int, shape (m - d, 2)
        The pairs of variables that have a feature.
    """

    plan: Plan
    logs: FloatArray
    pairs: IntArray

    def of(self, codes: Codes) -> FloatArray:
        """Features ``(n, C, m)`` of states ``(d, n)``, states before pairs; 0 where one is -1."""
        d, n = codes.shape
        first = Layout(self.plan.sizes, complete=False).first
        known = codes >= 0
        places = np.where(known, codes, 0) + first[:, None]
        result = np.empty((n, len(self.logs), d + len(self.pairs)))
        left, right = self.pairs.T
        both = known[left] & known[right]
        for c, logs in enumerate(self.logs):
            single = np.where(known, np.diagonal(logs)[places], 0.0)
            pair = logs[places[left], places[right]] - single[left] - single[right]
            result[:, c, :d] = single.T
            result[:, c, d:] = np.where(both, pair, 0.0).T
        return result

    def leaves(self) -> tuple[tuple[Leaf, ...], ...]:
        """Distributions of states, then of pairs, for each class."""
        first = Layout(self.plan.sizes, complete=False).first
        own = [
            slice(start, start + size) for start, size in zip(first, self.plan.sizes, strict=True)
        ]
        columns, result = self.plan.columns, []
        for logs in self.logs:
            single = [_rows(np.exp(np.diagonal(logs)[one])) for one in own]
            group: list[Leaf] = [
                Categorical(column, table) for column, table in zip(columns, single, strict=True)
            ]
            for i, j in self.pairs.tolist():
                table = np.exp(logs[own[i], own[j]])
                tables = (_rows(table.sum(axis=1))[None], _rows(table))
                group.append(ChowLiuTree((columns[i], columns[j]), (-1, 0), tables))
            result.append(tuple(group))
        return tuple(result)

    def leaf_weights(self, weights: FloatArray) -> FloatArray:
        """Turn weights of the features into those of :meth:`leaves`, ``(m,)``.

        A pair's feature is the log probability of the pair less those of its states.
        """
        d = len(self.plan.columns)
        result = weights.copy()
        np.subtract.at(result, self.pairs, weights[d:, None])
        return result


@dataclass(frozen=True, eq=False)
class FoldedRows:
    """A party's rows: states ``(d, n)``, class and fold ``(n,)`` of each."""

    codes: Codes
    classes: IntArray
    folds: IntArray

    @classmethod
    def of(cls, values: FloatArray, plan: Plan, num_folds: int) -> FoldedRows:
        """Fold rows at random, the same way whenever asked.

        Not by a hash of their values: few columns of few states have many equal rows, and what such
        a row is would be unknown outside its fold.
        """
        codes, classes = encode(values[:, plan.columns], plan.sizes), plan.classes_of(values)
        folds = np.arange(len(values)) % num_folds
        return cls(codes, classes, np.random.default_rng(plan.seed).permutation(folds))

    def groups(self, num_folds: int, num_classes: int) -> list[Codes]:
        """Rows of each fold and class, folds before classes."""
        return [
            self.codes[:, (self.folds == fold) & (self.classes == c)]
            for fold in range(num_folds)
            for c in range(num_classes)
        ]

    def features(self, by_fold: Sequence[PairFeatures]) -> FloatArray:
        """Features ``(n, C, m)`` of each row by those that were made without its fold."""
        of = by_fold[0]
        width = len(of.plan.columns) + len(of.pairs)
        result = np.empty((len(self.classes), len(of.logs), width))
        for fold, features in enumerate(by_fold):
            rows = self.folds == fold
            result[rows] = features.of(self.codes[:, rows])
        return result


def _rows(table: FloatArray) -> FloatArray:
    """Let rows sum to 1."""
    return np.asarray(table / table.sum(axis=-1, keepdims=True))


def log_cells(layout: Layout, counts: FloatArray, strength: float) -> FloatArray:
    """Log probabilities of pairs of states in each class, shrunk towards the pooled table.

    Parameters
    ----------
    layout : Layout
    counts : ndarray of float, shape (C, total, total)
    strength : float
        Rows of the pooled table that are added to each class.

    Returns
    -------
    ndarray of float, shape (C, total, total)
        0 for different states of one variable, which no row has.
    """
    pooled = counts.sum(axis=0)
    prior = strength * softened(layout, prior_cells(layout, pooled, pooled))
    cells = np.stack([shares(layout, own + prior) for own in counts])
    return np.log(np.where(cells > 0, cells, 1.0))


def chosen_pairs(layout: Layout, counts: FloatArray, most: int) -> IntArray:
    """Return the pairs of variables that depend most on each other within classes, ``(m, 2)``.

    Parameters
    ----------
    layout : Layout
    counts : ndarray of float, shape (C, total, total)
    most : int
        If there are more, those of the largest conditional mutual information.
    """
    d = len(layout.num_states)
    left, right = np.triu_indices(d, 1)
    if len(left) > most:
        pooled = counts.sum(axis=0)
        prior = softened(layout, prior_cells(layout, pooled, pooled))
        rows = np.array([np.trace(own[: layout.states[0], : layout.states[0]]) for own in counts])
        shared = np.stack([mutual_information(layout, own + prior) for own in counts])
        gains = np.einsum("c,cij->ij", rows, shared)[left, right]
        kept = np.sort(np.argsort(-gains, kind="stable")[:most])
        left, right = left[kept], right[kept]
    return np.column_stack((left, right))


def to_arrays(by_fold: Sequence[PairFeatures]) -> Arrays:
    """Return the features of all folds as arrays to be sent."""
    return {
        "logs": upper_triangles(np.stack([one.logs for one in by_fold])),
        "pairs": by_fold[0].pairs.astype(np.float64),
    }


def from_arrays(plan: Plan, arrays: Mapping[str, FloatArray]) -> list[PairFeatures]:
    """Opposite of :func:`to_arrays`."""
    pairs = arrays["pairs"].astype(np.int64).reshape(-1, 2)
    return [PairFeatures(plan, logs, pairs) for logs in symmetric(arrays["logs"], sum(plan.sizes))]

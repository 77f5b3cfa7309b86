"""The recursion of LearnSPN: which rows and columns each node of the circuit is learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.composed.composition import joined
from flwr_causal.core.circuits.leaves.categorical import Categorical
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.core.circuits.spn.independence import dependent_pairs, groups_of, indicators
from flwr_causal.core.circuits.spn.leaf_fit import LeafFit
from flwr_causal.core.circuits.spn.row_clusters import cluster_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.nodes import FloatArray, Node
    from flwr_causal.core.circuits.spn.independence import Indicators
    from flwr_causal.core.circuits.spn.learn_spn import LearnSPN

    Factors = Callable[[NDArray[np.int64], int], Sequence[Node]]

IntArray = NDArray[np.int64]

#: A cluster below this share of the rows is no sign of structure ...
LEAST_SHARE = 0.01
#: ... and no circuit needs more sums below each other.
MOST_SUMS = 60


class Growth:
    """A table from which nodes are learned.

    Parameters
    ----------
    options : LearnSPN
    domain : Domain
    values : ndarray of float64, shape (n, d)
    row_weights : ndarray of float64, shape (n,)
    seed : int
        Of the clusters.
    """

    def __init__(
        self,
        options: LearnSPN,
        domain: Domain,
        values: FloatArray,
        row_weights: FloatArray,
        seed: int,
    ) -> None:
        self.options = options
        self.domain = domain
        self.values = values
        self.row_weights = row_weights
        self.seed = seed
        self._rng = np.random.default_rng(seed)
        self._fit = LeafFit(domain, values, row_weights, options.smoothing, options.leaves)

    def part(self, rows: NDArray[np.bool_]) -> Growth:
        """Return the growth from some of the rows alone."""
        return Growth(
            self.options, self.domain, self.values[rows], self.row_weights[rows], self.seed
        )

    def root(self, target: int | None) -> Node:
        """Return the root over all columns; with a target, a sum over its states."""
        columns = list(range(self.values.shape[1]))
        if target is None:
            return self.node(np.arange(len(self.values)), columns)
        others = [column for column in columns if column != target]
        return self.by_state(target, lambda rows, _: [self.node(rows, others)] if others else [])

    def by_state(self, column: int, factors: Factors) -> Node:
        """Return a sum over the states of a category, with the factors learned for each.

        Parameters
        ----------
        column : int
            Known in all rows.
        factors : function of the rows of a state, and the state
            Returns the nodes over other columns.
        """
        states = self.values[:, column].astype(np.int64)
        num_states = int(self.domain.num_states[column])
        sizes = np.bincount(states, self.row_weights, minlength=num_states)
        present = np.flatnonzero(sizes)
        children: list[Node] = [
            joined(
                [
                    Categorical(column, np.eye(num_states)[state]),
                    *factors(np.flatnonzero(states == state), int(state)),
                ]
            )
            for state in present
        ]
        return Sum(children, sizes[present] / sizes.sum())

    def node(self, rows: IntArray, scope: Sequence[int]) -> Node:
        """Return the node over a scope (ascending) that is learned from some rows."""
        coded = indicators(
            self.values[np.ix_(rows, np.array(scope))],
            self._fit.columns.num_states[scope],
            self.row_weights[rows],
            self.options.bins,
        )
        return self._node(rows, list(scope), coded, 0, True)

    def _node(
        self, rows: IntArray, scope: list[int], coded: Indicators, depth: int, split_columns: bool
    ) -> Node:
        options = self.options
        weights = self.row_weights[rows]
        if len(scope) == 1 or weights.sum() < options.min_rows or depth > MOST_SUMS:
            return self._leaves(rows, scope)
        everything = np.arange(len(rows))
        if split_columns:
            pairs = dependent_pairs(coded, weights, options.significance, options.correlation)
            groups = groups_of(pairs)
            if len(groups) > 1:
                return Product(
                    [
                        self._node(
                            rows,
                            [scope[k] for k in group],
                            coded.part(everything, group),
                            depth,
                            False,
                        )
                        for group in groups
                    ]
                )
        labels = cluster_rows(coded, weights, options.clusters, self._rng)
        sizes = np.bincount(labels, weights)
        present = np.flatnonzero(sizes)
        if len(present) < 2 or sizes[present].min() < LEAST_SHARE * sizes.sum():
            return self._leaves(rows, scope)
        children = []
        for label in present:
            own = np.flatnonzero(labels == label)
            inside = coded.part(own, np.arange(len(scope)))
            children.append(self._node(rows[own], scope, inside, depth + 1, True))
        return Sum(children, sizes[present] / sizes.sum())

    def _leaves(self, rows: IntArray, scope: list[int]) -> Node:
        return joined(self._fit.leaves(rows, scope))

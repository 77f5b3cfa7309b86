"""Chow-Liu trees side by side as flat arrays: what is sent to parties and evaluated in one call.

A tree's table of a variable given its parent is kept as weights of cells: ``seen``, what was
counted, and ``added``, what the prior adds. Their sum, normalised for each state of the parent, is
the conditional probability. That both are known apart tells how strong the prior should be:
`Trees.log_evidence`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from flwr_causal.core.circuits.kernels import complete_rows, tree_upward
from flwr_causal.core.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.learners.trees.pair_sums import Codes, Layout


# Rows evaluated together: their codes and densities stay in a fast cache.
ROWS = 1024


@dataclass(frozen=True, eq=False)
class Trees:
    """Several trees over the same variables.

    Attributes
    ----------
    states
        ``(d,)`` states of each variable.
    parents
        ``(K, d)`` each variable's parent, -1 for a root; without any edge the variables are
        independent.
    seen, added
        ``(T,)`` weights of the cells, one tree after the other, in each one variable after the
        other, in each the parent's states by the child's, which run fastest.
    """

    states: IntArray
    parents: IntArray
    seen: FloatArray
    added: FloatArray

    @property
    def num_trees(self) -> int:
        """Number of trees, K."""
        return len(self.parents)

    @cached_property
    def sizes(self) -> IntArray:
        """``(K, d)`` number of cells of each table."""
        above = np.where(self.parents >= 0, self.states[self.parents], 1)
        sizes: IntArray = above * self.states
        return sizes

    @cached_property
    def starts(self) -> IntArray:
        """``(K, d)`` first cell of each table."""
        ends = np.cumsum(self.sizes)
        return (ends - self.sizes.ravel()).reshape(self.sizes.shape)

    @cached_property
    def _rows(self) -> IntArray:
        """First cell of every row of a table: what is normalised."""
        lengths = np.repeat(np.tile(self.states, self.num_trees), self._heights)
        return np.cumsum(lengths) - lengths

    @cached_property
    def _heights(self) -> IntArray:
        return (self.sizes // self.states).ravel()

    def _above(self, cells: FloatArray) -> FloatArray:
        """Sum over the rows of the tables, repeated for each of their cells."""
        lengths = np.repeat(np.tile(self.states, self.num_trees), self._heights)
        return np.repeat(np.add.reduceat(cells, self._rows), lengths)

    @cached_property
    def log_tables(self) -> FloatArray:
        """``(T,)`` log conditional probabilities."""
        cells = self.seen + self.added
        result: FloatArray = np.log(cells / self._above(cells))
        return result

    @cached_property
    def orders(self) -> IntArray:
        """``(K, d)`` the variables with parents before children."""
        depths = np.zeros_like(self.parents)
        above = self.parents.copy()
        while (above >= 0).any():
            depths += above >= 0
            above = np.where(above >= 0, np.take_along_axis(self.parents, above, axis=1), -1)
        return np.argsort(depths, axis=1, kind="stable")

    def table(self, tree: int, variable: int) -> FloatArray:
        """Return the conditional probabilities, ``(states of the parent or 1, states)``."""
        start = self.starts[tree, variable]
        cells = np.exp(self.log_tables[start : start + self.sizes[tree, variable]])
        cells = cells.reshape(-1, self.states[variable])
        return np.asarray(cells / cells.sum(axis=1, keepdims=True))

    def log_densities(self, codes: Codes) -> FloatArray:
        """Return the log density of each row in each tree, ``(n, K)``; missing values summed out.

        Parameters
        ----------
        codes : ndarray of int32, shape (d, n)
            -1 is missing.
        """
        result = np.empty((codes.shape[1], self.num_trees))
        for start in range(0, len(result), ROWS):
            rows = slice(start, start + ROWS)
            result[rows] = self._log_densities(np.ascontiguousarray(codes[:, rows]))
        return result

    def _log_densities(self, codes: Codes) -> FloatArray:
        missing = (codes < 0).any(axis=0)
        count, d = self.parents.shape
        result: FloatArray = complete_rows(
            np.maximum(codes, 0),
            np.arange(count + 1) * d,
            np.tile(np.arange(d), count),
            self.parents.ravel(),
            np.tile(self.states, count),
            self.starts.ravel(),
            self.log_tables,
        ).T
        if missing.any():
            rows = np.ascontiguousarray(codes[:, missing].T)
            tables, places = np.exp(self.log_tables), np.cumsum(self.states) - self.states
            scratch = np.empty((1, int(self.states.sum())))
            for tree in range(count):
                order, parents, starts = self.orders[tree], self.parents[tree], self.starts[tree]
                result[missing, tree] = tree_upward(
                    rows, order, parents, self.states, starts, places, tables, False, scratch
                )
        return result

    def log_evidence(self, strengths: FloatArray) -> FloatArray:
        """Return the log probability of the counts if tables were drawn from the prior.

        A table's row is taken for a draw from the Dirichlet distribution whose parameters are
        ``added`` times the strength; tables are summed over.

        Parameters
        ----------
        strengths : ndarray, shape (s,)
            Factors of ``added``, positive.

        Returns
        -------
        ndarray, shape (s, d)
            Of each variable's tables in all trees.
        """
        d = len(self.states)
        rows = np.repeat(np.tile(np.arange(d), self.num_trees), self._heights)
        seen = np.add.reduceat(self.seen, self._rows)
        added = np.add.reduceat(self.added, self._rows)
        counted = np.flatnonzero(self.seen)  # of the others the logarithm is 0
        cells = self.variables[counted], self.added[counted], self.seen[counted]
        return np.array(
            [
                np.bincount(cells[0], _log_rising(a * cells[1], cells[2]), d)
                - np.bincount(rows, _log_rising(a * added, seen), d)
                for a in strengths
            ]
        )

    @cached_property
    def variables(self) -> IntArray:
        """The variable of each cell, ``(T,)``."""
        return np.repeat(np.tile(np.arange(len(self.states)), self.num_trees), self.sizes.ravel())

    def drawn(self, layout: Layout, added: FloatArray) -> Trees:
        """Return the same trees and counts with another prior, a table as in `chow_liu_tree`."""
        parts = [part for parents in self.parents for part in _tables(layout, parents, added)]
        return self.with_added(np.concatenate(parts))

    def with_added(self, added: FloatArray) -> Trees:
        """Return the same trees and counts with another prior, of each cell."""
        return Trees(self.states, self.parents, self.seen, added)

    def added_times(self, factors: FloatArray) -> FloatArray:
        """Return ``added`` times a factor of each variable ``(d,)``."""
        return self.added * factors[self.variables]

    def part(self, first: int, last: int) -> Trees:
        """Return some of the trees."""
        ends = np.append(self.starts[:, 0], len(self.seen))
        cells = slice(ends[first], ends[last])
        return Trees(self.states, self.parents[first:last], self.seen[cells], self.added[cells])


def joined(parts: list[Trees]) -> Trees:
    """Put trees over the same variables side by side."""
    return Trees(
        parts[0].states,
        np.concatenate([part.parents for part in parts]),
        np.concatenate([part.seen for part in parts]),
        np.concatenate([part.added for part in parts]),
    )


def independent(layout: Layout, counts: FloatArray, added: FloatArray) -> Trees:
    """Return trees without edges.

    Parameters
    ----------
    layout : Layout
    counts, added : ndarray, shape (K, total)
        Weight of each state, and what the prior adds to it.
    """
    shape = (len(counts), len(layout.states))
    return Trees(layout.states, np.full(shape, -1), counts.ravel(), added.ravel())


def chow_liu_tree(layout: Layout, counts: FloatArray, added: FloatArray) -> Trees:
    """Return the tree of the largest likelihood of pairwise counts (Chow and Liu 1968).

    Parameters
    ----------
    layout : Layout
    counts : ndarray, shape (total, total)
        Counts of the pairs of states.
    added : ndarray, shape (total, total)
        What the prior adds to them, positive.
    """
    parents = heaviest_tree(mutual_information(layout, counts + added))
    seen, given = (np.concatenate(_tables(layout, parents, one)) for one in (counts, added))
    return Trees(layout.states, parents[None], seen, given)


def _tables(layout: Layout, parents: IntArray, cells: FloatArray) -> list[FloatArray]:
    """Return the cells of each variable with its parent, or with itself, of a table of pairs."""
    first, states = layout.first, layout.states
    parts = []
    for variable, parent in enumerate(parents):
        own = slice(first[variable], first[variable] + states[variable])
        if parent < 0:
            parts.append(np.diagonal(cells)[own])
        else:
            parts.append(cells[first[parent] : first[parent] + states[parent], own].ravel())
    return parts


def mutual_information(layout: Layout, cells: FloatArray) -> FloatArray:
    """Return the mutual information of each pair of variables in nats, ``(d, d)``.

    Parameters
    ----------
    layout : Layout
    cells : ndarray, shape (total, total)
        Symmetric positive weights of the pairs of states; each pair of variables is normalised by
        itself. On the diagonal of the result stands nothing of use.
    """
    first = layout.first
    by_variable = np.add.reduceat(cells, first, axis=1)
    weight = np.add.reduceat(by_variable, first, axis=0)
    joint = np.add.reduceat(np.add.reduceat(_x_log_x(cells), first, axis=0), first, axis=1)
    single = np.add.reduceat(_x_log_x(by_variable), first, axis=0)
    information: FloatArray = (joint - single - single.T) / weight + np.log(weight)
    return information


def _log_rising(start: FloatArray, counts: FloatArray) -> FloatArray:
    """Log of start (start + 1) ... (start + count - 1); counts need not be whole."""
    result: FloatArray = gammaln(start + counts) - gammaln(start)
    return result


def _x_log_x(cells: FloatArray) -> FloatArray:
    result: FloatArray = cells * np.log(np.where(cells > 0, cells, 1.0))
    return result


@compiled
def heaviest_tree(gains: NDArray[np.float64]) -> NDArray[np.int64]:
    """Prim's algorithm for the spanning tree of the largest sum of gains; ties by index.

    Parameters
    ----------
    gains : ndarray, shape (d, d)
        Symmetric.

    Returns
    -------
    ndarray of int64, shape (d,)
        Parents; -1 for the root, which is the first.
    """
    d = len(gains)
    parents = np.full(d, -1)
    best = np.full(d, -np.inf)
    inside = np.zeros(d, np.bool_)
    newest = 0
    for _ in range(1, d):
        inside[newest] = True
        for j in range(d):
            if not inside[j] and gains[newest, j] > best[j]:
                best[j] = gains[newest, j]
                parents[j] = newest
        newest = -1
        for j in range(d):
            if not inside[j] and (newest < 0 or best[j] > best[newest]):
                newest = j
    return parents

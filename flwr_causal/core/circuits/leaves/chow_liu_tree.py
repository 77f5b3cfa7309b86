"""A distribution of several categories in which each depends on at most one other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_causal.core.circuits.nodes import Leaf, LeafBatch, probabilities, scope_of
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flwr_causal.core.arrays import Arrays, FloatArray, IntArray

Codes = NDArray[np.int32]

#: Smaller beliefs are divided by the largest one, whose logarithm is added to the result.
SMALL = 1e-50
#: Numbers that numpy looks up in tables, and that it multiplies to sum values out, in some
#: milliseconds. More are left to compiled functions: faster, but their first call in an environment
#: takes seconds.
LOOKED_UP = 2**22
SUMMED_OUT = 2**19


class Flat(NamedTuple):
    """A tree as flat arrays, which the compiled passes take; see `kernels`."""

    order: IntArray
    parents: IntArray
    sizes: IntArray
    starts: IntArray
    places: IntArray
    tables: FloatArray


class ChowLiuBatch(LeafBatch):
    """Trees as a forest."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        super().__init__(leaves)
        trees: Any = self.leaves
        parts = [(np.array([*tree.scope, *[-1] * tree.hidden]), tree.flat) for tree in trees]
        whole = [k for k, tree in enumerate(trees) if tree.hidden == 0]
        complete = [parts[k] for k in whole]
        ends = np.cumsum([0, *(tree.tables.size for _, tree in complete)])

        def joined(arrays: Iterable[FloatArray | IntArray]) -> Any:
            return np.concatenate([np.zeros(0, dtype=np.int64), *arrays])

        with np.errstate(divide="ignore"):
            logs = np.log(joined(tree.tables for _, tree in complete))
        columns = joined(columns for columns, _ in complete)
        self._forest = Forest(
            parts,
            np.array(whole, dtype=np.int64),
            np.unique(columns),
            np.cumsum([0, *(len(columns) for columns, _ in complete)]),
            columns,
            joined(np.where(tree.parents >= 0, at[tree.parents], -1) for at, tree in complete),
            joined(tree.sizes for _, tree in complete),
            joined(tree.starts + end for (_, tree), end in zip(complete, ends[:-1], strict=True)),
            logs,
        )

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log probability of each tree and row, shape (number of trees, n)."""
        codes = np.where(np.isnan(values), -1.0, values).T.astype(np.int32, order="C")
        return self._forest.log_densities(codes)


@dataclass(frozen=True, eq=False)
class ChowLiuTree(Leaf):
    """A tree (or forest) of categories (Chow & Liu 1968).

    Parameters
    ----------
    scope : sequence of int
        The k columns.
    parents : sequence of int, length m = k + hidden
        The position in this sequence of each variable's parent, -1 without one; acyclic.
    tables : sequence of array_like, length m
        ``tables[j][state of the parent, state]``, one row without a parent; rows sum to 1.
    hidden : int, default 0
        The last ``hidden`` variables have no column and are always summed out: variables that a
        marginal leaves out, but on which others depend.

    Raises
    ------
    ConfigError
        If the numbers of parents and tables differ, parents form a cycle, or a table has the wrong
        number of rows.
    """

    scope: tuple[int, ...]
    parents: tuple[int, ...]
    tables: tuple[FloatArray, ...]
    hidden: int = 0

    kind: ClassVar[str] = "chow-liu-tree"
    batch: ClassVar[type[LeafBatch]] = ChowLiuBatch

    def __post_init__(self) -> None:
        scope = scope_of(self.scope)
        parents = tuple(int(parent) for parent in self.parents)
        given: Sequence[ArrayLike] = self.tables
        m = len(scope) + self.hidden
        if self.hidden < 0 or len(parents) != m or len(given) != m:
            raise ConfigError(
                f"a tree of {len(scope)} columns and {self.hidden} hidden variables needs {m} "
                f"parents and tables, got {len(parents)} and {len(given)}"
            )
        if any(not -1 <= parent < m for parent in parents):
            raise ConfigError(f"parents are positions from 0 to {m - 1} or -1, got {parents}")
        tables = tuple(probabilities(f"the rows of table {j}", given[j], 2) for j in range(m))
        for j, (parent, table) in enumerate(zip(parents, tables, strict=True)):
            rows = 1 if parent < 0 else tables[parent].shape[1]
            if len(table) != rows:
                raise ConfigError(f"table {j} has {len(table)} rows for {rows} parent states")
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "parents", parents)
        object.__setattr__(self, "tables", tables)
        object.__setattr__(self, "_order", _parents_first(parents))

    _order: ClassVar[IntArray]

    @cached_property
    def flat(self) -> Flat:
        """The tree as the compiled passes take it."""
        sizes = np.array([table.shape[1] for table in self.tables], dtype=np.int64)
        lengths = np.array([table.size for table in self.tables], dtype=np.int64)
        return Flat(
            self._order,
            np.array(self.parents, dtype=np.int64),
            sizes,
            np.cumsum(lengths) - lengths,
            np.cumsum(sizes) - sizes,
            np.concatenate([table.ravel() for table in self.tables]),
        )

    def _codes(self, values: FloatArray) -> Codes:
        """Return states of all m variables, -1 where they are missing, shape (n, m)."""
        codes = np.full((len(values), len(self.parents)), -1, dtype=np.int32)
        codes[:, : len(self.scope)] = np.where(np.isnan(values), -1, values)
        return codes

    def _upward(self, codes: Codes, *, maximise: bool = False) -> tuple[FloatArray, FloatArray]:
        """Return the log probability of each row, and the beliefs."""
        from flwr_causal.core.circuits import kernels

        beliefs = np.empty((len(codes), int(self.flat.sizes.sum())))
        return kernels.tree_upward(codes, *self.flat, maximise, beliefs), beliefs

    def log_density(self, values: FloatArray) -> FloatArray:
        """Log probability of each row, missing values summed out, shape (n,)."""
        codes = np.ascontiguousarray(self._codes(values).T)
        return incomplete_rows(codes, np.arange(len(codes)), self.flat)

    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Fill missing values by draws given the others, shape (n, k)."""
        return self._filled(values, rng)

    def mode(self, values: FloatArray) -> FloatArray:
        """Fill missing values by the most probable ones given the others, shape (n, k).

        The maximum is also over the hidden variables.
        """
        return self._filled(values, None)

    def tilted(self, heights: Mapping[int, FloatArray]) -> tuple[ChowLiuTree, float]:
        """Return the tree of the products with heights, and the logarithm of their sum."""
        if heights.keys().isdisjoint(self.scope):
            return self, 0.0
        sizes = self.flat.sizes
        beliefs = [np.ones(size) for size in sizes]
        for j, column in enumerate(self.scope):
            if column in heights:
                beliefs[j] = heights[column]
        tables, log_total = list(self.tables), 0.0
        for j in self._order[::-1]:  # children before their parents
            products = tables[j] * beliefs[j]
            totals = products.sum(axis=1)
            tables[j] = products / totals[:, None]
            largest = float(totals.max())
            log_total += math.log(largest)
            if self.parents[j] >= 0:
                beliefs[self.parents[j]] = beliefs[self.parents[j]] * (totals / largest)
        return ChowLiuTree(self.scope, self.parents, tuple(tables), self.hidden), log_total

    def _filled(self, values: FloatArray, rng: np.random.Generator | None) -> FloatArray:
        from flwr_causal.core.circuits import kernels

        codes = self._codes(values)
        beliefs = self._upward(codes, maximise=rng is None)[1]
        uniforms = np.zeros((0, 0)) if rng is None else rng.random(codes.shape)
        kernels.tree_fill(codes, *self.flat, beliefs, uniforms)
        return codes[:, : len(self.scope)].astype(np.float64)

    def restrict(self, scope: Sequence[int]) -> ChowLiuTree:
        """Return the marginal over some of the columns.

        A variable that is left out becomes a hidden one if a kept variable depends on it.
        """
        wanted = [j for j, column in enumerate(self.scope) if column in set(scope)]
        needed = set(wanted)
        for j in self._order[::-1]:
            if int(j) in needed and self.parents[j] >= 0:
                needed.add(self.parents[j])
        kept = [*wanted, *sorted(needed - set(wanted))]
        return self._part(kept, len(wanted), self.parents, self.tables)

    def condition(self, values: FloatArray) -> tuple[ChowLiuTree | None, float]:
        """Return the tree over the columns without evidence, and the evidence's log probability."""
        codes = self._codes(values[None, :])
        density, beliefs = self._upward(codes)
        visible = len(self.scope)
        rest = [j for j in range(len(self.parents)) if codes[0, j] < 0]
        num_columns = sum(j < visible for j in rest)
        if num_columns == 0:
            return None, float(density[0])
        parents, tables = list(self.parents), list(self.tables)
        for j in rest:
            table, parent, place = tables[j], parents[j], self.flat.places[j]
            if parent >= 0 and codes[0, parent] >= 0:
                table, parents[j] = table[[codes[0, parent]]], -1
            weighted = table * beliefs[0, place : place + table.shape[1]]
            totals = weighted.sum(axis=1, keepdims=True)
            # A row for a parent's state that the evidence excludes has no effect.
            tables[j] = np.where(totals > 0, weighted / np.where(totals > 0, totals, 1.0), table)
        return self._part(rest, num_columns, parents, tables), float(density[0])

    def moved(self, columns: Sequence[int]) -> ChowLiuTree:
        """Return the same distribution over other columns."""
        order = np.argsort(columns).tolist()
        visible = len(self.scope)
        kept = [*order, *range(visible, len(self.parents))]
        moved = self._part(kept, visible, self.parents, self.tables)
        scope = tuple(int(columns[j]) for j in order)
        return ChowLiuTree(scope, moved.parents, moved.tables, self.hidden)

    def _part(
        self,
        kept: Sequence[int],
        num_columns: int,
        parents: Sequence[int],
        tables: Sequence[FloatArray],
    ) -> ChowLiuTree:
        """Return the tree of some variables in a new order, visible variables first."""
        position = {j: k for k, j in enumerate(kept)}
        return ChowLiuTree(
            tuple(sorted(self.scope[j] for j in kept[:num_columns])),
            tuple(position[parents[j]] if parents[j] >= 0 else -1 for j in kept),
            tuple(tables[j] for j in kept),
            len(kept) - num_columns,
        )

    @property
    def num_states(self) -> tuple[int, ...]:
        """Number of states of each column."""
        return tuple(table.shape[1] for table in self.tables[: len(self.scope)])

    @property
    def num_parameters(self) -> int:
        """Number of free parameters; a row of a table with r states has r - 1 of them."""
        return sum(table.size - len(table) for table in self.tables)

    def arrays(self) -> Arrays:
        """Return parents, numbers of states, and the tables one after the other."""
        return {
            "parents": self.flat.parents.astype(np.int32),
            "states": self.flat.sizes.astype(np.int32),
            "tables": self.flat.tables,
            "hidden": np.array(self.hidden, dtype=np.int32),
        }

    @classmethod
    def from_arrays(cls, scope: Sequence[int], arrays: Arrays) -> ChowLiuTree:
        """Return the tree of given parameters."""
        parents = arrays["parents"].astype(np.int64).tolist()
        states = arrays["states"].astype(np.int64).tolist()
        flat = arrays["tables"].astype(np.float64)
        tables, start = [], 0
        for parent, size in zip(parents, states, strict=True):
            rows = 1 if parent < 0 else states[parent]
            tables.append(flat[start : start + rows * size].reshape(rows, size))
            start += rows * size
        return cls(tuple(scope), tuple(parents), tuple(tables), int(arrays["hidden"]))


def _parents_first(parents: Sequence[int]) -> IntArray:
    """Return positions with parents before their children; a ConfigError for a cycle."""
    children: list[list[int]] = [[] for _ in parents]
    order = [j for j, parent in enumerate(parents) if parent < 0]
    for j, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(j)
    for j in order:  # it grows while it is read
        order.extend(children[j])
    if len(order) < len(parents):
        raise ConfigError(f"the parents of a tree have a cycle: {tuple(parents)}")
    return np.array(order, dtype=np.int64)


def incomplete_rows(codes: Codes, columns: IntArray, tree: Flat) -> FloatArray:
    """Return the log probabilities of rows under a tree, missing values summed out, shape (n,).

    Parameters
    ----------
    codes : ndarray of int32, shape (columns, n)
        -1 is missing.
    columns : ndarray of int64, shape (m,)
        The row of ``codes`` of each variable, -1 for a hidden one.
    tree : Flat
    """
    if codes.shape[1] * len(tree.tables) > SUMMED_OUT:
        from flwr_causal.core.circuits import kernels

        return kernels.incomplete_rows(codes, columns, *tree)
    logs, factor = np.zeros(codes.shape[1]), np.ones((1, codes.shape[1]))
    beliefs = [
        ((codes[column] < 0) | (codes[column] == np.arange(size)[:, None])).astype(np.float64)
        if column >= 0
        else np.ones((size, len(logs)))
        for column, size in zip(columns, tree.sizes, strict=True)
    ]
    for j in tree.order[::-1]:
        parent, size, start = tree.parents[j], tree.sizes[j], tree.starts[j]
        above = factor if parent < 0 else beliefs[parent]
        above *= tree.tables[start : start + len(above) * size].reshape(-1, size) @ beliefs[j]
        largest = above.max(axis=0)
        low = (largest < SMALL) & (largest > 0.0)
        if low.any():
            logs[low] += np.log(largest[low])
            above[:, low] /= largest[low]
    with np.errstate(divide="ignore"):
        return np.asarray(logs + np.log(factor[0]))


class Forest(NamedTuple):
    """Trees that are evaluated together.

    Rows without missing values are looked up in the tables of all trees without hidden variables.

    Parameters
    ----------
    trees : sequence of (ndarray of int64, Flat)
        The column of each variable, -1 for a hidden one, and the tree.
    whole : ndarray of int64
        The trees without hidden variables.
    seen : ndarray of int64
        The columns of these trees.
    first : ndarray of int64
        The first of the following variables of each of these trees, and the number of all.
    columns, above, sizes, starts : ndarray of int64
        Of each variable the column, that of the parent (-1: none), the number of states, and the
        begin of the table in ``logs``.
    logs : ndarray of float64
        Logarithms of the cells of all tables.
    """

    trees: Sequence[tuple[IntArray, Flat]]
    whole: IntArray
    seen: IntArray
    first: IntArray
    columns: IntArray
    above: IntArray
    sizes: IntArray
    starts: IntArray
    logs: FloatArray

    def log_densities(self, codes: Codes, few: int = LOOKED_UP) -> FloatArray:
        """Return the log probability of each tree and row, missing values summed out, (trees, n).

        Parameters
        ----------
        codes : ndarray of int32, shape (columns, n)
            -1 is missing.
        few : int
            Numbers of look-ups up to this are left to numpy.
        """
        holes = (codes[self.seen] < 0).any(axis=0)
        if not holes.any() and len(self.whole) == len(self.trees):
            return self._complete(codes, few)
        result = np.empty((len(self.trees), codes.shape[1]))
        if len(self.whole) and not holes.all():
            result[np.ix_(self.whole, ~holes)] = self._complete(codes[:, ~holes], few)
        part = codes[:, holes]
        for k, (columns, tree) in enumerate(self.trees):
            if (columns < 0).any():
                result[k] = incomplete_rows(codes, columns, tree)
            elif holes.any():
                result[k, holes] = incomplete_rows(part, columns, tree)
        return result

    def _complete(self, codes: Codes, few: int) -> FloatArray:
        """Return the log probabilities of rows without missing values, (whole trees, n)."""
        first, columns, above, sizes, starts, logs = self[3:]
        if codes.shape[1] * len(columns) > few:
            from flwr_causal.core.circuits.kernels import complete_rows

            return complete_rows(codes, first, columns, above, sizes, starts, logs)
        result = np.zeros((len(first) - 1, codes.shape[1]))
        for t, total in enumerate(result):
            for v in range(first[t], first[t + 1]):
                places = starts[v] + codes[columns[v]]
                if above[v] >= 0:
                    places = places + sizes[v] * codes[above[v]]
                total += logs[places]
        return result

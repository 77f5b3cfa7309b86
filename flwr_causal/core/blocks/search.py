"""The equivalence class of numbers and categories, by a search over orders of the variables.

A graph is scored by the Gaussian BIC of the blocks of columns (:mod:`core.blocks.design`): the
residual covariance S of a block given the blocks of the parents enters with ``n/2 log det S``, and
an edge costs ``log(n)/2`` for each pair of a column of the cause and one of the effect, and
``log(d)`` for the choice of the edge. Equivalent graphs have equal scores: the columns are treated
as if they were jointly Gaussian, although those of a category are not (the degenerate Gaussian
score of Andrews, Ramsey & Cooper 2019; the basis function BIC for curved effects).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.blocks.design import Number, column_names, design
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.equivalence import informed_class
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.linear.determined import separation
from flwr_causal.core.linear.moments import (
    SampleMoments,
    columns_of,
    distinct,
    moments_of_variables,
)
from flwr_causal.core.linear.order_search import (
    MomentOrders,
    free_columns,
    log_pivots,
    search_orders,
)
from flwr_causal.core.linear.solution import edge_masks
from flwr_causal.core.series.design import lagged_names, split_blocks
from flwr_causal.core.ties import as_ranked
from flwr_causal.core.words import by_name
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.knowledge import Knowledge

# Cost of an edge beyond that of the BIC, in units of log d. Measured on tables of 20 variables,
# half of them categories (seeds 9000-9005): mean SHD of the classes without this cost, with it, and
# with half of it for each pair of columns 3.3, 2.0, 4.0 for 37 edges and 2,000 rows; 1.3, .5, .5
# for 10,000 rows; 2.5, 1.5, 1.5 for 60 edges.
GAMMA = 1.0
# Shuffled orders from which the search starts, beside two sorted ones. Of 32 starts 20 or more
# reach the best score of all in seven of ten tables, three or more in nine (the first of these
# kinds, seeds 9000-9009).
NUM_SHUFFLED = 6
# Searches from the best order with three variables moved. Of tables of 20 variables, half of them
# categories (seeds 300-319), 16 reach the best score known in 95 %, without them 90 %; of dense
# classes of 20 numbers 100 and 65 %.
NUM_MOVES = 16
# Nats within which graphs are near the best one, and how many orders are tried to find them.
WITHIN = 20.0
STEPS_PER_VARIABLE = 100


class BlockClass(NamedTuple):
    """The class that the search reached.

    Attributes
    ----------
    graph : CausalGraph
        A CPDAG; a weight is the edge's strength, without a sign, and 1 where it is 0.
    strengths : ndarray of shape (d, d)
        Of all pairs in the best order: of the edge, or of the edge that was left out; with lags
        their sums.
    dag : ndarray of bool, shape (d, d)
        A member of the class.
    """

    graph: CausalGraph
    strengths: FloatArray
    dag: BoolArray


class Independent(NamedTuple):
    """Moments without columns that the columns before them in the block determine.

    Attributes
    ----------
    moments : list of SampleMoments
        One for each of the d variables. Columns that are determined in its rows alone have the
        second moments 0.
    widths : list of int
        Columns that are left of each of the m blocks, 1 or more.
    sizes : ndarray of int64, shape (d, m)
        How many of them are not determined in the rows of each variable.
    """

    moments: list[SampleMoments]
    widths: list[int]
    sizes: IntArray


def block_search(
    table: Any,
    *,
    functions: int = 1,
    least_effect: float = 0.0,
    max_parents: int | None = None,
    knowledge: Knowledge | EdgeMasks | None = None,
) -> CausalGraph:
    """Find the equivalence class of a table of numbers and categories.

    Parameters
    ----------
    table : array of shape (n, d), or object with ``.columns``
        Columns of numbers are numbers, all others categories, booleans too.
    functions : int, default 1
        Functions of each number, 1 to 5: with 1 effects of numbers are linear, with 3 they may be
        curved.
    least_effect : float, default 0
        Least strength of an edge, from 0 to below 1: the partial correlation of two columns, and
        ``sqrt(1 - det S / det S')`` of blocks, where the residual covariance S has one parent more
        than S'.
    max_parents : int, optional
        Default: a third of the rows.
    knowledge : Knowledge or EdgeMasks, optional
        Required and forbidden edges and tiers.

    Returns
    -------
    CausalGraph
        A CPDAG; a weight is the edge's strength, without a sign, and 1 where it is 0.

    Raises
    ------
    ConfigError
        If an option is out of range, or the knowledge does not fit the variables.
    DataError
        If there are no rows, values are missing or infinite, or a column has one value.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.solvers import block_search
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.normal(size=500)
    >>> rows = np.column_stack([cause, 2 * cause + rng.normal(size=500)])
    >>> block_search(rows).kind
    'cpdag'
    """
    variables, rows = design(table, functions)
    moments = SampleMoments.from_rows(rows, column_names(variables))
    names = tuple(one.name for one in variables)
    masks = edge_masks(knowledge, names)
    widths = [one.width for one in variables]
    own = separation(
        moments.second,
        moments.n,
        names,
        required=masks.required,
        widths=widths,
        numbers=[isinstance(one, Number) for one in variables],
    )
    problem = BlockProblem.of(
        own.moments(moments),
        widths,
        names,
        masks,
        least_effect=least_effect,
        max_parents=max_parents,
    )
    return problem.best().graph


@dataclass(frozen=True, eq=False)
class BlockProblem:
    """A search for the class of blocks of columns.

    Parameters
    ----------
    names : tuple of str
        Of the d variables.
    masks : EdgeMasks
        Background knowledge over the m blocks.
    turned : ndarray of bool, shape (m, m)
        Edges whose direction may be open in a class.
    first, places : ndarray of int, shape (d,) and (m,)
        The variables, and the blocks, in the order of names, by which ties are broken. Moments and
        costs are in this order.
    own : Independent
    costs : ndarray of shape (m, d)
        Of the edges.
    limits : mapping
        ``least_effect`` and ``max_parents``.
    """

    names: tuple[str, ...]
    masks: EdgeMasks
    turned: BoolArray
    first: IntArray
    places: IntArray
    own: Independent
    costs: FloatArray
    limits: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        moments: SampleMoments | Sequence[SampleMoments],
        widths: Sequence[int],
        names: tuple[str, ...],
        masks: EdgeMasks,
        *,
        distinguished: BoolArray | None = None,
        least_effect: float = 0.0,
        max_parents: int | None = None,
    ) -> BlockProblem:
        """Return the problem of blocks of columns.

        Parameters
        ----------
        moments : SampleMoments or sequence of SampleMoments
            Of all columns, those of a variable side by side. Or one for each of the d variables, of
            the rows that inform about what causes it (:mod:`core.interventions.moments`).
        widths : sequence of int
            Number of columns of each of m = d (1 + p) blocks: of the d variables, then of their
            lags.
        names : tuple of str
            Of the d variables.
        masks : EdgeMasks
            Background knowledge over the m blocks; with lags no edge leads into one.
        distinguished : ndarray of bool, shape (d, d), optional
            Pairs whose edge has a direction in every class, symmetric. Default: none.
        least_effect, max_parents
            See :func:`block_search`.

        Raises
        ------
        DataError
            If a variable has one value.
        """
        d, order = len(names), len(widths) // len(names) - 1
        found = independent(
            moments_of_variables(moments, d), widths, lagged_names(names, order) if order else names
        )
        first = np.array(by_name(names), dtype=np.intp)
        places = np.concatenate([first + d * lag for lag in range(1 + order)])
        own = arranged(found, first, places)
        rows = float(np.mean([part.n for part in own.moments]))
        turned = np.asarray(masks.allowed, dtype=bool).copy()
        if distinguished is not None:
            turned[:d, :d] &= ~distinguished
        limits = {"least_effect": least_effect, "max_parents": max_parents}
        costs = edge_costs(rows, own.sizes)
        return cls(names, masks, turned, first, places, own, costs, limits)

    @property
    def _order(self) -> int:
        return len(self.places) // len(self.first) - 1

    @property
    def _arranged_masks(self) -> EdgeMasks:
        both = np.ix_(self.places, self.places)
        return EdgeMasks(self.masks.allowed[both], self.masks.required[both])

    def best(self, near: BoolArray | None = None) -> BlockClass:
        """Return the class that a search over orders finds.

        Parameters
        ----------
        near : ndarray of bool, shape (d, d), optional
            A DAG of variables without lags, from whose order alone the search starts. Default: from
            several orders, and from moves of the best one.
        """
        own, d = self.own, len(self.first)
        if near is None:
            starts = _starts(max(own.moments, key=lambda part: part.n), own.widths, d)
        else:
            starts = {"near": topological_order(near[np.ix_(self.first, self.first)])}
        solution = search_orders(
            own.moments,
            self._arranged_masks,
            starts=starts,
            edge_cost=self.costs,
            widths=own.widths,
            moves=NUM_MOVES if near is None else 0,
            **self.limits,
        )
        return self._class(solution.best.adjacency, solution.strengths)

    def class_of(self, dag: BoolArray) -> BlockClass:
        """Return the class of a DAG, shape (m, d)."""
        arranged = dag[np.ix_(self.places, self.first)]
        order = np.array(topological_order(arranged[: len(self.first)]), dtype=np.int64)
        return self._class(arranged, self._orders.strengths(arranged, order))

    def near_families(self, dag: BoolArray) -> list[list[tuple[int, ...]]]:
        """Return the parents of each variable in graphs of nearly the score of the best one.

        Parameters
        ----------
        dag : ndarray of bool, shape (d, d)
            The best one, of variables without lags.

        Returns
        -------
        list of list of tuple of int
            Of each variable the different sets, ascending, those of the DAG first.
        """
        order = topological_order(dag[np.ix_(self.first, self.first)])
        found = self._orders.near_families(order, WITHIN, STEPS_PER_VARIABLE * len(order))
        result: list[list[tuple[int, ...]]] = [[] for _ in self.first]
        for j, sets in zip(self.first, found, strict=True):
            own = [tuple(sorted(self.first[list(parents)].tolist())) for parents in sets]
            given = tuple(np.flatnonzero(dag[:, j]).tolist())
            result[j] = list(dict.fromkeys([given, *own]))
        return result

    @property
    def least_costs(self) -> FloatArray:
        """What each edge must gain to be in a graph, shape (d, d), of variables without lags."""
        back = np.argsort(self.first)
        costs = np.maximum(self.costs, self._orders.least_cost)
        return np.asarray(costs[np.ix_(back, back)])

    @property
    def _orders(self) -> MomentOrders:
        least, most = self.limits["least_effect"], self.limits["max_parents"]
        own = self.own
        masks = self._arranged_masks
        return MomentOrders(own.moments, masks, least, None, most, self.costs, own.widths)

    def _class(self, adjacency: BoolArray, strengths: FloatArray) -> BlockClass:
        """Return the class of a graph, (m, d), in the order of names."""
        d, back = len(self.first), np.ix_(np.argsort(self.places), np.argsort(self.first))
        dag, strengths = to_square(adjacency[back]), np.abs(strengths[back])
        marks = informed_class(dag, self.turned | dag)
        either = to_square(strengths)
        either = np.maximum(either, either.T)
        weights = np.where(marks, np.where(either > 0, either, 1.0), 0.0)
        now, lagged = split_blocks(weights[:, :d])
        required = self.masks.required[:d, :d]
        graph = CausalGraph(
            self.names,
            now,
            kind="cpdag",
            lagged=lagged if self._order else None,
            required=required if np.asarray(self.masks.required).any() else None,
        )
        return BlockClass(graph, strengths.reshape(-1, d, d).sum(axis=0), dag)


def independent(
    moments: Sequence[SampleMoments], widths: Sequence[int], names: Sequence[str]
) -> Independent:
    """Return the moments without columns that the columns before them in the block determine.

    These are further functions of a number of few values, and states that no row has.

    Parameters
    ----------
    moments : sequence of SampleMoments
        Of all columns, one for each of the first d variables.
    widths : sequence of int
        Of the m blocks.
    names : sequence of str
        Of the m blocks.

    Raises
    ------
    DataError
        If none is left of a block, or of a variable in the rows of its own moments.
    """
    parts, own = distinct(moments)
    columns = columns_of(widths)
    free = np.array([free_columns(part, columns) for part in parts])
    kept = np.flatnonzero(free.any(axis=0))
    sizes = np.array([[free[k, block].sum() for block in columns] for k in own], dtype=np.int64)
    left = [int(free[:, block].any(axis=0).sum()) for block in columns]
    for j, name in enumerate(names):
        if not left[j] or (j < len(own) and not sizes[j, j]):
            where = " in the rows in which it is no target" if left[j] else ""
            raise DataError(f"column {name!r} has one value{where}: leave it out")
    reduced = []
    for part, mask in zip(parts, free, strict=True):
        second = np.where(np.outer(mask, mask), part.second, 0.0)
        reduced.append(replace(part, second=second).subset(kept.tolist()))
    return Independent([reduced[k] for k in own], left, sizes)


def arranged(found: Independent, variables: IntArray, places: IntArray) -> Independent:
    """Return the same with the d variables, and the m blocks, in another order."""
    columns = columns_of(found.widths)
    order = np.concatenate([columns[k] for k in places]).tolist()
    parts, own = distinct(found.moments)
    sorted_parts = [part.subset(order) for part in parts]
    return Independent(
        [sorted_parts[own[j]] for j in variables],
        [found.widths[k] for k in places],
        found.sizes[np.ix_(variables, places)],
    )


def edge_costs(n: float, sizes: Sequence[int] | IntArray) -> FloatArray:
    """Return the cost of each edge, shape (m, d).

    Parameters
    ----------
    n : float
        Number of rows.
    sizes : sequence of int, or ndarray of int64 of shape (d, m)
        Number of columns of each of the m blocks; or of each in the rows of each variable.
    """
    by_variable = np.array(sizes, dtype=np.float64)
    if by_variable.ndim == 1:
        by_variable = np.tile(by_variable, (len(by_variable), 1))
    bic = 0.5 * math.log(n) * by_variable.T * np.diagonal(by_variable)
    return np.asarray(bic + GAMMA * math.log(max(by_variable.shape[1], 1)))


def _starts(
    moments: SampleMoments, widths: Sequence[int], num_targets: int
) -> dict[str, list[int]]:
    """Return the orders from which the search starts, by name.

    Two are sorted by how much of a variable all others, and lags, explain; the others are shuffled.
    """
    d, columns = num_targets, columns_of(widths)
    starts = {}
    if moments.n > moments.d:
        correlations = moments.correlations
        left = np.empty(d)
        for j, own in enumerate(columns[:d]):
            others = np.concatenate([block for block in columns if block is not own] or [own[:0]])
            given = log_pivots(correlations, np.concatenate([others, own]))[len(others) :]
            left[j] = (given.sum() - log_pivots(correlations, own).sum()) / len(own)
        sorted_order = np.argsort(-as_ranked(left), kind="stable").tolist()
        starts = {"R2": sorted_order, "R2, reversed": sorted_order[::-1]}
    shuffled = np.random.default_rng(0)
    return starts | {f"shuffled {k}": shuffled.permutation(d).tolist() for k in range(NUM_SHUFFLED)}

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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.blocks.design import column_names, design
from flwr_causal.core.graphs.equivalence import informed_class
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.moments import Moments, columns_of
from flwr_causal.core.linear.order_kernels import DEPENDENT
from flwr_causal.core.linear.order_search import log_pivots, search_orders
from flwr_causal.core.linear.solution import edge_masks
from flwr_causal.core.ties import as_ranked
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge

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


class BlockClass(NamedTuple):
    """The class that the search reached.

    Attributes
    ----------
    graph : CausalGraph
        A CPDAG; a weight is the edge's strength, without a sign, and 1 where it is 0.
    strengths : ndarray of shape (d, d)
        Of all pairs in the best order: of the edge, or of the edge that was left out.
    dag : ndarray of bool, shape (d, d)
        A member of the class.
    """

    graph: CausalGraph
    strengths: FloatArray
    dag: BoolArray


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
    """
    variables, rows = design(table, functions)
    moments = Moments.from_rows(rows, column_names(variables))
    names = tuple(one.name for one in variables)
    masks = edge_masks(knowledge, names)
    return block_class(
        moments,
        [one.width for one in variables],
        names,
        masks,
        least_effect=least_effect,
        max_parents=max_parents,
    ).graph


def block_class(
    moments: Moments,
    widths: Sequence[int],
    names: tuple[str, ...],
    masks: EdgeMasks,
    *,
    least_effect: float = 0.0,
    max_parents: int | None = None,
) -> BlockClass:
    """Find the equivalence class of blocks of columns, from their second moments.

    Parameters
    ----------
    moments : Moments
        Of all columns, those of a variable side by side.
    widths : sequence of int
        Number of columns of each of the d variables.
    names : tuple of str
        Of the variables.
    masks : EdgeMasks
        Background knowledge over the variables.
    least_effect, max_parents
        See :func:`block_search`.

    Raises
    ------
    DataError
        If a variable has one value.
    """
    moments, widths = independent(moments, widths, names)
    # In the order of names, by which ties are broken.
    order = sorted(range(len(names)), key=names.__getitem__)
    columns = columns_of(widths)
    own = moments.subset(np.concatenate([columns[k] for k in order]).tolist())
    own_widths = [widths[k] for k in order]
    both = np.ix_(order, order)
    known = type(masks)(masks.allowed[both], masks.required[both])
    solution = search_orders(
        [own] * len(names),
        known,
        least_effect=least_effect,
        starts=_starts(own, own_widths),
        max_parents=max_parents,
        edge_cost=edge_costs(moments.n, own_widths),
        widths=own_widths,
        moves=NUM_MOVES,
    )
    back = np.argsort(order)
    dag = solution.best.adjacency[np.ix_(back, back)]
    strengths = solution.strengths[np.ix_(back, back)]
    marks = informed_class(dag, np.asarray(masks.allowed, dtype=bool) | dag)
    strength = np.maximum(strengths, strengths.T)
    weights = np.where(marks, np.where(strength > 0, strength, 1.0), 0.0)
    required = masks.required if np.asarray(masks.required).any() else None
    graph = CausalGraph(names, weights, kind="cpdag", required=required)
    return BlockClass(graph, np.abs(strengths), dag)


def independent(
    moments: Moments, widths: Sequence[int], names: Sequence[str]
) -> tuple[Moments, list[int]]:
    """Return the moments without columns that the columns before them in the block determine.

    These are further functions of a number of few values, and states that no row has.

    Returns
    -------
    moments : Moments
    widths : list of int
        Columns that are left of each variable, 1 or more.

    Raises
    ------
    DataError
        If none is left of a variable.
    """
    kept: list[int] = []
    left = []
    for name, columns in zip(names, columns_of(widths), strict=True):
        varying = columns[moments.variances[columns] > 0]
        scale = np.sqrt(moments.variances[varying])
        own = moments.second[np.ix_(varying, varying)] / np.outer(scale, scale)
        given = log_pivots(own, np.arange(len(varying)))
        free = varying[given > math.log(DEPENDENT)]
        if not len(free):
            raise DataError(f"column {name!r} has one value: leave it out")
        kept += free.tolist()
        left.append(len(free))
    return moments.subset(kept), left


def edge_costs(n: float, widths: Sequence[int]) -> FloatArray:
    """Return the cost of each edge, shape (d, d)."""
    sizes = np.array(widths, dtype=np.float64)
    bic = 0.5 * math.log(n) * np.outer(sizes, sizes)
    return np.asarray(bic + GAMMA * math.log(max(len(sizes), 1)))


def _starts(moments: Moments, widths: Sequence[int]) -> dict[str, list[int]]:
    """Return the orders from which the search starts, by name.

    Two are sorted by how much of a variable all others explain; the others are shuffled.
    """
    d, columns = len(widths), columns_of(widths)
    starts = {}
    if moments.n > moments.d:
        correlations = moments.correlations
        left = np.empty(d)
        for j, own in enumerate(columns):
            others = np.concatenate([columns[i] for i in range(d) if i != j] or [own[:0]])
            given = log_pivots(correlations, np.concatenate([others, own]))[len(others) :]
            left[j] = (given.sum() - log_pivots(correlations, own).sum()) / len(own)
        sorted_order = np.argsort(-as_ranked(left), kind="stable").tolist()
        starts = {"R2": sorted_order, "R2, reversed": sorted_order[::-1]}
    shuffled = np.random.default_rng(0)
    return starts | {f"shuffled {k}": shuffled.permutation(d).tolist() for k in range(NUM_SHUFFLED)}

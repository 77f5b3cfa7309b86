"""Structural fusion of DAGs: a common order, a minimal I-map of each, the union of the edges.

The graphs of the parties disagree about directions even where they agree about dependence. Fusion
first looks for an order of the variables that suits all of them (the greedy heuristic order, GHO),
rewrites every DAG as the sparsest one along that order that claims no independence the DAG does
not have, and then counts in how many of these each edge stands.

A DAG is an array of shape ``(m, 2)`` with rows ``[cause, effect]``, or a boolean matrix of shape
``(d, d)`` in which row causes column. Memory is that of the edges plus ``d * d / 4`` bytes a DAG.

References
----------
Puerta, J. M., Aledo, J. A., Gamez, J. A. & Laborda, J. D. (2021). Efficient and accurate
structural fusion of Bayesian networks. Information Fusion 66.
Torrijos, P., Gamez, J. A. & Puerta, J. M. (2024). FedGES: a federated learning approach for
Bayesian network structure learning. Discovery Science.
Shachter, R. D. (1998). Bayes-ball: the rational pastime. UAI.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.ges import fusion_kernels
from flwr_causal.core.ges.stacked_dags import (
    StackedDags,
    find_cycle,
    sorted_neighbours,
    stack_dags,
    topological_order,
)
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Edges = NDArray[np.integer[Any]]
    BoolMatrix = NDArray[np.bool_]
    Indices = NDArray[np.int64]

PAPER_SHARES = {"union": 0.0, "c25": 0.25, "c50": 0.5}


@dataclass(frozen=True, eq=False)
class Fusion:
    """The union of several DAGs along a common order.

    Attributes
    ----------
    order : ndarray of int64, shape (d,)
        The variables, causes first; every edge points forward in it.
    edges : ndarray of int32, shape (m, 2)
        Rows ``[cause, effect]`` of the union, sorted.
    support : ndarray of int64, shape (m,)
        In how many of the transformed DAGs each edge stands, from 1 to ``num_dags``.
    num_dags : int
        How many DAGs were fused.
    """

    order: Indices
    edges: NDArray[np.int32]
    support: Indices
    num_dags: int

    def keep(self, share: str | float) -> NDArray[np.int32]:
        """Return the edges that enough of the DAGs have, shape ``(m, 2)``, sorted.

        Parameters
        ----------
        share : {"union", "c25", "c50"} or float
            See ``needed``.

        Raises
        ------
        ConfigError
            If ``share`` is another word or outside (0, 1].
        """
        return self.edges[self.support >= needed(share, self.num_dags)]


def needed(share: str | float, num_dags: int) -> int:
    """Return how many of the DAGs must have an edge for it to be kept.

    The words and the numbers round differently. ``"c25"`` and ``"c50"`` are those of the FedGES
    paper, ``max(1, floor(share * K))``: with five DAGs ``"c50"`` asks for 2 of them and ``"c25"``
    for 1, the same as ``"union"``. A number asks for at least that share, ``ceil(share * K)``:
    with five DAGs 0.5 asks for 3 and 0.25 for 2.

    Parameters
    ----------
    share : {"union", "c25", "c50"} or float
        A fusion of the paper, or a number in (0, 1].
    num_dags : int
        K, at least 1.

    Returns
    -------
    int
        From 1 to K.

    Raises
    ------
    ConfigError
        If ``share`` is another word or outside (0, 1].
    """
    if isinstance(share, str):
        if share not in PAPER_SHARES:
            raise ConfigError(
                f"fusion {share!r} is unknown: use one of {', '.join(PAPER_SHARES)} or a number "
                "in (0, 1]"
            )
        return max(1, math.floor(PAPER_SHARES[share] * num_dags))
    if not 0 < share <= 1:
        raise ConfigError(f"the share of DAGs that an edge needs is {share}: it must be in (0, 1]")
    return max(1, math.ceil(share * num_dags - 1e-9))  # 0.1 * 30 is a little more than 3


def fuse(
    dags: Sequence[Edges | BoolMatrix],
    num_variables: int,
    *,
    ties: ArrayLike | None = None,
    before: BoolMatrix | None = None,
) -> Fusion:
    """Fuse DAGs over the same variables (Puerta et al., 2021).

    Equal DAGs, and so a single one, come back as they are, unless ``before`` contradicts them.
    The order of the DAGs does not matter.

    Parameters
    ----------
    dags : sequence of ndarray
        Each of shape ``(m, 2)``, integers, rows ``[cause, effect]``; or ``(d, d)``, boolean.
    num_variables : int
        d, at least 1.
    ties, before
        See ``greedy_order``.

    Returns
    -------
    Fusion
        The common order, the union of the edges and the support of each; ``keep`` applies a share.

    Raises
    ------
    DataError
        If there is no DAG, or one is cyclic, of the wrong shape, or names a variable outside.
    ConfigError
        If ``ties`` or ``before`` does not fit the variables, or ``before`` is cyclic.
    """
    variables = _by_ties(ties, num_variables)
    stack = stack_dags(dags, variables)
    order = _greedy_order(stack, variables, before)
    edges, support = _imap_edges(stack, order, variables)
    return Fusion(variables[order], edges, support, len(dags))


def greedy_order(
    dags: Sequence[Edges | BoolMatrix],
    num_variables: int,
    *,
    ties: ArrayLike | None = None,
    before: BoolMatrix | None = None,
) -> Indices:
    """Return the greedy heuristic order of several DAGs (GHO of Puerta et al., 2021).

    From the last variable to the first: the one that is the cheapest to make a sink of all DAGs
    is made one, in each DAG by covered-edge reversals, and removed. The cost counts, over all
    DAGs, the edges to its children (to be reversed), the parents of it that a child lacks, for
    each child, and the parents of children that are not joined to it. A variable that is a sink
    already costs nothing, so that the order of equal DAGs is one of theirs.

    Parameters
    ----------
    dags, num_variables
        See ``fuse``.
    ties : array-like, shape (d,), optional
        Distinct numbers, one a variable: of equal costs the smallest becomes a sink first. The
        ranks of the sorted names make the result independent of the order of the columns. The
        default is the variables' own order.
    before : ndarray of bool, shape (d, d), optional
        ``before[i, j]``: i must precede j (required edges, tiers). It need not be transitive.
        None by default.

    Returns
    -------
    ndarray of int64, shape (d,)
        The variables, causes first.

    Raises
    ------
    DataError, ConfigError
        As ``fuse``.
    """
    variables = _by_ties(ties, num_variables)
    order: Indices = variables[_greedy_order(stack_dags(dags, variables), variables, before)]
    return order


def directed_imap(edges: Edges | BoolMatrix, order: ArrayLike) -> NDArray[np.int32]:
    """Return the minimal directed I-map of a DAG along an order.

    The parents of each variable are its Markov boundary among its predecessors: the smallest set
    of them that separates it from the others, found by one Bayes ball.

    Parameters
    ----------
    edges : ndarray
        The DAG, shape ``(m, 2)``, integers, or ``(d, d)``, boolean.
    order : array-like of int, shape (d,)
        The variables, causes first.

    Returns
    -------
    ndarray of int32, shape (m, 2)
        Rows ``[cause, effect]``, sorted.

    Raises
    ------
    DataError
        If the DAG is cyclic, of the wrong shape, or names a variable outside.
    ConfigError
        If ``order`` is not a permutation of the variables.
    """
    ordered = np.asarray(order)
    variables = np.arange(ordered.size)
    if ordered.shape != variables.shape or not np.array_equal(np.sort(ordered), variables):
        raise ConfigError("the order must name each of the variables 0, 1, ... once")
    stack = stack_dags([edges], variables)
    return _imap_edges(stack, ordered.astype(np.int64), variables)[0]


def _by_ties(ties: ArrayLike | None, num_variables: int) -> Indices:
    """Return the variables in the order of ``ties``, the numbering that all the rest works with."""
    if num_variables < 1:
        raise ConfigError(f"cannot fuse graphs over {num_variables} variables: give at least one")
    if ties is None:
        return np.arange(num_variables)
    ranks = np.asarray(ties)
    if ranks.shape != (num_variables,) or len(np.unique(ranks)) < num_variables:
        raise ConfigError(
            f"ties must be {num_variables} distinct numbers, one a variable, "
            f"not an array of shape {ranks.shape} with {len(np.unique(ranks))} distinct entries"
        )
    return np.argsort(ranks)


def _greedy_order(stack: StackedDags, variables: Indices, before: BoolMatrix | None) -> Indices:
    """Return the greedy order in the numbering of the stack."""
    size = len(variables)
    precedence = np.zeros((0, 0), np.bool_)
    if before is not None:
        checked = _checked_precedence(np.asarray(before), size)
        precedence = np.ascontiguousarray(checked[np.ix_(variables, variables)])
    positions = np.empty_like(stack.topological)
    np.put_along_axis(positions, stack.topological, np.arange(size)[None], axis=1)
    parent_offsets, parents, child_offsets, children = stack.neighbours
    order: Indices = fusion_kernels.greedy_order(
        fusion_kernels.pack(parent_offsets, parents, positions),
        fusion_kernels.pack(child_offsets, children, positions),
        stack.topological,
        precedence,
    )
    return order


def _checked_precedence(before: NDArray[Any], size: int) -> BoolMatrix:
    """Return ``before`` if it is a boolean matrix that some order satisfies."""
    if before.dtype != np.bool_ or before.shape != (size, size):
        raise ConfigError(
            f"before has shape {before.shape} and type {before.dtype}: it must be a boolean matrix "
            f"of shape ({size}, {size})"
        )
    pairs = np.argwhere(before)
    ordered = topological_order(*sorted_neighbours(pairs, size))
    if len(ordered) < size:
        cycle = find_cycle(pairs, ordered, size)
        raise ConfigError(
            f"no order satisfies before: it has the cycle {' -> '.join(map(str, cycle))}; "
            "drop one of these requirements"
        )
    return before


def _imap_edges(
    stack: StackedDags, order: Indices, variables: Indices
) -> tuple[NDArray[np.int32], Indices]:
    """Return the union of the I-maps' edges in the callers' numbering, sorted, and the counts."""
    rows = fusion_kernels.count_imap_edges(stack.neighbours, len(stack.topological), order)
    edges = variables[rows[:, :2]]
    by_edge = np.lexsort((edges[:, 1], edges[:, 0]))
    return edges[by_edge].astype(np.int32), rows[by_edge, 2]

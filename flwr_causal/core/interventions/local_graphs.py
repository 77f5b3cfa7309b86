"""Each party's own graph, which differs from the common one beyond chance.

A party's graph has the common causes of every variable whose mechanism in the party's rows is that
of the other parties (:mod:`core.interventions.targets`). Of the other variables the causes are
found anew, by a search on the party's second moments. A search on the party's moments alone would
differ from the common graph by sampling error almost everywhere.

A variable is one column, or a block of columns: a category, or functions of a number. Of time
series the m variables are those of the lagged design [x_t, x_{t-1}, ..., x_{t-p}], m = d (1 + p),
and a graph has the causes of the d variables at t among them; without lags m is d.

Of a class a mechanism differs if it does whichever member is true, and the common causes are those
of one member, in which the mechanisms that do not differ are the same. An own class is that of the
own DAG; common directions of edges into variables whose mechanisms do not differ stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.linear.moments import SampleMoments, columns_of, moments_of_variables
from flwr_causal.core.linear.order_search import free_columns, log_pivots
from flwr_causal.core.linear.polish import polish
from flwr_causal.core.linear.regression import solved

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

    #: Returns a DAG, (m, d), given a party's moments, the common DAG and knowledge over the m
    #: variables.
    Search = Callable[[SampleMoments, BoolArray, EdgeMasks], BoolArray]


# A column is constant if its variance is below this share of its mean square: the sums of functions
# of a constant number leave some 1e-14.
ROUNDING = 1e-12


class OwnMechanisms(NamedTuple):
    """A party's own graph, and its effects; row causes column. M columns of m variables.

    Attributes
    ----------
    graph
        ``(m, d)``, the causes of the d variables among the m; acyclic.
    weights
        ``(M, M_d)`` least-squares weights in the party's rows, of columns.
    support
        ``(m, d)``, in nats: for an edge of the common graph by how much the party's rows are more
        probable with the effect that it has there than without one; for an edge of the party's own
        graph only by how much they are if it is added to the common graph, less its cost by the
        BIC. 0 for all other pairs, and where the cause is constant in the party's rows.
    shares
        ``(m, d)`` for edges of the common and of the own graph: by which share the cause lowers the
        generalised variance of the effect, given its other causes in the own graph. Of single
        columns it is the squared partial correlation.
    """

    graph: BoolArray
    weights: FloatArray
    support: FloatArray
    shares: FloatArray


def polished(own: SampleMoments, start: BoolArray, masks: EdgeMasks) -> BoolArray:
    """Return the DAG of single columns that a greedy search reaches from the common one."""
    d = start.shape[1]
    return polish(own, to_square(start), knowledge=masks)[:, :d]


def own_graph(
    own: SampleMoments,
    weights: FloatArray,
    acted: BoolArray,
    masks: EdgeMasks,
    widths: Sequence[int] | None = None,
    search: Search = polished,
) -> OwnMechanisms:
    """Find a party's own graph.

    Parameters
    ----------
    own
        Moments of the party's rows, of the M columns.
    weights
        ``(M, M_d)`` those of the common DAG, of columns.
    acted
        ``(d,)`` the variables whose causes are found anew.
    masks
        Background knowledge over the m variables; none of them causes a lag.
    widths
        Number of columns of each of the m variables. Default: one.
    search
        Default: :func:`polished`.
    """
    widths = [1] * len(weights) if widths is None else widths
    moments, columns, d = varying(own, widths), columns_of(widths), len(acted)
    graph = common = _edges(weights, columns, d)
    if acted.any():
        required = masks.required[:, :d] | (common & ~acted)
        allowed = (masks.allowed[:, :d] & acted) | required | common
        graph = search(moments, common, EdgeMasks(to_square(allowed), to_square(required)))
    return compared(own, graph, fitted(moments, graph, widths), weights, widths)


def compared(
    own: SampleMoments,
    graph: BoolArray,
    own_weights: FloatArray,
    weights: FloatArray,
    widths: Sequence[int] | None = None,
) -> OwnMechanisms:
    """Return a party's graph as it compares with the common one.

    Parameters
    ----------
    own
        Moments of the party's rows, of the M columns.
    graph
        ``(m, d)``: the party's own.
    own_weights, weights
        ``(M, M_d)``, of columns: the party's, and those of the common graph.
    widths
        Number of columns of each of the m variables. Default: one.
    """
    columns = columns_of([1] * len(weights) if widths is None else widths)
    m, d = graph.shape
    common = _edges(weights, columns, d)
    evidence = _Evidence(varying(own, widths), columns)
    flat = _constant(own, columns)
    support, shares = np.zeros((m, d)), np.zeros((m, d))
    for i, j in np.argwhere(common | graph).tolist():
        others = np.flatnonzero(graph[:, j] & (np.arange(m) != i))
        shares[i, j] = -np.expm1(evidence.gain(i, j, others))
        others = np.flatnonzero(common[:, j] & (np.arange(m) != i))
        effect = weights[np.ix_(columns[i], columns[j])] if common[i, j] else None
        # Rows in which a cause is constant do not tell whether it has an effect.
        support[i, j] = 0.0 if flat[i] else evidence.support(i, j, others, effect)
    return OwnMechanisms(graph, own_weights, support, shares)


def _edges(weights: FloatArray, columns: Sequence[IntArray], d: int) -> BoolArray:
    """Return between which variables there are weights, ``(m, d)``."""
    variable = np.repeat(np.arange(len(columns)), [len(one) for one in columns])
    causes, effects = np.nonzero(weights)
    found = np.zeros((len(columns), d), dtype=np.bool_)
    found[variable[causes], variable[effects]] = True
    return found


def open_directions(marks: BoolArray, acted: BoolArray, masks: EdgeMasks) -> BoolArray:
    """Return the edges whose direction a party's own class may leave open, ``(m, m)``.

    Parameters
    ----------
    marks
        ``(m, d)``: the common class.
    acted
        ``(d,)``: the variables whose causes were found anew.
    masks
        Background knowledge over the m variables.
    """
    found, d = np.array(masks.allowed, dtype=bool), len(acted)
    found[:d, :d] &= ~(marks[:d] & ~marks[:d].T & ~acted).T
    return found


def fitted(
    moments: SampleMoments | Sequence[SampleMoments], graph: BoolArray, widths: Sequence[int]
) -> FloatArray:
    """Return the least-squares weights of a DAG, ``(M, M_d)``, of columns.

    Parameters
    ----------
    moments
        Of the columns, or for each of the d variables those of the rows that inform about it.
    graph
        ``(m, d)``.
    widths
        Number of columns of each of the m variables.
    """
    columns, d = columns_of(widths), graph.shape[1]
    found = np.zeros((sum(widths), sum(widths[:d])))
    for j, part in enumerate(moments_of_variables(moments, d)[:d]):
        causes = _columns_of(columns, np.flatnonzero(graph[:, j]))
        across = part.second[np.ix_(causes, columns[j])]
        found[np.ix_(causes, columns[j])] = solved(part.second[np.ix_(causes, causes)], across)
    return found


class _Evidence:
    """What a party's rows say of edges, from the moments of their columns."""

    def __init__(self, own: SampleMoments, columns: Sequence[IntArray]) -> None:
        self.own, self.columns = own, columns
        free = free_columns(own, columns)
        self.free = [block[free[block]] for block in columns]

    def gain(self, i: int, j: int, others: IntArray) -> float:
        """Return the logarithm of the factor by which a cause changes the generalised variance."""
        given = _columns_of(self.free, others)
        with_it = np.concatenate([given, self.free[i]])
        second, effect = self.own.second, self.free[j]
        return min(
            _log_variance(second, with_it, effect) - _log_variance(second, given, effect), 0.0
        )

    def support(self, i: int, j: int, others: IntArray, effect: FloatArray | None) -> float:
        """Return the support of an edge that has an effect in the common graph, or is added."""
        half = 0.5 * self.own.n
        if effect is None:
            cost = 0.5 * len(self.free[i]) * len(self.free[j]) * np.log(self.own.n)
            return float(-half * self.gain(i, j, others) - cost)
        given, cause, own = _columns_of(self.free, others), self.columns[i], self.columns[j]
        columns = np.concatenate([given, cause, own])
        second, known = self.own.second[np.ix_(columns, columns)], np.arange(len(given))
        at, end = len(given), len(given) + len(cause)
        mine = end + np.flatnonzero(np.isin(own, self.free[j]))
        # The effect's columns without what the common effect of the cause explains.
        change = np.eye(len(columns))
        change[at:end, end:] -= effect
        with_it = _log_variance(change.T @ second @ change, known, mine)
        return float(half * (_log_variance(second, known, mine) - with_it))


def _columns_of(columns: Sequence[IntArray], variables: IntArray) -> IntArray:
    """Return the columns of variables side by side."""
    none = np.empty(0, dtype=np.intp)
    return np.concatenate([none, *[columns[k] for k in variables]])


def _log_variance(second: FloatArray, given: IntArray, own: IntArray) -> float:
    """Return the logarithm of the generalised variance of columns, given others."""
    both = np.concatenate([given, own])
    among = second[np.ix_(both, both)]
    scale = np.sqrt(np.where(np.diagonal(among) > 0, np.diagonal(among), 1.0))
    pivots = log_pivots(among / np.outer(scale, scale), np.arange(len(both)))
    return float((pivots + 2 * np.log(scale))[len(given) :].sum())


def varying(own: SampleMoments, widths: Sequence[int] | None = None) -> SampleMoments:
    """Return the moments with variance 1 where a variable is constant: it has no effects then."""
    blocks = columns_of([1] * own.d if widths is None else widths)
    flat = np.repeat(_constant(own, blocks), [len(one) for one in blocks])
    if not flat.any():
        return own
    second = np.where(flat[:, None] | flat, 0.0, own.second) + np.diag(flat.astype(np.float64))
    return SampleMoments(own.n, own.mean, second, own.names)


def _constant(own: SampleMoments, columns: Sequence[IntArray]) -> BoolArray:
    """Return which variables are constant, ``(m,)``."""
    constant = own.variances <= ROUNDING * (own.variances + own.mean**2)
    return np.array([constant[one].all() for one in columns])

"""Each party's own graph of a linear system, which differs from the common one beyond chance.

A party's graph has the common causes of every variable whose mechanism in the party's rows is that
of the other parties (:mod:`core.interventions.targets`). Of the other variables the causes are
found anew, by a greedy search on the party's second moments. A search on the party's moments alone
would differ from the common graph by sampling error almost everywhere.

Of time series the moments are those of the m = d (1 + p) columns [x_t, x_{t-1}, ..., x_{t-p}] of
the lagged design, and a graph has the causes of the d variables at t among them; without lags m
is d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.linear.gaussian_scores import partial_correlations
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.linear.polish import polish
from flwr_causal.core.linear.regression import RESIDUAL_FLOOR, least_squares, solved

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray


class LinearGraph(NamedTuple):
    """A party's own graph; row causes column.

    Attributes
    ----------
    graph
        ``(m, d)``, the causes of the d variables among the m columns; acyclic.
    weights
        ``(m, d)`` least-squares weights in the party's rows.
    support
        ``(m, d)``, in nats: for an edge of the common graph by how much the party's rows are more
        probable with the effect that it has there than without one; for an edge of the party's own
        graph only by how much they are if it is added to the common graph, less its cost by the
        BIC. 0 for all other pairs.
    shares
        ``(m, d)`` squared partial correlations of each cause and the variable given its other
        causes: of the own graph's edges, and of others if they are added.
    """

    graph: BoolArray
    weights: FloatArray
    support: FloatArray
    shares: FloatArray


def own_graph(own: Moments, weights: FloatArray, acted: BoolArray, masks: EdgeMasks) -> LinearGraph:
    """Find a party's own graph.

    Parameters
    ----------
    own
        Moments of the party's rows, of the m columns.
    weights
        ``(m, d)`` those of the common graph.
    acted
        ``(d,)`` the variables whose causes are found anew.
    masks
        Background knowledge over the m columns; none of them causes a lag.
    """
    own, common, (m, d) = _varying(own), weights != 0, weights.shape
    required = masks.required[:, :d] | (common & ~acted)
    allowed = (masks.allowed[:, :d] & acted) | required | common
    # Lags have no causes.
    start, *both = (np.pad(one, ((0, 0), (0, m - d))) for one in (common, allowed, required))
    found = polish(own, start, knowledge=EdgeMasks(*both), num_targets=d)
    graph = found.adjacency[:, :d]
    return LinearGraph(
        graph,
        least_squares(own, graph)[0],
        np.where(common | graph, _support(own, weights), 0.0),
        _squared(own, graph),
    )


def _varying(own: Moments) -> Moments:
    """Return the moments with variance 1 where a column is constant: it has no effects then."""
    flat = np.zeros(own.d, dtype=np.bool_)
    flat[own.constant_columns()] = True
    if not flat.any():
        return own
    second = np.where(flat[:, None] | flat, 0.0, own.second) + np.diag(flat.astype(np.float64))
    return Moments(own.n, own.mean, second, own.names)


def _squared(own: Moments, graph: BoolArray) -> FloatArray:
    """Return the squared partial correlations of each pair given the effect's causes, (m, d)."""
    found = np.zeros(graph.shape)
    for j in range(graph.shape[1]):
        partial = partial_correlations(own.correlations, np.flatnonzero(graph[:, j]), j)
        found[:, j] = np.nan_to_num(partial) ** 2
    np.fill_diagonal(found, 0.0)
    return found


def _support(own: Moments, weights: FloatArray) -> FloatArray:
    """Return the support of each edge, and of others if they are added, ``(m, d)``."""
    common = weights != 0
    shares = np.minimum(_squared(own, common), 1 - 1e-12)
    found = -0.5 * own.n * np.log1p(-shares) - 0.5 * np.log(own.n)
    for i, j in np.argwhere(common).tolist():
        others = np.flatnonzero(common[:, j] & (np.arange(own.d) != i))
        pair = np.array([i, j])
        across = own.second[np.ix_(others, pair)]
        among = own.second[np.ix_(others, others)]
        left = own.second[np.ix_(pair, pair)] - across.T @ solved(among, across)
        without = max(left[1, 1], RESIDUAL_FLOOR * own.second[j, j])
        contrast = np.array([-weights[i, j], 1.0])
        given = max(float(contrast @ left @ contrast), RESIDUAL_FLOOR * own.second[j, j])
        found[i, j] = 0.5 * own.n * np.log(without / given)
    return np.asarray(found)

"""The parties' graphs put together, as the baselines of Ng & Zhang (2022), section 6, do it.

They are combined by vote or by average, or the best one is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import compare
from flwr_causal.core.linear.baselines import THRESHOLD
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.selection import automatic_sparsity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.linear.moments import SampleMoments


def quick_solver(moments: SampleMoments) -> CausalGraph:
    """Return the graph of DAGMA with `default_sparsity`."""
    sparsity = automatic_sparsity(moments)
    return dagma(moments, sparsity=sparsity, threshold=THRESHOLD)


def voting(graphs: Sequence[CausalGraph]) -> CausalGraph:
    """Return the edges that more than half of the parties found (NOTEARS-Voting).

    As in the paper, cycles are not removed. The weight of an edge is the mean over the parties that
    found it.
    """
    found = np.array([graph.adjacency for graph in graphs])
    weights = np.array([graph.weights for graph in graphs])
    votes = found.sum(axis=0)
    mean = weights.sum(axis=0) / np.maximum(votes, 1)
    return CausalGraph(graphs[0].names, np.where(2 * votes > len(graphs), mean, 0.0))


def average(graphs: Sequence[CausalGraph], rows: Sequence[int] | None = None) -> CausalGraph:
    """Return the thresholded mean of the parties' raw weights (NOTEARS-Avg).

    The mean is weighted by ``rows``, the parties' numbers of rows, if they are given. As in the
    paper, cycles are not removed.
    """
    raw = [graph.weights if graph.raw_weights is None else graph.raw_weights for graph in graphs]
    mean = np.average(raw, axis=0, weights=rows)
    return CausalGraph(graphs[0].names, np.where(np.abs(mean) > THRESHOLD, mean, 0.0))


def best(graphs: Sequence[CausalGraph], truth: CausalGraph) -> CausalGraph:
    """Return the party's graph with the lowest SHD to the truth, lags included (NOTEARS-Best)."""

    def errors(graph: CausalGraph) -> float:
        found = compare(truth, graph)
        return float(found["shd"] + found.get("lagged_shd", 0))

    return min(graphs, key=errors)

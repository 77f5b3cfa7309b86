"""The baselines of Ng & Zhang (2022), section 6: the graphs without a federation.

NOTEARS is applied to the pooled rows (AllData), and to each party's rows. The parties' graphs are
combined by vote or by average, or the best one is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.moments import Moments, merge
from flwr_causal.core.linear.notears import notears
from flwr_causal.core.linear.selection import automatic_sparsity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Solver = Callable[[Moments], CausalGraph]

# The values of Zheng et al. (2018) and of the paper's public code.
SPARSITY = 0.1
THRESHOLD = 0.3


def paper_solver(moments: Moments) -> CausalGraph:
    """Return the graph of NOTEARS with the paper's settings."""
    return notears(moments, sparsity=SPARSITY, threshold=THRESHOLD)


def quick_solver(moments: Moments) -> CausalGraph:
    """Return the graph of DAGMA with `default_sparsity`."""
    sparsity = automatic_sparsity(moments)
    return dagma(moments, sparsity=sparsity, threshold=THRESHOLD)


def all_data(parties: Sequence[Moments], solve: Solver = paper_solver) -> CausalGraph:
    """Return the graph of the rows of all parties together (NOTEARS-AllData)."""
    return solve(merge(parties))


def alone(parties: Sequence[Moments], solve: Solver = paper_solver) -> list[CausalGraph]:
    """Return the graph of each party's rows; columns that are constant at a party have no edges."""
    return [_on_own_rows(moments, solve) for moments in parties]


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
    """Return the party's graph with the lowest SHD to the truth (NOTEARS-Best)."""
    return min(graphs, key=lambda graph: structural_hamming_distance(truth, graph))


def _on_own_rows(moments: Moments, solve: Solver) -> CausalGraph:
    constant = set(moments.constant_columns())
    varying = [index for index in range(moments.d) if index not in constant]
    weights, raw = np.zeros((moments.d, moments.d)), np.zeros((moments.d, moments.d))
    if len(varying) > 1 and moments.n > 1:
        found = solve(moments.subset(varying))
        grid = np.ix_(varying, varying)
        weights[grid] = found.weights
        raw[grid] = found.weights if found.raw_weights is None else found.raw_weights
    return CausalGraph(moments.names, weights, raw_weights=raw)

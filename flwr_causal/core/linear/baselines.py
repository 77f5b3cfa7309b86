"""The baselines of Ng & Zhang (2022), section 6: what the parties find without a federation.

NOTEARS on the pooled rows (AllData), and on each party's own rows, combined by vote, by average, or
by taking the best party's graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.moments import Moments, merge
from flwr_causal.core.linear.notears import notears
from flwr_causal.core.linear.selection import default_sparsity, typical_variance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Solver = Callable[[Moments], CausalGraph]

# Zheng et al. (2018) and the paper's public code.
SPARSITY = 0.1
THRESHOLD = 0.3


def paper_solver(moments: Moments) -> CausalGraph:
    """Return NOTEARS' graph as the paper's baselines use it."""
    return notears(moments, sparsity=SPARSITY, threshold=THRESHOLD)


def quick_solver(moments: Moments) -> CausalGraph:
    """Return the graph of the moments method's defaults: DAGMA with the automatic sparsity."""
    sparsity = default_sparsity(moments.n, moments.d, typical_variance(moments))
    return dagma(moments, sparsity=sparsity, threshold=THRESHOLD)


def all_data(parties: Sequence[Moments], solve: Solver = paper_solver) -> CausalGraph:
    """Return the graph of the rows of all parties together (NOTEARS-AllData)."""
    return solve(merge(parties))


def alone(parties: Sequence[Moments], solve: Solver = paper_solver) -> list[CausalGraph]:
    """Return the graph of each party's own rows.

    A column that is constant at a party stays without edges there.
    """
    return [_on_own_rows(moments, solve) for moments in parties]


def voting(graphs: Sequence[CausalGraph]) -> CausalGraph:
    """Return the edges that more than half of the parties found (NOTEARS-Voting).

    The graph may have cycles and is reported as it is, as in the paper; its weights are the means
    over the parties that found the edge.
    """
    found = np.array([graph.adjacency for graph in graphs])
    weights = np.array([graph.weights for graph in graphs])
    votes = found.sum(axis=0)
    mean = weights.sum(axis=0) / np.maximum(votes, 1)
    return CausalGraph(graphs[0].names, np.where(2 * votes > len(graphs), mean, 0.0))


def average(graphs: Sequence[CausalGraph], rows: Sequence[int] | None = None) -> CausalGraph:
    """Return the mean of the parties' weights before the threshold, then cut (NOTEARS-Avg).

    The parties count by their numbers of rows where these are given, else alike. The graph may
    have cycles and is reported as it is, as in the paper.
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

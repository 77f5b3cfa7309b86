"""Graphs of penalised least squares: ``solver="dagma"`` and ``"notears"`` of Moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.notears import notears
from flwr_causal.core.linear.polish import polish_graph
from flwr_causal.core.linear.selection import (
    automatic_sparsity,
    default_grid,
    select_by_bic,
    select_by_held_out,
)
from flwr_causal.strategies.moments.solvers.solver import WeightedGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import Moments


def by_penalty(
    pooled: Moments | Sequence[Moments],
    masks: EdgeMasks,
    folds: Sequence[Moments],
    *,
    solver: Literal["dagma", "notears"],
    sparsity: float | Literal["auto", "bic", "held-out"],
    threshold: float,
    refit: bool,
    score: Literal["bic", "equal-variance"] | None,
) -> WeightedGraph:
    """Return the graph of least squares with an L1 norm, whose weight is chosen first.

    Parameters
    ----------
    pooled : Moments or sequence of Moments
        Of the centred and scaled rows; under interventions one for each variable.
    masks : EdgeMasks
        Background knowledge over the d columns.
    folds : sequence of Moments
        With ``sparsity="held-out"`` of the training rows and of those held out.
    solver, sparsity, threshold, refit
        The options.
    score : str or None
        The score by which single edges are changed afterwards; None: none are.
    """

    def solve(moments: Moments | Sequence[Moments], weight: float) -> CausalGraph:
        minimise = notears if solver == "notears" else dagma
        return minimise(moments, sparsity=weight, threshold=threshold, knowledge=masks, refit=refit)

    if sparsity == "auto":
        sparsity = automatic_sparsity(pooled)
    elif sparsity == "bic":
        sparsity = select_by_bic(pooled, default_grid(pooled), solve)
    elif sparsity == "held-out":
        train, held_out = folds
        sparsity = select_by_held_out(train, held_out, default_grid(train), solve)
    graph = solve(pooled, sparsity)
    assert graph.raw_weights is not None
    scores = np.abs(graph.raw_weights)
    if score is not None:
        graph = polish_graph(pooled, graph, score=score, knowledge=masks)
    return WeightedGraph(pooled, graph, scores, masks, {"sparsity": sparsity})

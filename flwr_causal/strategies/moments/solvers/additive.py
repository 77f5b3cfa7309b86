"""Additive effects: ``model="additive"`` of Moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.nonlinear.additive import THRESHOLD, additive, turning_loss
from flwr_causal.core.nonlinear.basis import SIZE
from flwr_causal.core.options import number_or_none
from flwr_causal.doubts.graphs import plausible
from flwr_causal.strategies.moments.solvers.solver import Outcome

if TYPE_CHECKING:
    from flwr_causal.sources.products import Products
    from flwr_causal.strategies.moments.options import MomentsOptions


def solve_additive(pooled: Products, options: MomentsOptions) -> Outcome:
    """Find the graph of additive effects: z has five functions of each variable."""
    agreement, masks = pooled.agreement, pooled.masks
    spread = np.ones(len(agreement.names))
    if not options.standardize:
        spread = np.sqrt(agreement.variance)
    # The first function of a variable, its value, is in its units.
    units = np.ones(pooled.design.size)
    units[::SIZE] = spread
    moments = pooled.design.moments(pooled.values[0], agreement.n).scaled(1 / units)
    graph = additive(
        moments,
        len(agreement.names),
        names=agreement.names,
        sparsity=number_or_none(options.sparsity),
        threshold=THRESHOLD if options.threshold is None else options.threshold,
        knowledge=masks,
        refit=options.refit,
    )
    assert graph.raw_weights is not None
    scores = np.abs(graph.raw_weights)
    # Strengths are in the units of what is explained.
    graph, warnings = plausible(graph, 1 / spread, masks)
    loss = turning_loss(moments, graph.adjacency, masks.allowed, graph.names)
    graph = replace(graph, turning_loss=loss)
    return Outcome(moments, graph, None, scores, tuple(warnings), {})

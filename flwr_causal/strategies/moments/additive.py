"""Additive effects: ``model="additive"`` of Moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.nonlinear.additive import THRESHOLD, additive, function_names, turning_loss
from flwr_causal.core.options import number_or_none
from flwr_causal.doubts.graphs import plausible
from flwr_causal.strategies.moments.outcome import Outcome

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.moments.options import MomentsOptions


def solve_additive(
    agreement: Agreement,
    masks: EdgeMasks,
    products: FloatArray,
    scale: FloatArray,
    options: MomentsOptions,
) -> Outcome:
    """Find the graph of additive effects.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances.
    masks : EdgeMasks
        Background knowledge over the d columns.
    products : ndarray of shape (1, 1 + d q, 1 + d q)
        Mean products of the rows [1, functions of the variables].
    scale : ndarray of shape (d,)
        Divisors of the columns.
    options : MomentsOptions
    """
    pooled = Moments.from_products(agreement.n, products[0], function_names(agreement.names))
    graph = additive(
        pooled,
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
    graph, warnings = plausible(graph, 1 / (np.sqrt(agreement.variance) / scale), masks)
    loss = turning_loss(pooled, graph.adjacency, masks.allowed, graph.names)
    graph = replace(graph, turning_loss=loss)
    return Outcome(pooled, graph, None, scores, tuple(warnings), {})

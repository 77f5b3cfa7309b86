"""Each party's own graph beside the common one, of linear systems: shared by the methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity, OwnGraph, edge_table
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.interventions.local_graphs import own_graph
from flwr_causal.core.interventions.targets import own_mechanisms
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.linear.solution import edge_weights
from flwr_causal.core.series.design import lagged_graph, lagged_names, stacked_weights, to_square

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks


def local_graphs(
    parts: Mapping[str, FloatArray],
    graph: CausalGraph,
    masks: EdgeMasks,
) -> Heterogeneity:
    """Return each party's own graph beside the common one, and where they differ.

    Parameters
    ----------
    parts : mapping of str to ndarray of shape (1 + m, 1 + m)
        By party (or group), its sums of products of the rows [1, z]. The columns of z are the d
        variables, and then those of each lag of the graph: m = d (1 + p).
    graph : CausalGraph
        The common DAG, whose edges may have lags.
    masks : EdgeMasks
        Background knowledge over the m columns.
    """
    common = stacked_weights(graph)
    columns = lagged_names(graph.names, len(common) // len(graph.names) - 1)
    acted = own_mechanisms(np.stack([*parts.values()]), [1] * len(common), common != 0)
    graphs, own = {}, {}
    for place, (party, products) in enumerate(parts.items()):
        rows = float(products[0, 0])
        moments = Moments.from_products(round(rows), products / rows, columns)
        found = own_graph(moments, common, acted[place], masks)
        graphs[party] = _graph_of(graph, edge_weights(found.graph, found.weights), masks)
        own[party] = OwnGraph(
            to_square(found.graph), to_square(found.support), to_square(found.shares)
        )
    # A cause with a lag has the name of its column.
    return Heterogeneity(graphs, edge_table(to_square(common != 0), own, columns))


def _graph_of(common: CausalGraph, weights: FloatArray, masks: EdgeMasks) -> CausalGraph:
    """Return the graph of weights, (m, d), with the names and lags of the common one."""
    if common.lagged is None:
        return CausalGraph(common.names, weights, required=masks.required)
    return lagged_graph(common.names, weights, threshold_now=0, threshold_lagged=0, masks=masks)

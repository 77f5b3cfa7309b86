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
from flwr_causal.errors import ConfigError, FederationError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.protocol.replies import Replies

#: Fewest parties, or groups, between which mechanisms can differ.
LEAST_PARTS = 2


def require_several(option: str, parties: Collection[str]) -> None:
    """Check that there are parties to compare.

    Raises
    ------
    ConfigError
        If there is one party only; it names the option that compares them.
    """
    if len(parties) < LEAST_PARTS:
        raise ConfigError(
            f"The option '{option}' is True, and {', '.join(parties)} is the only party: how it "
            "differs shows in comparison with others. Leave the option out, or connect more "
            "parties."
        )


def sums_by_party(replies: Replies, agreement: Agreement) -> dict[str, FloatArray]:
    """Return the sums of products of each party, or group, from mean ``moments``.

    Raises
    ------
    FederationError
        If there are the moments of one party, or group of parties, only.
    """
    means = replies.of("moments")
    if len(means) < LEAST_PARTS:
        raise FederationError(
            "unknown_targets=True and local_graphs=True compare parties, and there are the moments "
            f"of {', '.join(means)} only: start the run again once others can answer, or leave the "
            "option out."
        )

    def rows(name: str) -> int:
        # Of a group the rows of those parties that are in its sum.
        return replies.sums[name].rows if name in replies.sums else agreement.rows[name]

    return {name: rows(name) * own for name, own in means.items()}


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
        variables, and then those of each lag: m = d (1 + p). The graph may have fewer lags.
    graph : CausalGraph
        The common DAG, whose edges may have lags.
    masks : EdgeMasks
        Background knowledge over the m columns.
    """
    common = stacked_weights(graph)
    columns = lagged_names(graph.names, len(common) // len(graph.names) - 1)
    masks, used = masks.first(len(columns)), slice(1 + len(columns))
    sums = np.stack([own[used, used] for own in parts.values()])
    acted = own_mechanisms(sums, common != 0)
    graphs, own = {}, {}
    for place, (party, products) in enumerate(zip(parts, sums, strict=True)):
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

"""Each party's own graph beside the common one: shared by the methods."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.graphs.equivalence import member_of
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.interventions.local_graphs import (
    open_directions,
    own_graph,
    polished,
    varying,
)
from flwr_causal.core.interventions.targets import own_mechanisms, told_directions
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.solution import edge_weights
from flwr_causal.core.nonlinear.heterogeneity import Heterogeneity, OwnGraph, edge_table
from flwr_causal.core.series.design import (
    lagged_graph,
    lagged_names,
    stacked_edges,
    stacked_weights,
)
from flwr_causal.errors import ConfigError
from flwr_causal.sources.by_party import LEAST_PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.interventions.local_graphs import OwnMechanisms, Search


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


class OwnSearch(NamedTuple):
    """How the parties' own graphs are found.

    Parameters
    ----------
    columns : tuple of str
        Names of the columns of the rows z.
    widths : sequence of int
        Number of columns of each of the m variables.
    weights : callable
        Returns the weights of the common DAG, of columns, given this DAG, (m, d).
    search : callable
        Returns a party's own DAG.
    graph : callable
        Returns a party's own graph, given its moments, its DAG, and the edges whose direction may
        be open, (m, m).
    """

    columns: tuple[str, ...]
    widths: Sequence[int]
    weights: Callable[[BoolArray], FloatArray]
    search: Search
    graph: Callable[[SampleMoments, OwnMechanisms, BoolArray], CausalGraph]


def local_graphs(
    parts: Mapping[str, FloatArray],
    graph: CausalGraph,
    masks: EdgeMasks,
    kind: OwnSearch | None = None,
) -> Heterogeneity:
    """Return each party's own graph beside the common one, and where they differ.

    Parameters
    ----------
    parts : mapping of str to ndarray of shape (1 + M, 1 + M)
        By party (or group), its sums of products of the rows [1, z]. z has the M columns of the d
        variables, and then of those of each lag: m = d (1 + p) variables. The graph may have fewer
        lags.
    graph : CausalGraph
        The common DAG or class, whose edges may have lags.
    masks : EdgeMasks
        Background knowledge over the m variables.
    kind : OwnSearch, optional
        Default: that of a DAG of single columns.
    """
    marks, d = stacked_edges(graph), len(graph.names)
    names = lagged_names(graph.names, len(marks) // d - 1)
    masks = masks.first(len(names))
    kind = kind or _of_weights(graph, masks, names)
    used = slice(1 + len(kind.columns))
    products = np.stack([own[used, used] for own in parts.values()])
    acted = own_mechanisms(products, marks, kind.widths)
    told = told_directions(products, marks, acted, kind.widths, least=0.0)
    common = member_of(names, to_square(told))[:, :d]
    weights, graphs, own = kind.weights(common), {}, {}
    for party, one, differs in zip(parts, products, acted, strict=True):
        rows = float(one[0, 0])
        moments = SampleMoments.from_products(round(rows), one / rows, kind.columns)
        found = own_graph(moments, weights, differs, masks, kind.widths, kind.search)
        moments, turned = varying(moments, kind.widths), open_directions(marks, differs, masks)
        graphs[party] = kind.graph(moments, found, turned)
        own[party] = _in_common_directions(found, common, marks, stacked_edges(graphs[party]))
    # A cause with a lag has the name of its column.
    return Heterogeneity(graphs, edge_table(to_square(common), own, names))


def _in_common_directions(
    found: OwnMechanisms, common: BoolArray, marks: BoolArray, own_marks: BoolArray
) -> OwnGraph:
    """Return a party's own graph; edges of directions that are open are those of the common DAG."""
    graph, shares = to_square(found.graph), to_square(found.shares)
    turned = to_square(common) & graph.T & (to_square(own_marks) | to_square(marks).T)
    graph = (graph & ~turned.T) | turned
    return OwnGraph(graph, to_square(found.support), np.where(turned, shares.T, shares))


def _of_weights(graph: CausalGraph, masks: EdgeMasks, names: tuple[str, ...]) -> OwnSearch:
    """Return how graphs of weights are found, with the names and lags of the common one."""

    def own(_: SampleMoments, found: OwnMechanisms, __: BoolArray) -> CausalGraph:
        weights = edge_weights(found.graph, found.weights)
        if graph.lagged is None:
            return CausalGraph(graph.names, weights, required=masks.required)
        return lagged_graph(graph.names, weights, threshold_now=0, threshold_lagged=0, masks=masks)

    weights = stacked_weights(graph)
    return OwnSearch(names, [1] * len(names), lambda _: weights, polished, own)

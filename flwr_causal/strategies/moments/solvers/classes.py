"""The equivalence class of linear Gaussian systems: ``solver="class"`` and ``"ges"`` of Moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.ges.linear_class import linear_class
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.interventions.moments import distinguished_pairs
from flwr_causal.core.linear.moments import Moments, moments_of_variables
from flwr_causal.core.series.design import split_blocks
from flwr_causal.core.systems.linear import fit
from flwr_causal.sources.products import changed_mechanisms, target_info
from flwr_causal.strategies.linear import in_units
from flwr_causal.strategies.moments.solvers.solver import Outcome
from flwr_causal.strategies.series import stationarity_warning, system_of_series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.ges.linear_class import LinearClass
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.systems.linear import LinearModel
    from flwr_causal.sources.products import Products
    from flwr_causal.strategies.moments.options import MomentsOptions


def solve_class(pooled: Products, options: MomentsOptions) -> Outcome:
    """Find the equivalence class of the columns, with lags or without.

    The lags are not modelled themselves: there are no edges among them, and their edges into the
    columns have the direction of time.
    """
    agreement, design, masks = pooled.agreement, pooled.design, pooled.masks
    names, d, own = agreement.names, len(agreement.names), pooled.moments
    acted = np.zeros((1, d), dtype=np.bool_)
    if not isinstance(own, Moments):
        own, acted = for_lags(own), changed_mechanisms(agreement)
    found = class_of(own, masks, acted, options)
    graph = class_graph(names, found.weights, masks)
    member = graph.to_dag()
    model: LinearModel
    if design.order:
        model = system_of_series(agreement, design.scale, own, member)
        warnings = stationarity_warning(member, agreement.n)
    else:
        model = fit(in_units(own, agreement.mean, design.scale), member.adjacency)
        warnings = []
    model = replace(model, marks=graph.adjacency)
    strengths = found.strengths[:, :d].reshape(-1, d, d).sum(axis=0)
    return Outcome(own, graph, model, strengths, tuple(warnings), target_info(agreement))


def for_lags(own: Sequence[Moments]) -> list[Moments]:
    """Return moments for each of the m columns, given those for each of the d variables.

    Lags have no causes: the rows of any variable serve them.
    """
    return [*own, *[max(own, key=lambda part: part.n)] * (own[0].d - len(own))]


def class_of(
    moments: Moments | Sequence[Moments],
    masks: EdgeMasks,
    acted: BoolArray,
    options: MomentsOptions,
) -> LinearClass:
    """Return the class of m columns, given their moments, or one for each of them.

    ``acted``, shape (sets, d), are the variables that are targets in each set of rows.
    """
    m, d = len(masks.allowed), acted.shape[1]
    present = np.arange(m) < d
    distinguished = present[:, None] != present
    distinguished[:d, :d] = distinguished_pairs(acted)
    by_orders = options.solver == "class"
    return linear_class(
        moments_of_variables(moments, m),
        masks,
        distinguished=distinguished,
        by_orders=by_orders,
        least_effect=options.least_effect if by_orders else 0.0,
        max_parents=options.max_parents,
    )


def class_graph(names: tuple[str, ...], weights: FloatArray, masks: EdgeMasks) -> CausalGraph:
    """Return the graph of a class of the m columns of the design, from its weights, (m, m)."""
    d = len(names)
    now, lagged = split_blocks(weights[:, :d])
    return CausalGraph(
        names,
        now,
        kind="cpdag",
        lagged=lagged,
        required=masks.required[:d, :d] if masks.required.any() else None,
    )

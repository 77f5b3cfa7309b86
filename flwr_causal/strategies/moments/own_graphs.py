"""Each party's own graph: Moments with ``local_graphs``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.blocks.search import BlockProblem
from flwr_causal.core.ges.linear_class import class_weights
from flwr_causal.core.graphs.equivalence import informed_class
from flwr_causal.core.interventions.local_graphs import fitted, polished
from flwr_causal.strategies.local_graphs import OwnSearch, local_graphs
from flwr_causal.strategies.moments.solvers.classes import class_graph
from flwr_causal.strategies.moments.solvers.series import allowed_now

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.interventions.local_graphs import OwnMechanisms
    from flwr_causal.core.linear.moments import Moments
    from flwr_causal.sources.products import Products
    from flwr_causal.strategies.moments.options import MomentsOptions
    from flwr_causal.strategies.moments.solvers.solver import Outcome


def own_graphs(pooled: Products, outcome: Outcome, options: MomentsOptions) -> Heterogeneity:
    """Return each party's own graph beside the common one, and what parties act on.

    Parameters
    ----------
    pooled : Products
        With those of each party.
    outcome : Outcome
        With the common graph.
    options : MomentsOptions
    """
    masks, kind = allowed_now(pooled.masks, options, len(outcome.graph.names)), None
    if options.takes_blocks:
        kind = _of_blocks(pooled, outcome, options)
    elif options.finds_class:
        kind = _of_class(pooled, outcome)
    found = local_graphs(pooled.parts, outcome.graph, masks, kind)
    targets = None if pooled.heterogeneity is None else pooled.heterogeneity.targets
    return found._replace(targets=targets)


def _of_class(pooled: Products, outcome: Outcome) -> OwnSearch:
    """Return how a class of single columns is found."""
    names, masks = outcome.graph.names, pooled.masks
    columns, widths = pooled.design.columns, pooled.design.widths

    def graph(own: Moments, found: OwnMechanisms, turned: BoolArray) -> CausalGraph:
        dag = to_square(found.graph)
        marks = informed_class(dag, turned | dag)
        return class_graph(names, class_weights([own] * len(marks), marks)[0], masks)

    return OwnSearch(
        columns, widths, partial(fitted, outcome.moments, widths=widths), polished, graph
    )


def _of_blocks(pooled: Products, outcome: Outcome, options: MomentsOptions) -> OwnSearch:
    """Return how a class of blocks of columns is found."""
    widths, names = pooled.design.widths, outcome.graph.names

    def problem(own: Moments, masks: EdgeMasks) -> BlockProblem:
        return BlockProblem.of(own, widths, names, masks, **options.block_limits)

    def search(own: Moments, _: BoolArray, masks: EdgeMasks) -> BoolArray:
        return np.asarray(problem(own, masks).best().dag[:, : len(names)])

    def graph(own: Moments, found: OwnMechanisms, turned: BoolArray) -> CausalGraph:
        return replace(problem(own, pooled.masks), turned=turned).class_of(found.graph).graph

    weights = partial(fitted, outcome.moments, widths=widths)
    return OwnSearch(pooled.design.columns, widths, weights, search, graph)

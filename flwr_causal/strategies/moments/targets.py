"""How parties differ: ``unknown_targets=True`` and ``local_graphs=True`` of Moments."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks.design import column_names
from flwr_causal.core.blocks.search import block_class
from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity, OwnGraph, edge_table
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.interventions.local_graphs import own_graph
from flwr_causal.core.interventions.moments import moments_by_variable
from flwr_causal.core.interventions.targets import find_targets, own_mechanisms
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.linear.order_search import search_orders
from flwr_causal.core.linear.solution import edge_weights
from flwr_causal.core.series.design import lagged_names
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol.moments import PARTS
from flwr_causal.runtime.algorithm import Ask
from flwr_causal.strategies.moments.blocks import blocks_of
from flwr_causal.strategies.moments.outcome import PooledMoments

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.interventions import Targets
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.moments.options import MomentsOptions

#: Fewest parties, or groups, between which mechanisms can differ.
LEAST_PARTS = 2
TWO_PARTS = (
    "Mechanisms of two parties were compared: where they differ it is not known which of the two "
    "acts, and run.targets names one. A third party would tell."
)


def require_several(options: MomentsOptions, parties: Collection[str]) -> None:
    """Check that there are parties to compare.

    Raises
    ------
    ConfigError
        If there is one party only.
    """
    if len(parties) < LEAST_PARTS:
        option = "unknown_targets" if options.unknown_targets else "local_graphs"
        raise ConfigError(
            f"The option '{option}' is True, and {', '.join(parties)} is the only party: how it "
            "differs shows in comparison with others. Leave the option out, or connect more "
            "parties."
        )


def compared_moments(
    agreement: Agreement, masks: EdgeMasks, options: MomentsOptions
) -> Generator[Step, Any, PooledMoments]:
    """Ask for each party's second moments; find which party acts on which variable.

    Parameters
    ----------
    agreement : Agreement
    masks : EdgeMasks
        Background knowledge over the variables and their lags.
    options : MomentsOptions
    """
    if options.takes_blocks:
        return (yield from _compared_blocks(agreement, masks, options))
    d, columns = len(agreement.names), lagged_names(agreement.names, options.order)
    # Without lags the rows are x, with lags [1, g, z], all of them centred by the agreed means.
    places = np.r_[0, 0 : 1 + len(columns)] if options.order else np.arange(1, 1 + d)
    pooled = yield from _moments_of_parts(
        agreement, masks, lambda products: products[None][:, places[:, None], places]
    )
    if not options.unknown_targets:
        return pooled
    allowed = masks.allowed.copy()
    allowed[:d] &= options.instantaneous is not False
    search = partial(
        search_orders,
        masks=EdgeMasks(allowed, masks.required),
        num_targets=d,
        least_effect=options.least_effect,
    )
    return _with_targets(
        pooled, columns, [1] * len(columns), lambda own: search(own).best.adjacency[:, :d]
    )


def _compared_blocks(
    agreement: Agreement, masks: EdgeMasks, options: MomentsOptions
) -> Generator[Step, Any, PooledMoments]:
    """Compare parties by the moments of blocks of columns."""
    d, blocks = len(agreement.names), blocks_of(agreement, options.model, options.order)
    widths = [block.width for block in blocks]
    search = partial(
        block_class,
        widths=widths,
        names=agreement.names,
        masks=masks,
        least_effect=options.least_effect,
        max_parents=options.max_parents,
    )
    pooled = yield from _moments_of_parts(agreement, masks, lambda products: products[None])
    return _with_targets(pooled, column_names(blocks), widths, lambda own: search(own).dag[:, :d])


def local_graphs(pooled: PooledMoments, graph: CausalGraph) -> Heterogeneity:
    """Return each party's own graph beside the common one, and where they differ.

    Parameters
    ----------
    pooled : PooledMoments
        With those of each party, of rows without lags.
    graph : CausalGraph
        The common DAG.
    """
    names, common = graph.names, graph.adjacency
    acted = own_mechanisms(np.stack([*pooled.parts.values()]), common)
    graphs, own = {}, {}
    for place, (party, products) in enumerate(pooled.parts.items()):
        rows = float(products[0, 0])
        moments = Moments.from_products(round(rows), products / rows, names)
        found = own_graph(moments, graph.weights, acted[place], pooled.masks)
        weights = edge_weights(found.graph, found.weights)
        graphs[party] = CausalGraph(names, weights, required=pooled.masks.required)
        own[party] = OwnGraph(found.graph, found.support, found.shares)
    targets = None if pooled.heterogeneity is None else pooled.heterogeneity.targets
    return Heterogeneity(graphs, edge_table(common, own, names), targets)


def _moments_of_parts(
    agreement: Agreement, masks: EdgeMasks, without: Callable[[FloatArray], FloatArray]
) -> Generator[Step, Any, PooledMoments]:
    """Ask for each party's moments, which add up to those of all.

    Parameters
    ----------
    agreement : Agreement
    masks : EdgeMasks
        Background knowledge over the variables and their lags.
    without : callable
        Given the mean products of the rows [1, z] of all parties, returns what a run without
        interventions has: nothing of its result differs then where no targets are found.

    Raises
    ------
    FederationError
        If there are the moments of one party, or group of parties, only.
    """
    replies = yield Ask(PARTS)
    means = replies.of("moments")
    if len(means) < LEAST_PARTS:
        raise FederationError(
            "unknown_targets=True and local_graphs=True compare parties, and there are the moments "
            f"of {', '.join(means)} only: start the run again once others can answer, or leave the "
            "option out."
        )
    parts = {name: _rows_of(replies, agreement, name) * own for name, own in means.items()}
    total = np.sum([*parts.values()], axis=0)
    agreement = agreement.with_rows(replies.rows)
    return PooledMoments(agreement, masks, without(total / total[0, 0]), parts=parts)


def _with_targets(
    pooled: PooledMoments,
    columns: tuple[str, ...],
    widths: Sequence[int],
    search: Callable[[Sequence[Moments]], BoolArray],
) -> PooledMoments:
    """Find which party acts on which variable; return the moments as under known interventions.

    Parameters
    ----------
    pooled : PooledMoments
        With those of each party.
    columns : tuple of str
        The names of all columns of the rows z.
    widths : sequence of int
        Number of columns of each of the d variables, and then of their lags.
    search : callable
        Returns the graph, (m, d), given each variable's moments.
    """
    parties, products = list(pooled.parts), np.stack([*pooled.parts.values()])
    names, n = pooled.agreement.names, round(float(products[:, 0, 0].sum()))

    def graph_of(replaced: BoolArray, shifted: BoolArray) -> BoolArray:
        return search(moments_by_variable(products / n, replaced, n, columns, names, shifted))

    found = find_targets(products, widths, len(names), graph_of)
    own = replace(
        pooled,
        info={"targets": int(found.acted.sum())},
        heterogeneity=Heterogeneity({}, targets=found.records(parties, names)),
    )
    if not found.acted.any():
        return own
    return replace(
        own,
        agreement=replace(
            pooled.agreement,
            targets=_named(found.replaced, names),
            shifted=_named(found.shifted, names),
        ),
        products=products / n,
        warnings=(TWO_PARTS,) if len(parties) == LEAST_PARTS else (),
    )


def _rows_of(replies: Replies, agreement: Agreement, name: str) -> int:
    """Return the rows of a party, or of those of a group that are in its sum."""
    return replies.sums[name].rows if name in replies.sums else agreement.rows[name]


def _named(acted: BoolArray, names: tuple[str, ...]) -> tuple[Targets, ...]:
    """Return the names of each party's targets; several parties may have the same."""
    return tuple(tuple(name for name, one in zip(names, own, strict=True) if one) for own in acted)

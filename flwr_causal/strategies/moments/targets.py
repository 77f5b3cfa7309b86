"""How parties differ, and what interventions leave in place: modes of Moments."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity, OwnGraph, edge_table
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.interventions.kept import kept_mechanisms
from flwr_causal.core.interventions.local_graphs import own_graph
from flwr_causal.core.interventions.moments import moments_by_variable
from flwr_causal.core.interventions.targets import find_targets, own_mechanisms
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.linear.solution import edge_weights
from flwr_causal.data.interventions import acted_on
from flwr_causal.errors import FederationError
from flwr_causal.protocol.moments import PARTS
from flwr_causal.runtime.algorithm import Ask
from flwr_causal.strategies.moments.outcome import PooledMoments

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.interventions import Targets
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step

#: Fewest parties, or groups, between which mechanisms can differ.
LEAST_PARTS = 2
TWO_PARTS = (
    "Mechanisms of two parties were compared: where they differ it is not known which of the two "
    "acts, and run.targets names one. A third party would tell."
)

STILL_ACT = (
    "The causes of {names} still act under stated interventions on them, as after a shift or with "
    "less noise, and not as if a value was set: these rows count where the causes are fitted, with "
    "a level of their own if they have one."
)


def moments_of_parts(
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


def with_targets(
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
    graph_of = _graph_of(products / n, n, columns, names, search)
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


def with_kept_mechanisms(
    pooled: PooledMoments,
    columns: tuple[str, ...],
    widths: Sequence[int],
    search: Callable[[Sequence[Moments]], BoolArray],
) -> PooledMoments:
    """Find the stated targets whose causes still act; their rows count, with their level.

    Parameters
    ----------
    pooled : PooledMoments
        Of each set of stated targets.
    columns, widths, search
        As of :func:`with_targets`.
    """
    agreement, products = pooled.agreement, pooled.products
    names, n = agreement.names, agreement.n
    stated = acted_on(agreement.targets, names)
    graph_of = _graph_of(products, n, columns, names, search)
    kept, shifted = kept_mechanisms(n * products, stated, widths, graph_of)
    if not kept.any():
        return pooled
    concerned = [names[j] for j in np.flatnonzero(kept.any(axis=0))]
    return replace(
        pooled,
        agreement=replace(
            agreement, targets=_named(stated & ~kept, names), shifted=_named(shifted, names)
        ),
        info={**pooled.info, "kept targets": int(kept.sum())},
        warnings=(*pooled.warnings, STILL_ACT.format(names=", ".join(concerned))),
    )


def _graph_of(
    products: FloatArray,
    num_rows: int,
    columns: tuple[str, ...],
    names: tuple[str, ...],
    search: Callable[[Sequence[Moments]], BoolArray],
) -> Callable[[BoolArray, BoolArray], BoolArray]:
    """Return the search for the graph, given what is replaced and what is shifted."""

    def graph_of(replaced: BoolArray, shifted: BoolArray) -> BoolArray:
        return search(moments_by_variable(products, replaced, num_rows, columns, names, shifted))

    return graph_of


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


def _rows_of(replies: Replies, agreement: Agreement, name: str) -> int:
    """Return the rows of a party, or of those of a group that are in its sum."""
    return replies.sums[name].rows if name in replies.sums else agreement.rows[name]


def _named(acted: BoolArray, names: tuple[str, ...]) -> tuple[Targets, ...]:
    """Return the names of each party's targets; several parties may have the same."""
    return tuple(tuple(name for name, one in zip(names, own, strict=True) if one) for own in acted)

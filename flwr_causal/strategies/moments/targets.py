"""How parties differ, and what interventions leave in place: modes of Moments."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.blocks.search import BlockProblem
from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.interventions.kept import kept_mechanisms
from flwr_causal.core.interventions.moments import distinguished_pairs, moments_by_variable
from flwr_causal.core.interventions.targets import find_targets, told_directions
from flwr_causal.core.linear.order_search import search_orders
from flwr_causal.core.series.design import stacked_edges
from flwr_causal.data.interventions import acted_on
from flwr_causal.sources.by_party import LEAST_PARTS
from flwr_causal.strategies.moments.solvers.classes import class_of, for_lags
from flwr_causal.strategies.moments.solvers.series import allowed_now

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.linear.moments import Moments
    from flwr_causal.data.interventions import Targets
    from flwr_causal.sources.products import Products
    from flwr_causal.strategies.moments.options import MomentsOptions

TWO_PARTS = (
    "Mechanisms of two parties were compared: where they differ it is not known which of the two "
    "acts, and run.targets names one. A third party would tell."
)

STILL_ACT = (
    "The causes of {names} still act under stated interventions on them, as after a shift or with "
    "less noise, and not as if a value was set: these rows count where the causes are fitted, with "
    "a level of their own if they have one."
)


class _TargetSearch(NamedTuple):
    """The search by which targets are judged.

    Parameters
    ----------
    columns : tuple of str
        The names of all columns of the rows z.
    widths : list of int
        Number of columns of each of the d variables, and then of their lags.
    graph : callable
        Returns the graph, (m, d), given each variable's moments and what is acted on by each party.
    """

    columns: tuple[str, ...]
    widths: list[int]
    graph: Callable[[Sequence[Moments], BoolArray], BoolArray]

    @classmethod
    def of(
        cls, pooled: Products, options: MomentsOptions, *, classes: bool = False
    ) -> _TargetSearch:
        """Return the search of a run; with ``classes`` directions may be open in its graphs."""
        agreement, masks, d = pooled.agreement, pooled.masks, len(pooled.agreement.names)
        columns, widths = pooled.design.columns, pooled.design.widths
        if options.takes_blocks:

            def of_blocks(own: Sequence[Moments], acted: BoolArray) -> BoolArray:
                names, limits = agreement.names, options.block_limits
                apart = distinguished_pairs(acted) if classes else None
                problem = BlockProblem.of(own, widths, names, masks, distinguished=apart, **limits)
                found = problem.best()
                return stacked_edges(found.graph) if classes else found.dag[:, :d]

            return cls(columns, widths, of_blocks)
        if classes and options.finds_class:

            def of_class(own: Sequence[Moments], acted: BoolArray) -> BoolArray:
                return class_of(for_lags(own), masks, acted, options).marks[:, :d]

            return cls(columns, widths, of_class)
        search = partial(
            search_orders,
            masks=allowed_now(masks, options, d),
            num_targets=d,
            least_effect=options.least_effect,
        )
        return cls(columns, widths, lambda own, _: search(own).best.adjacency[:, :d])

    def given(
        self, products: FloatArray, num_rows: int, names: tuple[str, ...]
    ) -> Callable[[BoolArray, BoolArray], BoolArray]:
        """Return the search for the graph, given what is replaced and what is shifted."""

        def graph_of(replaced: BoolArray, shifted: BoolArray) -> BoolArray:
            own = moments_by_variable(products, replaced, num_rows, self.columns, names, shifted)
            return self.graph(own, replaced | shifted)

        return graph_of


def with_unknown_targets(pooled: Products, options: MomentsOptions) -> Products:
    """Find which party acts on which variable; return the moments as under known interventions.

    ``pooled`` has the moments of each party. Where no targets are found, the result is that of a
    run that asks for one sum.
    """
    search = _TargetSearch.of(pooled, options, classes=True)
    parties, products = list(pooled.parts), np.stack([*pooled.parts.values()])
    names, n = pooled.agreement.names, round(float(products[:, 0, 0].sum()))
    graph_of = search.given(products / n, n, names)
    found = find_targets(products, search.widths, len(names), graph_of)
    own = replace(
        pooled,
        info={"targets": int(found.acted.sum())},
        heterogeneity=Heterogeneity({}, targets=found.records(parties, names)),
    )
    if not found.acted.any():
        return own
    shifted = found.shifted & found.leveled
    marks = graph_of(found.replaced, shifted)
    told = told_directions(products, marks, found.acted, search.widths)
    allowed = pooled.masks.allowed.copy()
    allowed[: len(marks), : len(names)] &= ~(marks & ~told)
    return replace(
        own,
        masks=EdgeMasks(allowed, pooled.masks.required),
        agreement=replace(
            pooled.agreement,
            targets=_named(found.replaced, names),
            shifted=_named(shifted, names),
        ),
        values=products / n,
        warnings=(*pooled.warnings, *([TWO_PARTS] if len(parties) == LEAST_PARTS else [])),
    )


def with_kept_mechanisms(pooled: Products, options: MomentsOptions) -> Products:
    """Find the stated targets whose causes still act; their rows count, with their level.

    ``pooled`` has the moments of each set of stated targets.
    """
    search = _TargetSearch.of(pooled, options)
    agreement, products = pooled.agreement, pooled.values
    names, n = agreement.names, agreement.n
    stated = acted_on(agreement.targets, names)
    graph_of = search.given(products, n, names)
    kept, shifted = kept_mechanisms(n * products, stated, search.widths, graph_of)
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


def _named(acted: BoolArray, names: tuple[str, ...]) -> tuple[Targets, ...]:
    """Return the names of each party's targets; several parties may have the same."""
    return tuple(tuple(name for name, one in zip(names, own, strict=True) if one) for own in acted)

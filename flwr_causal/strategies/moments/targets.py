"""How parties differ, and what interventions leave in place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.interventions.kept import kept_mechanisms
from flwr_causal.core.interventions.moments import moments_by_variable
from flwr_causal.core.interventions.targets import find_targets, told_directions
from flwr_causal.core.nonlinear.heterogeneity import Heterogeneity
from flwr_causal.data.interventions import acted_on
from flwr_causal.sources.by_party import LEAST_PARTS
from flwr_causal.strategies.local_graphs import local_graphs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.linear.moments import SampleMoments
    from flwr_causal.data.interventions import Targets
    from flwr_causal.sources.products import Products
    from flwr_causal.strategies.moments.solvers.solver import Solved, Solver

TWO_PARTS = (
    "Mechanisms of two parties were compared: where they differ it is not known which of the two "
    "acts, and run.targets names one. A third party would tell."
)

STILL_ACT = (
    "The causes of {names} still act under stated interventions on them, as after a shift or with "
    "less noise, and not as if a value was set: these rows count where the causes are fitted, with "
    "a level of their own if they have one."
)


def with_unknown_targets(
    products: Products, masks: EdgeMasks, solver: Solver
) -> tuple[Products, EdgeMasks]:
    """Find which party acts on which variable; return the products as of known interventions.

    ``products`` has the sums of each party. Where no targets are found, the result is that of a run
    that asks for one sum.
    """
    sums = np.stack([*products.parts.values()])
    names, n = products.agreement.names, round(float(sums[:, 0, 0].sum()))
    widths, by_set = products.design.widths, sums / n

    def graph_of(replaced: BoolArray, shifted: BoolArray) -> BoolArray:
        own = _moments(products, by_set, n, replaced, shifted)
        return solver.marks(products, masks, own, replaced | shifted)

    found = find_targets(sums, widths, len(names), graph_of)
    told = replace(
        products,
        info={"targets": int(found.acted.sum())},
        heterogeneity=Heterogeneity({}, targets=found.entries([*products.parts], names)),
    )
    if not found.acted.any():
        return told, masks
    shifted = found.shifted & found.leveled
    marks = graph_of(found.replaced, shifted)
    allowed = masks.allowed.copy()
    directed = told_directions(sums, marks, found.acted, widths)
    allowed[: len(marks), : len(names)] &= ~(marks & ~directed)
    several = len(products.parts) > LEAST_PARTS
    told = replace(
        told,
        agreement=replace(
            products.agreement,
            targets=_named(found.replaced, names),
            shifted=_named(shifted, names),
        ),
        values=by_set,
        warnings=(*products.warnings, *([] if several else [TWO_PARTS])),
    )
    return told, EdgeMasks(allowed, masks.required)


def with_kept_mechanisms(products: Products, masks: EdgeMasks, solver: Solver) -> Products:
    """Find the stated targets whose causes still act; their rows count, with their level.

    ``products`` has the sums of each set of stated targets.
    """
    agreement, by_set = products.agreement, products.values
    names, n = agreement.names, agreement.n
    stated = acted_on(agreement.targets, names)

    def graph_of(replaced: BoolArray, shifted: BoolArray) -> BoolArray:
        return solver.dag(products, masks, _moments(products, by_set, n, replaced, shifted))

    kept, shifted = kept_mechanisms(n * by_set, stated, products.design.widths, graph_of)
    if not kept.any():
        return products
    concerned = [names[j] for j in np.flatnonzero(kept.any(axis=0))]
    return replace(
        products,
        agreement=replace(
            agreement, targets=_named(stated & ~kept, names), shifted=_named(shifted, names)
        ),
        info={**products.info, "kept targets": int(kept.sum())},
        warnings=(*products.warnings, STILL_ACT.format(names=", ".join(concerned))),
    )


def own_graphs(
    products: Products, masks: EdgeMasks, solver: Solver, outcome: Solved
) -> Heterogeneity:
    """Return each party's graph beside the common one, and the targets of each party.

    ``products`` has the sums of each party, and ``outcome`` the common graph.
    """
    possible = solver.possible(masks, len(outcome.graph.names))
    search = solver.own_search(products, masks, outcome)
    found = local_graphs(products.parts, outcome.graph, possible, search)
    known = products.heterogeneity
    return found._replace(targets=None if known is None else known.targets)


def _moments(
    products: Products,
    by_set: FloatArray,
    num_rows: int,
    replaced: BoolArray,
    shifted: BoolArray,
) -> Sequence[SampleMoments]:
    """Return each variable's moments under replaced and shifted targets, by set of targets."""
    columns, names = products.design.columns, products.agreement.names
    return moments_by_variable(by_set, replaced, num_rows, columns, names, shifted)


def _named(acted: BoolArray, names: tuple[str, ...]) -> tuple[Targets, ...]:
    """Return the names of each party's targets; several parties may have the same."""
    return tuple(tuple(name for name, one in zip(names, own, strict=True) if one) for own in acted)

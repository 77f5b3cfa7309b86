"""Variables that are blocks of columns: ``text_columns="keep"``, ``model="curved"`` of Moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.core.blocks.search import BlockProblem
from flwr_causal.core.interventions.moments import distinguished_pairs
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.systems.blocks import BlockModel
from flwr_causal.doubts.graphs import curved_warning
from flwr_causal.sources.products import changed_mechanisms, target_info
from flwr_causal.strategies.moments.solvers.solver import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.sources.products import Products
    from flwr_causal.strategies.moments.options import MomentsOptions


def block_problem(pooled: Products, options: MomentsOptions) -> BlockProblem:
    """Return the search for the class of blocks of columns."""
    apart = None
    if pooled.agreement.targets:
        apart = distinguished_pairs(changed_mechanisms(pooled.agreement))
    return BlockProblem.of(
        pooled.moments,
        pooled.design.widths,
        pooled.agreement.names,
        pooled.masks,
        distinguished=apart,
        **options.block_limits,
    )


def solve_blocks(pooled: Products, options: MomentsOptions) -> Outcome:
    """Find the equivalence class of numbers and categories, with lags or without.

    There is no fitted system of lags under interventions; nor with ``epsilon``, whose noise its
    errors would not count.
    """
    own, blocks = pooled.moments, pooled.design.blocks
    found = block_problem(pooled, options).best()
    warnings: list[str] = []
    system = _system(blocks, own, found.graph) if not options.private else None
    if system is not None and options.model == "linear":
        warnings = curved_warning(blocks, own, system.edges)
    info = target_info(pooled.agreement)
    return Outcome(own, found.graph, system, found.strengths, tuple(warnings), info)


def _system(
    blocks: tuple[Variable, ...], own: Moments | Sequence[Moments], graph: CausalGraph
) -> BlockModel | None:
    """Return the fitted system of a class; None of series under interventions."""
    if graph.lagged is None:
        return BlockModel.of(blocks, own, graph.adjacency)
    if isinstance(own, Moments):
        return BlockModel.of(blocks, own, graph.adjacency, graph.lagged != 0)
    return None

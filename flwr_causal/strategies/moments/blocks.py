"""Variables that are blocks of columns: ``text_columns="keep"``, ``model="curved"`` of Moments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.blocks.design import column_names, functions_of, variables_of, with_lags
from flwr_causal.core.blocks.search import BlockProblem
from flwr_causal.core.interventions.moments import distinguished_pairs
from flwr_causal.core.linear.moments import Moments
from flwr_causal.core.systems.blocks import BlockModel
from flwr_causal.doubts.graphs import curved_warning
from flwr_causal.strategies.moments.outcome import Outcome, changed_mechanisms, moments_of_targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.moments.options import MomentsOptions


def blocks_of(agreement: Agreement, model: str, order: int) -> tuple[Variable, ...]:
    """Return the variables, and their lags up to the order, as blocks of columns."""
    now = variables_of(
        agreement.names,
        agreement.states,
        agreement.mean,
        agreement.variance,
        functions_of(model),
        agreement.values,
    )
    return with_lags(now, order)


def block_problem(
    agreement: Agreement,
    masks: EdgeMasks,
    moments: Moments | Sequence[Moments],
    options: MomentsOptions,
) -> tuple[BlockProblem, dict[str, Any]]:
    """Return the search for the class of blocks of columns, and what the history says of it.

    Parameters
    ----------
    agreement : Agreement
    masks : EdgeMasks
        Background knowledge over the d variables and their lags.
    moments : Moments or sequence of Moments
        Of all columns; under interventions one for each variable.
    options : MomentsOptions
    """
    apart, info = None, {}
    if agreement.targets:
        apart = distinguished_pairs(changed_mechanisms(agreement))
        info = {"target sets": len(agreement.targets)}
    widths = [block.width for block in blocks_of(agreement, options.model, options.order)]
    names, limits = agreement.names, options.block_limits
    problem = BlockProblem.of(moments, widths, names, masks, distinguished=apart, **limits)
    return problem, info


def solve_blocks(
    agreement: Agreement,
    masks: EdgeMasks,
    products: FloatArray,
    options: MomentsOptions,
) -> Outcome:
    """Find the equivalence class of numbers and categories, with lags or without.

    There is no fitted system of lags under interventions; nor with ``epsilon``, whose noise its
    errors would not count.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means, variances and states.
    masks : EdgeMasks
        Background knowledge over the d variables and their lags.
    products : ndarray of shape (sets, 1 + s, 1 + s)
        Mean products of the rows [1, columns of the variables and of their lags], see
        :mod:`core.blocks.design`; under interventions of each set of targets, summed and divided by
        the number of all rows.
    options : MomentsOptions
    """
    blocks = blocks_of(agreement, options.model, options.order)
    columns = column_names(blocks)
    pooled = Moments.from_products(agreement.n, products.sum(axis=0), columns)
    own: Moments | Sequence[Moments] = pooled
    if agreement.targets:
        own = moments_of_targets(agreement, products, columns)
    problem, info = block_problem(agreement, masks, own, options)
    found = problem.best()
    warnings: list[str] = []
    system = _system(blocks, own, found.graph) if not options.private else None
    if system is not None and options.model == "linear":
        warnings = curved_warning(blocks, own, system.edges)
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

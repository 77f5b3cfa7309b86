"""Variables that are blocks of columns: ``text_columns="keep"``, ``model="curved"`` of Moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.core.blocks.design import column_names, functions_of, variables_of
from flwr_causal.core.blocks.model import BlockModel
from flwr_causal.core.linear.moments import Moments
from flwr_causal.doubts.graphs import determined_warning
from flwr_causal.strategies.moments.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.blocks.search import BlockClass
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement


def blocks_of(agreement: Agreement, model: str) -> tuple[Variable, ...]:
    """Return the variables as blocks of columns."""
    return variables_of(
        agreement.names,
        agreement.states,
        agreement.mean,
        agreement.variance,
        functions_of(model),
        agreement.values,
    )


def solve_blocks(
    agreement: Agreement,
    masks: EdgeMasks,
    products: FloatArray,
    *,
    model: str,
    search: Callable[..., BlockClass],
) -> Outcome:
    """Find the equivalence class of numbers and categories.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means, variances and states.
    masks : EdgeMasks
        Background knowledge over the d columns.
    products : ndarray of shape (1, 1 + s, 1 + s)
        Mean products of the rows [1, columns of the variables], see :mod:`core.blocks.design`.
    model : {"linear", "curved"}
        Whether a number is one column or three functions of it.
    search : callable
        :func:`~flwr_causal.core.blocks.search.block_class` with its limits.
    """
    blocks = blocks_of(agreement, model)
    pooled = Moments.from_products(agreement.n, products[0], column_names(blocks))
    found = search(pooled, [block.width for block in blocks], agreement.names, masks)
    system = BlockModel(blocks, pooled, found.graph.adjacency)
    warnings = determined_warning(blocks, pooled, agreement.rows.values())
    return Outcome(pooled, found.graph, system, found.strengths, tuple(warnings), {})

"""Hidden common causes: ``hidden_causes=True`` of Moments, and the check of graphs without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.blocks.design import column_names
from flwr_causal.core.blocks.pag import block_pag
from flwr_causal.core.ges.ancestral_model import AncestralModel
from flwr_causal.core.ges.linear_pag import NUM_DRAWS, hidden_causes, linear_pag
from flwr_causal.core.linear.moments import Moments, distinct
from flwr_causal.doubts.graphs import combination_warning, determined_warning, hidden_warning
from flwr_causal.strategies.linear import in_units
from flwr_causal.strategies.moments.blocks import blocks_of
from flwr_causal.strategies.moments.outcome import Outcome

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.data.check.agreement import Agreement


def solve_hidden(
    agreement: Agreement,
    knowledge: Knowledge | None,
    products: FloatArray,
    scale: FloatArray,
    confirm: bool,
) -> Outcome:
    """Find the partial ancestral graph of the columns.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances.
    knowledge : Knowledge, optional
    products : ndarray of shape (1, d, d)
        Products of the rows.
    scale : ndarray of shape (d,)
        Divisors of the columns.
    confirm : bool
        Whether marks are circles that other samples might contradict. If not, all marks of the
        graph of best score stand.
    """
    names = agreement.names
    pooled = Moments(agreement.n, np.zeros(len(names)), products[0], names)
    graph = linear_pag(pooled, knowledge, NUM_DRAWS if confirm else 0)
    warnings = combination_warning(pooled, agreement.rows.values())
    (moments,) = distinct(in_units(pooled, agreement.mean, scale))[0]
    model = AncestralModel(graph, moments)
    return Outcome(pooled, graph, model, np.abs(graph.weights), tuple(warnings), {})


def solve_hidden_blocks(
    agreement: Agreement, knowledge: Knowledge | None, products: FloatArray, model: str
) -> Outcome:
    """Find the partial ancestral graph of numbers and categories; there is no fitted system.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means, variances and states.
    knowledge : Knowledge, optional
    products : ndarray of shape (1, 1 + s, 1 + s)
        Mean products of the rows [1, columns of the variables].
    model : {"linear", "curved"}
        Whether a number is one column or three functions of it.
    """
    blocks = blocks_of(agreement, model, 0)
    pooled = Moments.from_products(agreement.n, products.sum(axis=0), column_names(blocks))
    graph = block_pag(pooled, [block.width for block in blocks], agreement.names, knowledge)
    warnings = determined_warning(blocks, pooled, agreement.rows.values())
    return Outcome(pooled, graph, None, graph.weights, tuple(warnings), {})


def with_doubts(outcome: Outcome, knowledge: Knowledge | None) -> Outcome:
    """Return the outcome with what speaks for hidden common causes against its graph, if anything.

    Parameters
    ----------
    outcome : Outcome
        Of a search by the BIC, over rows of one table. Under interventions, known or found, it is
        returned as it is.
    knowledge : Knowledge, optional
    """
    if not isinstance(outcome.moments, Moments):
        return outcome
    graph = outcome.graph if outcome.graph.kind == "dag" else outcome.graph.to_dag()
    found = hidden_causes(outcome.moments, graph.adjacency, knowledge)
    warnings = hidden_warning(found)
    if not warnings:
        return outcome
    info = {**outcome.info, "common_causes": [list(pair) for pair in found.common]}
    return outcome._replace(warnings=(*warnings, *outcome.warnings), info=info)

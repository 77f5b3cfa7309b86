"""Hidden common causes: ``hidden_causes=True`` of Moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.ges.linear_pag import linear_pag
from flwr_causal.core.linear.moments import Moments
from flwr_causal.doubts.graphs import combination_warning
from flwr_causal.strategies.moments.outcome import Outcome

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.data.check.agreement import Agreement


def solve_hidden(
    agreement: Agreement, knowledge: Knowledge | None, products: FloatArray
) -> Outcome:
    """Find the partial ancestral graph of the columns.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances.
    knowledge : Knowledge, optional
    products : ndarray of shape (1, d, d)
        Products of the rows.
    """
    names = agreement.names
    pooled = Moments(agreement.n, np.zeros(len(names)), products[0], names)
    graph = linear_pag(pooled, knowledge)
    warnings = combination_warning(pooled, agreement.rows.values())
    return Outcome(pooled, graph, None, np.abs(graph.weights), tuple(warnings), {})

"""The state of a FedGES run, and what it says at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.strategies.fedges.stages import MOST_CELLS, by_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.fedges.stages import FitStage, Found, Stage

    FloatArray = NDArray[np.float64]
    Cuts = Mapping[str, FloatArray]


@dataclass(frozen=True, eq=False)
class FedGESRun:
    """The state of a FedGES run.

    Parameters
    ----------
    agreement : Agreement
        Columns and their states.
    stage : Stage or None
        What the parties are asked next.
    found : Found or None
        The graph so far.
    fitted : FitStage or None
        What the last exchange returned.
    cuts : mapping of str to ndarray
        Agreed cut points of the columns that were discretised.
    exchanges : int
        How many there were.
    small_cells : mapping of str to int
        Cells of few rows that each party has sent.
    """

    agreement: Agreement
    stage: Stage | None
    found: Found | None = None
    fitted: FitStage | None = None
    cuts: Cuts = field(default_factory=dict)
    exchanges: int = 0
    small_cells: Mapping[str, int] = field(default_factory=dict)


def graph_of(state: FedGESRun) -> CausalGraph | None:
    """Return the class in the order of the agreed columns, None before there is one.

    Its confidence is the share of the parties whose graph has the edge, or whose own score agrees
    with it.
    """
    if state.found is None:
        return None
    back = np.argsort(by_name(state.agreement.names))
    marks = state.found.marks[np.ix_(back, back)]
    support = support_of(state)
    if support is None and state.fitted is not None:
        support = state.fitted.support()[np.ix_(back, back)]
    confidence = None
    if support is not None:
        # Parties agree on an edge, not on a direction that the class leaves open.
        confidence = np.where(marks, np.maximum(support, support.T), 0.0)
    weights = marks.astype(np.float64)
    return CausalGraph(state.agreement.names, weights, kind="cpdag", confidence=confidence)


def support_of(state: FedGESRun) -> FloatArray | None:
    """Return the share of the parties' fused graphs that have each edge, shape (d, d)."""
    if state.found is None or state.found.support is None:
        return None
    back = np.argsort(by_name(state.agreement.names))
    return state.found.support[np.ix_(back, back)]


def small_cell_warning(state: FedGESRun, minimum: int) -> list[str]:
    """Say which party sent counts of few rows."""
    small = {name: count for name, count in state.small_cells.items() if count}
    if not small:
        return []
    worst = max(small, key=small.__getitem__)
    return [
        f"{len(small)} of {len(state.agreement.rows)} parties sent counts of fewer than {minimum} "
        f"rows ({worst}: {small[worst]} cells). Who sees the counts learns of single rows: join "
        "rare states, or leave the counts out with mode='scores' and parameters=False."
    ]


def two_party_warning(state: FedGESRun) -> list[str]:
    """Say what sums over two parties tell."""
    if len(state.agreement.rows) != 2:
        return []
    return [
        "The federation has two parties: whoever knows a sum and one party's share of it knows the "
        "other's."
    ]


def no_network_warning(state: FedGESRun) -> list[str]:
    """Say why there is no Bayesian network, where one was wanted and the run is over."""
    if state.fitted is not None or state.stage is not None:
        return []
    return [
        "There is no Bayesian network: a table of probabilities would have more than "
        f"{MOST_CELLS} entries, or the exchanges were used up. Limit the parents with max_parents, "
        "or allow more max_rounds."
    ]

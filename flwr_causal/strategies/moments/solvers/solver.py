"""What a solver of Moments returns, and the result of the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.runtime.algorithm import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import Moments
    from flwr_causal.core.linear.order_search import OrderSolution
    from flwr_causal.core.systems.ancestral import AncestralModel
    from flwr_causal.core.systems.blocks import BlockModel
    from flwr_causal.core.systems.linear import LinearModel
    from flwr_causal.sources.products import Products


class WeightedGraph(NamedTuple):
    """The graph of a solver that finds weights.

    Parameters
    ----------
    moments : Moments or sequence of Moments
        Of the rows, or one for each variable.
    graph : CausalGraph
    scores : ndarray of shape (d, d)
        Strength of every edge, for ranking.
    masks : EdgeMasks
        Background knowledge over the columns of these moments.
    info : dict
        The chosen penalties and order, as plain numbers.
    search : OrderSolution, optional
        The search over orders that found it.
    warnings : tuple of str, default ()
    """

    moments: Moments | Sequence[Moments]
    graph: CausalGraph
    scores: FloatArray
    masks: EdgeMasks
    info: dict[str, Any]
    search: OrderSolution | None = None
    warnings: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """The result of the solver.

    Parameters
    ----------
    moments : Moments or list of Moments
        Pooled moments of the centred and scaled rows; under interventions one for each variable.
    graph : CausalGraph
        The graph.
    model : LinearModel, BlockModel, AncestralModel, or None
        The fitted system: of numbers in the units of the data, of blocks of columns, with hidden
        causes of a PAG.
    scores : ndarray of shape (d, d)
        Strength of every edge, for ranking.
    warnings : tuple of str
        Warnings about the result.
    info : dict
        The chosen penalties and order, as plain numbers.
    """

    moments: Moments | Sequence[Moments]
    graph: CausalGraph
    model: LinearModel | BlockModel | AncestralModel | None
    scores: FloatArray
    warnings: tuple[str, ...]
    info: dict[str, Any]


def result_of(pooled: Products, outcome: Outcome, known: tuple[str, ...]) -> Result:
    """Return the result of the training; ``known`` are warnings that the run has already."""
    known, model = (*known, *outcome.warnings), outcome.model
    return Result(
        outcome.graph,
        outcome.scores,
        pooled.adapted(model) if pooled.adapted and model is not None else model,
        (*outcome.warnings, *[one for one in pooled.warnings if one not in known]),
        num_rows=pooled.num_rows,
        privacy=pooled.privacy,
        heterogeneity=pooled.heterogeneity,
        reason=pooled.reason,
    )

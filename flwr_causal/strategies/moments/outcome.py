"""What passes between the steps of Moments: pooled moments, a solver's graph, the outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.interventions.moments import moments_by_variable
from flwr_causal.data.interventions import acted_on
from flwr_causal.runtime.algorithm import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import Moments
    from flwr_causal.core.linear.order_search import OrderSolution
    from flwr_causal.core.systems.ancestral import AncestralModel
    from flwr_causal.core.systems.blocks import BlockModel
    from flwr_causal.core.systems.linear import LinearModel
    from flwr_causal.data.check.agreement import Agreement


@dataclass(frozen=True, eq=False)
class PooledMoments:
    """Second moments of the rows of all parties, and what to know of them.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances of these rows.
    masks : EdgeMasks
        Background knowledge over the columns of the design.
    products : ndarray of shape (folds, s, s)
        Sums of products of the rows of each fold, divided by the number of all rows: the parties'
        means in the exchange ``sums`` (:mod:`flwr_causal.protocol.moments`), or what takes their
        place.
    info : mapping
        For the history.
    warnings : tuple of str
    num_rows : int, optional
        How many rows the parties have together, if it is not the sum of their numbers.
    privacy : mapping
        The guarantee of differential privacy.
    adapted : callable, optional
        Returns a fitted system with what is known of these rows.
    reason : str
        Why the training is over.
    heterogeneity : Heterogeneity, optional
        How parties differ.
    parts : mapping of str to ndarray of shape (u, u)
        By party (or group), its sums of products of the rows [1, z], where they are compared.
    """

    agreement: Agreement
    masks: EdgeMasks
    products: FloatArray
    info: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    num_rows: int | None = None
    privacy: Mapping[str, Any] = field(default_factory=dict)
    adapted: Callable[[Any], Any] | None = None
    reason: str = "the one exchange of sums is done"
    heterogeneity: Heterogeneity | None = None
    parts: Mapping[str, FloatArray] = field(default_factory=dict)

    def result(self, outcome: Outcome, known: tuple[str, ...]) -> Result:
        """Return the result of the training; ``known`` are warnings that the run has already."""
        known = (*known, *outcome.warnings)
        model = outcome.model
        return Result(
            outcome.graph,
            outcome.scores,
            self.adapted(model) if self.adapted and model is not None else model,
            (*outcome.warnings, *[one for one in self.warnings if one not in known]),
            num_rows=self.num_rows,
            privacy=self.privacy,
            heterogeneity=self.heterogeneity,
            reason=self.reason,
        )


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


def moments_of_targets(
    agreement: Agreement, products: FloatArray, columns: tuple[str, ...]
) -> list[Moments]:
    """Return each variable's moments, of the rows in which it is no target."""
    acted, shifted = _acted(agreement)
    return moments_by_variable(products, acted, agreement.n, columns, agreement.names, shifted)


def changed_mechanisms(agreement: Agreement) -> BoolArray:
    """Return the variables that were acted on in the rows of each set of targets, (sets, d)."""
    acted, shifted = _acted(agreement)
    return np.asarray(acted | shifted)


def _acted(agreement: Agreement) -> tuple[BoolArray, BoolArray]:
    """Return whose mechanisms were replaced, and which have another level, (sets, d) each."""
    acted = acted_on(agreement.targets, agreement.names)
    if not agreement.shifted:
        return acted, np.zeros_like(acted)
    return acted, acted_on(agreement.shifted, agreement.names)


def products_with_ones(mean: FloatArray, second: FloatArray, ones: int = 1) -> FloatArray:
    """Return the mean products of rows [1, z], given means and central second moments of z.

    Parameters
    ----------
    mean : ndarray of shape (m,)
    second : ndarray of shape (m, m)
    ones : int, default 1
        How many ones are before z.
    """
    row = np.concatenate([np.ones(ones), mean])
    return np.asarray(np.outer(row, row) + np.pad(second, (ones, 0)))

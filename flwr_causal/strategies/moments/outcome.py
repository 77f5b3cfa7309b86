"""What passes between the steps of Moments: pooled moments, a solver's graph, the outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.blocks.design import Design, functions_of
from flwr_causal.core.interventions.moments import moments_by_variable
from flwr_causal.data.interventions import acted_on
from flwr_causal.runtime.algorithm import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.ancestral_model import AncestralBlockModel
    from flwr_causal.core.blocks.lagged_model import LaggedBlockModel
    from flwr_causal.core.blocks.model import BlockModel
    from flwr_causal.core.fedcausal.heterogeneity import Heterogeneity
    from flwr_causal.core.ges.ancestral_model import AncestralModel
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.model import LinearModel
    from flwr_causal.core.linear.moments import Moments
    from flwr_causal.core.linear.order_search import OrderSolution
    from flwr_causal.core.series.model import LaggedModel
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.moments.options import MomentsOptions


@dataclass(frozen=True, eq=False)
class PooledMoments:
    """Second moments of the rows of all parties, and what to know of them.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances of these rows.
    masks : EdgeMasks
        Background knowledge over the variables and their lags.
    design : Design
        What the rows z are.
    products : ndarray of shape (sets, 1 + s, 1 + s)
        Sums of products of the rows [1, z] of each fold, under interventions of each set of
        targets, divided by the number of all rows: the parties' means in the exchange ``sums``
        (:mod:`flwr_causal.contracts.moments`), or what takes their place.
    of_fewer_lags : ndarray of shape (p - 1, 1 + s, 1 + s), optional
        Those of the rows with 1, 2, ... lags, where the number of lags is chosen.
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
    parts : mapping of str to ndarray of shape (1 + s, 1 + s)
        By party (or group), its sums of products of the rows [1, z], where they are compared.
    """

    agreement: Agreement
    masks: EdgeMasks
    design: Design
    products: FloatArray
    of_fewer_lags: FloatArray | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    num_rows: int | None = None
    privacy: Mapping[str, Any] = field(default_factory=dict)
    adapted: Callable[[Any], Any] | None = None
    reason: str = "the one exchange of sums is done"
    heterogeneity: Heterogeneity | None = None
    parts: Mapping[str, FloatArray] = field(default_factory=dict)

    @cached_property
    def moments(self) -> Moments | list[Moments]:
        """Moments of all rows; under interventions one for each variable.

        Those are of the rows in which the variable is no target.

        Raises
        ------
        DataError
            If a variable is a target in all rows.
        """
        agreement, columns = self.agreement, self.design.columns
        if not agreement.targets:
            return self.design.moments(self.products.sum(axis=0), agreement.n)
        acted, shifted = _acted(agreement)
        names, n = agreement.names, agreement.n
        return moments_by_variable(self.products, acted, n, columns, names, shifted)

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
    model : LinearModel, LaggedModel, BlockModel, LaggedBlockModel, or None
        The fitted system in the units of the data, or the moments of blocks of columns. With
        hidden causes AncestralModel, or AncestralBlockModel: moments of columns or blocks.
    scores : ndarray of shape (d, d)
        Strength of every edge, for ranking.
    warnings : tuple of str
        Warnings about the result.
    info : dict
        The chosen penalties and order, as plain numbers.
    """

    moments: Moments | Sequence[Moments]
    graph: CausalGraph
    model: (
        LinearModel
        | LaggedModel
        | BlockModel
        | LaggedBlockModel
        | AncestralModel
        | AncestralBlockModel
        | None
    )
    scores: FloatArray
    warnings: tuple[str, ...]
    info: dict[str, Any]


def changed_mechanisms(agreement: Agreement) -> BoolArray:
    """Return the variables that were acted on in the rows of each set of targets, (sets, d)."""
    acted, shifted = _acted(agreement)
    return np.asarray(acted | shifted)


def target_info(agreement: Agreement) -> dict[str, Any]:
    """Return what the history says of known interventions."""
    return {"target sets": len(agreement.targets)} if agreement.targets else {}


def _acted(agreement: Agreement) -> tuple[BoolArray, BoolArray]:
    """Return whose mechanisms were replaced, and which have another level, (sets, d) each."""
    acted = acted_on(agreement.targets, agreement.names)
    if not agreement.shifted:
        return acted, np.zeros_like(acted)
    return acted, acted_on(agreement.shifted, agreement.names)


def products_with_ones(mean: FloatArray, second: FloatArray) -> FloatArray:
    """Return the mean products of rows [1, z], given means and central second moments of z.

    Parameters
    ----------
    mean : ndarray of shape (s,)
    second : ndarray of shape (s, s)
    """
    row = np.concatenate([np.ones(1), mean])
    return np.asarray(np.outer(row, row) + np.pad(second, (1, 0)))


def in_new_units(products: FloatArray, units: FloatArray) -> FloatArray:
    """Return the products of rows [1, z * units] from those of [1, z], for units of shape (s,)."""
    own = np.append(1.0, units)
    return np.asarray(products * np.outer(own, own))


def design_of(agreement: Agreement, options: MomentsOptions) -> Design:
    """Return what a row becomes: numbers are in their units where the graph has weights of them."""
    return Design.of(
        agreement.names,
        agreement.mean,
        agreement.variance,
        agreement.states,
        agreement.values,
        functions=functions_of(options.model),
        standardized=options.standardize or options.takes_blocks or options.model == "additive",
        order=options.order,
        marked=options.center == "phase",
    )

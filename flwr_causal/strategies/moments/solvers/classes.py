"""The equivalence class of linear Gaussian systems: ``solver="class"`` and ``"ges"``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.ges.linear_class import class_weights, linear_class
from flwr_causal.core.graphs.equivalence import informed_class
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.interventions.local_graphs import fitted, polished
from flwr_causal.core.interventions.moments import distinguished_pairs
from flwr_causal.core.linear.moments import SampleMoments, moments_of_variables
from flwr_causal.core.options import MOST, bounded
from flwr_causal.core.parts import Part, all_but
from flwr_causal.core.series.design import split_blocks
from flwr_causal.doubts.graphs import doubts_of
from flwr_causal.sources.products import changed_mechanisms, target_info
from flwr_causal.strategies.linear import fitted_system
from flwr_causal.strategies.local_graphs import OwnSearch
from flwr_causal.strategies.moments.solvers.orders import SearchOfEdges
from flwr_causal.strategies.moments.solvers.solver import Solved, Solver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.ges.linear_class import LinearClass
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.interventions.local_graphs import OwnMechanisms
    from flwr_causal.sources.products import Products


@dataclass(frozen=True, kw_only=True)
class GreedyClass(Part):
    """An equivalence class by greedy search.

    Parameters
    ----------
    max_parents : int, optional
        Largest number of parents of a variable, for the solvers "class" and
        "ges". Default: no limit.
    """

    text = "solver='class' or 'ges'"
    gives = all_but("weights")

    max_parents: int | None = bounded(None, least=1, most=MOST)


class SearchedClass(GreedyClass, SearchOfEdges):
    """An equivalence class by a search over orders."""


@dataclass(frozen=True, kw_only=True)
class GreedyClasses(GreedyClass, Solver):
    """The class of the best Gaussian BIC, by greedy equivalence search."""

    @property
    def by_score(self) -> bool:
        """Return whether the class has the best BIC."""
        return True

    @property
    def _limits(self) -> dict[str, Any]:
        """The arguments of the search."""
        return {"by_orders": False, "least_effect": 0.0, "max_parents": self.max_parents}

    def solve(self, products: Products, masks: EdgeMasks) -> Solved:
        """Find the equivalence class of the columns, with lags or without.

        The lags are not modelled themselves: there are no edges among them, and their edges into
        the columns have the direction of time.
        """
        agreement, design = products.agreement, products.design
        names, d, own = agreement.names, len(agreement.names), products.moments
        acted = np.zeros((1, d), dtype=np.bool_)
        if not isinstance(own, SampleMoments):
            own, acted = _with_lags(own), changed_mechanisms(agreement)
        found = self._class_of(own, masks, acted)
        graph = _class_graph(names, found.weights, masks)
        member = graph.to_dag()
        model = fitted_system(agreement, design.scale, own, member)
        model = replace(model, marks=graph.adjacency)
        strengths = found.strengths[:, :d].reshape(-1, d, d).sum(axis=0)
        warnings = tuple(doubts_of(graph=member, n=agreement.n))
        return Solved(own, graph, model, strengths, warnings, target_info(agreement))

    def marks(
        self, products: Products, masks: EdgeMasks, own: Sequence[SampleMoments], acted: BoolArray
    ) -> BoolArray:
        """Return the class, given moments for each variable and the targets of interventions."""
        d = acted.shape[1]
        return self._class_of(_with_lags(own), masks, acted).marks[:, :d]

    def own_search(self, products: Products, masks: EdgeMasks, outcome: Solved) -> OwnSearch:
        """Return the search for the class of a single party."""
        columns, widths = products.design.columns, products.design.widths

        def graph(own: SampleMoments, found: OwnMechanisms, turned: BoolArray) -> CausalGraph:
            dag = to_square(found.graph)
            marks = informed_class(dag, turned | dag)
            weights = class_weights([own] * len(marks), marks)[0]
            return _class_graph(outcome.graph.names, weights, masks)

        weights = partial(fitted, outcome.moments, widths=widths)
        return OwnSearch(columns, widths, weights, polished, graph)

    def _class_of(
        self, moments: SampleMoments | Sequence[SampleMoments], masks: EdgeMasks, acted: BoolArray
    ) -> LinearClass:
        """Return the class of m columns, given their moments, or one for each of them."""
        m, d = len(masks.allowed), acted.shape[1]
        present = np.arange(m) < d
        distinguished = present[:, None] != present
        distinguished[:d, :d] = distinguished_pairs(acted)
        own = moments_of_variables(moments, m)
        return linear_class(own, masks, distinguished=distinguished, **self._limits)


@dataclass(frozen=True, kw_only=True)
class Classes(SearchedClass, GreedyClasses):
    """The same, by a search over orders of the variables first."""

    @property
    def _limits(self) -> dict[str, Any]:
        return {**super()._limits, "by_orders": True, "least_effect": self.least_effect}

    def dag(self, products: Products, masks: EdgeMasks, own: Sequence[SampleMoments]) -> BoolArray:
        """Return the best DAG, given moments for each variable."""
        return self._by_orders(masks, own, self.least_effect)


def _with_lags(own: Sequence[SampleMoments]) -> list[SampleMoments]:
    """Return moments for each of the m columns, given those for each of the d variables.

    Lags have no causes: the rows of any variable serve them.
    """
    return [*own, *[max(own, key=lambda part: part.n)] * (own[0].d - len(own))]


def _class_graph(names: tuple[str, ...], weights: FloatArray, masks: EdgeMasks) -> CausalGraph:
    """Return the graph of a class of the m columns of the design, from its weights, (m, m)."""
    d = len(names)
    now, lagged = split_blocks(weights[:, :d])
    return CausalGraph(
        names,
        now,
        kind="cpdag",
        lagged=lagged,
        required=masks.required[:d, :d] if masks.required.any() else None,
    )

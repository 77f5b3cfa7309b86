"""Variables that are blocks of columns: ``text_columns="keep"`` and ``model="curved"``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.core.blocks.search import BlockProblem
from flwr_causal.core.interventions.local_graphs import fitted
from flwr_causal.core.interventions.moments import distinguished_pairs
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.series.design import stacked_edges
from flwr_causal.core.systems.blocks import BlockModel
from flwr_causal.doubts.graphs import doubts_of
from flwr_causal.sources.products import changed_mechanisms, target_info
from flwr_causal.strategies.local_graphs import OwnSearch
from flwr_causal.strategies.moments.solvers.classes import SearchedClass
from flwr_causal.strategies.moments.solvers.solver import Solved, Solver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.interventions.local_graphs import OwnMechanisms
    from flwr_causal.sources.products import Products


@dataclass(frozen=True, kw_only=True)
class BlockClasses(SearchedClass, Solver):
    """The class of the best Gaussian BIC of numbers and categories, with lags or without.

    Parameters
    ----------
    model : {"linear", "curved"}, default "linear"
        Whether a number is one column, or functions of it.
    """

    blocks: ClassVar[bool] = True

    model: str = "linear"

    @property
    def by_score(self) -> bool:
        """An edge between functions costs nine times as much, which hides what contradicts it."""
        return self.model == "linear"

    def solve(self, products: Products, masks: EdgeMasks) -> Solved:
        """Find the equivalence class of numbers and categories.

        There is no fitted system of lags under interventions; nor with differential privacy, whose
        noise its errors would not count.
        """
        own, variables = products.moments, products.design.blocks
        found = self.problem(products, masks).best()
        warnings: list[str] = []
        system = None if products.privacy else _system(variables, own, found.graph)
        if system is not None and self.model == "linear":
            warnings = doubts_of(variables=variables, moments=own, edges=system.edges)
        info = target_info(products.agreement)
        return Solved(own, found.graph, system, found.strengths, tuple(warnings), info)

    def problem(self, products: Products, masks: EdgeMasks) -> BlockProblem:
        """Return the search for the class of all rows."""
        acted = None
        if products.agreement.targets:
            acted = changed_mechanisms(products.agreement)
        return self._problem(products, masks, products.moments, acted)

    def dag(self, products: Products, masks: EdgeMasks, own: Sequence[SampleMoments]) -> BoolArray:
        """Return the best DAG, given moments for each variable."""
        return self._problem(products, masks, own).best().dag[:, : len(own)]

    def marks(
        self, products: Products, masks: EdgeMasks, own: Sequence[SampleMoments], acted: BoolArray
    ) -> BoolArray:
        """Return the class, given moments for each variable and the targets of interventions."""
        return stacked_edges(self._problem(products, masks, own, acted).best().graph)

    def own_search(self, products: Products, masks: EdgeMasks, outcome: Solved) -> OwnSearch:
        """Return the search for the class of a single party."""
        design, d = products.design, len(outcome.graph.names)

        def search(own: SampleMoments, _: BoolArray, masks: EdgeMasks) -> BoolArray:
            return np.asarray(self._problem(products, masks, own).best().dag[:, :d])

        def graph(own: SampleMoments, found: OwnMechanisms, turned: BoolArray) -> CausalGraph:
            problem = replace(self._problem(products, masks, own), turned=turned)
            return problem.class_of(found.graph).graph

        weights = partial(fitted, outcome.moments, widths=design.widths)
        return OwnSearch(design.columns, design.widths, weights, search, graph)

    def _problem(
        self,
        products: Products,
        masks: EdgeMasks,
        moments: SampleMoments | Sequence[SampleMoments],
        acted: BoolArray | None = None,
    ) -> BlockProblem:
        """Return the search given some rows; what acts on variables tells directions apart."""
        return BlockProblem.of(
            moments,
            products.design.widths,
            products.agreement.names,
            masks,
            distinguished=None if acted is None else distinguished_pairs(acted),
            least_effect=self.least_effect,
            max_parents=self.max_parents,
        )


def _system(
    blocks: tuple[Variable, ...], own: SampleMoments | Sequence[SampleMoments], graph: CausalGraph
) -> BlockModel | None:
    """Return the fitted system of a class; None of series under interventions."""
    if graph.lagged is None:
        return BlockModel.of(blocks, own, graph.adjacency)
    if isinstance(own, SampleMoments):
        return BlockModel.of(blocks, own, graph.adjacency, graph.lagged != 0)
    return None

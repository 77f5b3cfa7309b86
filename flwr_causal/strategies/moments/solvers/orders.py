"""The graph of the best score over orders of the variables: ``solver="order"``, the default."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.order_search import LEAST_EFFECT, search_orders
from flwr_causal.core.linear.regression import least_squares
from flwr_causal.core.linear.solution import finish
from flwr_causal.core.linear.stability import LEAST_SHARE, unsettled, unstable_edges
from flwr_causal.core.options import bounded
from flwr_causal.core.parts import Part
from flwr_causal.doubts.graphs import doubts_of
from flwr_causal.sources.products import target_info
from flwr_causal.strategies.moments.solvers.solver import Solved, WeightSolver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.sources.products import Products


@dataclass(frozen=True, kw_only=True)
class SearchOfEdges(Part):
    """A search for the graph of the best score.

    Parameters
    ----------
    least_effect : float, default 0.1
        With the solvers "order" and "class": least partial correlation of an edge, given the other
        causes. Smaller effects are significant in large samples even where a system is only nearly
        linear, see ``core.linear.order_search.LEAST_EFFECT``.
    """

    text = "solver='order' or 'class'"

    least_effect: float = bounded(LEAST_EFFECT, least=0, below=1)


@dataclass(frozen=True, kw_only=True)
class StableEdges(SearchOfEdges):
    """A search over orders, without the edges that redrawn sums do not give.

    Parameters
    ----------
    stability : float, default 0.4
        With the solver "order", for rows without time: least share of ten redrawn second moments
        whose equivalence class allows an edge; others are left out (``core.linear.stability``, with
        what the default was chosen on). 0 keeps all edges of the best graph. Replicates keep them.
    """

    text = "solver='order' and rows without time, interventions, epsilon and local_graphs"

    stability: float = bounded(LEAST_SHARE, least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class Orders(SearchOfEdges, WeightSolver):
    """The DAG of the best Gaussian BIC, by a search over orders of the variables.

    Parameters
    ----------
    threshold : float, default 0
        Edges of absolute weight up to this are left out. The score selects the edges.
    """

    threshold: float = 0.0

    @property
    def by_score(self) -> bool:
        """Return whether the graph has the best BIC."""
        return True

    def solve(self, products: Products, masks: EdgeMasks) -> Solved:
        """Search over orders from several starts; subclasses may leave edges out."""
        moments = products.moments
        search = search_orders(moments, masks, least_effect=self.least_effect)
        edges, info, warnings = self._stable(moments, search.best.adjacency, masks)
        weights = least_squares(moments, edges)[0]
        graph = finish(moments, weights, threshold=self.threshold, masks=masks, refit=True)
        info = {**search.info, **info, **target_info(products.agreement)}
        found = Solved(moments, graph, None, search.strengths, tuple(warnings), info)
        return self.fitted(products, masks, found, search)

    def _stable(
        self, moments: SampleMoments | Sequence[SampleMoments], edges: BoolArray, masks: EdgeMasks
    ) -> tuple[BoolArray, dict[str, Any], list[str]]:
        """Return the stable edges, with the history's facts and the warning about the others."""
        return edges, {}, []

    def dag(self, products: Products, masks: EdgeMasks, own: Sequence[SampleMoments]) -> BoolArray:
        """Return the best DAG, given moments for each variable."""
        return self._by_orders(masks, own, self.least_effect)


@dataclass(frozen=True, kw_only=True)
class StableOrders(StableEdges, Orders):
    """The same without the edges that redrawn moments do not give, for sums of rows as they are."""

    def _stable(
        self, moments: SampleMoments | Sequence[SampleMoments], edges: BoolArray, masks: EdgeMasks
    ) -> tuple[BoolArray, dict[str, Any], list[str]]:
        if not isinstance(moments, SampleMoments):  # where interventions were found
            return edges, {}, []
        unstable = unstable_edges(
            moments,
            edges,
            masks,
            least_share=self.stability,
            least_effect=self.least_effect,
        )
        left_out, before = int(unstable.sum()), int(edges.sum())
        if not unsettled(left_out, before, moments.n):
            return edges & ~unstable, {}, []
        info = {"unstable_edges": left_out, "edges": before}
        said = doubts_of(names=moments.names, edges=edges, unstable=unstable)
        return edges & ~unstable, info, said

    def settled(self, outcome: Solved) -> StableOrders:
        """Replicates keep all edges: they are draws themselves."""
        return replace(self, stability=0.0)

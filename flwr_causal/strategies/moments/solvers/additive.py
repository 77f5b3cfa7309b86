"""Additive effects: ``model="additive"``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from flwr_causal.core.nonlinear.additive import THRESHOLD, additive, turning_loss
from flwr_causal.core.nonlinear.basis import SIZE
from flwr_causal.core.options import number_or_none
from flwr_causal.core.parts import all_but
from flwr_causal.doubts.graphs import plausible
from flwr_causal.strategies.moments.solvers.penalised import Sparse
from flwr_causal.strategies.moments.solvers.solver import Solved, Solver

if TYPE_CHECKING:
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.sources.products import Products


@dataclass(frozen=True, kw_only=True)
class Additive(Sparse, Solver):
    """A DAG of sums of functions of the causes, by weights with an L1 norm.

    Parameters
    ----------
    threshold : float, default 0.1
        Edges of strength up to this are left out.
    standardize : bool, default False
        Whether strengths are in standard deviations of what is explained, or in its units.
    """

    text = "model='additive'"
    gives = all_but("solvers", "candidates")
    by_units: ClassVar[bool] = True

    threshold: float = THRESHOLD
    standardize: bool = False

    def solve(self, products: Products, masks: EdgeMasks) -> Solved:
        """Find the graph; z has five functions of each variable."""
        agreement, design = products.agreement, products.design
        spread = np.ones(len(agreement.names))
        if not self.standardize:
            spread = np.sqrt(agreement.variance)
        # The first function of a variable, its value, is in its units.
        units = np.ones(design.size)
        units[::SIZE] = spread
        moments = design.moments(products.values[0], agreement.n).scaled(1 / units)
        graph = additive(
            moments,
            len(agreement.names),
            names=agreement.names,
            sparsity=number_or_none(self.sparsity),
            threshold=self.threshold,
            knowledge=masks,
            refit=self.refit,
        )
        assert graph.raw_weights is not None
        scores = np.abs(graph.raw_weights)
        # Strengths are in the units of what is explained.
        graph, warnings = plausible(graph, 1 / spread, masks)
        loss = turning_loss(moments, graph.adjacency, masks.allowed, graph.names)
        return Solved(moments, replace(graph, turning_loss=loss), None, scores, tuple(warnings), {})

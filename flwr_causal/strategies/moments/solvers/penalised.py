"""Graphs of penalised least squares: ``solver="dagma"`` and ``"notears"``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.notears import notears
from flwr_causal.core.linear.selection import (
    automatic_sparsity,
    default_grid,
    select_by_bic,
    select_by_held_out,
)
from flwr_causal.core.parts import Part, option
from flwr_causal.sources.products import target_info
from flwr_causal.strategies.moments.solvers.solver import Solved, WeightSolver

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import SampleMoments
    from flwr_causal.sources.products import Products


@dataclass(frozen=True, kw_only=True)
class Sparse(Part):
    """Weights with an L1 norm.

    Parameters
    ----------
    sparsity : float or {"auto", "bic", "held-out"}, default "auto"
        Weight of the L1 norm, for "dagma" and "notears". "auto" is c sqrt(log d / n) times the
        geometric mean of the variances (``core.linear.selection.default_sparsity``;
        ``core.series.solution`` with lags); "bic" chooses among multiples of it by the Gaussian
        BIC; "held-out" by the error on held-out rows, whose moments are sent separately: a quarter
        of the rows of every party or, with lags, each fifth of them once.
    refit : bool, default True
        Fit the weights of the final graph by least squares, without the shrinkage of the L1 norm.
        ``graph.raw_weights`` has the solver's weights. "order" always fits by least squares.
    """

    text = "solver='dagma' or 'notears'"

    sparsity: float | Literal["auto", "bic", "held-out"] = option(
        "auto", needs={"bic": ("candidates",), "held-out": ("candidates", "folds")}, least=0
    )
    refit: bool = True


@dataclass(frozen=True, kw_only=True)
class Penalised(Sparse, WeightSolver):
    """The DAG of least squares with an L1 norm, whose weight is chosen first.

    Parameters
    ----------
    solver : {"dagma", "notears"}, default "dagma"
    threshold : float, default 0.3
        Edges of absolute weight up to this are left out.
    """

    solver: Literal["dagma", "notears"] = "dagma"
    threshold: float = 0.3

    @property
    def parts(self) -> tuple[type[Part], ...]:
        """The L1 norm."""
        return (Sparse,)

    @property
    def num_folds(self) -> int:
        """Two to choose the sparsity by held-out rows."""
        return 2 if self.sparsity == "held-out" else 1

    def solve(self, products: Products, masks: EdgeMasks) -> Solved:
        """Choose the sparsity, and minimise."""
        moments, sparsity = products.moments, self._sparsity(products, masks)
        graph = self._minimum(moments, masks, sparsity)
        assert graph.raw_weights is not None
        scores = np.abs(graph.raw_weights)
        info = {"sparsity": sparsity, **target_info(products.agreement)}
        return self.fitted(products, masks, Solved(moments, graph, None, scores, (), info))

    def settled(self, outcome: Solved) -> Penalised:
        """Replicates have the sparsity of the main training."""
        return replace(self, sparsity=outcome.info["sparsity"])

    def _sparsity(self, products: Products, masks: EdgeMasks) -> float:
        """Return the weight of the L1 norm."""
        moments = products.moments

        def solve(moments: SampleMoments | Sequence[SampleMoments], weight: float) -> CausalGraph:
            return self._minimum(moments, masks, weight)

        if self.sparsity == "auto":
            return automatic_sparsity(moments)
        if self.sparsity == "bic":
            return select_by_bic(moments, default_grid(moments), solve)
        if self.sparsity == "held-out":
            agreement, design = products.agreement, products.design
            train, held_out = design.moments_of_sets(products.values, agreement.n)
            return select_by_held_out(train, held_out, default_grid(train), solve)
        return self.sparsity

    def _minimum(
        self, moments: SampleMoments | Sequence[SampleMoments], masks: EdgeMasks, sparsity: float
    ) -> CausalGraph:
        minimise = notears if self.solver == "notears" else dagma
        return minimise(
            moments,
            sparsity=sparsity,
            threshold=self.threshold,
            knowledge=masks,
            refit=self.refit,
        )

"""What a solution of consensus ADMM on a linear system becomes: a choice, a search, a graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import distinct, moments_of_variables
from flwr_causal.core.linear.order_search import (
    OrderSolution,
    search_orders,
    sorted_orders,
)
from flwr_causal.core.linear.regression import least_squares
from flwr_causal.core.linear.selection import held_out_error
from flwr_causal.core.linear.solution import edges_above, refit_support
from flwr_causal.core.series.design import lagged_graph
from flwr_causal.core.ties import as_ranked, equal_to_largest, first_smallest

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.design import Design
    from flwr_causal.core.consensus import admm
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import SampleMoments
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.sources.products import Products

# In the search after the last round two columns may be adjacent if, in the solution before the
# threshold, a standard deviation of one moves the other by more than this share of its own. On nine
# kinds of data beyond the papers' simulators (d = 20, n = 256, three seeds), the summed mean SHD is
# 67, 47, 35 and 37 with .05, .02, .01 and .003 (in units of the data), 200 without the search. With
# .01 three of ninety other cases lack a pair and have 8 to 22 errors more than with .005.
POSSIBLE = 0.005


class FitCandidate(NamedTuple):
    """One of the settings that a run fits in the same exchanges.

    Parameters
    ----------
    factor : float
        Factor on the automatic sparsity.
    lags : int
        Number of lags.
    """

    factor: float
    lags: int


NOISY = (
    "The refit is left out: noise was added to the parties' replies, and is more than their second "
    "moments. The weights are those of the last round; refit=False saves the exchange."
)


@dataclass(frozen=True, eq=False)
class AdmmFit:
    """A solution of ADMM, also over a lagged design, and the products that refine it.

    Parameters
    ----------
    agreement : Agreement
        Columns, rows, means and variances.
    design : Design
        What a row becomes: m columns, the numbers and their lags.
    masks : EdgeMasks
        Background knowledge over these columns.
    candidates : tuple of FitCandidate
        The settings that are fitted in the same rounds; the first one gives the graph before the
        choice.
    choice : {"held-out", "bic"} or None
        How one of the candidates is chosen; None if there is only one. With "held-out" every
        candidate is fitted twice: to the rows that are not held out, and to all rows.
    problem : ServerProblem
        Schedule, threshold and masks of the ADMM.
    solved : ndarray of shape (L, m, d) or (L, m + 1, d)
        W of each candidate, with a row of intercepts under known interventions.
    spread : ndarray of shape (d,)
        Standard deviations of the variables, in the units in which they are fitted.
    searches : bool
        Whether a search over orders follows the refit.
    cut : float or ndarray of shape (m, 1)
        Threshold on the absolute weights of the graph that the search finds.
    products : Products or None
        From the last exchange, within families (each variable and its parents, with ``searches``
        each column and its possible neighbours); 0 elsewhere.
    solution : OrderSolution or None
        The search over orders.
    warnings : tuple of str
    """

    agreement: Agreement
    design: Design
    masks: EdgeMasks
    candidates: tuple[FitCandidate, ...]
    choice: Literal["held-out", "bic"] | None
    problem: admm.ServerProblem
    solved: FloatArray
    spread: FloatArray
    searches: bool
    cut: float | FloatArray
    products: Products | None = None
    solution: OrderSolution | None = None
    warnings: tuple[str, ...] = ()

    @property
    def needed(self) -> FloatArray:
        """1 for the products of the rows [1, z] that the refit needs, (sets, 1 + s, 1 + s)."""
        first, folds = 1 + self.design.marked, 2 if self.choice == "held-out" else 1
        needed = np.pad(self._families(), ((first, 0), (first, 0)), constant_values=1.0)
        return np.stack([needed] * (len(self.agreement.targets) or folds))

    def refitted(self, products: Products) -> AdmmFit:
        """Return the fit with the products of the last exchange.

        Without them and with a warning if a variance is below 0: noise that a wrapper adds to the
        replies, as Flower's wrappers for differential privacy, may be more than the products.
        """
        parts = moments_of_variables(products.moments, len(self.agreement.names))
        if any((part.variances < 0).any() for part in parts):
            return replace(self, searches=False, warnings=(NOISY,))
        return replace(self, agreement=products.agreement, products=products)

    @property
    def graph(self) -> CausalGraph:
        """The graph of the search, or the thresholded one of the chosen candidate, refitted."""
        if self.solution is not None:
            return self._graph_of_search(self.solution)
        chosen = self._chosen()
        raw = self._weights[chosen]
        d = raw.shape[1]
        adjacency, required = self._adjacencies()[chosen][:, :d], self.masks.required[:, :d]
        weights = np.where(adjacency, raw, 0.0)
        if self.total is not None:
            weights = refit_support(self.total, adjacency, self.problem.threshold, required)
        # With "held-out" the candidates occur twice in the arrays, see `choice`.
        rows = d * (1 + self.candidates[chosen % len(self.candidates)].lags)
        return self._graph_of(weights, raw, self.masks.first(rows))

    @property
    def strengths(self) -> FloatArray:
        """The strengths before the threshold, summed over the lags, shape (d, d).

        They are the search's partial correlations, without it the absolute weights.
        """
        raw = np.abs(self._weights[self._chosen()])
        if self.solution is not None:
            raw = self.solution.strengths
        d = raw.shape[1]
        return np.asarray(raw.reshape(-1, d, d).sum(axis=0), dtype=np.float64)

    @property
    def total(self) -> list[SampleMoments] | None:
        """Each variable's moments of the rows, NaN outside of families; None before the refit."""
        if self.products is None:
            return None
        sent = moments_of_variables(self.products.moments, len(self.agreement.names))
        known = self._families() > 0
        parts, own = distinct(sent)
        parts = [replace(part, second=np.where(known, part.second, np.nan)) for part in parts]
        return [parts[place] for place in own]

    @property
    def _weights(self) -> FloatArray:
        """W of each candidate without the row of intercepts, ``(L, m, d)``."""
        return self.solved[:, : len(self.design.columns)]

    def _adjacencies(self) -> list[BoolArray]:
        """Return the edges of every candidate among the design's columns, (m, m), acyclic."""
        threshold, required = self.problem.threshold, self.masks.required
        return [edges_above(to_square(raw), threshold, required) for raw in self._weights]

    def _families(self) -> FloatArray:
        """Return 1 for pairs of columns in one family of some candidate's graph, shape (m, m).

        With a search a column's family is the column and all that it may be adjacent to.
        """
        needed = np.zeros(self.masks.required.shape)
        for adjacency in [self._possible()] if self.searches else self._adjacencies():
            family = adjacency.astype(float) + np.eye(len(needed))
            needed[family @ family.T > 0] = 1.0
        return needed

    def _possible(self) -> BoolArray:
        """Return the pairs of columns that the search may join, (m, m), symmetric."""
        raw, d = self._weights[0], len(self.spread)
        effect = np.abs(raw) * np.tile(self.spread, len(raw) // d)[:, None] / self.spread
        either = to_square(effect > POSSIBLE) | self.masks.required | self._adjacencies()[0]
        return np.asarray(either | either.T)

    def searched(self) -> tuple[AdmmFit, dict[str, Any]]:
        """Search over orders, from the graph of the ADMM too, on the moments that are known.

        The pairs that may be adjacent are the possible ones, or all whose moments are known; the
        better of the two is kept.
        """
        partial = self.total
        assert partial is not None
        d, known = len(self.agreement.names), self._families() > 0
        variances = [part.second[j, j] for j, part in enumerate(partial)]
        starts = {
            "ADMM": topological_order(self._adjacencies()[0][:d, :d], self.agreement.names),
            "variance": np.argsort(as_ranked(np.log(variances)), kind="stable").tolist(),
        }
        if known.all():
            starts |= sorted_orders(max(partial, key=lambda part: part.n), d)
        found = [
            search_orders(partial, self.masks, num_targets=d, starts=starts, pairs=pairs)
            for pairs in (self._possible(), known)
        ]
        best = found[int(first_smallest([solution.best.score for solution in found]))]
        # Of all columns, lags too; a single column has no pair.
        pairs = np.triu(known, 1).sum() / max(len(known) * (len(known) - 1) // 2, 1)
        return replace(self, solution=best), {**best.info, "known_pairs": float(pairs)}

    def _graph_of_search(self, solution: OrderSolution) -> CausalGraph:
        assert self.total is not None
        d, required = len(self.agreement.names), self.masks.required
        raw = least_squares(self.total, solution.best.adjacency)[0]
        adjacency = edges_above(to_square(raw), self.cut, required)
        weights = refit_support(self.total, adjacency[:, :d], self.cut, required[:, :d])
        return self._graph_of(weights, raw, self.masks)

    def _graph_of(self, weights: FloatArray, raw: FloatArray, masks: EdgeMasks) -> CausalGraph:
        """Return the graph of weights of a design with the lags of the masks."""
        names, rows = self.agreement.names, len(masks.required)
        if not self.problem.lags:
            return CausalGraph(names, weights, raw_weights=raw, required=masks.required)
        return lagged_graph(
            names, weights[:rows], threshold_now=0, threshold_lagged=0, raw=raw[:rows], masks=masks
        )

    def _chosen(self) -> int:
        """Return the index of the chosen candidate's fit to all rows."""
        graphs, count = self._adjacencies(), len(self.candidates)
        first = len(graphs) - count
        if self.products is None or self.choice is None:
            return first
        if self.choice == "bic":
            assert self.total is not None
            d = len(self.agreement.names)
            errors = [gaussian_bic(self.total, graph[:, :d]) for graph in graphs]
        else:
            values, n = self.products.values, self.agreement.n
            train, held_out = self.design.moments_of_sets(values, n)
            errors = [held_out_error(train, held_out, graph) for graph in graphs[:count]]
        # Of equal errors the fewer lags are chosen: two orders give the same graph if it has no
        # edge at the further lags.
        lags = [candidate.lags for candidate in self.candidates]
        tied = np.flatnonzero(equal_to_largest(-np.array(errors)))
        return first + min(tied.tolist(), key=lags.__getitem__)

"""Active sets of candidate edges: the same minimum from a small part of the d^2 edges.

The gradient of every acyclicity measure used here vanishes where a weight is zero. An edge of
weight zero is therefore stationary exactly if ``|S - S W|_ij <= sparsity_ij``: its own entry of
the squared loss's gradient decides, whatever the measure. So a minimiser may work on a list of
candidates alone, have the edges that break this condition added, and go on until none does; what
it then holds is a stationary point of the problem over all edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.linear.edge_problem import Barrier, BlockMeasure, EdgeProblem

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import Moments

# Up to this many variables all allowed edges are candidates from the start.
ALL_EDGES_LIMIT = 40
# At most this many candidates of one effect are added at a time, those that gain most.
ADDITIONS_PER_EFFECT = 25
# An edge is added when its gradient exceeds its sparsity by this share of it.
VIOLATION_TOLERANCE = 1e-2
# Both numbers of a problem are rounded to this precision, for variables of about unit variance. An
# optimisation ends where its progress falls below a tolerance, which turns a difference in the
# sixteenth digit (parties summed in another order, other units) into one in the third; problems
# that are rounded first are the same problem.
RESOLUTION = 2.0**-34


@dataclass(frozen=True, eq=False)
class SparseProblem:
    """Which edges may be used, and what they cost.

    Attributes
    ----------
    second
        ``(d, d)`` covariance.
    allowed, required
        ``(d, d)`` masks; the diagonal is not allowed, and required edges bear no penalty.
    sparsity
        Penalty of the absolute weights, in the units of ``second``: one number, or a ``(d, d)``
        array of one for each edge.
    all_edges
        Take all allowed edges for candidates, instead of an active set.

    ``second`` and ``sparsity`` are rounded to ``RESOLUTION``.
    """

    second: FloatArray
    allowed: BoolArray
    required: BoolArray
    sparsity: float | FloatArray
    all_edges: bool

    def __post_init__(self) -> None:
        for name in ("second", "sparsity"):
            rounded = np.round(getattr(self, name) / RESOLUTION) * RESOLUTION
            object.__setattr__(self, name, rounded)

    @classmethod
    def of_unit_variance(
        cls,
        moments: Moments,
        masks: EdgeMasks,
        sparsity: float | FloatArray,
        all_edges: bool | None = None,
    ) -> SparseProblem:
        """Return the problem in units of the mean variance: penalties start from there.

        ``sparsity`` is in the units of the moments. By default all edges are candidates up to
        ``ALL_EDGES_LIMIT`` variables.
        """
        scale = moments.mean_variance or 1.0
        return cls(
            moments.second / scale,
            masks.allowed,
            masks.required,
            sparsity / scale,
            moments.d <= ALL_EDGES_LIMIT if all_edges is None else all_edges,
        )

    def violations(self, weights: FloatArray) -> FloatArray:
        """By how much each edge of zero weight breaks its optimality condition, ``(d, d)``.

        Negative where the condition holds; minus infinity for edges that are not allowed or that
        have a weight.
        """
        gradient = np.abs(self.second - self.second @ weights)
        excess = gradient - np.where(self.required, 0.0, self.sparsity)
        return np.where(self.allowed & (weights == 0), excess, -np.inf)

    def minimize(
        self,
        weights: FloatArray,
        measure: BlockMeasure,
        barrier: Barrier,
        *,
        passes: int,
        loss_weight: float = 1.0,
        max_iterations: int = 15_000,
        relative_decrease: float = 2.2e-9,
        gradient_tolerance: float = 1e-5,
    ) -> FloatArray:
        """Local minimum from ``(d, d)`` start weights; see ``EdgeProblem.minimize``.

        ``passes`` bounds how often candidates are added; with all edges there is one pass.
        """
        for step in range(1 if self.all_edges else passes):
            if self.all_edges:
                candidates = self.allowed
            else:
                kept = (weights != 0) | self.required
                additions = self._additions(weights)
                if step > 0 and not additions.any():
                    break
                candidates = kept | additions
            problem = EdgeProblem.from_mask(self.second, candidates, self.sparsity, self.required)
            values = problem.minimize(
                weights[problem.rows, problem.columns],
                measure,
                barrier,
                loss_weight=loss_weight,
                max_iterations=max_iterations,
                relative_decrease=relative_decrease,
                gradient_tolerance=gradient_tolerance,
                both_signs=self.all_edges,
            )
            weights = problem.matrix(values)
        return weights

    def _additions(self, weights: FloatArray) -> BoolArray:
        """Edges to add: of each effect those that break the condition most."""
        excess = self.violations(weights)
        d = len(excess)
        keep = min(ADDITIONS_PER_EFFECT, d)
        smallest_kept = np.partition(excess, d - keep, axis=0)[d - keep]
        violated = excess > VIOLATION_TOLERANCE * self.sparsity
        return np.asarray(violated & (excess >= smallest_kept))

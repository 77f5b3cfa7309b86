"""The optimisation problem of NOTEARS and DAGMA, over the weights of candidate edges.

`EdgeProblem` minimises, over the weights of the candidates (all other weights are zero),

    loss_weight * (1/2 tr((I - W)^T S (I - W)) + sum_e sparsity_e |w_e|) + barrier(h(W))

with the covariance S and an acyclicity measure h. Under interventions each variable has a
covariance of its own, of the rows in which it is no target, weighted by their number: the loss is
``1/2 sum_j (e_j - w_j)^T S_j (e_j - w_j)`` with the columns e_j of I and w_j of W.

In NOTEARS h is the trace exponential and the barrier its augmented Lagrangian; in DAGMA h is the
log-determinant and the barrier h itself.

`SparseProblem` chooses the candidates: all allowed edges, or an active set of them. The gradients
of both acyclicity measures are zero where a weight is zero. An edge of weight zero is therefore
stationary exactly if ``|S - S W|_ij <= sparsity_ij``, for either measure. After each minimisation,
edges outside the active set that violate this condition are added to it. When no edge violates the
condition, the result is a stationary point of the problem over all allowed edges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg

from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
from flwr_causal.core.graphs.acyclicity import logdet_block
from flwr_causal.core.limits import check_deadline
from flwr_causal.core.linear.moments import data_scale, distinct, moments_of_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.linear.moments import SampleMoments

# An acyclicity measure of one strongly connected component: takes (k, k) weights, returns value and
# gradient. The gradient is None outside the measure's domain.
BlockMeasure = Callable[[FloatArray], tuple[float, "FloatArray | None"]]
# Takes h, returns barrier(h) and its derivative.
Barrier = Callable[[float], tuple[float, float]]

# Value of the objective outside the domain of h, where it is infinite; the line search then halves
# its step.
INFEASIBLE = 1e12
# For up to this many variables a dense product is faster than a sparse one.
DENSE_PRODUCT_LIMIT = 64
# Above this share of nonzero weights a dense product is faster for any number of variables.
DENSE_PRODUCT_FILL = 0.05
# For up to this many variables all allowed edges are candidates by default.
ALL_EDGES_LIMIT = 40
# Largest number of candidates that one pass adds for one effect. With 25 the SHD of DAGMA on an ER2
# graph of 200 variables is 9, with 100 it is 5, in 1.2 times the time.
ADDITIONS_PER_EFFECT = 100
# An edge is added if its gradient exceeds its sparsity by this share of the sparsity.
VIOLATION_TOLERANCE = 1e-2
# Covariances and sparsity of a problem are rounded to this precision, for variables of about unit
# variance. An optimisation ends when its progress falls below a tolerance, so that a difference in
# the sixteenth digit of the problem (another order of summation, other units) can become one in the
# third digit of the solution. After rounding the problems are identical.
RESOLUTION = 2.0**-34


def exponential_block(weights: FloatArray) -> tuple[float, FloatArray | None]:
    """Return the trace-exponential measure of one component; see ``acyclicity.h_exponential``."""
    with np.errstate(over="ignore", invalid="ignore"):
        exponential = scipy.linalg.expm(weights * weights)
        value, gradient = float(np.trace(exponential)) - len(weights), exponential.T * weights
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        return np.inf, None
    return value, 2.0 * gradient


def logdet_measure(s: float) -> BlockMeasure:
    """Return the log-determinant measure for a given s; see ``acyclicity.logdet_block``."""

    def measure(weights: FloatArray) -> tuple[float, FloatArray | None]:
        value, inverse = logdet_block(weights * weights, s)
        return value, None if inverse is None else 2.0 * inverse.T * weights

    return measure


@dataclass(frozen=True, eq=False)
class EdgeProblem:
    """The problem over a list of m candidate edges of d variables.

    Attributes
    ----------
    second
        ``(k, d, d)`` the different covariances S_j.
    own
        ``(d,)`` the place of each variable's covariance among them.
    rows, columns
        ``(m,)`` causes and effects of the candidates, sorted by (row, column), without self-loops.
    sparsity
        ``(m,)`` L1 penalty of each candidate's weight, in the units of S.
    """

    second: FloatArray
    own: IntArray
    rows: IntArray
    columns: IntArray
    sparsity: FloatArray

    @classmethod
    def from_mask(
        cls,
        second: FloatArray,
        candidates: BoolArray,
        sparsity: float | FloatArray,
        required: BoolArray,
        own: IntArray | None = None,
    ) -> EdgeProblem:
        """Return the problem over the edges of a ``(d, d)`` mask.

        Parameters
        ----------
        second
            ``(d, d)`` covariance, or ``(k, d, d)`` covariances.
        candidates
            ``(d, d)`` mask of the candidate edges.
        sparsity
            A number, or a ``(d, d)`` array with one number for each edge.
        required
            ``(d, d)`` mask of edges without an L1 penalty.
        own
            ``(d,)`` the place of each variable's covariance. Default: the first.
        """
        rows, columns = np.nonzero(candidates)
        penalties = np.where(required, 0.0, sparsity)[rows, columns]
        d = len(candidates)
        places = np.zeros(d, dtype=np.int64) if own is None else own
        return cls(second.reshape(-1, d, d), places, rows, columns, penalties)

    def matrix(self, values: FloatArray) -> FloatArray:
        """Return the ``(d, d)`` matrix of the candidates' weights."""
        weights = np.zeros((len(self.own), len(self.own)))
        weights[self.rows, self.columns] = values
        return weights

    @cached_property
    def _parts(self) -> IntArray:
        """The place of the covariance of each candidate's effect, ``(m,)``."""
        return self.own[self.columns]

    @cached_property
    def _loss_of_no_edge(self) -> float:
        """Twice the loss of W = 0."""
        each = np.arange(len(self.own))
        return float(self.second[self.own, each, each].sum())

    def loss(self, values: FloatArray) -> tuple[float, FloatArray]:
        """Return the squared loss and its ``(m,)`` gradient."""
        nonzero = np.flatnonzero(values)
        i, j, w = self.rows[nonzero], self.columns[nonzero], values[nonzero]
        product = self._second_times(i, j, w)
        at_candidates = self.second[self._parts, self.rows, self.columns]
        linear = float(w @ at_candidates[nonzero])
        quadratic = float(w @ product[nonzero])
        value = 0.5 * (self._loss_of_no_edge - 2.0 * linear + quadratic)
        return value, product - at_candidates

    def _second_times(self, i: IntArray, j: IntArray, w: FloatArray) -> FloatArray:
        """Return the entries of ``S_j w_j`` at the candidates, for W given by its nonzeros."""
        d = len(self.own)
        if d <= DENSE_PRODUCT_LIMIT or len(w) > DENSE_PRODUCT_FILL * d * d:
            weights = np.zeros((d, d))
            weights[i, j] = w
            return np.asarray((self.second @ weights)[self._parts, self.rows, self.columns])
        by_effect = np.argsort(j, kind="stable")
        starts = np.searchsorted(j[by_effect], np.arange(d + 1))
        transposed = scipy.sparse.csr_array((w[by_effect], i[by_effect], starts), shape=(d, d))
        product = np.stack([np.asarray(transposed @ second) for second in self.second])
        return np.asarray(product[self._parts, self.columns, self.rows])

    @cached_property
    def _graph(self) -> Any:
        return scipy.sparse.csr_array((len(self.own), len(self.own)))

    def acyclicity(
        self, values: FloatArray, measure: BlockMeasure
    ) -> tuple[float, FloatArray | None]:
        """Return h(W) and its ``(m,)`` gradient, computed for each strongly connected component.

        An edge between two components lies on no cycle, and h does not depend on its weight.
        """
        d = len(self.own)
        gradient = np.zeros(len(values))
        nonzero = np.flatnonzero(values)
        i, j = self.rows[nonzero], self.columns[nonzero]
        starts = np.searchsorted(i, np.arange(d + 1)).astype(np.int32)
        graph = self._graph
        # Set part by part, as the checks of a new array take longer than the components.
        graph.data, graph.indices, graph.indptr = np.ones(len(i)), j.astype(np.int32), starts
        _, labels = scipy.sparse.csgraph.connected_components(
            graph, directed=True, connection="strong"
        )
        inner = np.flatnonzero(labels[i] == labels[j])
        total = 0.0
        position = np.zeros(d, dtype=np.intp)
        for label in np.flatnonzero(np.bincount(labels[i[inner]])):
            edges = inner[labels[i[inner]] == label]
            nodes = np.flatnonzero(labels == label)
            position[nodes] = np.arange(len(nodes))
            row, column = position[i[edges]], position[j[edges]]
            block = np.zeros((len(nodes), len(nodes)))
            block[row, column] = values[nonzero[edges]]
            value, block_gradient = measure(block)
            if block_gradient is None:
                return np.inf, None
            total += value
            gradient[nonzero[edges]] = block_gradient[row, column]
        return total, gradient

    def minimize(
        self,
        start: FloatArray,
        measure: BlockMeasure,
        barrier: Barrier,
        *,
        loss_weight: float = 1.0,
        max_iterations: int = 15_000,
        relative_decrease: float = 2.2e-9,
        gradient_tolerance: float = 1e-5,
        both_signs: bool = True,
    ) -> FloatArray:
        """Return a local minimum, by L-BFGS-B on positive and negative parts as in Zheng (2018).

        Parameters
        ----------
        start
            ``(m,)`` weights to start from, inside the domain of h.
        measure, barrier
            The acyclicity measure and the barrier.
        loss_weight
            Factor of loss and sparsity.
        max_iterations, relative_decrease, gradient_tolerance
            The options ``maxiter``, ``ftol`` and ``gtol`` of L-BFGS-B; the defaults are SciPy's.
        both_signs
            Whether weights may change their signs. With False a weight keeps the sign of its start;
            a weight that starts at zero gets the sign that lowers the loss. This halves the number
            of unknowns.

        Returns
        -------
        ``(m,)`` weights.
        """
        m = len(self.rows)
        if m == 0:
            return np.zeros(0)
        # In units of the causes' standard deviations the Hessian of the loss has a unit diagonal,
        # which L-BFGS needs to converge quickly.
        deviations = np.sqrt(self.second[self._parts, self.rows, self.rows])
        units = 1.0 / np.where(deviations > 0, deviations, 1.0)
        penalty = loss_weight * self.sparsity * units
        if both_signs:
            signs = np.outer([1.0, -1.0], np.ones(m))
        else:
            downhill = np.where(self.loss(start)[1] > 0, -1.0, 1.0)
            signs = np.where(start != 0, np.sign(start), downhill)[None, :]

        def weights(parts: FloatArray) -> FloatArray:
            return np.asarray((signs * parts.reshape(signs.shape)).sum(axis=0) * units)

        def objective(parts: FloatArray) -> tuple[float, FloatArray]:
            check_deadline()
            values = weights(parts)
            h, h_gradient = self.acyclicity(values, measure)
            if h_gradient is None or not np.isfinite(h):
                return INFEASIBLE, np.zeros(signs.size)
            cost, slope = barrier(h)
            loss, gradient = self.loss(values)
            smooth = (loss_weight * gradient + slope * h_gradient) * units
            l1 = float((parts.reshape(signs.shape) @ penalty).sum())
            return loss_weight * loss + cost + l1, (signs * smooth + penalty).ravel()

        solution = scipy.optimize.minimize(
            objective,
            np.maximum(signs * (start / units), 0.0).ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=scipy.optimize.Bounds(np.zeros(signs.size), np.full(signs.size, np.inf)),
            options={
                "maxiter": max_iterations,
                "maxfun": 4 * max_iterations,
                "ftol": relative_decrease,
                "gtol": gradient_tolerance,
            },
        )
        return weights(solution.x)


@dataclass(frozen=True, eq=False)
class SparseProblem:
    """The problem over all allowed edges.

    Attributes
    ----------
    second
        ``(d, d)`` covariance, or ``(k, d, d)`` covariances, rounded to ``RESOLUTION``.
    allowed, required
        ``(d, d)`` masks. The diagonal is not allowed; required edges have no L1 penalty.
    sparsity
        L1 penalty, in the units of ``second``: a number, or a ``(d, d)`` array with one number for
        each edge; rounded to ``RESOLUTION``.
    all_edges
        Whether all allowed edges are candidates, instead of an active set.
    own
        ``(d,)`` the place of each variable's covariance. Default: the first.
    """

    second: FloatArray
    allowed: BoolArray
    required: BoolArray
    sparsity: float | FloatArray
    all_edges: bool
    own: IntArray | None = None

    def __post_init__(self) -> None:
        for name in ("second", "sparsity"):
            rounded = np.round(getattr(self, name) / RESOLUTION) * RESOLUTION
            object.__setattr__(self, name, rounded)

    @classmethod
    def of_unit_variance(
        cls,
        moments: SampleMoments | Sequence[SampleMoments],
        masks: EdgeMasks,
        sparsity: float | FloatArray,
        all_edges: bool | None = None,
    ) -> SparseProblem:
        """Return the problem in units in which the harmonic mean of the variances is 1.

        The harmonic mean is nearer to the noise variances than the mean, which a few large
        variances dominate (:func:`core.linear.moments.data_scale`). On ER2 graphs of 50 and 200
        variables DAGMA's SHD is 21 and 9 with it, 30 and 53 with the mean; on the simulations of
        the NOTEARS-ADMM paper it is the same or smaller.

        Parameters
        ----------
        moments
            Moments of the data, or one for each variable. Its covariance is then multiplied by its
            number of rows, in units of the mean number.
        masks
            Allowed and required edges.
        sparsity
            L1 penalty in the units of the moments: a number, or ``(d, d)``.
        all_edges
            Whether all allowed edges are candidates. Default: for up to ``ALL_EDGES_LIMIT``
            variables.
        """
        d = len(masks.allowed)
        parts, places = distinct(moments_of_variables(moments, d))
        # Lags have no causes: any covariance serves them.
        own = np.append(places, np.zeros(d - len(places), dtype=np.int64))
        variances = np.array([parts[place].second[j, j] for j, place in enumerate(own)])
        scale = data_scale(variances) if (variances > 0).any() else 1.0
        rows = np.array([part.n for part in parts])
        shares = rows / rows[places].mean()
        return cls(
            np.stack([part.second * share for part, share in zip(parts, shares, strict=True)])
            / scale,
            masks.allowed,
            masks.required,
            sparsity / scale,
            d <= ALL_EDGES_LIMIT if all_edges is None else all_edges,
            own,
        )

    def violations(self, weights: FloatArray) -> FloatArray:
        """Return ``|S_j e_j - S_j w_j| - sparsity`` for the edges of weight zero, ``(d, d)``.

        An edge violates its condition of stationarity if its entry is positive. The entry is minus
        infinity for edges that are not allowed or have a weight.
        """
        d = len(weights)
        second = self.second.reshape(-1, d, d)
        slopes = np.abs(second - second @ weights)
        own = np.zeros(d, dtype=np.int64) if self.own is None else self.own
        gradient = slopes[own, :, np.arange(d)].T
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
        """Return a local minimum, ``(d, d)``, from ``(d, d)`` start weights.

        Parameters
        ----------
        passes
            Largest number of minimisations over a growing active set; with ``all_edges`` there is
            one minimisation.

        The other parameters are those of ``EdgeProblem.minimize``.
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
            problem = EdgeProblem.from_mask(
                self.second, candidates, self.sparsity, self.required, self.own
            )
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
        """Return the mask of the edges to add: the largest violations of each effect."""
        excess = self.violations(weights)
        d = len(excess)
        keep = min(ADDITIONS_PER_EFFECT, d)
        smallest_kept = np.partition(excess, d - keep, axis=0)[d - keep]
        violated = excess > VIOLATION_TOLERANCE * self.sparsity
        return np.asarray(violated & (excess >= smallest_kept))

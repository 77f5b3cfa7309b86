"""The server's problem of consensus ADMM: the sparse, acyclic matrix nearest to a mean.

    minimise   sum_ij sparsity_ij |W_ij| + alpha h(W) + rho_1/2 h(W)^2 + kappa/2 ||W - M||_F^2

with the trace-exponential ``h(W) = tr exp(W * W) - d`` on the first d rows of the ``(m, d)`` matrix
W; further rows (the lags of a time series) are not constrained. This is eq. (5) of Ng & Zhang
(AISTATS 2022) with ``kappa = K rho_2``, and the update of the global variables in Chen, Ma & Yue
(2024) for 2Dbn.

It is not solved in W, but reduced without loss first:

1. ``dh/dW_ij = 2 exp(W * W)_ji W_ij`` has the sign of W_ij, so shrinking an entry never raises h,
   and changing the sign of one never changes it. Hence ``W = sign(M) r`` with
   ``0 <= r <= R = (|M| - sparsity/kappa)_+``: a smooth problem in a box, where the sparsity term
   has turned into the bound R, ``min_r alpha h(r) + rho_1/2 h(r)^2 + kappa/2 ||r - R||_F^2``.
2. An entry between two strongly connected components of the support of R lies on no cycle, so h
   does not depend on it and ``r = R`` there. Lagged rows are such entries by definition.

Only entries inside components are left to optimise (L-BFGS-B), and h is the sum of the h of the
components. Early rounds have one large component; once a graph emerges there are few small ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize

from flwr_causal.core.graphs.acyclicity import cyclic_components

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# What an objective that overflows is reported as: L-BFGS-B's line search steps back from a large
# finite number but is lost with an infinite one.
_OVERFLOW = 1e100


class Projection(NamedTuple):
    """The solution of the server's problem.

    Attributes
    ----------
    weights
        ``(m, d)`` minimiser W (a stationary point: h is not convex).
    h
        ``h(W[:d])``.
    iterations
        Iterations that L-BFGS-B took; 0 where the closed form was enough.
    """

    weights: FloatArray
    h: float
    iterations: int


class _Block(NamedTuple):
    """The entries inside one strongly connected component, as a slice of the unknowns."""

    nodes: IntArray  # (b,) the component's variables
    rows: IntArray  # (q,) positions within the component of the q entries that may be nonzero
    columns: IntArray
    part: slice  # where these q entries lie in the vector of all unknowns

    def matrix(self, values: FloatArray) -> FloatArray:
        """``(b, b)`` matrix of this component's entries of the vector of unknowns."""
        matrix = np.zeros((len(self.nodes), len(self.nodes)))
        matrix[self.rows, self.columns] = values[self.part]
        return matrix


def project(
    mean: FloatArray,
    *,
    sparsity: float | FloatArray,
    curvature: float,
    multiplier: float = 0.0,
    penalty: float = 0.0,
    start: FloatArray | None = None,
    allowed: BoolArray | None = None,
    max_iterations: int = 1000,
    tolerance: float = 1e-8,
    resolution: float = 0.0,
) -> Projection:
    """Solve the server's problem for one mean.

    Parameters
    ----------
    mean
        ``(m, d)`` matrix M, the mean of what the clients sent; ``m = d (1 + lags)``.
    sparsity
        Weight of ``|W_ij|``, a number or ``(m, d)``; 0 where an edge must not be shrunk.
    curvature
        ``kappa > 0``, the weight of the distance to the mean: ``K rho_2``.
    multiplier, penalty
        ``alpha >= 0`` and ``rho_1 >= 0`` of the acyclicity constraint.
    start
        ``(m, d)`` matrix from which the optimisation starts; clipped to the box. Default: the
        upper bound R, the solution without acyclicity.
    allowed
        ``(m, d)`` mask; entries where it is False are exactly 0. The diagonal of the first d rows
        always is.
    max_iterations
        Limit of L-BFGS-B iterations. Early ADMM rounds need only a rough solution.
    tolerance
        The optimisation ends once every entry of the projected gradient, divided by ``kappa`` so
        that it is in units of the weights, is at most this.
    resolution
        Round the problem's numbers to this precision before it is solved: the bound R absolutely,
        ``alpha / kappa`` and ``rho_1 / kappa`` relatively. An optimisation that ends early turns
        differences in the sixteenth digit (other units, another order of summation, another
        machine) into ones in the third; problems that are rounded first are the same problem.
        Default: no rounding.

    Raises
    ------
    ValueError
        If the shapes do not fit, ``curvature`` is not positive, or ``mean`` is not finite.
    """
    m, d = mean.shape
    if d == 0 or m % d:
        raise ValueError(f"mean must have d (1 + lags) rows for its d = {d} columns, not {m}")
    if not curvature > 0:
        raise ValueError(f"curvature must be positive, not {curvature}")
    if not np.isfinite(mean).all():
        raise ValueError("mean has entries that are not finite")

    bound = np.maximum(np.abs(mean) - np.asarray(sparsity) / curvature, 0.0)
    if allowed is not None:
        bound[~allowed] = 0.0
    np.fill_diagonal(bound[:d], 0.0)
    # dividing by kappa makes the problem, and so the tolerance, independent of the data's units
    multiplier, penalty = multiplier / curvature, penalty / curvature
    if resolution:
        bound = np.round(bound / resolution) * resolution
        multiplier, penalty = _rounded(multiplier, resolution), _rounded(penalty, resolution)

    blocks = _inner_blocks(bound[:d])
    radius = bound.copy()
    h, iterations = 0.0, 0
    if blocks:
        start_radius = bound if start is None else np.where(start * mean > 0, np.abs(start), 0.0)
        upper = _gather(bound, blocks)
        inner, h, iterations = _minimise(
            np.minimum(_gather(start_radius, blocks), upper),
            upper,
            blocks,
            multiplier,
            penalty,
            max_iterations,
            tolerance,
        )
        for block in blocks:
            radius[np.ix_(block.nodes, block.nodes)] = block.matrix(inner)
    weights = np.sign(mean) * radius + 0.0  # no negative zeros
    return Projection(weights, h, iterations)


def _inner_blocks(bound: FloatArray) -> list[_Block]:
    """List the components of the bound's support that hold a cycle, with the entries inside.

    Nodes and components are put in an order that depends on the bound alone, so that permuting the
    variables changes not even the rounding errors of the optimisation.
    """
    key = np.sort(bound, axis=1).sum(axis=1)
    components = [nodes[np.argsort(key[nodes])] for nodes in cyclic_components(bound)]
    blocks = []
    offset = 0
    for nodes in sorted(components, key=lambda nodes: float(key[nodes[-1]])):
        rows, columns = np.nonzero(bound[np.ix_(nodes, nodes)])
        blocks.append(_Block(nodes, rows, columns, slice(offset, offset + len(rows))))
        offset += len(rows)
    return blocks


def _rounded(number: float, resolution: float) -> float:
    """Round to a relative precision."""
    mantissa, exponent = math.frexp(number)
    return math.ldexp(round(mantissa / resolution) * resolution, exponent)


def _gather(matrix: FloatArray, blocks: list[_Block]) -> FloatArray:
    return np.concatenate([matrix[b.nodes[b.rows], b.nodes[b.columns]] for b in blocks])


def _acyclicity(values: FloatArray, blocks: list[_Block]) -> tuple[float, FloatArray]:
    """H of the unknowns and its gradient ``2 exp(A)_ji r_ij``, component by component."""
    h = 0.0
    gradient = np.empty_like(values)
    for block in blocks:
        exponential = scipy.linalg.expm(block.matrix(values * values))
        h += float(np.trace(exponential)) - len(block.nodes)
        gradient[block.part] = 2.0 * exponential[block.columns, block.rows] * values[block.part]
    return h, gradient


def _minimise(
    start: FloatArray,
    upper: FloatArray,
    blocks: list[_Block],
    multiplier: float,
    penalty: float,
    max_iterations: int,
    tolerance: float,
) -> tuple[FloatArray, float, int]:
    """Minimise ``1/2 |r - R|^2 + alpha h(r) + rho/2 h(r)^2`` over the box ``0 <= r <= R``."""

    def objective(values: FloatArray) -> tuple[float, FloatArray]:
        with np.errstate(over="ignore", invalid="ignore"):
            h, slope = _acyclicity(values, blocks)
            distance = values - upper
            value = 0.5 * distance @ distance + multiplier * h + 0.5 * penalty * h * h
            gradient = distance + (multiplier + penalty * h) * slope
        if not (value < _OVERFLOW and np.isfinite(gradient).all()):
            return _OVERFLOW, np.zeros_like(values)
        return float(value), gradient

    while objective(start)[0] >= _OVERFLOW:  # ends at the latest at 0, where h is 0
        start = 0.5 * start
    result = scipy.optimize.minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=scipy.optimize.Bounds(np.zeros_like(upper), upper),
        options={
            "maxiter": max_iterations,
            "maxfun": 4 * max_iterations,
            "gtol": tolerance,
            # the objective is quadratic in the distance to the minimum
            "ftol": tolerance**2,
        },
    )
    values = np.asarray(result.x, dtype=np.float64)
    return values, _acyclicity(values, blocks)[0], int(result.nit)


def factors(after: FloatArray, before: FloatArray) -> FloatArray:
    """``(d, d)`` factors that turn blocks of norms ``before`` into ones of norms ``after``."""
    return np.divide(after, before, out=np.zeros_like(after), where=before > 0)

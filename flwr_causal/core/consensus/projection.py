"""The server's problem of consensus ADMM: the sparse, acyclic matrix nearest to a mean.

    minimise   sum_ij sparsity_ij |W_ij| + alpha h(W) + rho_1/2 h(W)^2 + kappa/2 ||W - M||_F^2

with the trace-exponential ``h(W) = tr exp(W * W) - d`` on the first d rows of the ``(m, d)`` matrix
W; further rows (the lags of a time series) are not constrained. This is eq. (5) of Ng & Zhang
(AISTATS 2022) with ``kappa = K rho_2``, and the update of the global variables in Chen, Ma & Yue
(2024) for 2Dbn.

The problem is reduced to an equivalent one with fewer unknowns:

1. ``dh/dW_ij = 2 exp(W * W)_ji W_ij`` has the sign of W_ij, so that shrinking an entry never
   increases h, and changing its sign does not change h. Hence ``W = sign(M) r`` with
   ``0 <= r <= R = (|M| - sparsity/kappa)_+``, where r minimises the smooth function
   ``alpha h(r) + rho_1/2 h(r)^2 + kappa/2 ||r - R||_F^2``. The bound R contains the sparsity term.
2. An entry between two strongly connected components of the support of R lies on no cycle, so that
   h does not depend on the entry, and ``r = R`` there. This includes all lagged rows.

L-BFGS-B optimises the entries inside components only, and h is the sum of the h of the components.
Early rounds have one large component, later rounds a few small ones.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.linalg

from flwr_causal.core.graphs.acyclicity import cyclic_components
from flwr_causal.core.limits import MOST_HALVINGS, check_deadline, require_computable
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# Value of the objective where it overflows: the line search of L-BFGS-B can step back from a large
# finite number, but not from an infinite one.
_OVERFLOW = 1e100


class Projection(NamedTuple):
    """The solution of the server's problem.

    Attributes
    ----------
    weights
        ``(m, d)`` stationary point W of the problem, which is not convex.
    h
        ``h(W[:d])``.
    iterations
        Number of L-BFGS-B iterations; 0 if the closed form ``r = R`` is the solution.
    """

    weights: FloatArray
    h: float
    iterations: int


class _Block(NamedTuple):
    """The entries inside one strongly connected component.

    Attributes
    ----------
    nodes
        ``(b,)`` variables of the component.
    rows, columns
        ``(q,)`` positions within the component of the q entries that may be nonzero.
    part
        Slice of these q entries in the vector of all unknowns.
    """

    nodes: IntArray
    rows: IntArray
    columns: IntArray
    part: slice

    def matrix(self, values: FloatArray) -> FloatArray:
        """Return the ``(b, b)`` matrix of this component from the vector of all unknowns."""
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
        ``(m, d)`` matrix M, the mean of the arrays that the clients sent; ``m = d (1 + lags)``.
    sparsity
        Weight of ``|W_ij|``, a number or ``(m, d)``; 0 for edges that are not to be shrunk.
    curvature
        ``kappa > 0``, the weight of the distance to the mean: ``K rho_2``.
    multiplier, penalty
        ``alpha >= 0`` and ``rho_1 >= 0`` of the acyclicity constraint.
    start
        ``(m, d)`` matrix from which the optimisation starts, clipped to ``0 <= r <= R``. Default:
        the upper bound R, which is the solution without the acyclicity terms.
    allowed
        ``(m, d)`` mask; entries where it is False are exactly 0, as is the diagonal of the first d
        rows. Default: all entries are allowed.
    max_iterations
        Largest number of L-BFGS-B iterations. Early ADMM rounds need only a rough solution.
    tolerance
        The optimisation ends when all entries of the projected gradient divided by ``kappa``, which
        are in units of the weights, are at most this.
    resolution
        Precision to which the numbers of the problem are rounded: absolute for the bound R,
        relative for ``alpha / kappa`` and ``rho_1 / kappa``. An optimisation that ends early can
        turn a difference in the sixteenth digit of the problem (other units, another order of
        summation, another machine) into one in the third digit of the solution. After rounding the
        problems are identical. Default: no rounding.

    Raises
    ------
    ValueError
        If the shapes do not fit, or ``curvature`` is not positive.
    DataError
        If the mean, or alpha and rho beside it, are too large to be computed with.
    """
    m, d = mean.shape
    if d == 0 or m % d:
        raise ValueError(f"mean must have d (1 + lags) rows for its d = {d} columns, not {m}")
    if not curvature > 0:
        raise ValueError(f"curvature must be positive, not {curvature}")
    require_computable("the means of the parties' weights", mean)

    bound = np.maximum(np.abs(mean) - np.asarray(sparsity) / curvature, 0.0)
    if allowed is not None:
        bound[~allowed] = 0.0
    np.fill_diagonal(bound[:d], 0.0)
    # Divided by kappa the problem, and so the tolerance, does not depend on the units of the data.
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
    """Return the components of the support of the bound that contain a cycle.

    The order of nodes and components depends on the values of the bound and not on the order of the
    variables, so that the rounding errors of the optimisation do not depend on the latter.
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
    """Return the number rounded to a relative precision."""
    mantissa, exponent = math.frexp(number)
    return math.ldexp(round(mantissa / resolution) * resolution, exponent)


def _gather(matrix: FloatArray, blocks: list[_Block]) -> FloatArray:
    return np.concatenate([matrix[b.nodes[b.rows], b.nodes[b.columns]] for b in blocks])


def _acyclicity(values: FloatArray, blocks: list[_Block]) -> tuple[float, FloatArray]:
    """Return h of the vector of unknowns and its gradient ``2 exp(r * r)_ji r_ij``."""
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
        check_deadline()
        with np.errstate(over="ignore", invalid="ignore"):
            h, slope = _acyclicity(values, blocks)
            distance = values - upper
            value = 0.5 * distance @ distance + multiplier * h + 0.5 * penalty * h * h
            gradient = distance + (multiplier + penalty * h) * slope
        if not (value < _OVERFLOW and np.isfinite(gradient).all()):
            return _OVERFLOW, np.zeros_like(values)
        return float(value), gradient

    for _ in range(MOST_HALVINGS):  # the last one is at 0, where h is 0
        if objective(start)[0] < _OVERFLOW:
            break
        start = 0.5 * start
    else:
        raise DataError(
            f"the server's problem overflows, with alpha / kappa = {multiplier:.3g} and "
            f"rho / kappa = {penalty:.3g}: the parties' weights have become too large to be "
            "computed with; check the units of the columns at the parties"
        )
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
            # Near the minimum the objective is quadratic in the distance to the minimum.
            "ftol": tolerance**2,
        },
    )
    values = np.asarray(result.x, dtype=np.float64)
    return values, _acyclicity(values, blocks)[0], int(result.nit)


def factors(after: FloatArray, before: FloatArray) -> FloatArray:
    """Return ``after / before``, ``(d, d)``, and 0 where ``before`` is 0.

    Multiplied by these factors, blocks with the norms ``before`` get the norms ``after``.
    """
    return np.divide(after, before, out=np.zeros_like(after), where=before > 0)

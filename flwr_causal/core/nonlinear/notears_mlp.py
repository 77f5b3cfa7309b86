"""NOTEARS-MLP: nonlinear structure by continuous optimisation, one perceptron for each variable.

Reference
---------
Zheng, Dan, Aragam, Ravikumar, Xing: Learning sparse nonparametric DAGs, AISTATS 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.linalg

from flwr_causal.core.arrays import BoolArray, FloatArray
from flwr_causal.core.devices import one_thread
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.limits import check_deadline
from flwr_causal.core.linear.moments import as_moments
from flwr_causal.core.linear.notears import ascend
from flwr_causal.core.linear.solution import (
    check_at_least_zero,
    edge_masks,
    edge_weights,
    edges_above,
)
from flwr_causal.core.nonlinear.perceptrons import Network, SquaredLoss
from flwr_causal.core.threads import single_threaded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge

Objective = Callable[[FloatArray], tuple[float, FloatArray]]

# The value of an objective that overflows: the line search steps back from a large finite number,
# but fails with an infinite one.
_OVERFLOW = 1e100


class Minimum(NamedTuple):
    """The result of :func:`minimise`.

    Attributes
    ----------
    theta
        ``(size,)`` parameters.
    iterations
        Iterations of L-BFGS-B.
    """

    theta: FloatArray
    iterations: int


@single_threaded()
def notears_mlp(
    rows: Any,
    *,
    sparsity: float = 0.01,
    decay: float = 0.01,
    hidden: Sequence[int] = (10,),
    threshold: float = 0.3,
    knowledge: Knowledge | EdgeMasks | None = None,
    tolerance: float = 1e-8,
    max_iterations: int = 15_000,
    seed: int = 0,
    device: str = "cpu",
    precision: str = "float64",
) -> CausalGraph:
    """Learn a nonlinear DAG by NOTEARS-MLP's augmented Lagrangian (Zheng 2020, section 4).

    Minimises ``1/(2n) ||X - mlp(X; theta)||^2 + sparsity |A|_1 + decay/2 |weights|^2`` subject to
    ``tr exp(W * W) = d`` with ``W[i, j] = ||A_j[:, i]||`` over the first layer A.

    Parameters
    ----------
    rows
        ``(n, d)`` array or data frame; it is centred by this function.
    sparsity, decay
        Penalties ``lambda_1`` of the first layer and ``lambda_2`` of the squared weights of all
        layers. Default: those of the authors' code, for variables of variance about 1 to 10.
    hidden
        Units of each hidden layer. Default: one layer of ten, as in the authors' code.
    threshold
        An edge is in the graph when its strength, the root mean square of ``df_j/dx_i``, exceeds
        this. Default: 0.3, the authors' threshold on the norms W.
    knowledge
        Required and forbidden edges and tiers. Required edges bear no sparsity penalty.
    tolerance
        The value of h at which the iteration ends. Default: that of the authors' code.
    max_iterations
        Largest number of L-BFGS-B iterations of one inner problem. Default: SciPy's, as in the
        authors' code.
    seed
        Seed of the initial parameters.
    device, precision
        See :class:`core.nonlinear.perceptrons.SquaredLoss`.

    Returns
    -------
    A DAG whose weights are the strengths, which have no sign; ``raw_weights`` are the strengths
    before the threshold.

    Raises
    ------
    DataError
        If the data are not a table of finite numbers.
    ConfigError
        If torch or the device is missing, an option is out of range, or the knowledge contradicts
        itself or the names.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.solvers import notears_mlp
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.normal(size=100)
    >>> rows = np.column_stack([cause, np.tanh(2 * cause) + 0.3 * rng.normal(size=100)])
    >>> notears_mlp(rows, hidden=(2,), max_iterations=10).names
    ('x0', 'x1')
    """
    check_at_least_zero(sparsity=sparsity, decay=decay, threshold=threshold, tolerance=tolerance)
    moments = as_moments(rows)
    masks = edge_masks(knowledge, moments.names)
    network = Network(moments.d, tuple(hidden))
    centred = np.asarray(rows, dtype=np.float64) - moments.mean
    loss = SquaredLoss(centred, network, device=device, precision=precision)
    with one_thread():
        theta = solve_augmented(
            loss, masks, network.initial(seed), sparsity, decay, tolerance, max_iterations
        )
        strengths = np.sqrt(loss.squared_slopes(theta))
    return strength_graph(moments.names, strengths, threshold, masks)


def solve_augmented(
    loss: SquaredLoss,
    masks: EdgeMasks,
    start: FloatArray,
    sparsity: float,
    decay: float,
    tolerance: float = 1e-8,
    max_iterations: int = 15_000,
) -> FloatArray:
    """Return the ``(size,)`` parameters at the end of the augmented Lagrangian.

    Parameters
    ----------
    loss
        Squared loss on the rows.
    masks
        Allowed edges, and required ones, which bear no sparsity penalty.
    start
        ``(size,)`` parameters to start from.
    sparsity, decay, tolerance, max_iterations
        See :func:`notears_mlp`.
    """
    network = loss.network
    shrunk, free = first_layer_sparsity(network, masks, sparsity), free_parameters(network, masks)

    def minimum(theta: FloatArray, multiplier: float, penalty: float) -> FloatArray:
        objective = local_objective(loss, decay, multiplier, penalty)
        return minimise(objective, theta, free, shrunk, max_iterations).theta

    start = np.where(free, start, 0.0)
    return ascend(minimum, lambda theta: acyclicity(network, theta)[0], start, tolerance)


def local_objective(
    loss: SquaredLoss, decay: float, multiplier: float, penalty: float
) -> Objective:
    """Return a function of theta: loss, weight decay and ``multiplier h + penalty/2 h^2``."""
    network = loss.network
    decayed = decay * network.is_weight

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = loss(theta)
        shrink = decayed * theta
        h, slope = acyclicity(network, theta)
        network.first(gradient)[...] += (multiplier + penalty * h) * slope
        value += 0.5 * float(shrink @ theta) + multiplier * h + 0.5 * penalty * h * h
        return value, gradient + shrink

    return objective


def acyclicity(network: Network, theta: FloatArray) -> tuple[float, FloatArray]:
    """Return ``h(W) = tr exp(W * W) - d`` of the first layer, and its ``(d, m, d)`` gradient.

    With the squared norms ``Q = W * W`` it is ``tr exp(Q) - d``, which is smooth at zero, with
    ``dh/dQ = exp(Q)^T`` and ``dQ_ij/dA_j[:, i] = 2 A_j[:, i]``. The exponential is that of the
    whole matrix: splitting it into strongly connected components first takes 5 to 10 times as long
    for d = 10 to 40 (measured).
    """
    exponential = scipy.linalg.expm(network.squared_norms(theta))
    h = float(np.trace(exponential)) - network.num_variables
    return h, 2.0 * network.blocks(exponential.T) * network.first(theta)


def free_parameters(network: Network, masks: EdgeMasks) -> BoolArray:
    """Return the ``(size,)`` mask of the parameters without the blocks of edges not allowed."""
    free = np.ones(network.size, dtype=bool)
    network.first(free)[...] = network.blocks(masks.allowed)
    return free


def first_layer_sparsity(network: Network, masks: EdgeMasks, sparsity: float) -> FloatArray:
    """Return the L1 penalty of every parameter, ``(size,)``: 0 beyond the first layer.

    The blocks of required edges bear no penalty.
    """
    penalty = np.zeros(network.size)
    network.first(penalty)[...] = network.blocks(np.where(masks.required, 0.0, sparsity))
    return penalty


def minimise(
    objective: Objective,
    start: FloatArray,
    free: BoolArray,
    sparsity: FloatArray | None = None,
    max_iterations: int = 15_000,
    relative_decrease: float = 2.2e-9,
    gradient_tolerance: float = 1e-5,
) -> Minimum:
    """Minimise an objective plus ``sum sparsity |theta|`` by SciPy's L-BFGS-B.

    As in NOTEARS-MLP, parameters with a penalty are split into a positive and a negative part.

    Parameters
    ----------
    objective
        ``theta -> value, gradient``.
    start
        ``(size,)`` parameters to start from.
    free
        ``(size,)`` mask of the parameters to optimise; the others keep their values in ``start``.
    sparsity
        ``(size,)`` penalties. Default: none.
    max_iterations, relative_decrease, gradient_tolerance
        L-BFGS-B's ``maxiter``, ``ftol`` and ``gtol``; the defaults are SciPy's.
    """
    penalised = free & (sparsity > 0) if sparsity is not None else np.zeros_like(free)
    split, whole = np.flatnonzero(penalised), np.flatnonzero(free & ~penalised)
    price = np.zeros(0) if sparsity is None else sparsity[split]
    p = len(split)
    theta = start.copy()

    def spread(parts: FloatArray) -> FloatArray:
        theta[split] = parts[:p] - parts[p : 2 * p]
        theta[whole] = parts[2 * p :]
        return theta

    def split_objective(parts: FloatArray) -> tuple[float, FloatArray]:
        check_deadline()
        with np.errstate(over="ignore", invalid="ignore"):
            value, gradient = objective(spread(parts))
        if not (value < _OVERFLOW and np.isfinite(gradient).all()):
            return _OVERFLOW, np.zeros_like(parts)
        value += float(price @ (parts[:p] + parts[p : 2 * p]))
        slope = gradient[split]
        return value, np.concatenate([slope + price, price - slope, gradient[whole]])

    lower = np.concatenate([np.zeros(2 * p), np.full(len(whole), -np.inf)])
    result = scipy.optimize.minimize(
        split_objective,
        np.concatenate([np.maximum(start[split], 0), np.maximum(-start[split], 0), start[whole]]),
        jac=True,
        method="L-BFGS-B",
        bounds=scipy.optimize.Bounds(lower, np.full(len(lower), np.inf)) if p else None,
        options={
            "maxiter": max_iterations,
            "maxfun": 4 * max_iterations,
            "ftol": relative_decrease,
            "gtol": gradient_tolerance,
        },
    )
    return Minimum(spread(result.x).copy(), int(result.nit))


def strength_graph(
    names: tuple[str, ...], strengths: FloatArray, threshold: float, masks: EdgeMasks
) -> CausalGraph:
    """Make the DAG of ``(d, d)`` edge strengths above a threshold.

    The weakest edges on cycles are dropped. The graph has all required edges, and none that is not
    allowed.
    """
    raw = np.where(masks.allowed, strengths, 0.0)
    required = np.asarray(masks.required, dtype=bool)
    weights = edge_weights(edges_above(raw, threshold, required), raw)
    return CausalGraph(names=names, weights=weights, raw_weights=raw, required=required)

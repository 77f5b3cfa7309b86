"""NOTEARS: linear structure learning from moments, by an augmented Lagrangian.

Reference
---------
Zheng, Aragam, Ravikumar, Xing: DAGs with NO TEARS: continuous optimization for structure learning,
NeurIPS 2018.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.graphs.acyclicity import h_exponential
from flwr_causal.core.limits import steps
from flwr_causal.core.linear.edge_problem import SparseProblem, exponential_block
from flwr_causal.core.linear.solution import finish, prepared
from flwr_causal.core.threads import single_threaded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
    from flwr_causal.core.linear.edge_problem import Barrier
    from flwr_causal.core.linear.moments import SampleMoments


# Zheng 2018, algorithm 1: the penalty grows by PENALTY_GROWTH until h falls below PROGRESS times
# its previous value.
PENALTY_GROWTH = 10.0
PROGRESS = 0.25
PENALTY_LIMIT = 1e16
MAX_DUAL_STEPS = 100


@single_threaded()
def notears(
    moments_or_data: Any,
    *,
    sparsity: float | FloatArray = 0.1,
    threshold: float = 0.3,
    knowledge: Knowledge | EdgeMasks | None = None,
    refit: bool = True,
    tolerance: float = 1e-8,
    all_edges: bool | None = None,
) -> CausalGraph:
    """Learn a linear DAG by NOTEARS' augmented Lagrangian (Zheng 2018, algorithm 1).

    The solver minimises ``1/2 tr((I - W)^T S (I - W)) + sparsity |W|_1`` subject to
    ``tr exp(W * W) = d``, where S is the covariance (divisor n).

    Parameters
    ----------
    moments_or_data
        ``SampleMoments``, an ``(n, d)`` array or a data frame. Or a list of ``SampleMoments``, for
        each variable those of the rows that inform about what causes it.
    sparsity
        L1 penalty in the units of the variables' variance: a number, or a ``(d, d)`` array with one
        number for each edge. The default is the paper's.
    threshold
        Edges of absolute weight at most this are removed. The default is the paper's.
    knowledge
        Required and forbidden edges and tiers. Default: none.
    refit
        Whether to give the edges of the final graph their least-squares weights.
    tolerance
        The optimisation ends when the acyclicity h is at most this. The default is the paper's.
    all_edges
        Whether to optimise over all allowed edges at once. Otherwise the solver optimises over a
        growing active set of edges, which ends in a stationary point of the same problem. Default:
        True for up to ``edge_problem.ALL_EDGES_LIMIT`` variables.

    Returns
    -------
    CausalGraph
        A DAG; ``raw_weights`` is the solution before the threshold.

    Raises
    ------
    DataError
        If the data are not a table of finite numbers.
    ConfigError
        If an option is out of range, or the knowledge does not fit the variables.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.solvers import notears
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.normal(size=500)
    >>> rows = np.column_stack([cause, 2 * cause + rng.normal(size=500)])
    >>> notears(rows).adjacency.tolist()
    [[False, True], [False, False]]
    """
    moments, masks = prepared(
        moments_or_data, sparsity, knowledge, threshold=threshold, tolerance=tolerance
    )
    weights = solve_augmented(moments, masks, sparsity, tolerance, all_edges)
    return finish(moments, weights, threshold=threshold, masks=masks, refit=refit)


def solve_augmented(
    moments: SampleMoments | Sequence[SampleMoments],
    masks: EdgeMasks,
    sparsity: float | FloatArray,
    tolerance: float = 1e-8,
    all_edges: bool | None = None,
) -> FloatArray:
    """Return the ``(d, d)`` solution of the Lagrangian; the parameters are those of `notears`."""
    problem = SparseProblem.of_unit_variance(moments, masks, sparsity, all_edges)

    def minimize(weights: FloatArray, multiplier: float, penalty: float) -> FloatArray:
        barrier = augmented_lagrangian(multiplier, penalty)
        return problem.minimize(weights, exponential_block, barrier, passes=3)

    start = np.zeros_like(masks.allowed, dtype=np.float64)
    return ascend(minimize, lambda weights: h_exponential(weights)[0], start, tolerance)


def ascend(
    minimize: Callable[[FloatArray, float, float], FloatArray],
    acyclicity: Callable[[FloatArray], float],
    start: FloatArray,
    tolerance: float,
) -> FloatArray:
    """Solve a problem with the constraint ``h = 0`` by dual ascent (Zheng 2018, section 4.1).

    Parameters
    ----------
    minimize
        Function that takes start, multiplier and penalty and returns the minimiser of the
        augmented Lagrangian.
    acyclicity
        Function that returns h of a solution.
    start
        Start of the first minimisation; each later one starts from the last accepted solution.
    tolerance
        The ascent ends when h is at most this.

    Returns
    -------
    The last solution.
    """
    solution, penalty, multiplier, h = start, 1.0, 0.0, np.inf
    for _ in steps("The dual ascent", MAX_DUAL_STEPS):
        while True:
            candidate = minimize(solution, multiplier, penalty)
            candidate_h = acyclicity(candidate)
            if candidate_h <= PROGRESS * h or penalty >= PENALTY_LIMIT:
                break
            penalty *= PENALTY_GROWTH
        solution, h = candidate, candidate_h
        multiplier += penalty * h
        if h <= tolerance or penalty >= PENALTY_LIMIT:
            break
    return solution


def augmented_lagrangian(multiplier: float, penalty: float) -> Barrier:
    """Return the function h -> ``multiplier h + penalty / 2 h^2`` and its derivative (eq. 10)."""

    def barrier(h: float) -> tuple[float, float]:
        return multiplier * h + 0.5 * penalty * h * h, multiplier + penalty * h

    return barrier

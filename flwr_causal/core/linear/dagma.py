"""DAGMA: linear structure by a log-determinant central path, from moments.

Reference
---------
Bello, Aragam, Ravikumar: DAGMA: learning DAGs via M-matrices and a log-determinant acyclicity
characterization, NeurIPS 2022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.linear.edge_problem import SparseProblem, logdet_measure
from flwr_causal.core.linear.solution import finish, prepared
from flwr_causal.core.threads import single_threaded

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
    from flwr_causal.core.linear.moments import Moments


# (mu, s) of each stage: the path of Bello 2022 from (1, 1) to (1e-3, 0.7) with a stage between
# each two of its own. On the simulations of the NOTEARS-ADMM paper (see selection.SPARSITY_FACTOR)
# the finer path ends in better minima: summed mean SHD 6.1, against 8.1 on the published one; its
# fifth stage (1e-4, 0.6) changes no graph there.
CENTRAL_PATH = (
    (1.0, 1.0),
    (3e-1, 0.95),
    (1e-1, 0.9),
    (3e-2, 0.85),
    (1e-2, 0.8),
    (3e-3, 0.75),
    (1e-3, 0.7),
)
# L-BFGS-B iterations of a stage: 300 up to 166 variables (with 100 the same summed SHD is 8.6),
# fewer beyond, where they are what costs time.
MOST_ITERATIONS = 300
LEAST_ITERATIONS = 100
ITERATIONS_TIMES_VARIABLES = 50_000
# Passes of the active set at the end of the path, up to 166 variables and beyond; the stages
# before have one each.
LAST_PASSES = 5
LAST_PASSES_LARGE = 2


@single_threaded()
def dagma(
    moments_or_data: Any,
    *,
    sparsity: float | FloatArray = 0.03,
    threshold: float = 0.3,
    knowledge: Knowledge | EdgeMasks | None = None,
    refit: bool = True,
    tolerance: float = 1e-8,
    all_edges: bool | None = None,
) -> CausalGraph:
    """Learn a linear DAG by DAGMA's central path (Bello 2022, algorithm 1).

    Stage by stage it minimises ``mu (1/2 tr((I - W)^T S (I - W)) + sparsity |W|_1) + h_s(W)``
    with the log-determinant h for a falling mu; S is the covariance (divisor n).

    Parameters
    ----------
    moments_or_data
        ``Moments``, an ``(n, d)`` array or a data frame.
    sparsity
        L1 penalty in the units of the variables' variance, one number or a ``(d, d)`` array of one
        for each edge. Default: the public code's.
    threshold
        Edges of absolute weight at most this are dropped. Default: the paper's.
    knowledge
        Required and forbidden edges and tiers.
    refit
        Give the edges of the final graph their least-squares weights.
    tolerance
        Relative decrease of the objective at which a stage ends.
    all_edges
        Optimise over all allowed edges at once, or over a growing active set of them that ends
        in a stationary point of the same problem. By default all edges up to
        ``edge_problem.ALL_EDGES_LIMIT`` variables, the active set above.

    Returns
    -------
    A DAG; ``raw_weights`` holds the solution before the threshold.

    Raises
    ------
    DataError
        If the data are no table of finite numbers.
    ConfigError
        If an option is out of range or the knowledge contradicts itself or the names.
    """
    moments, masks = prepared(
        moments_or_data, sparsity, knowledge, threshold=threshold, tolerance=tolerance
    )
    weights = follow_central_path(moments, masks, sparsity, tolerance, all_edges)
    return finish(moments, weights, threshold=threshold, masks=masks, refit=refit)


def follow_central_path(
    moments: Moments,
    masks: EdgeMasks,
    sparsity: float | FloatArray,
    tolerance: float = 1e-8,
    all_edges: bool | None = None,
) -> FloatArray:
    """``(d, d)`` solution at the end of the path; the parameters are those of :func:`dagma`."""
    problem = SparseProblem.of_unit_variance(moments, masks, sparsity, all_edges)
    iterations = ITERATIONS_TIMES_VARIABLES // max(moments.d, 1)
    iterations = min(max(iterations, LEAST_ITERATIONS), MOST_ITERATIONS)
    last_passes = LAST_PASSES if iterations == MOST_ITERATIONS else LAST_PASSES_LARGE
    weights = np.zeros((moments.d, moments.d))
    for mu, s in CENTRAL_PATH:
        weights = problem.minimize(
            weights,
            logdet_measure(s),
            lambda h: (h, 1.0),
            passes=last_passes if (mu, s) == CENTRAL_PATH[-1] else 1,
            loss_weight=mu,
            max_iterations=iterations,
            relative_decrease=tolerance,
            gradient_tolerance=1e-6 * max(mu, 1e-2),
        )
    return weights

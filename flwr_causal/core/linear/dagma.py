"""DAGMA: linear structure learning from moments, along a central path of log-determinants.

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
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
    from flwr_causal.core.linear.moments import SampleMoments


# (mu, s) of each stage: the first four stages of Bello 2022, from (1, 1) to (1e-3, 0.7), with a
# further stage between every two. On the simulations of the NOTEARS-ADMM paper (see
# selection.SPARSITY_FACTOR) the finer path gives a summed mean SHD of 6.1, the published path 8.1.
# The fifth stage of the paper, (1e-4, 0.6), changes no graph there.
CENTRAL_PATH = (
    (1.0, 1.0),
    (3e-1, 0.95),
    (1e-1, 0.9),
    (3e-2, 0.85),
    (1e-2, 0.8),
    (3e-3, 0.75),
    (1e-3, 0.7),
)
# L-BFGS-B iterations of a stage: 300 for up to 166 variables (with 100 the summed SHD above is
# 8.6); fewer for more variables, since the iterations take most of the time.
MOST_ITERATIONS = 300
LEAST_ITERATIONS = 100
ITERATIONS_TIMES_VARIABLES = 50_000
# Passes of the active set in the last stage, for up to 166 and for more variables; the other stages
# have one pass.
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

    Each stage minimises ``mu (1/2 tr((I - W)^T S (I - W)) + sparsity |W|_1) + h_s(W)`` with the
    log-determinant h, from the solution of the previous stage; mu decreases from stage to stage. S
    is the covariance (divisor n).

    The parameters that are not listed, the result and the errors are those of
    :func:`~flwr_causal.core.linear.notears.notears`.

    Parameters
    ----------
    sparsity
        L1 penalty in the units of the variables' variance: a number, or a ``(d, d)`` array with one
        number for each edge. The default is that of the authors' code.
    tolerance
        Relative decrease of the objective at which a stage ends.

    Examples
    --------
    >>> import numpy as np
    >>> from flwr_causal.solvers import dagma
    >>> rng = np.random.default_rng(0)
    >>> cause = rng.normal(size=500)
    >>> rows = np.column_stack([cause, 2 * cause + rng.normal(size=500)])
    >>> dagma(rows).adjacency.tolist()
    [[False, True], [False, False]]
    """
    moments, masks = prepared(
        moments_or_data, sparsity, knowledge, threshold=threshold, tolerance=tolerance
    )
    weights = follow_central_path(moments, masks, sparsity, tolerance, all_edges)
    return finish(moments, weights, threshold=threshold, masks=masks, refit=refit)


def follow_central_path(
    moments: SampleMoments | Sequence[SampleMoments],
    masks: EdgeMasks,
    sparsity: float | FloatArray,
    tolerance: float = 1e-8,
    all_edges: bool | None = None,
) -> FloatArray:
    """Return the ``(d, d)`` solution of the last stage; the parameters are those of `dagma`."""
    problem = SparseProblem.of_unit_variance(moments, masks, sparsity, all_edges)
    d = len(masks.allowed)
    iterations = ITERATIONS_TIMES_VARIABLES // max(d, 1)
    iterations = min(max(iterations, LEAST_ITERATIONS), MOST_ITERATIONS)
    last_passes = LAST_PASSES if iterations == MOST_ITERATIONS else LAST_PASSES_LARGE
    weights = np.zeros((d, d))
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

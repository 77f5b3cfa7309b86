"""Instantaneous and lagged effects together, from summed moments: DYNOTEARS in one exchange.

Reference
---------
Pamfil et al.: DYNOTEARS: structure learning from time-series data, AISTATS 2020, eq. (9).

With ``z = [x_t, x_{t-1}, ..., x_{t-p}]`` the problem is that of NOTEARS on the m columns of z, in
which no edge may lead into a lagged column: these have no causes, lie on no cycle, and their part
of the loss is a constant. So the centralised solvers serve as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.linear.dagma import follow_central_path
from flwr_causal.core.linear.notears import solve_augmented
from flwr_causal.core.linear.solution import check_sparsity
from flwr_causal.core.series.regression import order_of
from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.linear.moments import Moments


SolverName = Literal["dagma", "notears"]
SOLVERS = {"dagma": follow_central_path, "notears": solve_augmented}


@single_threaded()
def dynotears(
    moments: Moments,
    num_variables: int,
    sparsity: float,
    lagged_sparsity: float | None = None,
    *,
    allowed: ArrayLike | None = None,
    required: ArrayLike | None = None,
    solver: SolverName = "dagma",
) -> FloatArray:
    """Minimise ``1/2 E |x - W^T x - A^T y|^2 + sparsity |W|_1 + lagged_sparsity |A|_1``, W acyclic.

    Parameters
    ----------
    moments
        Moments of the m = d (1 + p) stacked columns.
    num_variables
        d.
    sparsity, lagged_sparsity
        Penalties of instantaneous and lagged weights in units of a covariance; the second is by
        default the first.
    allowed, required
        ``(m, d)`` masks of the edges that may be, and of those that bear no penalty. Default: all
        but x_i -> x_i, and none.
    solver
        ``"dagma"``, the log-determinant's central path, or ``"notears"``, the paper's augmented
        Lagrangian.

    Returns
    -------
    ``(m, d)`` weights before any threshold. W is acyclic but for small weights, as the solvers
    leave them: drop these first.

    Raises
    ------
    DataError
        If the moments are incomplete or not those of d variables and their lags.
    ConfigError
        If a penalty is out of range, a mask has another shape or the solver is unknown.
    """
    if solver not in SOLVERS:
        raise ConfigError(f"unknown solver {solver!r}; known are {', '.join(SOLVERS)}")
    order_of(moments, num_variables)
    moments.require_complete()
    d, m = num_variables, moments.d
    penalties = np.full((m, m), sparsity, dtype=np.float64)
    penalties[d:] = sparsity if lagged_sparsity is None else lagged_sparsity
    check_sparsity(penalties, m)
    may = _square(allowed, moments, d, default=True, name="allowed")
    must = _square(required, moments, d, default=False, name="required")
    masks = EdgeMasks(may & ~np.eye(m, dtype=bool), must)
    return SOLVERS[solver](moments, masks, penalties)[:, :d]


def _square(
    values: ArrayLike | None, moments: Moments, num_variables: int, *, default: bool, name: str
) -> BoolArray:
    """Widen an ``(m, d)`` mask to ``(m, m)``, with no edge into a lagged column."""
    shape = (moments.d, num_variables)
    mask = np.full(shape, default) if values is None else np.asarray(values, dtype=bool)
    if mask.shape != shape:
        raise ConfigError(f"the mask of {name} edges must have shape {shape}, got {mask.shape}")
    square = np.zeros((moments.d, moments.d), dtype=bool)
    square[:, :num_variables] = mask
    return square

"""A party's half of linear FedCausal; the notation is that of :mod:`flwr_causal.core.fedcausal.fedcausal`.

A party keeps nothing from one exchange to the next: what it needs beside its second moments comes
with the message. A party that missed exchanges, or was restarted, goes on as if it had been there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.linear.active_set import check_sparsity
from flwr_causal.core.linear.solution import check_at_least_zero
from flwr_causal.core.threads import single_threaded
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from flwr_causal.core.graphs.knowledge import EdgeMasks

FloatArray = NDArray[np.float64]

# The paper names no values. lambda_1 is that of NOTEARS (Zheng 2018): mean SHD with 10 parties of
# 200 rows and d = 10, 20, 40 (five seeds each) 0.4, 0.4, 0.6; with 0.05 it is 0.2, 0.2, 0.6, with
# 0.2 it is 1.4, 1.8, 2.4. A large lambda_2 ties the parties to the first, poor W: mean SHD with two
# parties, d = 40 and 2048 rows (three seeds, data scaled from variance 15) 9.3 with 0.1, 4.7 with
# 0.01, 3.3 with 0.001 and with 0. Not 0, because a party with fewer rows than variables has no
# unique solution then.
SPARSITY = 0.1
PROXIMITY = 0.001
# Measured as well: parties that go on to full precision (50 steps, 1e-5) give the same graphs in
# as many exchanges as with 5 steps, at 4 to 5 times the work; the next exchange goes on where this
# one ended.
MAX_STEPS = 5
# Ends early: the same errors and exchanges as with 1e-4 (d = 20, 40, ten seeds each), in three
# quarters of the time.
TOLERANCE = 1e-3


class PartyProblem(NamedTuple):
    """All of eq. (5) that does not change from exchange to exchange.

    Attributes
    ----------
    second
        ``(d, d)`` second moments ``S_k = X_k^T X_k / n_k``, divided by the scale.
    num_rows
        n_k, the party's weight in the mean.
    sparsity
        ``(d, d)`` lambda_1 for every edge, divided by the scale: 0 for required edges, infinite for
        forbidden ones.
    proximity
        lambda_2.
    """

    second: FloatArray
    num_rows: int
    sparsity: FloatArray
    proximity: float


class Step(NamedTuple):
    """What a party found.

    Attributes
    ----------
    weights
        ``(d, d)`` ``W_k``, all that is sent.
    h
        ``h(W_k)``.
    steps
        Newton steps taken.
    """

    weights: FloatArray
    h: float
    steps: int


def party_problem(
    rows: FloatArray,
    masks: EdgeMasks,
    *,
    sparsity: float | FloatArray = SPARSITY,
    proximity: float = PROXIMITY,
    scale: float = 1.0,
) -> PartyProblem:
    """Reduce a party's rows to the second moments that eq. (5) is about.

    Parameters
    ----------
    rows
        ``(n_k, d)`` rows, already centred; no rows at all is allowed.
    masks
        Edges that may be, and edges that bear no sparsity penalty.
    sparsity
        lambda_1 in the units of the variables' variance, one number or ``(d, d)``.
    proximity
        lambda_2, for variables of variance ``scale``.
    scale
        The variance that counts as one, the same for all parties (the mean variance of their
        variables). With it neither the penalties of the acyclicity nor lambda_2 depend on the
        units of the data. Default 1, the paper's: data as they are.

    Raises
    ------
    ConfigError
        If a penalty is negative or not finite, or the scale not positive.
    DataError
        If the rows hold missing or infinite numbers.
    """
    num_rows, d = rows.shape
    check_sparsity(sparsity, d)
    check_at_least_zero(proximity=proximity)
    if not (np.isfinite(scale) and scale > 0):
        raise ConfigError(f"scale must be a positive number, got {scale}")
    if not np.isfinite(rows).all():
        raise DataError("the rows hold missing or infinite numbers; drop or fill those rows first")
    second = rows.T @ rows / (max(num_rows, 1) * scale)
    penalties = np.where(masks.required, 0.0, np.asarray(sparsity) / scale)
    penalties[~masks.allowed] = np.inf
    np.fill_diagonal(penalties, np.inf)
    return PartyProblem(second, num_rows, penalties, float(proximity))


@single_threaded()
def party_step(
    problem: PartyProblem,
    received: FloatArray,
    multiplier: float,
    penalty: float,
    *,
    max_steps: int = MAX_STEPS,
    tolerance: float = TOLERANCE,
) -> Step:
    """Solve eq. (5) from the received W, as exactly as ``max_steps`` allow; eq. (5) never rises.

    Parameters
    ----------
    problem
        The party's.
    received
        ``(d, d)`` the server's W: the start, and what the proximal term holds on to.
    multiplier, penalty
        alpha and rho of this exchange.
    max_steps
        Most proximal Newton steps.
    tolerance
        The iteration ends early once a step changes no weight by more than this.

    Raises
    ------
    ValueError
        If the received weights have the wrong shape or are not finite.
    """
    if received.shape != problem.second.shape or not np.isfinite(received).all():
        raise ValueError(
            f"the received weights must be finite and of shape {problem.second.shape}, "
            f"got shape {received.shape}"
        )
    # imported where it is needed: numba
    from flwr_causal.core.fedcausal.fedcausal_kernels import minimise

    # In an order that depends on the moments alone, permuting the variables changes only rounding.
    order = np.argsort(np.sort(np.abs(problem.second), axis=1).sum(axis=1), kind="stable")
    sorting = np.ix_(order, order)
    sparsity = problem.sparsity[sorting]
    weights, h, steps = minimise(
        problem.second[sorting],
        np.where(np.isfinite(sparsity), received[sorting], 0.0),
        sparsity,
        problem.proximity,
        float(multiplier),
        float(penalty),
        max_steps,
        tolerance,
    )
    result = np.empty_like(weights)
    result[sorting] = weights
    return Step(result, h, steps)

"""Weights of every client that are near to those of all: PFDBNL, the second version of 2Dbn.

Chen, Ma & Yue (arXiv:2412.09814v2). Client k of K has ``S_k = X_k^T X_k / n_k`` of its centred rows
of the lagged design, weights ``V_k = [W_k; A_k]`` of shape ``(m, d)``, and E the first d columns of
the identity. The problem is

    minimise  sum_k 1/2 tr((E - V_k)^T S_k (E - V_k)) + lambda |V_k|_1 + mu ||V_k - V||_F^2
    subject to  h(W_k) = 0  for every k,

over all ``V_k`` and the common weights V, which have no constraint of their own. For given ``V_k``
the best V is their mean. The paper's copies ``B_k`` of V at the clients, with their multipliers and
penalty, have the same solution and are left out here: a client sends ``V_k``, and the server
averages. The constraint is each client's own, by an augmented Lagrangian whose penalty rho grows
from round to round; ``alpha_k += rho h(W_k)``.

The authors' program solves another problem: its copies are zero again in every round, so that the
clients are drawn to 0 and never to each other; a parenthesis is missing in the formula of ``B_k``;
and all clients share one alpha, which grows by the last client's h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.arrays import to_square
from flwr_causal.core.graphs.acyclicity import h_exponential
from flwr_causal.core.linear.edge_problem import RESOLUTION, EdgeProblem, exponential_block
from flwr_causal.core.linear.notears import augmented_lagrangian
from flwr_causal.core.threads import single_threaded

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray

#: rho of the first and of the last round, for moments in units of the data's variance.
PENALTIES = (0.05, 1e6)


class OwnProblem(NamedTuple):
    """What is the same in all of a client's rounds; in units in which the data's variance is 1.

    Attributes
    ----------
    second
        ``(m, m)`` S_k.
    sparsity
        ``(m, 1)`` lambda of the edges from each column of the design.
    proximity
        mu.
    """

    second: FloatArray
    sparsity: FloatArray
    proximity: float


class OwnState(NamedTuple):
    """A client's state after a round.

    Attributes
    ----------
    weights
        ``(m, d)`` V_k; only this is sent.
    multiplier
        alpha_k.
    round
        Index of the round.
    """

    weights: FloatArray
    multiplier: float
    round: int


def penalties(rounds: int) -> list[float]:
    """Return rho of each round: it grows by one factor."""
    return [float(rho) for rho in np.geomspace(*PENALTIES, rounds)]


@single_threaded()
def own_step(
    problem: OwnProblem, state: OwnState | None, common: FloatArray, penalty: float, number: int
) -> OwnState:
    """Solve a client's problem for given common weights.

    Parameters
    ----------
    problem
        The client's rows, and the weights of the terms.
    state
        After the round before; None in the first round, or if the client has lost it: it then
        starts from the common weights, with a multiplier of 0.
    common
        ``(m, d)`` V.
    penalty
        rho of this round.
    number
        Index of this round.
    """
    m, d = common.shape
    start, multiplier = (common, 0.0) if state is None else (state.weights, state.multiplier)
    candidates = to_square(_candidates(m, d))
    second = _pulled(problem, common)
    edges = EdgeProblem.from_mask(
        np.round(second / RESOLUTION) * RESOLUTION,
        candidates,
        np.broadcast_to(problem.sparsity, (m, m)),
        np.zeros_like(candidates),
        # Lags have no causes: the place of their moments is never read.
        np.concatenate([np.arange(d), np.zeros(m - d, dtype=np.int64)]),
    )
    values = edges.minimize(
        start[edges.rows, edges.columns],
        exponential_block,
        augmented_lagrangian(multiplier, penalty),
    )
    weights = edges.matrix(values)[:, :d]
    h = float(h_exponential(weights[:d])[0])
    return OwnState(weights, multiplier + penalty * h, number)


def _candidates(m: int, d: int) -> BoolArray:
    """Return the possible edges, (m, d): all but those of a variable to itself at t."""
    possible = np.ones((m, d), dtype=np.bool_)
    np.fill_diagonal(possible, False)
    return possible


def _pulled(problem: OwnProblem, common: FloatArray) -> FloatArray:
    """Return second moments whose least-squares loss is that of S_k and the pull to V, (d, m, m).

    With v of column j of V_k, v_j = 0, and b of V: ``1/2 v^T S v - s_j^T v + mu |v - b|^2`` has the
    second derivatives ``S + 2 mu I`` and the linear term ``s_j + 2 mu b``, which take the places of
    S and of its row and column j.
    """
    (m, d), pull = common.shape, 2 * problem.proximity
    second = np.repeat((problem.second + pull * np.eye(m))[None], d, axis=0)
    for j in range(d):
        linear = problem.second[:, j] + pull * common[:, j]
        linear[j] = second[j, j, j]
        second[j, :, j] = second[j, j, :] = linear
    return second

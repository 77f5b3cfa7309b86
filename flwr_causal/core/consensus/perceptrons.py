"""NOTEARS-MLP-ADMM: consensus over all parameters of the perceptrons.

Ng & Zhang (AISTATS 2022), section 5.2: the iteration of :mod:`core.consensus.admm` on the flat
parameter vector theta of :mod:`core.nonlinear.perceptrons`. All K clients have the same mechanisms.
With n rows in total the problem is

    minimise  sum_k 1/(2n) ||X_k - mlp(X_k; theta_k)||_F^2 + lambda |A|_1 + decay/2 |weights|^2
    subject to  h(W) = 0,  theta_k = theta,   W[i, j] = ||A_j[:, i]||_2.

- client: ``theta_k = argmin loss + <beta_k, theta_k - theta> + rho_2/2 ||theta_k - theta||^2``, by
  a few L-BFGS steps; the client sends ``Z_k = theta_k + beta_k / rho_2``;
- server: theta from ``M = mean_k Z_k``. The acyclicity h depends only on the norms of the blocks
  ``A_j[:, i]`` of the first layer. With ``T = soft(M, lambda / (K rho_2))`` and
  ``R_ij = ||T_j[:, i]||`` the minimiser is ``A_j[:, i] = T_j[:, i] r_ij / R_ij``, where r is the
  ``(d, d)`` projection of R (:mod:`core.consensus.projection`), because shrinking a block never
  increases h and rotating a block does not change h. All other parameters are those of M. Weight
  decay, which the paper does not have, changes ``K rho_2`` to ``K rho_2 + decay`` and scales M;
- server: ``alpha += rho_1 h(W)``; client: ``beta_k += rho_2 (theta_k - theta)``.

The norms have no unit. Edges are therefore chosen by their strengths: the square root of the mean
of ``SquaredLoss.squared_slopes`` at theta over the parties, weighted by their rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.consensus.admm import ClientState, ServerState, multiplier_after
from flwr_causal.core.consensus.projection import factors, project
from flwr_causal.core.consensus.schedules import Tuning, reason_to_end
from flwr_causal.core.devices import one_thread
from flwr_causal.core.nonlinear.notears_mlp import free_parameters, minimise

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.consensus.schedules import Schedule
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.core.nonlinear.perceptrons import Network, SquaredLoss


# Values for noise of variance 1, chosen on seeds 3..7 of the paper's perceptron data with d = 10
# and 20, n = 512, K = 4. The results change little if one of the values is halved or doubled, or
# the last acyclicity penalty is divided by ten.
# They are multiplied by the noise variance as a share of the harmonic mean of the variables'
# variances in such data, 0.5.
NEURAL_TUNED = {40: Tuning((0.15, 0.15), (5e-3, 5e5), (0.075, 0.075), 1.0, 1.0)}
# Weight decay of the default; the paper has none.
NEURAL_DECAY = 1e-3


@dataclass(frozen=True, eq=False)
class ServerProblem:
    """The settings of a run.

    Attributes
    ----------
    network
        Shapes of the perceptrons.
    masks
        Allowed and required edges; required edges have no sparsity penalty.
    schedule
        Penalties and sparsity of every round.
    decay
        Weight of the squared weights of all layers. Default: 0, as in the paper.
    threshold
        Threshold of the norms. It serves only to decide whether the graph has changed in a round.
    """

    network: Network
    masks: EdgeMasks
    schedule: Schedule
    decay: float = 0.0
    threshold: float = 0.3


class Info(NamedTuple):
    """Diagnostics of one round.

    Attributes
    ----------
    h
        Acyclicity ``h(W)``; 0 for a DAG.
    consensus
        ``||mean_k theta_k - theta||`` over ``max(1, ||theta||)``.
    changed
        Number of edges above the threshold that were added or removed in this round.
    num_edges
        Number of edges above the threshold.
    iterations
        Number of L-BFGS-B iterations of the server.
    """

    h: float
    consensus: float
    changed: int
    num_edges: int
    iterations: int


def init(problem: ServerProblem, seed: int = 0) -> ServerState:
    """Return the initial state, with theta as weights: random parameters and zero multipliers.

    Parameters of zero would make all hidden units identical.
    """
    start = problem.network.initial(seed)
    theta = np.where(free_parameters(problem.network, problem.masks), start, 0.0)
    return ServerState(0, theta, np.zeros(1), np.zeros_like(theta))


@one_thread()
def client_step(
    loss: SquaredLoss,
    free: BoolArray,
    state: ClientState | None,
    theta: FloatArray,
    penalty: float,
    round_index: int,
    max_iterations: int = 20,
) -> ClientState:
    """Perform a client's step of a round: update ``beta_k``, solve the local problem, form ``Z_k``.

    Parameters
    ----------
    loss
        The client's rows, divided by the rows n of all clients.
    free
        ``(size,)`` mask of the parameters that knowledge does not fix at zero.
    state
        The client's state after the previous round, or None, see `admm.multiplier_after`.
    theta
        ``(size,)`` parameters as received, from which the optimisation starts.
    penalty
        ``rho_2`` of this round.
    round_index
        Index of this round.
    max_iterations
        Largest number of L-BFGS iterations.

    Returns
    -------
    ClientState
        The new state, whose field ``sent`` is the array to send.
    """
    multiplier = multiplier_after(state, theta)

    def objective(values: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = loss(values)
        away = values - theta
        value += float(multiplier @ away) + 0.5 * penalty * float(away @ away)
        return value, gradient + multiplier + penalty * away

    solution = minimise(objective, theta, free, max_iterations=max_iterations).theta
    return ClientState(solution + multiplier / penalty, penalty, round_index)


def server_step(
    state: ServerState, mean: FloatArray, problem: ServerProblem, num_clients: int
) -> tuple[ServerState, Info]:
    """Perform the server's step of a round.

    Parameters
    ----------
    state
        State before the round.
    mean
        ``(size,)`` mean M of the arrays ``Z_k`` that the clients sent, not weighted.
    problem
        The run's fixed settings.
    num_clients
        K, the number of clients of the federation.

    Returns
    -------
    ServerState, Info
        The state after the round, and the round's diagnostics.

    Raises
    ------
    ValueError
        If the mean has the wrong shape, or the schedule has no further round.
    """
    network, schedule = problem.network, problem.schedule
    settings = state.settings(mean, schedule)
    rho_2, rho_1, sparsity, _ = settings
    curvature = num_clients * rho_2 + problem.decay * network.is_weight
    theta = np.asarray(mean * (num_clients * rho_2) / curvature)
    weight_curvature = num_clients * rho_2 + problem.decay
    limits = np.where(problem.masks.required, 0.0, sparsity / weight_curvature)
    first = network.first(theta)
    first[...] = np.sign(first) * np.maximum(np.abs(first) - network.blocks(limits), 0.0)
    norms = np.sqrt(network.squared_norms(theta))
    before = np.sqrt(network.squared_norms(state.weights))
    solution = project(
        norms,
        sparsity=0.0,
        curvature=weight_curvature,
        multiplier=float(state.multiplier[0]),
        penalty=rho_1,
        start=before,
        allowed=problem.masks.allowed,
        max_iterations=schedule.max_iterations,
        tolerance=schedule.tolerance,
        resolution=schedule.resolution,
    )
    first *= network.blocks(factors(solution.weights, norms))

    graph = solution.weights > problem.threshold
    changed = int((graph != (before > problem.threshold)).sum())
    residual = mean - state.mean_multiplier / rho_2 - theta  # mean_k theta_k - theta
    info = Info(
        h=solution.h,
        consensus=float(np.linalg.norm(residual)) / max(1.0, float(np.linalg.norm(theta))),
        changed=changed,
        num_edges=int(graph.sum()),
        iterations=solution.iterations,
    )
    h = np.array([solution.h])
    return state.after(mean, settings, weights=theta, h=h, changed=changed), info


def finished(state: ServerState, info: Info, problem: ServerProblem) -> str | None:
    """Return the reason why the run ends after this round, or None; see `reason_to_end`."""
    return reason_to_end(
        problem.schedule,
        state.round,
        state.stable_rounds,
        h=info.h,
        num_variables=problem.network.num_variables,
        residual=info.consensus,
    )

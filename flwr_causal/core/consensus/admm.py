"""Consensus ADMM for structure learning over parties that keep their rows.

NOTEARS-ADMM of Ng & Zhang (AISTATS 2022), and 2Dbn of Chen, Ma & Yue (2024) as the same iteration
on a design with lagged columns. K clients with centred rows ``X_k`` of shape ``(n_k, m)``,
``n = sum_k n_k``, ``S_k = X_k^T X_k / n``, and E the first d columns of the identity (the variables
that are explained, ``m = d (1 + lags)``; without lags ``E = I``) solve together

    minimise  sum_k 1/(2n) ||X_k E - X_k B_k||_F^2 + lambda ||W||_1
    subject to  h(W[:d]) = 0,  B_k = W.

One round, with the numbers of the paper's equations:

- client (10): ``B_k = (S_k + rho_2 I)^{-1} (rho_2 W - beta_k + S_k E)``; it sends
  ``Z_k = B_k + beta_k / rho_2`` and nothing else;
- server (5): W from ``M = mean_k Z_k`` alone (:mod:`flwr_causal.core.consensus.projection`), because
  ``sum_k (<beta_k, B_k - W> + rho_2/2 ||B_k - W||^2) = K rho_2/2 ||M - W||^2 + constant``;
- server (6): ``alpha += rho_1 h(W)``;
- client (7): ``beta_k += rho_2 (B_k - W)``, which is ``rho_2 (Z_k - W)`` once W arrives.

The mean is the plain one, also when parties have different numbers of rows: their sizes are in the
``S_k`` already. The consensus of the parties can be watched without a further upload, because
``mean_k beta_k = rho_2 (M - W)`` is known to the server.

What is sent is not harmless: the first ``Z_k`` is ``(S_k + rho_2 I)^{-1} S_k E``, from which
``S_k`` follows exactly. Only the mean over many parties (secure aggregation) hides it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.consensus.local_problem import (
    ClientState,
    LocalProblem,
    client_step,
    local_problem,
    local_step,
    multiplier_after,
)
from flwr_causal.core.consensus.projection import project
from flwr_causal.core.consensus.schedules import reason_to_end

if TYPE_CHECKING:
    from flwr_causal.core.consensus.schedules import Schedule

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# The client's half lives in a module of its own; the iteration is used as one thing.
__all__ = [
    "ClientState",
    "Info",
    "LocalProblem",
    "ServerProblem",
    "State",
    "client_step",
    "finished",
    "init",
    "local_problem",
    "local_step",
    "multiplier_after",
    "server_step",
]


@dataclass(frozen=True, eq=False)
class ServerProblem:
    """What stays the same through a run.

    Attributes
    ----------
    schedule
        Penalties and sparsity of every round.
    num_variables
        d.
    lags
        p; the matrices have ``m = d (1 + p)`` rows.
    relative_sparsity
        Factors on the schedule's sparsity, ``(L, m, d)`` or broadcastable to it; the length of its
        first dimension (1 if it has fewer than three) is the number L of candidates that are
        solved side by side. 0 on required edges.
    allowed
        Mask of the edges that may exist, ``(m, d)`` or ``(L, m, d)``; default all.
    threshold
        An edge stands when its absolute weight exceeds this, a number or ``(m, 1)``; only used to
        see whether the graph still changes.
    """

    schedule: Schedule
    num_variables: int
    lags: int = 0
    relative_sparsity: float | FloatArray = 1.0
    allowed: BoolArray | None = None
    threshold: float | FloatArray = 0.3

    @property
    def shape(self) -> tuple[int, int, int]:
        """``(L, m, d)``, the shape of the weights."""
        factors = np.asarray(self.relative_sparsity)
        candidates = factors.shape[0] if factors.ndim == 3 else 1
        return candidates, self.num_variables * (1 + self.lags), self.num_variables


@dataclass(frozen=True, eq=False)
class State:
    """What the server keeps from one round to the next; a run can be resumed from it.

    Attributes
    ----------
    round
        Rounds done so far; also the index of the next one in the schedule.
    weights
        ``(L, m, d)`` W, to be sent to the clients.
    multiplier
        ``(L,)`` alpha.
    mean_multiplier
        ``(L, m, d)`` mean over the clients of ``beta_k``.
    stable_rounds
        For how many rounds in a row the thresholded graphs have stayed as they are.
    """

    round: int
    weights: FloatArray
    multiplier: FloatArray
    mean_multiplier: FloatArray
    stable_rounds: int = 0


class Info(NamedTuple):
    """Diagnostics of one round; maxima over the candidates.

    Attributes
    ----------
    h
        Acyclicity ``h(W)``; 0 for a DAG.
    consensus
        ``||mean_k B_k - W||_F``, in units of the weights.
    changed
        Edges (after the threshold) that came or went in this round.
    num_edges
        Edges after the threshold, of the candidate that has fewest.
    consensus_penalty, acyclicity_penalty, sparsity
        What the round used.
    iterations
        Inner iterations of the server's problem, all candidates together.
    """

    h: float
    consensus: float
    changed: int
    num_edges: int
    consensus_penalty: float
    acyclicity_penalty: float
    sparsity: float
    iterations: int


def init(problem: ServerProblem) -> State:
    """Start from ``W = 0`` and zero multipliers, as the paper does."""
    zeros = np.zeros(problem.shape)
    return State(0, zeros, np.zeros(len(zeros)), zeros)


def server_step(
    state: State, mean: FloatArray, problem: ServerProblem, num_clients: int
) -> tuple[State, Info]:
    """Do the server's part of a round, eqs. (5) and (6).

    Parameters
    ----------
    state
        State before the round.
    mean
        ``(L, m, d)`` plain mean M of the arrays ``Z_k`` that the clients sent.
    problem
        The run's fixed settings.
    num_clients
        K, the number of clients of the federation.

    Raises
    ------
    ValueError
        If the mean has the wrong shape, or the schedule has no further round.
    """
    if mean.shape != state.weights.shape:
        raise ValueError(
            f"the mean has shape {mean.shape}, but the weights have {state.weights.shape}"
        )
    if state.round >= problem.schedule.rounds:
        raise ValueError(f"the schedule ends after {problem.schedule.rounds} rounds")
    rho_2, rho_1, sparsity, relaxation = problem.schedule.at(state.round)
    sparsities = np.broadcast_to(sparsity * np.asarray(problem.relative_sparsity), problem.shape)
    allowed = np.broadcast_to(True if problem.allowed is None else problem.allowed, problem.shape)
    solutions = [
        project(
            mean[i],
            sparsity=sparsities[i],
            curvature=num_clients * rho_2,
            multiplier=float(state.multiplier[i]),
            penalty=rho_1,
            start=state.weights[i],
            allowed=allowed[i],
            max_iterations=problem.schedule.max_iterations,
            tolerance=problem.schedule.tolerance,
            resolution=problem.schedule.resolution,
        )
        for i in range(len(mean))
    ]
    weights = np.stack([solution.weights for solution in solutions])
    h = np.array([solution.h for solution in solutions])

    mean_relaxed = mean - state.mean_multiplier / rho_2
    mean_solution = state.weights + (mean_relaxed - state.weights) / relaxation  # mean_k B_k
    graph, graph_before = (np.abs(w) > problem.threshold for w in (weights, state.weights))
    changed = int((graph != graph_before).sum())
    after = State(
        round=state.round + 1,
        weights=weights,
        multiplier=state.multiplier + rho_1 * h,
        mean_multiplier=rho_2 * (mean - weights),
        stable_rounds=0 if changed else state.stable_rounds + 1,
    )
    info = Info(
        h=float(h.max()),
        consensus=float(np.linalg.norm(mean_solution - weights, axis=(1, 2)).max()),
        changed=changed,
        num_edges=int(graph.sum(axis=(1, 2)).min()),
        consensus_penalty=rho_2,
        acyclicity_penalty=rho_1,
        sparsity=sparsity,
        iterations=sum(solution.iterations for solution in solutions),
    )
    return after, info


def finished(
    state: State,
    info: Info,
    problem: ServerProblem,
    *,
    h_tolerance: float = 1e-5,
    consensus_tolerance: float = 3e-2,
) -> str | None:
    """Say why the run should end after this round, or None.

    Parameters
    ----------
    state, info
        Results of the last :func:`server_step`.
    problem
        The run's fixed settings.
    h_tolerance
        h must be at most this times d for an early end.
    consensus_tolerance
        ``||mean_k B_k - W||_F`` must be at most this times ``max(1, ||W||_F)`` for an early end.
    """
    norm = max(1.0, float(np.linalg.norm(state.weights, axis=(1, 2)).max()))
    return reason_to_end(
        problem.schedule,
        state.round,
        state.stable_rounds,
        h=info.h,
        h_limit=h_tolerance * problem.num_variables,
        residual=info.consensus,
        residual_limit=consensus_tolerance * norm,
    )

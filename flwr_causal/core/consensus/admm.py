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
- server (5): W from ``M = mean_k Z_k`` alone (:mod:`core.consensus.projection`), because
  ``sum_k (<beta_k, B_k - W> + rho_2/2 ||B_k - W||^2) = K rho_2/2 ||M - W||^2 + constant``;
- server (6): ``alpha += rho_1 h(W)``;
- client (7): ``beta_k += rho_2 (B_k - W)``, which is ``rho_2 (Z_k - W)`` once W arrives.

The mean is the plain one, also when parties have different numbers of rows: their sizes are in the
``S_k`` already. The server can compute the consensus residual without a further upload, because it
knows ``mean_k beta_k = rho_2 (M - W)``.

The replies are informative: the first ``Z_k`` is ``(S_k + rho_2 I)^{-1} S_k E``, from which ``S_k``
follows exactly. Only secure aggregation hides it, by revealing the mean over the parties alone.

A client holds the spectrum of its ``S_k = U diag(s) U^T``, and between two rounds only the array
that it sent last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.consensus.projection import project
from flwr_causal.core.consensus.schedules import reason_to_end

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.consensus.schedules import Schedule


class LocalProblem(NamedTuple):
    """A client's rows, reduced to the spectrum of ``S_k``.

    Attributes
    ----------
    basis
        ``(m, r)`` orthonormal columns U with ``S_k = U diag(s) U^T``; ``r <= min(n_k, m)``.
    eigenvalues
        ``(r,)`` the s, not negative, in squared units of the data times n_k/n.
    num_targets
        d, the number of columns that are explained; the others are lags.
    """

    basis: FloatArray
    eigenvalues: FloatArray
    num_targets: int


class ClientState(NamedTuple):
    """A client's state between two rounds.

    Attributes
    ----------
    sent
        ``(..., m, d)`` the array ``Z_k`` that it sent.
    penalty
        ``rho_2`` of the round in which it was sent.
    round
        That round.
    """

    sent: FloatArray
    penalty: float
    round: int


def local_problem(
    rows: FloatArray, num_rows_total: int, num_targets: int | None = None
) -> LocalProblem:
    """Decompose a client's ``S_k`` once; every round then costs two thin products and no solve.

    Parameters
    ----------
    rows
        ``(n_k, m)`` rows, already centred and scaled; no rows at all is allowed.
    num_rows_total
        n, the rows of all clients together.
    num_targets
        d; default m, that is no lags.
    """
    num_rows, m = rows.shape
    scaled = np.asarray(rows, dtype=np.float64) / np.sqrt(num_rows_total)
    if num_rows < m:
        _, singular, right = np.linalg.svd(scaled, full_matrices=False)
        basis, eigenvalues = right.T, singular**2
    else:
        eigenvalues, basis = np.linalg.eigh(scaled.T @ scaled)
        eigenvalues = np.maximum(eigenvalues, 0.0)
    return LocalProblem(basis, eigenvalues, m if num_targets is None else num_targets)


def local_step(
    problem: LocalProblem, weights: FloatArray, multiplier: FloatArray, penalty: float
) -> FloatArray:
    """Return the client's minimiser ``B_k``, eq. (10), of shape ``(..., m, d)``.

    With ``W' = W - beta/rho`` the closed form reads
    ``B = W' + (S + rho I)^{-1} S (E - W') = W' + U diag(s/(rho + s)) U^T (E - W')``, which needs
    only the directions that the client's rows span (Woodbury; exact also for ``n_k < m``).

    Parameters
    ----------
    problem
        The client's rows.
    weights, multiplier
        ``(..., m, d)`` W and ``beta_k``; leading dimensions are separate runs done at once.
    penalty
        ``rho_2`` of this round.
    """
    basis, eigenvalues, d = problem
    shifted = weights - multiplier / penalty
    coefficients = basis[:d].T - basis.T @ shifted  # U^T (E - W')
    shrink = eigenvalues / (penalty + eigenvalues)
    result: FloatArray = shifted + basis @ (shrink[:, None] * coefficients)
    return result


def multiplier_after(state: ClientState | None, weights: FloatArray) -> FloatArray:
    """Return ``beta_k``, eq. (7), which a client computes when the next W arrives.

    ``beta_k + rho_2 (B_k - W) = rho_2 (Z_k - W)``, so the old multiplier need not be kept. A client
    without state (its first round, or a restart that lost it) starts from zero.
    """
    if state is None:
        return np.zeros_like(weights)
    return state.penalty * (state.sent - weights)


def client_step(
    problem: LocalProblem,
    state: ClientState | None,
    weights: FloatArray,
    penalty: float,
    round_index: int,
    relaxation: float = 1.0,
) -> ClientState:
    """Perform a client's step of a round: update ``beta_k`` (7), solve (10), form ``Z_k``.

    Parameters
    ----------
    problem
        The client's rows.
    state
        The state after the round before, or None.
    weights
        ``(..., m, d)`` W as received.
    penalty
        ``rho_2`` of this round.
    round_index
        This round.
    relaxation
        Over-relaxation ``eta`` (Boyd et al. 2011, section 3.4.3): ``B_k`` is replaced by
        ``eta B_k + (1 - eta) W`` in what is sent, and so in the multiplier; 1 is the paper's
        iteration.

    Returns
    -------
    The new state; its field ``sent`` is sent.
    """
    multiplier = multiplier_after(state, weights)
    solution = local_step(problem, weights, multiplier, penalty)
    relaxed = weights + relaxation * (solution - weights)
    return ClientState(relaxed + multiplier / penalty, penalty, round_index)


@dataclass(frozen=True, eq=False)
class ServerProblem:
    """The settings of a run.

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
    """The server's state between two rounds; a run can be resumed from it.

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
        Number of rounds for which the thresholded graphs have not changed.
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
        Number of edges, after the threshold, added or removed in this round.
    num_edges
        Edges after the threshold, of the candidate that has fewest.
    consensus_penalty, acyclicity_penalty, sparsity
        The settings of the round.
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
    """Perform the server's step of a round, eqs. (5) and (6).

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


def finished(state: State, info: Info, problem: ServerProblem) -> str | None:
    """Return why the run ends after the round of this state, or None: see :func:`reason_to_end`."""
    return reason_to_end(
        problem.schedule,
        state.round,
        state.stable_rounds,
        h=info.h,
        num_variables=problem.num_variables,
        residual=info.consensus,
        norm=max(1.0, float(np.linalg.norm(state.weights, axis=(1, 2)).max())),
    )

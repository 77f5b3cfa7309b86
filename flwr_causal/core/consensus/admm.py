"""Consensus ADMM for structure learning over clients that keep their rows.

NOTEARS-ADMM of Ng & Zhang (AISTATS 2022), and 2Dbn of Chen, Ma & Yue (2024), which is the same
iteration on a design with lagged columns. Client k of K has centred rows ``X_k`` of shape
``(n_k, m)``. With ``n = sum_k n_k``, ``S_k = X_k^T X_k / n`` and E the first d columns of the
identity (those of the d target variables; ``m = d (1 + lags)``), the problem is

    minimise  sum_k 1/(2n) ||X_k E - X_k B_k||_F^2 + lambda ||W||_1
    subject to  h(W[:d]) = 0,  B_k = W.

One round, with the numbers of the paper's equations:

- client (10): ``B_k = (S_k + rho_2 I)^{-1} (rho_2 W - beta_k + S_k E)``; the client sends only
  ``Z_k = B_k + beta_k / rho_2``;
- server (5): W depends on the clients only through ``M = mean_k Z_k``
  (:mod:`core.consensus.projection`), because
  ``sum_k (<beta_k, B_k - W> + rho_2/2 ||B_k - W||^2) = K rho_2/2 ||M - W||^2 + constant``;
- server (6): ``alpha += rho_1 h(W)``;
- client (7): ``beta_k += rho_2 (B_k - W)``, which equals ``rho_2 (Z_k - W)`` when W arrives.

The mean is not weighted by the clients' numbers of rows, which the ``S_k`` contain already. The
server computes the consensus residual without a further upload, from
``mean_k beta_k = rho_2 (M - W)``.

Under known interventions (:mod:`core.interventions.moments`) column j of the loss runs over the
rows in which variable j is no target, with an intercept: these rows have one mean over all clients,
not one for each client. The design has a constant column for it, whose row is the last one of W and
``B_k``, without sparsity and outside h; the server's solution for it is that of M. Columns with the
same rows share one ``S_k``, and a column of which a client has no rows has ``S_k = 0``.

The replies reveal data: the first ``Z_k`` is ``(S_k + rho_2 I)^{-1} S_k E``, from which ``S_k``
can be computed exactly. Secure aggregation prevents this, since it reveals only the mean.

A client stores the eigendecomposition ``S_k = U diag(s) U^T``, and between two rounds only the
array that it sent last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from flwr_causal.core.consensus.projection import project
from flwr_causal.core.consensus.schedules import reason_to_end
from flwr_causal.core.interventions.moments import columns_by_rows

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.consensus.schedules import RoundSettings, Schedule


class Spectrum(NamedTuple):
    """Rows of a client, reduced to the spectrum of ``S_k``.

    Attributes
    ----------
    basis
        ``(m, r)`` orthonormal columns U with ``S_k = U diag(s) U^T``; ``r <= min(n_k, m)``.
    eigenvalues
        ``(r,)`` the s, not negative, in squared units of the data times n_k/n.
    effects
        The columns of W in whose loss these rows are; the other columns of the design are lags.
    """

    basis: FloatArray
    eigenvalues: FloatArray
    effects: IntArray


#: A client's rows: every column of W is among the effects of one spectrum.
LocalProblem: TypeAlias = tuple[Spectrum, ...]


class ClientState(NamedTuple):
    """A client's state between two rounds.

    Attributes
    ----------
    sent
        ``(..., m, d)`` array ``Z_k`` that the client sent last.
    penalty
        ``rho_2`` of the round in which ``sent`` was sent.
    round
        Index of that round.
    """

    sent: FloatArray
    penalty: float
    round: int


def local_problem(
    products: FloatArray, num_rows_total: int, num_targets: int | None = None
) -> LocalProblem:
    """Return the eigendecomposition of a client's ``S_k``.

    With it, every round needs two products with thin matrices, and no linear system is solved.

    Parameters
    ----------
    products
        ``(m, m)`` sums of products of the client's rows, which are centred and scaled.
    num_rows_total
        n, the number of rows of all clients.
    num_targets
        d. Default: m, no lags.
    """
    effects = np.arange(len(products) if num_targets is None else num_targets)
    return (_spectrum(products / num_rows_total, effects),)


def interventional_problem(
    products: FloatArray, acted: BoolArray, num_rows_total: int, unit: float
) -> LocalProblem:
    """Return a client's problem under known interventions, with intercepts.

    Parameters
    ----------
    products
        ``(groups, 1 + m, 1 + m)`` sums of products of the client's rows [1, x] by group of equal
        targets.
    acted
        ``(groups, d)`` the targets of each group.
    num_rows_total
        n, the number of rows of all clients.
    unit
        The value of the constant column. The intercepts converge as fast as the weights if it is
        about the standard deviation of the data.
    """
    scale = np.append(np.ones(products.shape[1] - 1), unit)
    seconds = np.roll(products, -1, axis=(1, 2)) * np.outer(scale, scale) / num_rows_total
    return tuple(
        _spectrum(seconds[groups].sum(axis=0), effects)
        for groups, effects in columns_by_rows(acted)
    )


def _spectrum(second: FloatArray, effects: IntArray) -> Spectrum:
    eigenvalues, basis = np.linalg.eigh(second)
    # Of fewer rows than columns, the other directions have eigenvalues of rounding errors only.
    spanned = eigenvalues > len(second) * np.finfo(np.float64).eps * eigenvalues[-1]
    return Spectrum(basis[:, spanned], eigenvalues[spanned], effects)


def local_step(
    problem: LocalProblem, weights: FloatArray, multiplier: FloatArray, penalty: float
) -> FloatArray:
    """Return the client's minimiser ``B_k``, eq. (10), of shape ``(..., m, d)``.

    With ``W' = W - beta/rho`` the closed form is
    ``B = W' + (S + rho I)^{-1} S (E - W') = W' + U diag(s/(rho + s)) U^T (E - W')``, which needs
    only the subspace that the client's rows span (Woodbury); it is exact also for ``n_k < m``.

    Parameters
    ----------
    problem
        The client's rows.
    weights, multiplier
        ``(..., m, d)`` W and ``beta_k``; leading dimensions index independent problems.
    penalty
        ``rho_2`` of this round.
    """
    result = weights - multiplier / penalty
    for basis, eigenvalues, effects in problem:
        shifted = result[..., effects]
        coefficients = basis[effects].T - basis.T @ shifted  # U^T (E - W')
        shrink = eigenvalues / (penalty + eigenvalues)
        result[..., effects] = shifted + basis @ (shrink[:, None] * coefficients)
    return result


def multiplier_after(state: ClientState | None, weights: FloatArray) -> FloatArray:
    """Return ``beta_k``, eq. (7), from the state of the previous round and the new W.

    ``beta_k + rho_2 (B_k - W) = rho_2 (Z_k - W)``, so that the old multiplier is not needed. A
    client without a state (in its first round, or after a restart) gets a multiplier of zero.
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
        The client's state after the previous round, or None, see :func:`multiplier_after`.
    weights
        ``(..., m, d)`` W as received.
    penalty
        ``rho_2`` of this round.
    round_index
        Index of this round.
    relaxation
        Over-relaxation ``eta`` (Boyd et al. 2011, section 3.4.3): ``eta B_k + (1 - eta) W`` takes
        the place of ``B_k`` in ``Z_k`` and in the multiplier. Default: 1, the paper's iteration.

    Returns
    -------
    ClientState
        The new state, whose field ``sent`` is the array to send.
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
        p; the matrices have ``m = d (1 + p)`` rows, and a further one with intercepts.
    relative_sparsity
        Factors of the schedule's sparsity: a number, ``(m, d)``, or ``(L, m, d)`` for L problems
        with different sparsities that are solved together. 0 on required edges.
    allowed
        Mask of the allowed edges, ``(m, d)`` or ``(L, m, d)``. Default: all.
    threshold
        Threshold of the absolute weight, a number or ``(m, 1)``. It serves only to decide whether
        the graph has changed in a round.
    intercepts
        Whether the matrices have a last row of intercepts.
    """

    schedule: Schedule
    num_variables: int
    lags: int = 0
    relative_sparsity: float | FloatArray = 1.0
    allowed: BoolArray | None = None
    threshold: float | FloatArray = 0.3
    intercepts: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape ``(L, m, d)`` of the weights; L is 1 for a single problem."""
        factors = np.asarray(self.relative_sparsity)
        num_problems = factors.shape[0] if factors.ndim == 3 else 1
        return num_problems, self.num_variables * (1 + self.lags), self.num_variables


@dataclass(frozen=True, eq=False)
class ServerState:
    """The server's state between two rounds; a run can be resumed from it.

    Attributes
    ----------
    round
        Number of completed rounds; also the index of the next round in the schedule.
    weights
        ``(L, m, d)`` W, to be sent to the clients; with intercepts it has ``m + 1`` rows. Of
        perceptrons the ``(size,)`` parameters theta.
    multiplier
        ``(L,)`` alpha.
    mean_multiplier
        Mean over the clients of ``beta_k``, of the shape of the weights.
    stable_rounds
        Number of rounds for which the thresholded graphs have not changed.
    """

    round: int
    weights: FloatArray
    multiplier: FloatArray
    mean_multiplier: FloatArray
    stable_rounds: int = 0

    def settings(self, mean: FloatArray, schedule: Schedule) -> RoundSettings:
        """Return the settings of the round whose replies have this mean.

        Raises
        ------
        ValueError
            If the mean has the wrong shape, or the schedule has no further round.
        """
        if mean.shape != self.weights.shape:
            raise ValueError(
                f"the mean has shape {mean.shape}, but the weights have {self.weights.shape}"
            )
        if self.round >= schedule.rounds:
            raise ValueError(f"the schedule ends after {schedule.rounds} rounds")
        return schedule.at(self.round)

    def after(
        self,
        mean: FloatArray,
        settings: RoundSettings,
        *,
        weights: FloatArray,
        h: FloatArray,
        changed: int,
    ) -> ServerState:
        """Return the state after a round that gave these weights: eqs. (6) and (7)."""
        return ServerState(
            round=self.round + 1,
            weights=weights,
            multiplier=self.multiplier + settings.acyclicity_penalty * h,
            mean_multiplier=settings.consensus_penalty * (mean - weights),
            stable_rounds=0 if changed else self.stable_rounds + 1,
        )


class Info(NamedTuple):
    """Diagnostics of one round; maxima over the L problems unless stated otherwise.

    Attributes
    ----------
    h
        Acyclicity ``h(W)``; 0 for a DAG.
    consensus
        ``||mean_k B_k - W||_F``, in units of the weights.
    changed
        Number of edges above the threshold that were added or removed in this round, in total.
    num_edges
        Number of edges above the threshold, the minimum over the L problems.
    consensus_penalty, acyclicity_penalty, sparsity
        The settings of the round.
    iterations
        Number of L-BFGS-B iterations of the server, in total.
    """

    h: float
    consensus: float
    changed: int
    num_edges: int
    consensus_penalty: float
    acyclicity_penalty: float
    sparsity: float
    iterations: int


def init(problem: ServerProblem, start: FloatArray | None = None) -> ServerState:
    """Return the initial state: W and zero multipliers.

    Parameters
    ----------
    problem
    start
        ``(m, d)`` W, used where edges are allowed. Default: the paper's ``W = 0``.
    """
    count, m, d = problem.shape
    zeros = np.zeros((count, m + problem.intercepts, d))
    weights = zeros.copy()
    if start is not None:
        weights[:, :m] = np.where(True if problem.allowed is None else problem.allowed, start, 0.0)
    return ServerState(0, weights, np.zeros(count), zeros)


def server_step(
    state: ServerState, mean: FloatArray, problem: ServerProblem, num_clients: int
) -> tuple[ServerState, Info]:
    """Perform the server's step of a round, eqs. (5) and (6).

    Parameters
    ----------
    state
        State before the round.
    mean
        ``(L, m, d)`` mean M of the arrays ``Z_k`` that the clients sent, not weighted.
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
    settings, m = state.settings(mean, problem.schedule), problem.shape[1]
    rho_2, rho_1, sparsity, relaxation = settings
    sparsities = np.broadcast_to(sparsity * np.asarray(problem.relative_sparsity), problem.shape)
    allowed = np.broadcast_to(True if problem.allowed is None else problem.allowed, problem.shape)
    solutions = [
        project(
            mean[i, :m],
            sparsity=sparsities[i],
            curvature=num_clients * rho_2,
            multiplier=float(state.multiplier[i]),
            penalty=rho_1,
            start=state.weights[i, :m],
            allowed=allowed[i],
            max_iterations=problem.schedule.max_iterations,
            tolerance=problem.schedule.tolerance,
            resolution=problem.schedule.resolution,
        )
        for i in range(len(mean))
    ]
    weights = mean.copy()
    weights[:, :m] = [solution.weights for solution in solutions]
    h = np.array([solution.h for solution in solutions])

    mean_relaxed = mean - state.mean_multiplier / rho_2
    mean_solution = state.weights + (mean_relaxed - state.weights) / relaxation  # mean_k B_k
    graph, graph_before = (np.abs(w[:, :m]) > problem.threshold for w in (weights, state.weights))
    changed = int((graph != graph_before).sum())
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
    return state.after(mean, settings, weights=weights, h=h, changed=changed), info


def finished(state: ServerState, info: Info, problem: ServerProblem) -> str | None:
    """Return the reason why the run ends after this round, or None; see `reason_to_end`."""
    return reason_to_end(
        problem.schedule,
        state.round,
        state.stable_rounds,
        h=info.h,
        num_variables=problem.num_variables,
        residual=info.consensus,
        norm=max(1.0, float(np.linalg.norm(state.weights, axis=(1, 2)).max())),
    )

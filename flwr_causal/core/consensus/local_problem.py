"""The client's half of consensus ADMM; the notation is that of :mod:`flwr_causal.core.consensus.admm`.

A client holds ``S_k = X_k^T X_k / n`` as its spectrum, ``S_k = U diag(s) U^T``, and from one round
to the next no more than what it sent last.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class LocalProblem(NamedTuple):
    """A client's rows as far as the iteration needs them: the spectrum of ``S_k``.

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
    """What a client keeps from one round to the next.

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
    """Do a client's part of a round: update ``beta_k`` (7), solve (10), form ``Z_k``.

    Parameters
    ----------
    problem
        The client's rows.
    state
        What the client kept of the round before, None if it has nothing.
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
    What the client keeps; its field ``sent`` is what it sends.
    """
    multiplier = multiplier_after(state, weights)
    solution = local_step(problem, weights, multiplier, penalty)
    relaxed = weights + relaxation * (solution - weights)
    return ClientState(relaxed + multiplier / penalty, penalty, round_index)

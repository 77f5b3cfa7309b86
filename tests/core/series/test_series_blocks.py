"""The client's step of 2Dbn as the paper writes it, block by block, is the stacked step."""

import numpy as np
import pytest
import scipy.optimize
from lagged_systems import random_rows

from flwr_causal.core.consensus.admm import local_problem, local_step


def block_step(now, past, n, W, A, beta, gamma, rho):
    """Minimiser over (B, D) by the paper's blocks and Schur complements.

    1/n is that of the loss and of the appendix, n the rows of all parties; the main text's 1/n_k
    would be the minimiser of another loss.
    """
    d, q = now.shape[1], past.shape[1]
    S, M, N = now.T @ now / n, now.T @ past / n, past.T @ past / n
    P, Q = S + rho * np.eye(d), N + rho * np.eye(q)
    b1 = S - beta + rho * W
    b2 = M.T - gamma + rho * A
    B = np.linalg.inv(P - M @ np.linalg.inv(Q) @ M.T) @ (b1 - M @ np.linalg.inv(Q) @ b2)
    D = np.linalg.inv(Q - M.T @ np.linalg.inv(P) @ M) @ (b2 - M.T @ np.linalg.inv(P) @ b1)
    return B, D


def party(seed, rows_of_party, d, order):
    """A party's centred blocks, W, A and multipliers that one could meet on the way."""
    rng = np.random.default_rng(seed)
    rows = random_rows(seed, rows_of_party, d, order)
    rows = rows - rows.mean(axis=0)
    stacked = rng.standard_normal((2, d * (1 + order), d)) * 0.3
    return rows, stacked[0], stacked[1]


@pytest.mark.parametrize(("num_rows", "order"), [(60, 1), (60, 3), (5, 2)])
@pytest.mark.parametrize("rho", [0.01, 1.0, 30.0])
def test_blocks_are_the_stacked_step(num_rows, order, rho):
    d, n = 4, 3 * num_rows
    rows, weights, multiplier = party(0, num_rows, d, order)
    B, D = block_step(
        rows[:, :d], rows[:, d:], n, weights[:d], weights[d:], multiplier[:d], multiplier[d:], rho
    )
    stacked = local_step(local_problem(rows.T @ rows, n, d), weights, multiplier, rho)
    np.testing.assert_allclose(stacked, np.vstack([B, D]), atol=1e-9)


def test_blocks_are_the_minimum_of_the_loss():
    d, n, rho = 3, 90, 0.7
    rows, weights, multiplier = party(1, 30, d, 2)

    def objective(flat):
        V = flat.reshape(weights.shape)
        residual = rows[:, :d] - rows @ V
        away = V - weights
        value = (residual**2).sum() / (2 * n)
        value += (multiplier * away).sum() + rho / 2 * (away**2).sum()
        return value, (-rows.T @ residual / n + multiplier + rho * away).ravel()

    found = scipy.optimize.minimize(
        objective, np.zeros(weights.size), jac=True, method="BFGS", options={"gtol": 1e-10}
    )
    B, D = block_step(
        rows[:, :d], rows[:, d:], n, weights[:d], weights[d:], multiplier[:d], multiplier[d:], rho
    )
    np.testing.assert_allclose(found.x.reshape(weights.shape), np.vstack([B, D]), atol=1e-7)

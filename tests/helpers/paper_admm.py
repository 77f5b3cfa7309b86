"""The iteration of Ng & Zhang (AISTATS 2022), plainly: what the paper says and nothing clever.

Explicit inverses, one multiplier per client, the server's sum over clients written out, h by a
matrix exponential of the whole matrix, the absolute values split into positive and negative parts,
L-BFGS-B with tight tolerances. It shares no code with the package; tests and benchmarks compare
with it.
"""

import numpy as np
import scipy.linalg
import scipy.optimize

#: Appendix B, "Hyperparameters", of the linear case and of perceptrons.
CONSTANTS = {
    "consensus_penalty": 1e-3,
    "acyclicity_penalty": 1e-3,
    "consensus_growth": 1.25,
    "acyclicity_growth": 1.75,
    "sparsity": 0.01,
}
OF_PERCEPTRONS = {
    **CONSTANTS,
    "consensus_penalty": 0.1,
    "acyclicity_penalty": 0.1,
    "sparsity": 0.001,
}


def h_function(W):
    """``tr exp(W * W) - d`` and its gradient."""
    E = scipy.linalg.expm(W * W)
    return np.trace(E) - len(W), 2.0 * E.T * W


def client_step(S, W, beta, rho2):
    """Eq. (10)."""
    d = len(S)
    return np.linalg.inv(S + rho2 * np.eye(d)) @ (rho2 * W - beta + S)


def server_objective(W, Bs, betas, alpha, rho1, rho2):
    """The smooth part of eq. (5), multiplier terms included, and its gradient."""
    h, slope = h_function(W)
    value = alpha * h + 0.5 * rho1 * h**2
    gradient = (alpha + rho1 * h) * slope
    for B, beta in zip(Bs, betas, strict=True):
        value += np.sum(beta * (B - W)) + 0.5 * rho2 * np.sum((B - W) ** 2)
        gradient += -beta + rho2 * (W - B)
    return value, gradient


def server_step(W, Bs, betas, sparsity, alpha, rho1, rho2, max_iterations=20000):
    """Eq. (5) over ``W = P - N`` with ``P, N >= 0`` and a zero diagonal, started at W."""
    d = len(W)
    scale = len(Bs) * rho2

    def objective(parts):
        P, N = parts.reshape(2, d, d)
        value, gradient = server_objective(P - N, Bs, betas, alpha, rho1, rho2)
        value += sparsity * parts.sum()
        return value / scale, np.stack([gradient + sparsity, sparsity - gradient]).ravel() / scale

    upper = np.full((2, d, d), np.inf)
    upper[:, np.arange(d), np.arange(d)] = 0.0
    start = np.stack([np.maximum(W, 0.0), np.maximum(-W, 0.0)]).ravel()
    result = scipy.optimize.minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=scipy.optimize.Bounds(np.zeros(2 * d * d), upper.ravel()),
        options={
            "maxiter": max_iterations,
            "maxfun": 4 * max_iterations,
            "ftol": 0.0,
            "gtol": 1e-10,
            "maxcor": 30,
        },
    )
    P, N = result.x.reshape(2, d, d)
    return P - N


def notears_admm(
    parties,
    sparsity=0.01,
    max_rounds=200,
    rho1=1e-3,
    rho2=1e-3,
    gamma1=1.75,
    gamma2=1.25,
    rho_max=1e16,
    on_round=None,
):
    """Algorithm 1; every party centres its own rows. Returns W before the threshold and rounds."""
    n = sum(len(X) for X in parties)
    parties = [X - X.mean(axis=0) for X in parties]
    covariances = [X.T @ X / n for X in parties]
    d = parties[0].shape[1]
    W = np.zeros((d, d))
    betas = [np.zeros((d, d)) for _ in parties]
    alpha = 0.0
    for t in range(1, max_rounds + 1):
        Bs = [client_step(S, W, b, rho2) for S, b in zip(covariances, betas, strict=True)]
        W = server_step(W, Bs, betas, sparsity, alpha, rho1, rho2)
        alpha += rho1 * h_function(W)[0]
        betas = [b + rho2 * (B - W) for B, b in zip(Bs, betas, strict=True)]
        if on_round is not None:
            on_round(t, W, Bs, betas, alpha)
        if rho1 < rho_max:
            rho1 *= gamma1
        if rho2 < rho_max:
            rho2 *= gamma2
        if rho1 >= rho_max and rho2 >= rho_max:
            break
    return W, t

"""FedCausal's paper variant with perceptrons beside a short program of Algorithm 1 in torch."""

import numpy as np
import pytest
import scipy.optimize

from flwr_causal.core.nonlinear.perceptrons import Network
from flwr_causal.data.synthetic.nonlinear import federated_nonlinear
from flwr_causal.simulations import simulate

torch = pytest.importorskip("torch")
D, HIDDEN = 4, 5


def acyclicity(first):
    """Return h = tr exp(W * W) - d, where W[i, j] is the norm of first[j, :, i]."""
    return torch.trace(torch.matrix_exp((first**2).sum(1).T)) - D


def minimum(objective, start, bounds, steps):
    def value(flat):
        variables = torch.tensor(flat, requires_grad=True)
        found = objective(variables)
        found.backward()
        return float(found.detach()), variables.grad.numpy()

    options = {"maxiter": steps, "ftol": 1e-14, "gtol": 1e-10}
    found = scipy.optimize.minimize(
        value, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return found.x


def algorithm_1(tables, first, rest, *, steps, sparsity=0.01, decay=0.01, proximity=0.1):
    """Run Algorithm 1 with eqs. (6) and (7), and table S2; return the norms of the first layer.

    The first layer is a difference of two arrays from 0 on, whose sum is its l_1 norm, as in the
    program of NOTEARS-MLP.
    """
    own = np.arange(D)
    free = np.ones((D, HIDDEN, D), dtype=bool)
    free[own, :, own] = False
    bounds = [(0, None if one else 0) for one in np.tile(free.ravel(), 2)]
    bounds += [(None, None)] * len(rest)
    rests, rows = [rest] * len(tables), [torch.tensor(one - one.mean(axis=0)) for one in tables]
    shares = np.array([len(one) for one in tables]) / sum(map(len, tables))
    alpha, rho, last_h, size = 0.0, 1.0, np.inf, first.size

    def eq_7(x, flat, near):
        layer = (flat[:size] - flat[size : 2 * size]).reshape(D, HIDDEN, D)
        bias, outer, level = torch.split(flat[2 * size :], [D * HIDDEN, D * HIDDEN, D])
        inner = torch.sigmoid(torch.einsum("ni,jmi->njm", x, layer) + bias.reshape(D, HIDDEN))
        fitted = (inner * outer.reshape(D, HIDDEN)).sum(2) + level
        h = acyclicity(layer)
        return (
            ((x - fitted) ** 2).sum() / (2 * len(x))
            + sparsity * flat[: 2 * size].sum()
            + decay / 2 * ((layer**2).sum() + (outer**2).sum())
            + proximity * ((layer - torch.tensor(near)) ** 2).sum()
            + alpha * h
            + rho / 2 * h * h
        )

    def eq_6(flat, mean):
        layer = flat.reshape(D, HIDDEN, D)
        h = acyclicity(layer)
        return ((layer - torch.tensor(mean)) ** 2).sum() + alpha * h + rho / 2 * h * h

    for _ in range(100):
        layers = []
        for k, x in enumerate(rows):
            start = np.concatenate([np.maximum(first, 0), np.maximum(-first, 0)], axis=None)
            start = np.concatenate([start, rests[k]])
            found = minimum(lambda flat, x=x, near=first: eq_7(x, flat, near), start, bounds, steps)
            layers.append((found[:size] - found[size : 2 * size]).reshape(D, HIDDEN, D))
            rests[k] = found[2 * size :]
        mean = np.tensordot(shares, np.array(layers), 1)
        found = minimum(lambda flat, mean=mean: eq_6(flat, mean), mean.ravel(), None, 2000)
        first = found.reshape(D, HIDDEN, D)
        h = float(acyclicity(torch.tensor(first)))
        if h > 0.25 * last_h and 10 * rho < 1e16:
            rho *= 10
            continue
        # Supplement A: alpha grows by the h of the mean.
        last_h, alpha = h, alpha + rho * float(acyclicity(torch.tensor(mean)))
        if h <= 1e-11 or rho >= 1e15:
            break
    return np.sqrt((first**2).sum(1)).T


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [0, 1])
def test_finds_what_a_short_program_of_algorithm_1_finds(seed):
    """From the same parameters, with steps enough for both to solve eq. (7)."""
    parties, _ = federated_nonlinear(D, 600, 3, seed=seed)
    network = Network(D, (HIDDEN,))
    start = network.initial(seed)
    first = network.first(start).copy()
    first[np.arange(D), :, np.arange(D)] = 0.0
    rows = [np.asarray(one) for one in parties]
    strengths = algorithm_1(rows, first, network.rest(start), steps=1000)
    found = simulate(
        "fedcausal", parties, seed=seed, variant="paper", hidden=HIDDEN, inner_steps=1000
    )
    np.testing.assert_array_equal(found.graph.adjacency, strengths > 0.3)
    np.testing.assert_allclose(found.scores, strengths, atol=0.1)

"""FedDAG for curved systems: gradients and steps are torch's, and it finds a known graph."""

import numpy as np
import pytest
from flwr_causal_field import feddag
from flwr_causal_field import feddag_curved as curved

from flwr_causal.simulations import simulate
from flwr_causal.testing import check_method

ROWS = [np.random.default_rng(seed).normal(size=(n, 3)) for seed, n in ((0, 40), (1, 70))]


@pytest.fixture
def short(monkeypatch):
    """Few steps of small perceptrons, and one update of the multiplier, in double precision."""
    settings = {"NUM_STEPS": 5, "NUM_EXCHANGES": 2, "MOST_UPDATES": 1, "HIDDEN": (4, 3)}
    for name, value in {**settings, "PRECISION": np.float64}.items():
        monkeypatch.setattr(curved, name, value)
    monkeypatch.setattr(feddag, "SMALL", 1e-30)  # torch has Adam's small number at another place


def output(torch, rows, mask, networks):
    """The perceptrons by torch, one after the other; rows (n, d), mask (d, d)."""
    d, found = rows.shape[1], []
    parts = torch.split(networks, [int(np.prod(shape)) for shape in curved.shapes(d)])
    layers = [part.reshape(shape) for part, shape in zip(parts, curved.shapes(d), strict=True)]
    for j in range(d):
        values = rows * mask[:, j]
        for weights, bias in zip(layers[::2], layers[1::2], strict=True):
            if values is not None:
                values = values @ weights[j] + bias[j]
            if weights.shape[2] > 1:
                values = torch.nn.functional.leaky_relu(values, curved.SLOPE)
        found.append(values[:, 0])
    return torch.stack(found, dim=1)


def test_gradients_are_those_of_torch(short):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    mask = rng.random((3, 3)) * (1 - np.eye(3))
    networks = curved.first_networks(3, 0) + 0.1 * rng.normal(size=curved.first_networks(3, 0).size)
    value, by_mask, by_networks = curved.squared_error(ROWS[0], mask, networks)
    M, N = (torch.tensor(one, requires_grad=True) for one in (mask, networks))
    X = torch.tensor(ROWS[0])
    loss = ((X - output(torch, X, M, N)) ** 2).sum() / (2 * len(X))
    loss.backward()
    np.testing.assert_allclose(value, loss.item(), rtol=1e-12)
    free = ~np.eye(3, dtype=bool)
    np.testing.assert_allclose(by_mask[free], M.grad.numpy()[free], rtol=1e-9)
    np.testing.assert_allclose(by_networks, N.grad.numpy(), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("sharing", ["graph", "all"])
def test_the_steps_are_those_of_adam(short, sharing):
    torch = pytest.importorskip("torch")
    method = curved.FedDAGCurved(sharing=sharing, sparsity=0.02, seed=3)
    run = simulate(method, ROWS, client=curved.FedDAGCurvedClient)
    mean = np.vstack(ROWS).mean(axis=0)
    tables = [torch.tensor(rows - mean) for rows in ROWS]
    logits = [torch.zeros(3, 3, dtype=torch.float64, requires_grad=True) for _ in ROWS]
    start = torch.tensor(curved.first_networks(3, 3))
    networks = [start.clone().requires_grad_(True) for _ in ROWS]
    steps = [
        torch.optim.Adam(own, lr=3e-2, eps=1e-30) for own in zip(logits, networks, strict=True)
    ]
    for exchange in range(2):
        noise = np.random.default_rng((3, 5 * exchange)).logistic(size=(5, 3, 3))
        for X, U, N, step in zip(tables, logits, networks, steps, strict=True):
            for drawn in noise:
                step.zero_grad()
                M = torch.sigmoid((U + torch.tensor(drawn)) / 0.2) * (1 - torch.eye(3))
                h = torch.trace(torch.linalg.matrix_exp(M * M)) - 3
                loss = ((X - output(torch, X, M, N)) ** 2).sum() / (2 * len(X)) + 0.02 * M.sum()
                (loss + 0.5 * 6e-3 * h * h).backward()
                step.step()
        with torch.no_grad():
            for parts in [logits, networks][: 1 + (sharing == "all")]:
                common = sum(parts) / 2  # whatever the numbers of rows
                for own in parts:
                    own.copy_(common)
    assert run.rounds == 2
    found = run.graph.raw_weights
    free = ~np.eye(3, dtype=bool)
    wanted = torch.sigmoid(logits[0] / 0.2).detach().numpy()
    np.testing.assert_allclose(found[free], wanted[free], atol=1e-5)
    assert np.abs(found[free] - 0.5).max() > 0.05
    received = 2 * 8 * (9 + 1 + start.numel() * (sharing == "all"))
    assert received <= run.bytes_received / run.rounds < received + 2000


def curved_rows(seed, n, sign=1.0):
    """x0 -> x1 -> x2, and x3 alone."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 4))
    rows[:, 1] += sign * 2 * np.sin(1.5 * rows[:, 0])
    rows[:, 2] += sign * 2 * np.cos(rows[:, 1])
    return rows


@pytest.mark.nightly
@pytest.mark.parametrize("sharing", ["graph", "all"])
def test_it_finds_a_known_graph(sharing):
    """Parties that share the graph alone may have opposite effects."""
    other = -1.0 if sharing == "graph" else 1.0
    parties = [curved_rows(0, 300), curved_rows(1, 300, other)]
    method = curved.FedDAGCurved(sharing=sharing, sparsity=0.05)
    run = simulate(method, parties, client=curved.FedDAGCurvedClient)
    assert [(one[0], one[1]) for one in run.graph.edges()] == [("x0", "x1"), ("x1", "x2")]
    assert float(run.history[-1]["h"]) <= 1e-10
    assert run.graph.is_acyclic()


def test_a_smaller_threshold_has_more_edges(short):
    some, more = (
        simulate(curved.FedDAGCurved(threshold=value), ROWS, client=curved.FedDAGCurvedClient).graph
        for value in (0.9, 0.01)
    )
    assert some.num_edges == 0 < more.num_edges
    assert more.is_acyclic()


@pytest.mark.nightly
@pytest.mark.parametrize("sharing", ["graph", "all"])
def test_the_checks_of_every_method(short, sharing):
    parties = [np.random.default_rng(seed).normal(size=(30, 3)) for seed in range(3)]
    method = curved.FedDAGCurved(sharing=sharing)
    report = check_method(method, parties, client=curved.FedDAGCurvedClient)
    assert report.passed, report.table()

"""FedDAG of examples/field: its steps are those of torch's Adam, and it finds a known graph."""

import numpy as np
import pytest
from flwr_causal_field import feddag

from flwr_causal.simulations import simulate
from flwr_causal.solvers import notears
from flwr_causal.testing import check_method

WEIGHTS = np.zeros((4, 4))
WEIGHTS[[0, 1, 2], [1, 3, 3]] = 1.5, -1.0, 0.8


def rows_of(seed, n):
    rows = np.random.default_rng(seed).normal(size=(n, 4))
    return rows @ np.linalg.inv(np.eye(4) - WEIGHTS)


@pytest.fixture
def short(monkeypatch):
    """Few steps, and one update of the multiplier."""
    for name, value in {"NUM_STEPS": 7, "NUM_EXCHANGES": 2, "MOST_UPDATES": 1}.items():
        monkeypatch.setattr(feddag, name, value)


@pytest.mark.slow
def test_the_steps_are_those_of_adam(short):
    torch = pytest.importorskip("torch")
    parties = [rows_of(0, 60), rows_of(1, 200)]
    run = simulate(feddag.FedDAG(sparsity=0.05), parties, client=feddag.FedDAGClient)
    mean = np.vstack(parties).mean(axis=0)
    tables = [torch.tensor(rows - mean) for rows in parties]
    weights = [torch.zeros(4, 4, dtype=torch.float64, requires_grad=True) for _ in parties]
    steps = [torch.optim.Adam([one], lr=1e-3) for one in weights]
    for _ in range(2):
        for X, W, step in zip(tables, weights, steps, strict=True):
            for _ in range(7):
                step.zero_grad()
                free = W * (1 - torch.eye(4))
                h = torch.trace(torch.linalg.matrix_exp(free * free)) - 4
                loss = ((X - X @ free) ** 2).sum() / (2 * len(X)) + 0.05 * free.abs().sum()
                (loss + 0.5 * h * h).backward()
                step.step()
        with torch.no_grad():
            common = sum(weights) / 2  # whatever the numbers of rows
            for W in weights:
                W.copy_(common)
    assert run.rounds == 2
    # torch adds Adam's small number at another place than TensorFlow 1, as the authors have it.
    np.testing.assert_allclose(run.graph.raw_weights, common.numpy(), atol=1e-6)
    assert np.abs(common.numpy()).max() > 0.01


@pytest.mark.nightly
def test_it_finds_the_graph_that_notears_finds():
    rows = rows_of(2, 600)
    run = simulate(feddag.FedDAG(), [rows[:200], rows[200:]], client=feddag.FedDAGClient)
    assert np.array_equal(run.graph.adjacency, WEIGHTS != 0)
    assert float(run.history[-1]["h"]) <= 1e-8
    wanted = notears(rows, sparsity=0.1, refit=False).raw_weights
    np.testing.assert_allclose(run.graph.raw_weights, wanted, atol=0.1)


def test_a_smaller_threshold_has_more_edges(short):
    parties = [rows_of(0, 60), rows_of(1, 60)]
    some, more = (
        simulate(feddag.FedDAG(threshold=value), parties, client=feddag.FedDAGClient).graph
        for value in (0.3, 0.012)
    )
    assert some.num_edges == 0 < more.num_edges
    assert more.is_acyclic()


@pytest.mark.nightly
def test_the_checks_of_every_method(short):
    parties = [rows_of(seed, 40) for seed in range(3)]
    report = check_method(feddag.FedDAG(), parties, client=feddag.FedDAGClient)
    assert report.passed, report.table()

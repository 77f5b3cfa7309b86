"""The public solvers by name: arrays, and tables of any class with columns."""

import inspect
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from flwr_causal import CausalGraph, solvers
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.data.synthetic.linear import federated_linear

NAMES = ("a", "b", "c", "d")
(ROWS,), WEIGHTS = federated_linear(4, 400, 1, seed=3)
FRAME = pd.DataFrame(np.asarray(ROWS), columns=list(NAMES))
STATES = FRAME.gt(FRAME.median()).astype(int)


class Table:
    """A table that is no DataFrame, with what frames of any library have."""

    def __init__(self, frame):
        self.frame, self.columns = frame, list(frame.columns)

    def __array__(self, dtype=None, copy=None):
        return self.frame.to_numpy(dtype)

    def __getitem__(self, name):
        return self.frame[name].to_numpy()

    def __len__(self):
        return len(self.frame)


def test_every_name_is_a_function():
    for name in solvers.__all__:
        assert inspect.isfunction(getattr(solvers, name))
    with pytest.raises(AttributeError, match="no attribute 'pc'"):
        _ = solvers.pc


@pytest.mark.few(1)
@pytest.mark.parametrize("solver", ["notears", "dagma"])
def test_linear_solvers(solver):
    solve = getattr(solvers, solver)
    graph = solve(FRAME)
    assert graph.names == NAMES
    assert graph.is_acyclic()
    assert np.array_equal(WEIGHTS != 0, graph.adjacency)
    assert solve(FRAME.to_numpy()).names == ("x0", "x1", "x2", "x3")
    others = (FRAME.to_numpy(), Table(FRAME), SampleMoments.from_rows(FRAME.to_numpy(), NAMES))
    for data in others:
        np.testing.assert_allclose(solve(data).weights, graph.weights, atol=1e-9)


def test_lingam():
    noise = np.random.default_rng(0).uniform(-1, 1, (400, 4))
    rows = noise @ np.linalg.inv(np.eye(4) - WEIGHTS)
    frame = pd.DataFrame(rows, columns=list(NAMES))
    graph = solvers.lingam(frame)
    assert graph.names == NAMES
    assert np.array_equal(WEIGHTS != 0, graph.adjacency)
    for data in (rows, Table(frame)):
        np.testing.assert_allclose(solvers.lingam(data).weights, graph.weights, atol=1e-9)


def test_notears_mlp():
    pytest.importorskip("torch")
    few = FRAME.iloc[:100, :3]
    graph = solvers.notears_mlp(few, hidden=(2,), max_iterations=20)
    assert graph.names == NAMES[:3]
    assert graph.is_acyclic()
    again = solvers.notears_mlp(few.to_numpy(), hidden=(2,), max_iterations=20)
    np.testing.assert_array_equal(again.weights, graph.weights)


def test_ges():
    graph = solvers.ges(STATES, score="bdeu", equivalent_sample_size=1.0)
    assert isinstance(graph, CausalGraph)
    assert (graph.kind, graph.names) == ("cpdag", NAMES)
    again = solvers.ges(STATES.to_numpy())
    assert np.array_equal(again.adjacency, graph.adjacency)
    assert solvers.ges(STATES, start=graph, max_edges=1).num_edges <= graph.num_edges
    gaussian = solvers.ges(FRAME, score="gaussian-bic")
    assert gaussian.equals(solvers.ges(Table(FRAME), score="gaussian-bic"))


def test_fuse():
    one = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    union = solvers.fuse([one, np.array([[0, 1], [1, 2]])], 3)
    assert union.edges.tolist() == [[0, 1], [1, 2]]
    assert union.support.tolist() == [2, 2]


def test_learn_spn():
    circuit = solvers.learn_spn(FRAME)
    density = circuit.log_likelihood(FRAME)
    assert density.shape == (400,)
    assert np.isfinite(density).all()
    array = solvers.learn_spn(FRAME.to_numpy())
    np.testing.assert_allclose(array.log_likelihood(FRAME.to_numpy()), density)


def test_a_solver_is_imported_when_it_is_used():
    code = "import sys, flwr_causal.solvers; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""Few rows are evaluated with numpy, many by compiled functions: the same numbers."""

import subprocess
import sys

import numpy as np
import pytest
from circuit_cases import MIXED, domain_of, mixed_rows, random_circuit, random_tree

from flwr_causal.core.circuits import layers
from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.leaves import chow_liu_tree
from flwr_causal.core.circuits.nodes import Sum

STATES = (2, 3, 4, 2, 3)


@pytest.fixture
def compiled(monkeypatch):
    """Call the function to leave every query to compiled functions."""

    def leave():
        monkeypatch.setattr(layers, "FEW", 0)
        monkeypatch.setattr(chow_liu_tree, "LOOKED_UP", 0)
        monkeypatch.setattr(chow_liu_tree, "SUMMED_OUT", 0)

    return leave


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_layers(seed, compiled):
    circuit = random_circuit(seed, MIXED, depth=4)
    rows = mixed_rows(np.random.default_rng(seed), 60, MIXED)
    leaf_values = circuit.layers.leaf_values(rows)
    few = circuit.log_likelihood(rows)
    probabilities = circuit.layers.state_probabilities(rows, 0, 2)
    best = circuit.layers.upward(leaf_values, maximise=True)
    compiled()
    np.testing.assert_allclose(circuit.log_likelihood(rows), few, rtol=1e-13)
    np.testing.assert_allclose(
        circuit.layers.state_probabilities(rows, 0, 2), probabilities, rtol=1e-12
    )
    np.testing.assert_allclose(circuit.layers.upward(leaf_values, maximise=True), best, rtol=1e-13)


@pytest.mark.few(1)
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_trees(missing, compiled):
    rng = np.random.default_rng(3)
    scope = list(range(len(STATES)))
    trees = [random_tree(rng, scope, STATES) for _ in range(3)]
    circuit = Circuit(domain_of(STATES), Sum(trees, np.full(3, 1 / 3)))
    rows = np.column_stack([rng.integers(k, size=80) for k in STATES]).astype(float)
    rows[rng.random(rows.shape) < missing] = np.nan
    few = circuit.log_likelihood(rows)
    single = [tree.log_density(rows) for tree in trees]
    compiled()
    np.testing.assert_allclose(circuit.log_likelihood(rows), few, rtol=1e-12)
    for tree, expected in zip(trees, single, strict=True):
        np.testing.assert_allclose(tree.log_density(rows), expected, rtol=1e-12)


def test_beliefs_that_are_too_small_for_a_float_are_scaled(compiled):
    """A star of 400 variables, of which the centre is missing: the density underflows."""
    states = (2,) * 401
    tables = (np.array([[0.5, 0.5]]), *[np.array([[0.01, 0.99], [0.02, 0.98]])] * 400)
    tree = chow_liu_tree.ChowLiuTree(tuple(range(401)), (-1, *[0] * 400), tables)
    row = np.zeros((1, len(states)))
    row[0, 0] = np.nan
    expected = np.logaddexp(400 * np.log(0.01), 400 * np.log(0.02)) + np.log(0.5)
    np.testing.assert_allclose(tree.log_density(row), expected)
    compiled()
    np.testing.assert_allclose(tree.log_density(row), expected)


def test_scoring_few_rows_compiles_nothing(tmp_path):
    circuit = random_circuit(1, MIXED, depth=3)
    circuit.save(tmp_path)
    code = (
        "import sys, numpy as np\n"
        "from flwr_causal.core.circuits.circuit import Circuit\n"
        f"circuit = Circuit.load({str(tmp_path)!r})\n"
        f"rows = np.zeros((100, {len(MIXED)}))\n"
        "assert np.isfinite(circuit.layers.log_densities(rows)).any()\n"
        "circuit.layers.state_probabilities(rows, 0, 2)\n"
        "print('numba' in sys.modules)\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"

"""Circuits as arrays and files: every digit comes back, damage is refused."""

from contextlib import suppress

import numpy as np
import pytest
from circuit_cases import (
    MIXED,
    domain_of,
    forest,
    mixed_rows,
    random_circuit,
    random_elliptical,
    random_leaf,
)
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.circuits import circuit
from flwr_causal.core.circuits.circuit import Circuit, packed, unpacked
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.leaves.univariate import Gaussian
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.errors import ConfigError, DataError


@given(st.integers(0, 10_000))
def test_arrays_hold_a_circuit_exactly(seed):
    circuit = random_circuit(seed, MIXED, depth=4)
    arrays = circuit.to_arrays()
    again = Circuit.from_arrays(circuit.domain, arrays)
    rows = mixed_rows(np.random.default_rng(seed), 30, MIXED)
    np.testing.assert_array_equal(again.log_likelihood(rows), circuit.log_likelihood(rows))
    assert again.num_nodes == circuit.num_nodes
    other = again.to_arrays()
    assert sorted(other) == sorted(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(other[name], array)
        assert other[name].dtype == array.dtype
        assert np.isfinite(array).all()


def test_arrays_are_compact():
    """Hardly more than the parameters themselves."""
    rng = np.random.default_rng(0)
    circuit = Circuit(domain_of([0 if j % 2 else 4 for j in range(20)]), forest(rng, range(20), 6))
    arrays = circuit.to_arrays()
    size = sum(array.nbytes for array in arrays.values())
    assert len(arrays) < 20
    # 8 bytes for each parameter, among them those that the others imply.
    assert size < 1.6 * 8 * circuit.num_parameters


def test_leaves_of_a_foreign_kind_cannot_be_written():
    class Other(Gaussian):
        kind = "other"

    circuit = Circuit(domain_of((0,)), Sum([Gaussian(0, 0, 1), Other(0, 1, 1)], [0.5, 0.5]))
    assert np.isfinite(circuit.log_likelihood([[0.3]]))
    with pytest.raises(ConfigError, match="'other' cannot be written"):
        circuit.to_arrays()


def test_files_hold_a_circuit_exactly(tmp_path):
    rng = np.random.default_rng(3)
    domain = Domain(
        (
            Variable("sex", ("f", "m"), missing_state=True),
            Variable("age", edges=(0.1, 1 / 3, 17.5), missing_state=True),
            Variable("on", (False, True)),
            Variable("x"),
            Variable("y"),
        )
    )
    root = Product(
        [
            Sum([random_leaf(rng, 0, 3), random_leaf(rng, 0, 3)], [1 / 3, 2 / 3]),
            random_leaf(rng, 1, 5),
            random_leaf(rng, 2, 2),
            random_elliptical(rng, (3, 4), 7.3),
        ]
    )
    circuit = Circuit(domain, root)
    circuit.save(tmp_path / "model")
    again = Circuit.load(tmp_path / "model")
    assert again.domain == domain
    frame = circuit.sample(50, seed=0)
    np.testing.assert_array_equal(again.log_likelihood(frame), circuit.log_likelihood(frame))
    assert again.sample(9, seed=1).equals(circuit.sample(9, seed=1))


def test_damaged_circuits_are_refused(tmp_path):
    circuit = random_circuit(0, MIXED)
    arrays = circuit.to_arrays()
    bad = [
        {**arrays, "inner.children": arrays["inner.children"][:-1]},
        {**arrays, "inner.children": arrays["inner.children"] + 1},
        {**arrays, "inner.weights": arrays["inner.weights"] * 2},
        {**arrays, "leaf_counts": arrays["leaf_counts"][:-1]},
        {**arrays, "leaf_counts": arrays["leaf_counts"] * 0},
        {name: array for name, array in arrays.items() if name != "inner.sizes"},
    ]
    for one in bad:
        with pytest.raises(DataError, match="no circuit"):
            Circuit.from_arrays(circuit.domain, one)
    with pytest.raises(DataError, match="does not hold a circuit"):
        Circuit.load(tmp_path)
    circuit.save(tmp_path)
    (tmp_path / "circuit.json").write_text('{"format": "flwr-causal circuit 0"}')
    with pytest.raises(DataError, match="of this version"):
        Circuit.load(tmp_path)


def test_packed_circuits_that_are_damaged_are_refused():
    circuits = [random_circuit(seed, MIXED) for seed in range(3)]
    data = packed(circuits, circuits[0].domain)
    rows = mixed_rows(np.random.default_rng(0), 20, MIXED)
    for one, again in zip(circuits, unpacked(data), strict=True):
        np.testing.assert_array_equal(one.log_likelihood(rows), again.log_likelihood(rows))
    rng = np.random.default_rng(1)
    changed = data.copy()
    changed[len(data) // 2 :: 97] ^= 0xFF
    for bad in (data[:0], data[:50], data[: len(data) // 2], data[::-1], changed):
        with pytest.raises(DataError, match="no circuits of this version"):
            unpacked(bad)
    for _ in range(60):  # whatever the bytes are, nothing else is raised
        noisy = data.copy()
        noisy[rng.integers(len(data), size=3)] = rng.integers(256, size=3)
        with suppress(DataError):
            unpacked(noisy)


def test_packed_circuits_of_another_version_or_size_are_refused(monkeypatch):
    one = random_circuit(0, MIXED)
    data = packed([one], one.domain)
    monkeypatch.setattr(circuit, "FORMAT", "flwr-causal circuit 9")
    with pytest.raises(DataError, match="of the format 'flwr-causal circuit 1' instead of"):
        unpacked(data)
    monkeypatch.undo()
    monkeypatch.setattr(circuit, "MOST_BYTES", 100)
    with pytest.raises(DataError, match="at most 100 are read"):
        unpacked(data)

"""Acyclicity: finite differences, definitions, exhaustive small graphs, repairs."""

import itertools

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from small_graphs import h_logdet

from flwr_causal.core.graphs.acyclicity import (
    ancestors,
    break_cycles,
    cyclic_components,
    h_exponential,
    is_acyclic,
    strong_components,
    topological_order,
)


def random_weights(seed, d, fill, scale=0.6):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, d)) * (rng.random((d, d)) < fill) * scale


def all_graphs(d):
    """Every directed graph on d nodes, self loops included for d <= 3."""
    cells = list(itertools.product(range(d), repeat=2))
    for bits in itertools.product([False, True], repeat=len(cells)):
        yield np.array(bits).reshape(d, d)


def has_cycle_by_powers(adjacency):
    """A cycle exists iff some power of the adjacency has a nonzero diagonal."""
    power = adjacency.astype(int)
    for _ in range(len(adjacency)):
        if np.trace(power):
            return True
        power = np.minimum(power @ adjacency, 1)
    return False


@pytest.mark.parametrize("measure", [h_exponential, h_logdet, lambda w: h_logdet(w, 2.0)])
@pytest.mark.parametrize("fill", [0.15, 0.4, 1.0])
def test_gradient_by_finite_differences(measure, fill):
    weights = random_weights(1, 6, fill, 0.3)
    value, gradient = measure(weights)
    step = 1e-6
    numeric = np.zeros_like(weights)
    for i, j in itertools.product(range(6), repeat=2):
        moved = np.zeros_like(weights)
        moved[i, j] = step
        numeric[i, j] = (measure(weights + moved)[0] - measure(weights - moved)[0]) / (2 * step)
    assert value > 0 or is_acyclic(weights)
    np.testing.assert_allclose(gradient, numeric, atol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_blockwise_values_are_the_definitions(seed):
    weights = random_weights(seed, 9, 0.18, 0.5)
    exponential = scipy.linalg.expm(weights * weights)
    value, gradient = h_exponential(weights)
    assert value == pytest.approx(np.trace(exponential) - 9, abs=1e-12)
    np.testing.assert_allclose(gradient, 2 * exponential.T * weights, atol=1e-12)
    matrix = 1.5 * np.eye(9) - weights * weights
    value, gradient = h_logdet(weights, 1.5)
    assert value == pytest.approx(9 * np.log(1.5) - np.log(np.linalg.det(matrix)), abs=1e-12)
    np.testing.assert_allclose(gradient, 2 * np.linalg.inv(matrix).T * weights, atol=1e-12)


def test_both_vanish_on_dags_only():
    for adjacency in all_graphs(3):
        weights = 0.5 * adjacency
        for value, gradient in (h_exponential(weights), h_logdet(weights)):
            assert (value == 0) == (not has_cycle_by_powers(adjacency))
            assert (value == 0) == (not gradient.any())


def test_logdet_is_infinite_outside_its_domain():
    weights = np.array([[0.0, 2.0], [1.0, 0.0]])  # spectral radius of W * W is 2
    assert h_logdet(weights, 2.1)[0] < np.inf
    for s in (1.9, 1.0):
        value, gradient = h_logdet(weights, s)
        assert value == np.inf
        assert not gradient.any()
    # two negative eigenvalues make the determinant positive again; still outside
    double = np.kron(np.eye(2), np.array([[0.0, 2.0], [2.0, 0.0]]))
    double[1, 2] = double[3, 0] = 1e-3
    assert np.linalg.det(np.eye(4) - double**2) > 0
    assert h_logdet(double, 1.0)[0] == np.inf


def test_overflow_is_infinite_not_an_error():
    assert h_exponential(np.full((3, 3), 30.0))[0] == np.inf


def test_every_graph_of_three_nodes():
    for adjacency in all_graphs(3):
        cyclic = has_cycle_by_powers(adjacency)
        assert is_acyclic(adjacency) == (not cyclic)
        assert bool(cyclic_components(adjacency)) == cyclic
        assert ancestors(adjacency).diagonal().any() == cyclic
        if cyclic:
            with pytest.raises(ValueError, match="cycle"):
                topological_order(adjacency)
        else:
            order = topological_order(adjacency)
            position = np.argsort(order)
            i, j = np.nonzero(adjacency)
            assert (position[i] < position[j]).all()


def test_topological_ties_go_by_index():
    adjacency = np.zeros((12, 12))
    adjacency[11, 0] = 1
    assert topological_order(adjacency) == [*range(1, 12), 0]
    assert topological_order(np.zeros((0, 0))) == []


def test_topological_ties_go_by_name_where_names_are_given():
    rng = np.random.default_rng(0)
    adjacency = np.triu(rng.random((7, 7)) < 0.3, 1)
    names = list("cafdbge")
    expected = [names[k] for k in topological_order(adjacency, names)]
    assert expected[0] == min(names[k] for k in np.flatnonzero(~adjacency.any(axis=0)))
    for _ in range(5):
        places = rng.permutation(7)
        other = [names[k] for k in places]
        order = topological_order(adjacency[np.ix_(places, places)], other)
        assert [other[k] for k in order] == expected


def test_components():
    adjacency = np.zeros((6, 6))
    adjacency[[0, 3, 3, 1, 5], [3, 0, 1, 2, 5]] = 1  # 0 <-> 3 -> 1 -> 2, a loop at 5
    labels = strong_components(adjacency)
    assert labels[0] == labels[3]
    assert len(set(labels)) == 5
    assert [list(block) for block in cyclic_components(adjacency)] == [[0, 3], [5]]


def test_ancestors_by_matrix_powers():
    for seed in range(5):
        adjacency = random_weights(seed, 7, 0.2) != 0
        reached = np.linalg.matrix_power(np.eye(7) + adjacency, 7) @ adjacency > 0
        np.testing.assert_array_equal(ancestors(adjacency), reached)


def plain_break_cycles(weights, required):
    """Edges from weak to strong, each removed if it lies on a cycle by then."""
    result = weights.copy()
    edges = sorted(np.argwhere(weights), key=lambda e: (abs(weights[tuple(e)]), *e))
    for i, j in edges:
        if not required[i, j] and ancestors((result != 0) | required)[j, i] | (i == j):
            result[i, j] = 0
    return result


@given(
    seed=st.integers(0, 10**6),
    d=st.integers(1, 7),
    fill=st.floats(0.1, 1.0),
    kept=st.integers(0, 4),
)
def test_break_cycles_property(seed, d, fill, kept):
    weights = np.round(random_weights(seed, d, fill), 1)  # rounding makes ties and zeros
    rng = np.random.default_rng(seed)
    upper = np.argwhere(np.triu(np.ones((d, d)), 1))
    required = np.zeros((d, d), dtype=bool)
    for i, j in rng.permutation(upper)[:kept]:
        required[i, j] = True
    before = weights.copy()
    result = break_cycles(weights, required)
    np.testing.assert_array_equal(weights, before)
    assert is_acyclic((result != 0) | required)
    np.testing.assert_array_equal(result[required], weights[required])
    assert set(np.unique(result)) <= {0.0, *np.unique(weights)}
    np.testing.assert_array_equal(result, plain_break_cycles(weights, required))


def test_break_cycles_removes_the_weakest_and_nothing_else():
    weights = np.zeros((4, 4))
    weights[0, 1], weights[1, 2], weights[2, 0], weights[3, 0] = 1.0, -0.2, 0.5, 0.01
    result = break_cycles(weights)
    assert result[1, 2] == 0
    assert np.count_nonzero(result) == 3
    required = np.zeros((4, 4), dtype=bool)
    required[1, 2] = True
    assert break_cycles(weights, required)[2, 0] == 0


def test_a_required_cycle_is_an_error():
    required = np.array([[0, 1], [1, 0]], dtype=bool)
    with pytest.raises(ValueError, match="required edges form a directed cycle"):
        break_cycles(np.zeros((2, 2)), required)

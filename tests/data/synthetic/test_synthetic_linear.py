import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.data.synthetic.linear import (
    STANDARD_NOISE,
    SyntheticSystem,
    federated_linear,
    linear_system,
)
from flwr_causal.data.synthetic.random_graphs import erdos_renyi, scale_free
from flwr_causal.errors import ConfigError, DataError

CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]])


def is_dag(adjacency):
    return nx.is_directed_acyclic_graph(nx.from_numpy_array(adjacency, create_using=nx.DiGraph))


@given(d=st.integers(1, 15), seed=st.integers(0, 10_000), data=st.data())
def test_erdos_renyi_has_exactly_its_edges_and_no_cycle(d, seed, data):
    num_edges = data.draw(st.integers(0, d * (d - 1) // 2))
    adjacency = erdos_renyi(d, num_edges, seed)
    assert adjacency.shape == (d, d)
    assert adjacency.sum() == num_edges
    assert is_dag(adjacency)


@given(d=st.integers(2, 20), seed=st.integers(0, 10_000), data=st.data())
def test_scale_free_has_exactly_its_edges_and_no_cycle(d, seed, data):
    m = data.draw(st.integers(1, d - 1))
    adjacency = scale_free(d, m, seed)
    assert adjacency.sum() == m * (d - m)
    assert is_dag(adjacency)


def test_edges_are_uniform_over_ordered_pairs():
    counts = sum(erdos_renyi(4, 3, seed).astype(int) for seed in range(3000))
    off_diagonal = counts[~np.eye(4, dtype=bool)]
    # 9000 edges over 12 ordered pairs; 5 standard deviations of a count are about 130
    np.testing.assert_allclose(off_diagonal, 750, atol=130)


def test_scale_free_has_hubs_with_causes_and_effects():
    def largest(adjacency):
        return (adjacency.sum(axis=0) + adjacency.sum(axis=1)).max()

    hubs = np.mean([largest(scale_free(100, 1, seed)) for seed in range(20)])
    plain = np.mean([largest(erdos_renyi(100, 99, seed)) for seed in range(20)])
    assert hubs > 1.7 * plain
    for seed in range(5):
        adjacency = scale_free(200, 1, seed)
        hub = np.argmax(adjacency.sum(axis=0) + adjacency.sum(axis=1))
        assert adjacency[hub].any()
    # networkx draws from the same law: mean of the largest degree over many graphs
    reference = [
        max(dict(nx.barabasi_albert_graph(100, 2, seed=seed).degree).values()) for seed in range(60)
    ]
    own = [largest(scale_free(100, 2, seed)) for seed in range(60)]
    assert np.mean(own) == pytest.approx(np.mean(reference), rel=0.15)


def test_coefficients_and_noise_are_in_their_bounds():
    adjacency = erdos_renyi(30, 200, 0)
    system = linear_system(adjacency, 1)
    np.testing.assert_array_equal(system.weights != 0, adjacency)
    size = np.abs(system.weights[adjacency])
    assert size.min() >= 0.5
    assert size.max() <= 2.0
    assert size.mean() == pytest.approx(1.25, abs=0.1)
    assert (system.weights > 0).sum() == pytest.approx(100, abs=25)
    assert not np.signbit(system.weights[~adjacency]).any()
    np.testing.assert_array_equal(system.noise_scale, 1.0)
    unequal = linear_system(adjacency, 1, noise_scale=(0.5, 3.0))
    assert unequal.noise_scale.min() < 1.0
    assert unequal.noise_scale.max() > 2.0


@pytest.mark.parametrize("noise", ["gaussian", "gumbel", "exponential", "uniform"])
def test_samples_have_the_covariance_of_the_system(noise):
    system = linear_system(CHAIN, 0, noise_scale=(0.5, 2.0))
    rows = system.sample(200_000, 1, noise)
    assert list(rows.columns) == ["x0", "x1", "x2"]
    total = np.linalg.inv(np.eye(3) - system.weights)
    expected = total.T @ np.diag(system.noise_scale**2) @ total
    np.testing.assert_allclose(np.cov(rows.T, bias=True), expected, rtol=0.03)
    np.testing.assert_allclose(rows.mean(), 0.0, atol=0.02 * np.sqrt(expected.max()))


@pytest.mark.parametrize(
    ("noise", "skewness", "kurtosis"),
    [("gaussian", 0, 3), ("gumbel", 1.1395, 5.4), ("exponential", 2, 9), ("uniform", 0, 1.8)],
)
def test_noise_has_its_shape(noise, skewness, kurtosis):
    e = STANDARD_NOISE[noise](np.random.default_rng(0), (400_000, 1))
    assert (e**3).mean() == pytest.approx(skewness, abs=0.08)
    assert (e**4).mean() == pytest.approx(kurtosis, rel=0.05)


def test_rows_obey_the_equations():
    system = SyntheticSystem(np.array([[0.0, 2.0], [0.0, 0.0]]), np.array([1.0, 1e-9]))
    rows = system.sample(50, 0)
    np.testing.assert_allclose(rows["x1"], 2 * rows["x0"], atol=1e-7)


def test_one_generator_drives_a_whole_simulation():
    """The stream is used in a fixed order: pairs, order, sizes, signs, noise."""
    d, n = 10, 30
    rng = np.random.default_rng([1, d, n, 0])
    rows, columns = np.triu_indices(d, 1)
    pick = rng.choice(len(rows), size=d, replace=False)
    order = rng.permutation(d)
    mask = np.zeros((d, d))
    mask[order[rows[pick]], order[columns[pick]]] = 1.0
    weights = mask * rng.uniform(0.5, 2.0, (d, d)) * rng.choice([-1.0, 1.0], (d, d))
    noise = rng.standard_normal((n, d))

    rng = np.random.default_rng([1, d, n, 0])
    system = linear_system(erdos_renyi(d, d, rng), rng)
    np.testing.assert_array_equal(system.weights, weights)
    X = system.sample(n, rng).to_numpy()
    np.testing.assert_allclose(X - X @ weights, noise, atol=1e-11)


def test_federation_is_the_same_data_for_every_number_of_parties():
    whole, truth = federated_linear(5, 60, 1, seed=3)
    for num_parties in (2, 7):
        parties, weights = federated_linear(5, 60, num_parties, seed=3)
        np.testing.assert_array_equal(weights, truth)
        assert len(parties) == num_parties
        np.testing.assert_array_equal(np.vstack(parties), whole[0].to_numpy())
    assert (truth != 0).sum() == 5
    other, _ = federated_linear(5, 60, 1, seed=4)
    assert not np.array_equal(other[0], whole[0])


def test_federation_options():
    parties, weights = federated_linear(
        20, 100, 4, "sf", 0, edges_per_node=2, noise="uniform", partition="uneven"
    )
    assert (weights != 0).sum() == 2 * 18
    sizes = [len(part) for part in parties]
    assert sum(sizes) == 100
    assert len(set(sizes)) > 1
    # Two variables have one pair only.
    assert (federated_linear(2, 10, 2)[1] != 0).sum() == 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: erdos_renyi(3, 4, 0), ConfigError, "4 edges among 3 variables.*between 0 and 3"),
        (lambda: erdos_renyi(0, 0, 0), ConfigError, "0 variables"),
        (lambda: scale_free(3, 3, 0), ConfigError, "3 edges per node.*between 1 and 2"),
        (lambda: scale_free(3, 0, 0), ConfigError, "0 edges per node"),
        (lambda: linear_system(CHAIN + CHAIN.T, 0), ConfigError, "no directed cycle"),
        (lambda: linear_system(np.eye(2), 0), ConfigError, "no directed cycle"),
        (lambda: linear_system(CHAIN[:2], 0), ConfigError, r"shape \(2, 3\)"),
        (lambda: linear_system(CHAIN, 0, noise_scale=0.0), ConfigError, "noise_scale 0.0"),
        (lambda: linear_system(CHAIN, 0).sample(3, 0, "pink"), ConfigError, "noise is 'pink'"),
        (lambda: linear_system(CHAIN, 0).sample(-1, 0), ConfigError, "must not be negative"),
        (lambda: federated_linear(3, 9, 3, "tree"), ConfigError, "graph is 'tree'"),
        (lambda: federated_linear(3, 2, 3), DataError, "2 rows are too few for 3 parties"),
    ],
)
def test_bad_arguments(call, error, words):
    with pytest.raises(error, match=words):
        call()

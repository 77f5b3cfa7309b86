"""Simulated nonlinear systems: the trace of each mechanism, graphs, sizes, what parties share."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from flwr_causal.data.synthetic import nonlinear
from flwr_causal.data.synthetic.nonlinear import (
    MECHANISMS,
    PAPER_MECHANISMS,
    deal_packages,
    federated_nonlinear,
    simulate_nonlinear,
)
from flwr_causal.errors import ConfigError, DataError

CHAIN = np.array([[0, 1], [0, 0]])


def no_noise(name, causes, seed=0):
    """Return the function that a mechanism adds its noise to."""
    causes = np.asarray(causes, dtype=float).reshape(len(causes), -1)
    return MECHANISMS[name](causes, np.zeros(len(causes)), np.random.default_rng(seed))


# Mechanisms, each against what defines it


def test_the_linear_mechanism_is_linear_with_weights_from_the_papers_range():
    weights = np.concatenate([no_noise("lg", np.eye(3), seed) for seed in range(200)])
    assert ((np.abs(weights) >= 0.5) & (np.abs(weights) <= 2)).all()
    assert (weights > 0).mean() == pytest.approx(0.5, abs=0.08)
    assert np.abs(weights).mean() == pytest.approx(1.25, abs=0.08)
    np.testing.assert_allclose(no_noise("lg", [[1, 2, 3]]), [1, 2, 3] @ no_noise("lg", np.eye(3)))


def test_the_network_has_a_hundred_sigmoid_units_and_no_biases():
    """f(x) + f(-x) is the sum of the outer weights, twice f(0); its range is theirs as well."""
    x = np.random.default_rng(0).standard_normal((50, 2))
    at_zero = no_noise("anm-mlp", np.zeros((1, 2)))
    both = no_noise("anm-mlp", x) + no_noise("anm-mlp", -x)
    np.testing.assert_allclose(both, np.full(50, 2 * at_zero[0]), atol=1e-10)
    # The mean square of a weight from +-[0.5, 2] is 1.75; f(0) is half the sum of a hundred.
    starts = [no_noise("anm-mlp", np.zeros((1, 2)), seed)[0] for seed in range(400)]
    assert np.std(starts) == pytest.approx(0.5 * np.sqrt(100 * 1.75), rel=0.12)
    # Far away each unit is 0 or 1: the difference of the ends is a signed sum of the weights.
    ends = [np.ptp(no_noise("anm-mlp", [[-1e4], [1e4]], seed)) for seed in range(400)]
    assert np.sqrt(np.mean(np.square(ends))) == pytest.approx(np.sqrt(100 * 1.75), rel=0.12)


def test_the_gaussian_process_has_its_covariance_and_is_additive():
    points = np.array([-2.0, -1.0, 0.0, 0.5, 3.0])
    draws = np.array([no_noise("add-gp", points, seed) for seed in range(4000)])
    expected = np.exp(-0.5 * np.subtract.outer(points, points) ** 2)
    np.testing.assert_allclose(np.cov(draws.T), expected, atol=0.1)  # standard error below 0.023
    np.testing.assert_allclose(draws.mean(axis=0), 0, atol=0.08)
    # Two causes on a grid: a sum of functions has no interaction, and the variance of both.
    grid = np.array([[a, b] for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
    corners = np.array([no_noise("add-gp", grid, seed) for seed in range(2000)])
    np.testing.assert_allclose(corners @ [1, -1, -1, 1], 0, atol=1e-6)
    assert corners[:, 0].var() == pytest.approx(2, rel=0.15)


def test_a_draw_of_the_gaussian_process_is_smooth_and_the_same_far_from_the_origin():
    x = np.sort(np.random.default_rng(0).uniform(-4, 4, 1500))
    f = no_noise("add-gp", x)
    # The derivative of this process has variance 1.
    assert np.abs(np.diff(f) / np.maximum(np.diff(x), 1e-6)).max() < 5
    np.testing.assert_allclose(
        no_noise("add-gp", x[:100] + 1e3), no_noise("add-gp", x[:100]), atol=1e-4
    )
    assert np.ptp(no_noise("add-gp", np.full(10, 2.0))) == 0
    # Points without relation to each other take as many columns as there are.
    assert no_noise("add-gp", 100.0 * np.arange(800)).std() == pytest.approx(1, abs=0.1)


def test_the_index_model_is_three_waves_of_weighted_sums():
    rng = np.random.default_rng(3)
    first, second, third = (nonlinear._weights(rng, 2) for _ in range(3))
    x = np.random.default_rng(0).standard_normal((20, 2))
    expected = np.tanh(x @ first) + np.cos(x @ second) + np.sin(x @ third)
    np.testing.assert_allclose(no_noise("mim", x, 3), expected)


def test_the_threshold_mechanism_is_one_step_for_each_cause():
    x = np.linspace(-3, 3, 2001)
    for seed in range(20):
        f = no_noise("threshold", x, seed)
        jump = np.flatnonzero(np.diff(f))
        assert len(jump) == 1
        assert -1 <= x[jump[0]] <= 1
        assert 0.5 <= abs(f[0]) <= 2
        assert f[-1] == -f[0]


def test_the_multiplicative_mechanism_scales_the_noise_and_leaves_the_mean_linear():
    x = np.linspace(-3, 3, 101)[:, None]
    rng = np.random.default_rng
    mean = no_noise("multiplicative", x)
    np.testing.assert_allclose(np.diff(mean, 2), 0, atol=1e-12)
    scale = MECHANISMS["multiplicative"](x, np.ones(101), rng(0)) - mean
    assert scale.min() == pytest.approx(np.exp(-1), rel=0.1)
    assert scale.max() == pytest.approx(np.exp(1), rel=0.1)
    assert scale[50] == pytest.approx(1)
    twice = MECHANISMS["multiplicative"](x, np.full(101, 2.0), rng(0)) - mean
    np.testing.assert_allclose(twice, 2 * scale)


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "multiplicative"])
def test_the_noise_of_the_others_is_standard_and_added(name):
    x = np.random.default_rng(0).standard_normal((30, 3))
    noise = np.random.default_rng(1).standard_normal(30)
    with_noise = MECHANISMS[name](x, noise, np.random.default_rng(0))
    np.testing.assert_allclose(with_noise - no_noise(name, x), noise, atol=1e-12)


# Systems


@pytest.mark.parametrize("name", MECHANISMS)
def test_variables_without_causes_are_standard_noise_and_others_depend_on_theirs(name):
    rows = simulate_nonlinear(CHAIN, 4000, name, 5)
    assert rows.shape == (4000, 2)
    assert stats.kstest(rows[:, 0], "norm").pvalue > 1e-3
    # Within a narrow range of the cause the effect varies less, or its variance differs by range.
    bins = pd.qcut(rows[:, 0], 20, labels=False)
    means = [rows[bins == b, 1].mean() for b in range(20)]
    assert np.var(means) > 0.1


def test_causes_come_before_effects_in_any_order_of_the_columns():
    """Permuted, the columns would follow from other rows: they must be filled in causal order."""

    def doubled(causes, noise, rng):
        return 2 * causes.sum(axis=1) + 0 * noise

    backwards = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]])
    rows = simulate_nonlinear(backwards, 10, doubled, 0)
    np.testing.assert_array_equal(rows[:, 1], 2 * rows[:, 2])
    np.testing.assert_array_equal(rows[:, 0], 4 * rows[:, 2])
    assert rows[:, 2].std() > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((2, 2)), 5, "lg", 0), "no directed cycle"),
        ((np.ones((2, 3)), 5, "lg", 0), r"shape \(2, 3\)"),
        ((CHAIN, -1, "lg", 0), "rows is -1"),
        ((CHAIN, 5, "mlp", 0), r"\['mlp'\]: choose .* anm-mlp"),
    ],
)
def test_bad_systems_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        simulate_nonlinear(*arguments)


# Packages


@given(K=st.integers(1, 40), extra=st.integers(0, 600), seed=st.integers(0))
def test_packages_cover_all_rows_and_each_party_has_one(K, extra, seed):
    lengths = deal_packages(K * 50 + extra, K, seed)
    assert sum(lengths) == K * 50 + extra
    assert min(lengths) >= 50
    odd = [length for length in lengths if length % 50]
    assert len(odd) <= 1


def test_packages_are_dealt_as_in_the_paper():
    dealt = np.array([deal_packages(2000, 10, seed) for seed in range(500)])
    assert (dealt % 50 == 0).all()
    # 30 packages go to ten parties at random: a binomial number to each.
    extra = dealt / 50 - 1
    assert extra.mean() == 3
    assert extra.var() == pytest.approx(2.7, rel=0.1)
    np.testing.assert_allclose(dealt.mean(axis=0), 200, rtol=0.1)
    with pytest.raises(DataError, match="9 packages of 50 for 10 parties: give 500 rows"):
        deal_packages(499, 10, 0)


# Federations


def test_the_graph_depends_on_the_variables_its_kind_and_the_seed_only():
    def graph(**options):
        return federated_nonlinear(
            options.pop("num_variables", 12), 400, options.pop("num_parties", 4), **options
        )[1].adjacency

    reference = graph()
    assert reference.sum() == 12
    for options in (
        {"num_parties": 8},
        {"mechanisms": "mim"},
        {"iid": True},
        {"sizes": "uneven"},
        {"mechanisms": ("threshold", "multiplicative")},
    ):
        np.testing.assert_array_equal(graph(**options), reference)
    assert not np.array_equal(graph(seed=1), reference)
    assert graph(degree=4).sum() == 24
    assert graph(degree=100).sum() == 66
    assert not graph(degree=0).any()
    hubs = graph(graph="sf", num_variables=40)
    assert hubs.sum() == 39
    assert (hubs + hubs.T).sum(axis=0).max() > (g := graph(num_variables=40) * 1).sum(axis=0).max()
    assert nx.is_directed_acyclic_graph(nx.from_numpy_array(g, create_using=nx.DiGraph))


def test_parties_of_one_system_share_it_and_parties_that_differ_do_not():
    edge = {"degree": 1, "mechanisms": "lg"}  # two variables, one edge

    def slopes(**options):
        parties, truth = federated_nonlinear(2, 20_000, 10, **edge, **options)
        ((i, j),) = np.argwhere(truth.adjacency)
        return [np.polyfit(frame[f"x{i}"], frame[f"x{j}"], 1)[0] for frame in parties]

    assert np.std(slopes(iid=True)) < 0.05
    apart = np.sort(slopes(iid=False))
    assert np.diff(apart).min() > 0.0
    assert np.std(apart) > 0.5


def test_the_rows_of_one_system_are_the_same_for_every_number_of_parties():
    few, many = (
        pd.concat(federated_nonlinear(5, 300, K, mechanisms="add-gp", iid=True)[0]) for K in (2, 6)
    )
    np.testing.assert_array_equal(few, many)


def test_a_partys_functions_do_not_depend_on_the_others():
    few, many = (federated_nonlinear(5, 50 * K, K)[0] for K in (3, 6))
    for a, b in zip(few, many, strict=False):
        pd.testing.assert_frame_equal(a, b)
    assert not np.allclose(few[0], few[1])


def test_parties_draw_from_the_papers_mechanisms_alike(monkeypatch):
    drawn = []

    def recorded(adjacency, num_rows, mechanism, seed):
        drawn.append(mechanism)
        return np.zeros((num_rows, len(adjacency)))

    monkeypatch.setattr(nonlinear, "simulate_nonlinear", recorded)
    federated_nonlinear(3, 1600, 800)
    counts = pd.Series(drawn).value_counts()
    assert set(counts.index) == set(PAPER_MECHANISMS)
    assert stats.chisquare(counts).pvalue > 1e-3
    drawn.clear()
    federated_nonlinear(3, 1600, 800, mechanisms=["mim"])
    assert set(drawn) == {"mim"}
    drawn.clear()
    federated_nonlinear(3, 1600, 800, iid=True)
    assert len(drawn) == 1


def test_sizes_and_names():
    even, truth = federated_nonlinear(11, 2003, 10)
    assert sorted(map(len, even)) == [200] * 7 + [201] * 3
    assert list(even[0].columns) == [f"x{j}" for j in range(11)] == list(truth.names)
    assert all(isinstance(frame.index, pd.RangeIndex) for frame in even)
    uneven, _ = federated_nonlinear(4, 2000, 10, sizes="uneven")
    assert len({len(frame) for frame in uneven}) > 2
    assert sum(map(len, uneven)) == 2000
    shared, _ = federated_nonlinear(4, 2000, 10, sizes="uneven", iid=True)
    assert [len(frame) for frame in shared] == [len(frame) for frame in uneven]
    alone, graph = federated_nonlinear(1, 5, 1)
    assert alone[0].shape == (5, 1)
    assert graph.names == ("x0",)


# Median and 90th percentile of the standard deviations of ten variables on graphs with ten edges,
# 200 rows, as an independent simulator gave them over 400 graphs (2000 of the networks): measured.
REFERENCE_SPREADS = {
    "lg": (1.481, 3.675),
    "anm-mlp": (1.113, 4.508),
    "add-gp": (1.098, 1.532),
    "mim": (1.242, 1.776),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PAPER_MECHANISMS)
def test_the_spread_of_the_variables_is_that_of_the_papers_data(name):
    spreads = [
        federated_nonlinear(10, 200, 1, mechanisms=name, seed=seed)[0][0].std()
        for seed in range(100)
    ]
    found = np.quantile(np.concatenate(spreads), [0.5, 0.9])
    np.testing.assert_allclose(found, REFERENCE_SPREADS[name], rtol=0.15)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_parties": 0}, ConfigError, "0 parties"),
        ({"mechanisms": ()}, ConfigError, "choose one or more of lg"),
        ({"mechanisms": ("lg", "cubic")}, ConfigError, "'cubic'"),
        ({"graph": "ring"}, ConfigError, "'ring'"),
        ({"degree": -1}, ConfigError, "degree is -1"),
        ({"sizes": "odd"}, ConfigError, "'odd'"),
        ({"num_rows": 7}, DataError, "7 rows for 4 parties"),
        ({"num_rows": 150, "sizes": "uneven"}, DataError, "3 packages"),
    ],
)
def test_bad_federations_are_refused(options, error, message):
    arguments = {"num_variables": 5, "num_rows": 400, "num_parties": 4} | options
    with pytest.raises(error, match=message):
        federated_nonlinear(**arguments)

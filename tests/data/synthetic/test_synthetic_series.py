"""Simulated series: the paper's graphs, the distribution of the series, the count of rows."""

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_lyapunov

from flwr_causal.core.series.design import companion_radius
from flwr_causal.data.synthetic.series import dynamic_system, federated_dynamic, simulate_series
from flwr_causal.errors import ConfigError, DataError

# The system


@given(
    d=st.integers(1, 8),
    order=st.integers(1, 3),
    degree=st.floats(0, 1),
    decay=st.floats(1, 3),
    seed=st.integers(0, 10_000),
)
def test_every_system_is_acyclic_within_a_slice_and_stationary(d, order, degree, decay, seed):
    W, A = dynamic_system(d, order, lagged_degree=degree * d / 4, decay=decay, seed=seed)
    assert W.shape == (d, d)
    assert A.shape == (order, d, d)
    assert nx.is_directed_acyclic_graph(nx.from_numpy_array(W, create_using=nx.DiGraph))
    assert companion_radius(W, A) < 1
    present = np.abs(W[W != 0])
    assert ((present >= 0.3) & (present <= 0.5)).all()
    for lag, effects in enumerate(A):
        past = np.abs(effects[effects != 0]) * decay**lag
        assert ((past >= 0.3 - 1e-12) & (past <= 0.5 + 1e-12)).all()


def test_the_graphs_have_the_papers_densities_and_weights_of_both_signs():
    systems = [dynamic_system(10, 2, seed=seed) for seed in range(300)]
    W, A = (np.array(blocks) for blocks in zip(*systems, strict=True))
    # 45 pairs at probability 0.4 and 100 edges at 0.1; five standard errors of the mean.
    assert (W != 0).sum(axis=(1, 2)).mean() == pytest.approx(18, abs=5 * np.sqrt(10.8 / 300))
    for lag in range(2):
        counts = (A[:, lag] != 0).sum(axis=(1, 2))
        assert counts.mean() == pytest.approx(10, abs=5 * np.sqrt(9 / 300))
    assert (A[:, 0].diagonal(axis1=1, axis2=2) != 0).mean() == pytest.approx(0.1, abs=0.03)
    assert (W[W != 0] > 0).mean() == pytest.approx(0.5, abs=0.04)
    assert (A[A != 0] > 0).mean() == pytest.approx(0.5, abs=0.04)
    # The order is random: no place has more edges than others.
    assert (W != 0).mean(axis=0)[~np.eye(10, dtype=bool)].min() > 0.1


def test_options_of_the_system():
    W, A = dynamic_system(9, 2, instantaneous_degree=0, lagged_degree=0, seed=0)
    assert not W.any()
    assert not A.any()
    complete, _ = dynamic_system(6, instantaneous_degree=6, weight_range=(0.1, 0.1), seed=0)
    assert np.count_nonzero(complete) == 15
    assert set(np.abs(complete[complete != 0])) == {0.1}
    hubs, _ = dynamic_system(12, graph="sf", seed=0)
    assert np.count_nonzero(hubs) == 2 * (12 - 2)
    _, lagged = dynamic_system(4, 3, lagged_degree=4, decay=4, weight_range=(0.1, 0.1), seed=0)
    np.testing.assert_allclose(
        np.abs(lagged), 0.1 / 4.0 ** np.arange(3)[:, None, None] + 0 * lagged
    )
    same = [dynamic_system(5, 2, seed=3)[1] for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert not np.array_equal(same[0], dynamic_system(5, 2, seed=4)[1])


def test_systems_that_are_not_stationary_are_drawn_again():
    # At this density most draws explode: without a second draw one of these would have stayed.
    radii = [
        companion_radius(*dynamic_system(6, lagged_degree=2, weight_range=(0.5, 0.8), seed=seed))
        for seed in range(20)
    ]
    assert max(radii) < 1


def test_when_no_system_can_be_stationary_the_error_says_what_to_lower():
    with pytest.raises(ConfigError, match=r"none of 1000 .* stationary: lower weight_range"):
        dynamic_system(3, lagged_degree=3, instantaneous_degree=0, weight_range=(5, 6), seed=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, "order is 0"),
        ({"weight_range": (0.5, 0.3)}, "low <= high"),
        ({"weight_range": (0, 0.3)}, "0 < low"),
        ({"decay": 0.5}, "decay 0.5"),
        ({"instantaneous_degree": -1}, "degrees are -1"),
        ({"lagged_degree": 6}, "at most 5 lagged"),
        ({"graph": "ring"}, "'ring'"),
    ],
)
def test_bad_systems_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        dynamic_system(5, **options)


# The series


def residuals(series, W, A):
    order = len(A)
    past = sum(series[order - k : len(series) - k] @ A[k - 1] for k in range(1, order + 1))
    return series[order:] - series[order:] @ W - past


def test_what_the_system_leaves_is_white_noise_of_the_given_size():
    W, A = dynamic_system(4, 2, seed=1)
    (series,) = simulate_series(W, A, [30_000], noise_std=[1, 2, 0.5, 1], seed=0)
    noise = residuals(series, W, A)
    scale = np.array([1, 2, 0.5, 1])
    np.testing.assert_allclose(np.cov(noise.T) / np.outer(scale, scale), np.eye(4), atol=0.04)
    for lag in (1, 2, 3):
        now, before = noise[lag:] / scale, noise[:-lag] / scale
        np.testing.assert_allclose(now.T @ before / len(now), 0, atol=0.04)
    np.testing.assert_allclose(noise.mean(axis=0) / scale, 0, atol=0.04)


@pytest.mark.slow
def test_series_start_in_the_stationary_distribution():
    rng = np.random.default_rng(0)
    A = rng.choice([-1, 1], (1, 3, 3)) * 0.5
    A *= 0.97 / companion_radius(np.zeros((3, 3)), A)
    W = np.array([[0, 0.5, 0], [0, 0, -0.4], [0, 0, 0]])
    A *= 0.97 / companion_radius(W, A)
    total = np.linalg.inv(np.eye(3) - W)
    expected = solve_discrete_lyapunov((A[0] @ total).T, total.T @ total)
    first = np.concatenate(simulate_series(W, A, [1] * 6000, seed=0))
    unit = np.outer(*[np.sqrt(np.diag(expected))] * 2)
    np.testing.assert_allclose(np.cov(first.T) / unit, expected / unit, atol=0.05)
    assert (np.diag(expected) > 2 * np.diag(total.T @ total)).any()
    cold = np.concatenate(simulate_series(W, A, [1] * 6000, burn_in=0, seed=0))
    np.testing.assert_allclose(np.cov(cold.T), total.T @ total, atol=0.06)


def test_an_effect_comes_as_late_as_its_lag_says_and_runs_from_row_to_column():
    A = np.zeros((2, 2, 2))
    A[1, 0, 1] = 3
    (series,) = simulate_series(np.zeros((2, 2)), A, [4000], seed=0)
    x, y = series.T
    late = [np.corrcoef(x[: len(x) - lag], y[lag:])[0, 1] for lag in range(4)]
    assert late[2] > 0.9
    assert max(abs(late[0]), abs(late[1]), abs(late[3])) < 0.1


def test_series_scale_with_the_noise_and_have_their_own_lengths_and_noise():
    W, A = dynamic_system(3, 2, seed=0)
    ones = simulate_series(W, A, [5, 1, 8], seed=2)
    twos = simulate_series(W, A, [5, 1, 8], noise_std=2, seed=2)
    assert [series.shape for series in ones] == [(5, 3), (1, 3), (8, 3)]
    for one, two in zip(ones, twos, strict=True):
        np.testing.assert_allclose(two, 2 * one)
    assert not np.allclose(ones[0], ones[2][:5])
    assert not np.allclose(ones[0], simulate_series(W, A, [5], seed=3)[0])


def test_an_explosive_system_needs_a_burn_in_that_is_given():
    W, A = np.zeros((2, 2)), 1.1 * np.eye(2)[None]
    with pytest.raises(ConfigError, match=r"not stationary \(spectral radius 1\.1\)"):
        simulate_series(W, A, [50])
    (series,) = simulate_series(W, A, [50], burn_in=0, seed=0)
    np.testing.assert_allclose(np.cov(residuals(series, W, A).T), np.eye(2), atol=0.7)
    assert np.abs(series[-1]).max() > 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": np.zeros((2, 3))}, r"shape \(2, 3\)"),
        ({"lagged": np.zeros((2, 2))}, "lagged of shape"),
        ({"lagged": np.zeros((1, 3, 3))}, "lagged of shape"),
        ({"noise_std": -1}, "noise_std is -1"),
        ({"noise_std": [1, 1, 1]}, "or 2 of them"),
        ({"lengths": []}, r"lengths are \[\]"),
        ({"lengths": [4, 0]}, "at least one length"),
        ({"burn_in": -1}, "burn_in -1"),
    ],
)
def test_bad_series_are_refused(arguments, message):
    good = {"weights": np.zeros((2, 2)), "lagged": np.zeros((1, 2, 2)), "lengths": [4]}
    with pytest.raises(ConfigError, match=message):
        simulate_series(**{**good, **arguments})


# The federation


@given(order=st.integers(1, 3), parties=st.integers(1, 5), each=st.integers(1, 3), data=st.data())
def test_usable_rows_are_counted_as_in_the_paper(order, parties, each, data):
    num_rows = data.draw(st.integers(2 * parties * each, 60))
    federation, truth = federated_dynamic(
        3, num_rows, parties, order=order, series_per_party=each, seed=0
    )
    assert len(federation) == parties
    series = [federation] if each == 1 else federation
    assert {len(party) for party in series} == ({parties} if each == 1 else {each})
    usable = [len(frame) - order for party in series for frame in party]
    assert sum(usable) == num_rows
    assert max(usable) - min(usable) <= 1
    assert truth.lagged.shape == (order, 3, 3)
    assert all(tuple(frame.columns) == truth.names for party in series for frame in party)


def test_the_truth_does_not_depend_on_rows_parties_and_series():
    graphs = [
        federated_dynamic(5, n, K, series_per_party=M, order=2, seed=7)[1]
        for n, K, M in [(40, 2, 1), (90, 8, 1), (64, 4, 3)]
    ]
    assert graphs[0].equals(graphs[1])
    assert graphs[0].equals(graphs[2])
    assert not graphs[0].equals(federated_dynamic(5, 40, 2, order=2, seed=8)[1])


def test_the_truth_explains_the_series():
    parties, truth = federated_dynamic(
        4, 30_000, 3, order=2, noise_std=0.5, weight_range=(0.2, 0.4), graph="sf", seed=0
    )
    noise = np.concatenate([residuals(p.to_numpy(), truth.weights, truth.lagged) for p in parties])
    np.testing.assert_allclose(np.cov(noise.T), 0.25 * np.eye(4), atol=0.02)
    assert truth.kind == "dag"
    assert np.abs(truth.weights).max() <= 0.4
    assert truth.num_edges == 4


def test_the_seed_decides_everything():
    first, again, other = (federated_dynamic(3, 20, 2, seed=s)[0] for s in (1, 1, 2))
    pd.testing.assert_frame_equal(first[1], again[1])
    assert not first[1].equals(other[1])


def test_options_reach_the_system():
    _, truth = federated_dynamic(
        5, 20, 2, instantaneous_degree=0, lagged_degree=5, decay=5.0, order=2,
        weight_range=(0.1, 0.1), seed=0,
    )  # fmt: skip
    assert truth.num_edges == 0
    np.testing.assert_allclose(np.abs(truth.lagged[1]), 0.02)


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        ((19, 10, 1), DataError, "19 usable rows for 10 series.*at least 20"),
        ((39, 10, 2), DataError, "39 usable rows for 20 series"),
        ((20, 0, 1), ConfigError, "0 parties"),
        ((20, 2, 0), ConfigError, "0 series each"),
    ],
)
def test_too_few_rows_and_no_parties_are_refused(sizes, error, message):
    rows, parties, each = sizes
    with pytest.raises(error, match=message):
        federated_dynamic(3, rows, parties, series_per_party=each)

"""The lagged design: rows, names, masks, blocks, graphs, stationarity."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.series.design import (
    companion_radius,
    join_blocks,
    knowledge_masks,
    lagged_graph,
    lagged_names,
    lagged_rows,
    split_blocks,
)
from flwr_causal.errors import ConfigError, DataError


def simulate(now, lagged, steps, seed, burn_in=100):
    """A series of the model with unit noise, shape (steps, d)."""
    rng = np.random.default_rng(seed)
    d, order = len(now), len(lagged)
    solved = np.linalg.inv(np.eye(d) - now)
    values = [np.zeros(d)] * order
    for _ in range(burn_in + steps):
        past = sum(values[-1 - lag] @ lagged[lag] for lag in range(order))
        values.append((past + rng.standard_normal(d)) @ solved)
    return np.array(values[-steps:])


@given(
    lengths=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    d=st.integers(1, 3),
    order=st.integers(0, 3),
)
def test_rows_are_those_of_a_plain_loop(lengths, d, order):
    rng = np.random.default_rng(sum(lengths))
    series = [rng.standard_normal((steps, d)) for steps in lengths]
    expected = [
        np.concatenate([values[t - lag] for lag in range(order + 1)])
        for values in series
        for t in range(order, len(values))
    ]
    rows = lagged_rows(series, order)
    assert rows.flags.c_contiguous
    assert rows.shape == (len(expected), d * (1 + order))
    np.testing.assert_array_equal(rows, np.reshape(expected, rows.shape))


@given(seed=st.integers(0, 10**6), order=st.integers(1, 3))
def test_second_moments_do_not_depend_on_the_order_of_series(seed, order):
    rng = np.random.default_rng(seed)
    series = [rng.standard_normal((steps, 2)) for steps in rng.integers(1, 9, size=5)]
    shuffled = [series[k] for k in rng.permutation(5)]
    one, two = lagged_rows(series, order), lagged_rows(shuffled, order)
    np.testing.assert_allclose(one.T @ one, two.T @ two, rtol=1e-12, atol=1e-12)
    # and are sums over parties that hold whole series
    parts = [lagged_rows([values], order) for values in series]
    np.testing.assert_allclose(sum(part.T @ part for part in parts), one.T @ one, atol=1e-12)


@pytest.mark.parametrize(
    ("series", "order", "error", "words"),
    [
        ([], 1, DataError, "no series"),
        ([np.zeros((3, 2)), np.zeros((3, 1))], 1, DataError, r"series 2 of 2 .*\(3, 1\).*steps, 2"),
        ([np.zeros(3)], 1, DataError, r"series 1 of 1 has shape \(3,\)"),
        ([np.zeros((3, 2))], -1, ConfigError, "order is -1"),
        ([np.zeros((3, 2))], 1.0, ConfigError, "order is 1.0"),
        ([np.zeros((3, 2))], True, ConfigError, "order is True"),
    ],
)
def test_rows_refuse(series, order, error, words):
    with pytest.raises(error, match=words):
        lagged_rows(series, order)


def test_names():
    assert lagged_names(["b", "a"], 2) == ("b", "a", "b[t-1]", "a[t-1]", "b[t-2]", "a[t-2]")
    assert lagged_names(["a"], 0) == ("a",)
    with pytest.raises(DataError, match=r"names repeat: a\[t-1\]"):
        lagged_names(["a", "a[t-1]"], 1)
    with pytest.raises(ConfigError, match="order is -2"):
        lagged_names(["a"], -2)


def test_masks_place_every_edge():
    known = Knowledge(
        required=[("b", "a")],
        required_lagged=[("a", "b", 2)],
        forbidden_lagged=[("a", "b", 1), ("a", "a", 2), ("b", "a"), ("b", "b", 2)],
    )
    masks = knowledge_masks(known, "ab", 2)
    expected = np.zeros((6, 6), dtype=bool)
    expected[1, 0] = expected[2, 0] = expected[3, 1] = expected[4, 1] = True
    np.testing.assert_array_equal(masks.allowed, expected)
    assert np.argwhere(masks.required).tolist() == [[1, 0], [4, 1]]
    free = knowledge_masks(None, "ab", 1)
    expected = np.zeros((4, 4), dtype=bool)
    expected[:, :2] = [[0, 1], [1, 0], [1, 1], [1, 1]]
    np.testing.assert_array_equal(free.allowed, expected)
    assert not free.required.any()


def test_masks_refuse():
    with pytest.raises(ConfigError, match="order is -1"):
        knowledge_masks(None, "ab", -1)
    with pytest.raises(ConfigError, match="b -> a at lag 1 is both required and forbidden"):
        Knowledge(required_lagged=[("b", "a", 1)], forbidden_lagged=[("b", "a")])


@pytest.mark.parametrize("front", [(), (3,), (2, 3)])
@pytest.mark.parametrize("order", [0, 1, 3])
def test_blocks_come_apart_and_together(front, order):
    weights = np.random.default_rng(0).standard_normal((*front, 2 * (1 + order), 2))
    now, lagged = split_blocks(weights)
    assert (now.shape, lagged.shape) == ((*front, 2, 2), (*front, order, 2, 2))
    np.testing.assert_array_equal(now, weights[..., :2, :])
    for lag in range(order):
        block = weights[..., 2 * (lag + 1) : 2 * (lag + 2), :]
        np.testing.assert_array_equal(lagged[..., lag, :, :], block)
    np.testing.assert_array_equal(join_blocks(now, lagged), weights)


def test_blocks_that_do_not_fit():
    with pytest.raises(DataError, match="multiple of 2 rows, got 5"):
        split_blocks(np.zeros((5, 2)))
    with pytest.raises(DataError, match="do not fit"):
        join_blocks(np.zeros((2, 3)), np.zeros((1, 3, 3)))
    with pytest.raises(DataError, match=r"\(2, 2\).*\(1, 3, 3\)"):
        join_blocks(np.zeros((2, 2)), np.zeros((1, 3, 3)))
    with pytest.raises(DataError, match="do not fit"):
        join_blocks(np.zeros((2, 2)), np.zeros((2, 2)))


STACKED = np.array(
    [
        [0.0, 0.9, 0.0],  # W: 0 -> 1 -> 2 -> 0, the last being the weakest
        [0.0, 0.0, -0.8],
        [0.5, 0.0, 0.0],
        [0.35, 0.0, 0.2],  # A_1
        [0.0, 0.3, 0.0],
        [0.0, 0.0, -0.6],
    ]
)


def test_graph_is_acyclic_now_and_cut_by_block():
    graph = lagged_graph("abc", STACKED, threshold_now=0.4, threshold_lagged=0.3)
    assert graph.edges() == [("a", "b", 0.9), ("b", "c", -0.8)]
    # a threshold is exceeded, not reached
    assert graph.lagged_edges() == [("a", "a", 1, 0.35), ("c", "c", 1, -0.6)]
    np.testing.assert_array_equal(join_blocks(graph.raw_weights, graph.raw_lagged), STACKED)
    assert graph.required is None
    all_lagged = lagged_graph("abc", STACKED, threshold_now=0.85, threshold_lagged=0.0)
    assert (all_lagged.num_edges, all_lagged.num_lagged_edges) == (1, 4)
    raw = STACKED * 2
    assert lagged_graph(
        "abc", STACKED, threshold_now=0.4, threshold_lagged=0.3, raw=raw
    ).raw_weights[0, 1] == pytest.approx(1.8)
    without = lagged_graph("abc", STACKED[:3], threshold_now=0.4, threshold_lagged=0.3)
    assert without.lagged is None
    assert without.num_edges == 2


def test_graph_honours_masks():
    known = Knowledge(
        required=[("c", "a")],
        required_lagged=[("a", "c", 1)],
        forbidden_lagged=[("c", "c", 1)],
    )
    masks = knowledge_masks(known, "abc", 1)
    graph = lagged_graph("abc", STACKED, threshold_now=0.6, threshold_lagged=0.3, masks=masks)
    # c -> a stays although it is weak, so that b -> c, the weakest of the others, has to go
    assert graph.edges() == [("a", "b", 0.9), ("c", "a", 0.5)]
    assert graph.lagged_edges() == [("a", "a", 1, 0.35), ("a", "c", 1, 0.2)]
    assert graph.raw_lagged[0, 2, 2] == 0
    assert np.argwhere(graph.required).tolist() == [[2, 0]]


@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf])
def test_graph_refuses_thresholds(value):
    with pytest.raises(ConfigError, match="threshold_now is"):
        lagged_graph("abc", STACKED, threshold_now=value, threshold_lagged=0.1)
    with pytest.raises(ConfigError, match="threshold_lagged is"):
        lagged_graph("abc", STACKED, threshold_now=0.1, threshold_lagged=value)


def test_radius_in_closed_form():
    none = np.zeros((2, 2))
    assert companion_radius(none, np.zeros((0, 2, 2))) == 0.0
    assert companion_radius(none, np.diag([0.5, -0.9])[None]) == pytest.approx(0.9)
    # x_t = a x_{t-2}: roots +-sqrt(a)
    assert companion_radius(np.zeros((1, 1)), np.array([[[0.0]], [[0.49]]])) == pytest.approx(0.7)
    # y_t = 2 x_t and x_t = y_{t-1} / 4 + noise, so that x_t = x_{t-1} / 2 + noise; with W
    # transposed y would have no cause at all
    now, lagged = np.array([[0.0, 2.0], [0.0, 0.0]]), np.array([[[0.0, 0.0], [0.25, 0.0]]])
    assert companion_radius(now, lagged) == pytest.approx(0.5)
    assert companion_radius(now.T, lagged) == pytest.approx(0.0, abs=1e-7)
    cyclic = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert companion_radius(cyclic, lagged) == np.inf


def test_radius_is_the_rate_of_decay():
    rng = np.random.default_rng(3)
    now = np.triu(rng.uniform(-0.5, 0.5, (4, 4)), 1)
    lagged = rng.uniform(-0.2, 0.2, (3, 4, 4))
    solved = np.linalg.inv(np.eye(4) - now)
    values = list(rng.standard_normal((3, 4)))
    for _ in range(600):
        values.append(sum(values[-1 - lag] @ lagged[lag] for lag in range(3)) @ solved)
    decay = (np.linalg.norm(values[-1]) / np.linalg.norm(values[-401])) ** (1 / 400)
    assert companion_radius(now, lagged) == pytest.approx(decay, abs=0.01)


def test_solvers_for_rows_find_the_system_over_time():
    now = np.array([[0.0, 0.8, 0.0], [0.0, 0.0, -0.7], [0.0, 0.0, 0.0]])
    lagged = np.array([np.diag([0.5, 0.4, 0.3]), [[0, 0, 0], [0, 0, 0], [0.4, 0, 0]]], dtype=float)
    assert companion_radius(now, lagged) < 1
    series = [simulate(now, lagged, steps, seed) for seed, steps in enumerate((800, 700, 500))]
    names = lagged_names("abc", 2)
    moments = SampleMoments.from_rows(lagged_rows(series, 2), names)
    masks = knowledge_masks(None, "abc", 2)
    solution = dagma(moments, sparsity=0.02, threshold=0.2, knowledge=masks, refit=True)
    assert not solution.weights[:, 3:].any()
    graph = lagged_graph(
        "abc",
        solution.weights[:, :3],
        threshold_now=0.2,
        threshold_lagged=0.2,
        raw=solution.raw_weights[:, :3],
        masks=masks,
    )
    np.testing.assert_allclose(graph.weights, now, atol=0.06)
    np.testing.assert_allclose(graph.lagged, lagged, atol=0.06)

"""LiNGAM by a federation: what the sums give is what the pooled rows give."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.metrics import structural_hamming_distance
from flwr_causal.errors import ConfigError
from flwr_causal.simulations import simulate
from flwr_causal.solvers import lingam

WEIGHTS = np.zeros((5, 5))
WEIGHTS[3, 0], WEIGHTS[0, 1], WEIGHTS[1, 4], WEIGHTS[3, 4] = 1.2, -0.8, 0.7, 0.9


def table(n=900, seed=0, noise="exponential"):
    rng = np.random.default_rng(seed)
    errors = getattr(rng, noise)(size=(n, 5))
    return errors @ np.linalg.inv(np.eye(5) - WEIGHTS)


ROWS = table()


def divided(rows, *edges):
    return np.split(rows, edges)


@pytest.mark.parametrize("edges", [(2, 5, 100, 850), range(30, 900, 30)])
def test_any_split_of_the_rows_gives_the_centralised_graph(edges):
    run = simulate("lingam", divided(ROWS, *edges))
    expected = lingam(ROWS)
    assert np.abs(run.graph.weights - expected.weights).max() < 1e-10
    assert structural_hamming_distance(WEIGHTS, run.graph.weights) == 0
    assert run.rounds <= 6
    assert run.warnings == []
    assert [record["exchange"] for record in run.history] == [
        "sums",
        *["residuals"] * (run.rounds - 1),
    ]


def test_units_do_not_matter():
    factors = np.array([1e3, 1e-3, 1.0, 20.0, 0.1])
    plain = simulate("lingam", divided(ROWS, 500))
    scaled = simulate("lingam", divided(ROWS * factors, 500))
    standard = simulate("lingam", divided(ROWS * factors, 500), standardize=True)
    for run in (scaled, standard):
        assert np.array_equal(run.graph.adjacency, plain.graph.adjacency)
        assert run.warnings == []
        # The model is in the units of the data.
        weights = run.model.weights * factors[:, None] / factors
        assert np.allclose(weights, plain.model.weights)
        assert np.allclose(run.scores, plain.scores)


def test_parties_with_levels_of_their_own():
    parties = [part + 50 * k for k, part in enumerate(divided(ROWS, 300, 600))]
    run = simulate("lingam", parties, center="party")
    assert structural_hamming_distance(WEIGHTS, run.graph.weights) == 0


def test_model_and_scores():
    run = simulate("lingam", divided(ROWS, 500), truth=WEIGHTS)
    assert run.metrics["shd"] == 0
    assert np.allclose(run.model.noise_variances, 1, atol=0.3)
    assert np.allclose(run.model.mean(), ROWS.mean(axis=0))
    assert (run.scores[WEIGHTS != 0].min()) > run.scores[WEIGHTS == 0].max()


def test_the_threshold_leaves_edges_out_and_refits():
    run = simulate("lingam", divided(ROWS, 500), threshold=0.75)
    assert run.graph.raw_weights[1, 4] == pytest.approx(0.7, abs=0.1)
    assert run.graph.raw_weights[3, 4] == pytest.approx(0.9, abs=0.1)
    # Without the first of these, the effect of x3 on x4 is 0.9 - 1.2 * 0.8 * 0.7, which is less.
    assert np.argwhere(run.graph.adjacency).tolist() == [[0, 1], [3, 0]]


def test_background_knowledge():
    known = Knowledge(required=[("x2", "x0")], forbidden=[("x3", "x4")])
    graph = simulate("lingam", divided(ROWS, 500), knowledge=known).graph
    assert graph.adjacency[2, 0]
    assert not graph.adjacency[3, 4]


def test_missing_values_and_precision():
    frames = [pd.DataFrame(part) for part in divided(ROWS, 500)]
    frames[0].iloc[3, 1] = np.nan
    run = simulate("lingam", frames, missing_values="drop", precision="float32")
    expected = lingam(np.delete(ROWS, 3, axis=0))
    assert np.array_equal(run.graph.adjacency, expected.adjacency)
    assert np.allclose(run.graph.weights, expected.weights, atol=1e-5)


def test_gaussian_noise_is_warned_of():
    run = simulate("lingam", divided(table(noise="standard_normal"), 400))
    (warning,) = run.warnings
    assert warning.startswith("The noise of 5 of 5 variables cannot be told from Gaussian noise")
    # x0 and x3 have no other neighbours in common: their direction is open.
    assert "x3 -> x0" in warning or "x0 -> x3" in warning
    order = Knowledge(tiers=[("x3",), ("x0",), ("x1",), ("x2", "x4")])
    assert simulate("lingam", divided(ROWS, 400), knowledge=order).warnings == []


def test_one_gaussian_variable_is_no_doubt():
    rng = np.random.default_rng(1)
    cause = rng.normal(size=2000)
    effect = cause + rng.uniform(-1, 1, 2000)
    run = simulate("lingam", divided(np.column_stack([effect, cause]), 900))
    assert run.graph.adjacency.tolist() == [[False, False], [True, False]]
    assert run.warnings == []


def test_a_search_that_is_cut_short():
    full = simulate("lingam", divided(ROWS, 500))
    run = simulate("lingam", divided(ROWS, 500), max_rounds=2)
    if full.rounds > 2:
        assert run.warnings[0].startswith("The search for the causal order was cut short")
        assert run.stop_reason == "2 exchanges are done"
    assert run.rounds == 2
    assert run.graph is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_rounds": 1}, "max_rounds"),
        ({"lagged_sparsity": 1.0, "order": 1}, "lagged_sparsity"),
        ({"center": "series"}, "center"),
        ({"center": "party", "order": 1}, "center"),
        ({"series_column": "x1"}, "series_column"),
    ],
)
def test_options_that_do_not_fit(options, message):
    with pytest.raises(ConfigError, match=message):
        simulate("lingam", [ROWS], **options)


def test_false_numbers_of_one_party():
    parties = np.split(table(2000), 10)
    parties[2] = parties[2] * np.array([1, -1, 1, 1, -1])
    found, robust = (
        simulate("lingam", parties, aggregation=how).graph.weights for how in ("mean", "median")
    )
    assert structural_hamming_distance(WEIGHTS, robust) == 0
    assert structural_hamming_distance(WEIGHTS, found) > 0


# Series.

NOW = np.array([[0, 0.9, 0], [0, 0, -0.8], [0, 0, 0]])
LAGGED = np.array([[0.5, 0, 0], [0, 0.4, 0], [0.4, 0, 0.3]])


def series(steps, seed, level=0.0):
    rng = np.random.default_rng(seed)
    reduced = np.linalg.inv(np.eye(3) - NOW)
    x = np.zeros((steps + 50, 3))
    for t in range(1, len(x)):
        x[t] = (x[t - 1] @ LAGGED + rng.uniform(-1.7, 1.7, 3)) @ reduced
    return x[50:] + level


SERIES = [series(400, 0, 5.0), series(250, 1, 5.0), series(300, 2, 5.0)]


def test_series_with_lags():
    apart = simulate("lingam", SERIES, order=1)
    together = simulate("lingam", [[SERIES[0], SERIES[1]], SERIES[2]], order=1)
    assert np.array_equal(apart.graph.adjacency, NOW != 0)
    assert np.array_equal(apart.graph.lagged[0] != 0, LAGGED != 0)
    assert np.allclose(apart.graph.lagged[0], LAGGED, atol=0.1)
    assert np.abs(apart.graph.weights - together.graph.weights).max() < 1e-10
    assert apart.scores.shape == (3, 3)
    assert apart.warnings == []
    # With more lags, those that do not act are left out.
    run = simulate("lingam", SERIES, order=2)
    assert np.array_equal(run.graph.lagged[0] != 0, LAGGED != 0)
    assert not run.graph.lagged[1].any()


def test_series_with_levels_of_their_own():
    levels = [one + 30 * k for k, one in enumerate(SERIES)]
    run = simulate("lingam", levels, order=1, center="series")
    assert np.array_equal(run.graph.adjacency, NOW != 0)
    assert np.array_equal(run.graph.lagged[0] != 0, LAGGED != 0)


def test_knowledge_about_lags():
    known = Knowledge(required_lagged=[("x1", "x0", 1)], forbidden_lagged=[("x2", "x0")])
    graph = simulate("lingam", SERIES, order=1, knowledge=known).graph
    assert graph.lagged[0, 1, 0] != 0
    assert graph.lagged[0, 2, 0] == 0

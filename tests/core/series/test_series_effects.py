"""Effects over time: impulse responses by simulation, standard errors, coverage."""

from dataclasses import replace

import numpy as np
import pytest
from lagged_systems import moments_of, simulate_series

from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.core.systems.linear import LinearModel, fit
from flwr_causal.errors import ConfigError, DataError

NOW = np.array([[0, 0.6, 0], [0, 0, -0.5], [0, 0, 0]])
FIRST = np.array([[0.5, 0, 0], [0.3, 0.2, 0], [0, 0, 0.4]])
SECOND = np.array([[0, 0, 0.4], [0, 0, 0], [0, -0.3, 0]])
NAMES = ("x0", "x1", "x2")


def system():
    return LinearModel(NAMES, NOW, np.ones(3), np.ones(3), lagged=np.array([FIRST, SECOND]))


def fitted(steps=150, seed=0):
    rows = lagged_rows([simulate_series(seed, steps, NOW, FIRST, SECOND)], 2)
    edges = np.concatenate([NOW, FIRST, SECOND]) != 0
    return rows, fit(moments_of(rows, 3), edges, 3)


def after(model, impulse, steps):
    """The change of two simulations with the same noise, one of them disturbed in one step."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(steps + 3, 3))
    runs = []
    for disturbed in (False, True):
        x = np.zeros((steps + 3, 3))
        for t in range(2, steps + 3):
            for j in range(3):  # in the order of causes
                past = x[t - 1] @ model.lagged[0, :, j] + x[t - 2] @ model.lagged[1, :, j]
                x[t, j] = model.intercepts[j] + x[t] @ model.weights[:, j] + past + noise[t, j]
                if t == 2 and NAMES[j] in impulse:
                    x[t, j] = runs[0][2, j] + impulse[NAMES[j]] if disturbed else x[t, j]
        runs.append(x)
    return (runs[1] - runs[0])[2:]


@pytest.mark.parametrize("impulse", [{"x0": 1.0}, {"x1": 2.0}, {"x0": 1.0, "x1": -1.0}])
def test_the_response_is_what_a_disturbed_simulation_shows(impulse):
    found = system().response(impulse, steps=6)
    assert tuple(found.columns) == NAMES
    assert found.index.name == "step"
    np.testing.assert_allclose(found, after(system(), impulse, 6), atol=1e-12)


def test_effects_with_a_lag_are_responses():
    _, model = fitted()
    found = model.response({"x0": 1.0}, steps=4)
    for lag in range(1, 5):
        for name in NAMES:
            effect = model.total_effect("x0", name, lag=lag)
            np.testing.assert_allclose(effect.value, found.loc[lag, name], atol=1e-12)
            assert effect.adjustment_set is None


def test_the_error_of_one_coefficient_is_the_regressions():
    """x2 acts on itself one step later by one path of one edge: no other coefficient matters."""
    rows, model = fitted()
    found = model.total_effect("x2", "x2", lag=1)
    design = np.column_stack([np.ones(len(rows)), rows[:, [1, 5, 6]]])
    coefficients, (squares,), *_ = np.linalg.lstsq(design, rows[:, 2])
    covariance = np.linalg.inv(design.T @ design) * squares / (len(rows) - 4)
    np.testing.assert_allclose(found.value, coefficients[2], rtol=1e-8)
    np.testing.assert_allclose(found.standard_error, np.sqrt(covariance[2, 2]), rtol=1e-8)


def test_errors_over_several_steps_are_those_of_the_numerical_gradient():
    _, model = fitted()
    found = model.total_effect("x0", "x2", lag=3)
    moments = model.sample_moments
    stacked = np.concatenate([model.weights, *model.lagged])
    variance = 0.0
    for j in range(3):
        parents = np.flatnonzero(stacked[:, j])
        gradient = []
        for i in parents:
            values = []
            for step in (-1e-5, 1e-5):
                moved = stacked.copy()
                moved[i, j] += step
                blocks = moved.reshape(3, 3, 3)
                other = LinearModel(NAMES, blocks[0], np.zeros(3), np.ones(3), lagged=blocks[1:])
                values.append(other.response({"x0": 1.0}, 3).loc[3, "x2"])
            gradient.append((values[1] - values[0]) / 2e-5)
        among = moments.second[np.ix_(parents, parents)]
        spread = np.array(gradient) @ np.linalg.solve(among, gradient)
        variance += spread * model.noise_variances[j] / (moments.n - 1 - len(parents))
    np.testing.assert_allclose(found.standard_error, np.sqrt(variance), rtol=1e-6)


def test_within_a_step_the_past_is_adjusted_for():
    rows, model = fitted()
    found = model.total_effect("x0", "x2")
    assert found.adjustment_set == ("x1[t-1]", "x2[t-1]", "x0[t-2]", "x2[t-2]")
    design = np.column_stack([np.ones(len(rows)), rows[:, [0, 4, 5, 6, 8]]])
    expected = np.linalg.lstsq(design, rows[:, 2])[0][1]
    np.testing.assert_allclose(found.value, expected, rtol=1e-8)
    assert model.total_effect("x2", "x0") == (0.0, 0.0, (0.0, 0.0), None)
    assert model.total_effect("x2", "x0", lag=1).value == 0
    assert model.total_effect("x2", "x1", lag=2).value < 0


def test_a_class_of_instantaneous_edges_has_possible_effects_within_a_step():
    """With the same causes in the past, the directions of a chain within a step are open."""
    rows, _ = fitted()
    chain = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    model = fit(moments_of(rows, 3), np.concatenate([chain, np.ones((6, 3))]), 3)
    one = replace(model, marks=chain | chain.T)
    past = one.sample_moments.names[3:]
    found = one.total_effect("x1", "x2")
    assert [own.adjustment_set for own in found] == [past, ("x0", *past), None]
    design = np.column_stack([np.ones(len(rows)), rows[:, [1, *range(3, 9)]]])
    np.testing.assert_allclose(found[0].value, np.linalg.lstsq(design, rows[:, 2])[0][1])
    with pytest.raises(ConfigError, match="stands for an equivalence class"):
        one.total_effect("x1", "x2", lag=1)
    directed = replace(model, marks=chain)
    assert directed.total_effect("x1", "x2", lag=1) == [model.total_effect("x1", "x2", lag=1)]


def test_holding_a_variable_cuts_all_its_causes():
    held = system().do({"x1": 2.0})
    series = held.sample(50, seed=1)
    np.testing.assert_allclose(series["x1"], 2.0, atol=1e-12)
    assert not held.lagged[:, :, 1].any()
    np.testing.assert_allclose(held.mean()[1], 2.0)
    assert held.sample_moments is None


def test_what_is_kept_of_the_rows_is_saved(tmp_path):
    _, model = fitted()
    model.save(tmp_path / "model.json")
    found = LinearModel.load(tmp_path / "model.json")
    assert found.total_effect("x0", "x2", lag=2) == model.total_effect("x0", "x2", lag=2)


def test_families_suffice_for_an_effect_within_a_step():
    _, model = fitted()
    whole = model.sample_moments
    second = np.array(whole.second)
    second[0, 2] = second[2, 0] = np.nan
    rows = SampleMoments(whole.n, whole.mean, second, whole.names)
    found = replace(model, sample_moments=rows).total_effect("x0", "x2")
    assert found.adjustment_set is None
    np.testing.assert_allclose(found.value, model.weights[0, 1] * model.weights[1, 2])


def test_bad_arguments():
    _, model = fitted()
    for lag in (-1, 1.0, "1", None, True):
        with pytest.raises(ConfigError, match=f"lag is {lag!r}: expected 0, 1, 2"):
            model.total_effect("x0", "x1", lag=lag)
    with pytest.raises(ConfigError, match="both 'x0'"):
        model.total_effect("x0", "x0")
    with pytest.raises(DataError, match="unknown variable"):
        model.response({"y": 1.0})
    with pytest.raises(ConfigError, match="steps is -1"):
        model.response({"x0": 1.0}, steps=-1)
    with pytest.raises(ConfigError, match="no moments"):
        system().total_effect("x0", "x1")


@pytest.mark.nightly
def test_intervals_cover_the_true_effects_over_time():
    true = system()
    expected = true.response({"x0": 1.0}, 4)["x2"]
    hits = []
    for seed in range(600):
        _, model = fitted(300, seed=1000 + seed)
        for lag in range(5):
            low, high = model.total_effect("x0", "x2", lag=lag).interval
            hits.append(low <= expected[lag] <= high)
    assert 0.93 <= np.mean(hits) <= 0.97


def test_errors_after_steps_count_the_rows_that_are_seen():
    """Of cells that are seen in half of the steps, all in the same ones."""
    rows, model = fitted()
    seen = np.full((9, 9), len(rows) / 2)
    halved = replace(model, sample_moments=replace(model.sample_moments, together=seen))
    one, half = (own.total_effect("x0", "x1", lag=2) for own in (model, halved))
    assert half.value == one.value
    # Of each regression on three columns.
    ratio = np.sqrt((len(rows) - 4) / (len(rows) // 2 - 4))
    np.testing.assert_allclose(half.standard_error, ratio * one.standard_error, rtol=2e-3)


def test_a_class_with_rows_of_each_variable_has_no_effects_over_time():
    _, model = fitted()
    own = tuple(replace(model.sample_moments) for _ in NAMES)
    marks = (NOW != 0) | (NOW != 0).T
    in_class = replace(model, sample_moments=own, marks=marks)
    for cause, effect in (("x0", "x1"), ("x2", "x0")):
        with pytest.raises(ConfigError, match="under interventions, need the directions"):
            in_class.total_effect(cause, effect)
        with pytest.raises(ConfigError, match="rows that are the same for all variables"):
            in_class.possible_effects(cause, effect)
    directed = replace(in_class, marks=NOW != 0)
    (one,) = directed.total_effect("x0", "x1")
    assert one.adjustment_set is None
    assert one.value == pytest.approx(model.weights[0, 1])

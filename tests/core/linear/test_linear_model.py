"""Linear systems: fit, density, sampling and prediction against independent formulas."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.regression import implied_noise, refit, regress
from flwr_causal.core.systems.linear import LinearModel, fit
from flwr_causal.errors import DataError

NAMES = ("a", "b", "c", "d")


def model():
    weights = np.zeros((4, 4))
    weights[2, 0], weights[0, 1], weights[2, 1], weights[1, 3] = 1.5, -0.7, 0.4, 2.0
    return LinearModel(
        NAMES, weights, np.array([1.0, -2.0, 0.5, 3.0]), np.array([0.5, 1.0, 2.0, 0.3])
    )


def test_noise_follows_from_weights_and_variances():
    system = model()
    found = implied_noise(system.weights, np.diag(system.covariance()))
    np.testing.assert_allclose(found, system.noise_variances, rtol=1e-12)
    too_strong = implied_noise(1.5 * system.weights, np.diag(system.covariance()))
    assert (too_strong[[0, 3]] < 0).all()


def test_density_is_the_multivariate_normals():
    system = model()
    X = np.random.default_rng(0).standard_normal((7, 4)) * 2
    expected = multivariate_normal(system.mean(), system.covariance()).logpdf(X)
    np.testing.assert_allclose(system.log_likelihood(X), expected, rtol=1e-10)
    # by name, whatever the columns' order and whatever else is there
    frame = pd.DataFrame(X, columns=list(NAMES))[["d", "b", "a", "c"]].assign(other=1.0)
    np.testing.assert_allclose(system.log_likelihood(frame), expected, rtol=1e-10)


def test_mean_and_covariance_from_the_definition():
    system = model()
    inverse = np.linalg.inv(np.eye(4) - system.weights)
    np.testing.assert_allclose(system.mean(), system.intercepts @ inverse)
    np.testing.assert_allclose(
        system.covariance(), inverse.T @ np.diag(system.noise_variances) @ inverse
    )


def test_samples_converge_and_are_reproducible():
    system = model()
    X = system.sample(200_000, seed=1)
    np.testing.assert_allclose(X.mean(axis=0), system.mean(), atol=0.05)
    np.testing.assert_allclose(
        np.cov(X.T, bias=True), system.covariance(), atol=0.02 * system.covariance().max()
    )
    np.testing.assert_array_equal(system.sample(3, seed=5), system.sample(3, seed=5))
    assert (system.sample(3, seed=5) != system.sample(3, seed=6)).all()


def test_fit_is_exact_on_population_moments():
    system = model()
    moments = SampleMoments(100, system.mean(), system.covariance(), NAMES)
    fitted = fit(moments, system.weights)
    np.testing.assert_allclose(fitted.weights, system.weights, atol=1e-12)
    np.testing.assert_allclose(fitted.intercepts, system.intercepts, atol=1e-12)
    np.testing.assert_allclose(fitted.noise_variances, system.noise_variances, atol=1e-12)


def test_fit_is_least_squares_with_intercept_on_rows():
    X = model().sample(50, seed=3)
    fitted = fit(SampleMoments.from_rows(X, NAMES), model().weights)
    design = np.column_stack([X[:, [0, 2]], np.ones(50)])
    expected, squares, *_ = np.linalg.lstsq(design, X[:, 1], rcond=None)
    np.testing.assert_allclose(fitted.weights[[0, 2], 1], expected[:2], rtol=1e-9)
    assert fitted.intercepts[1] == pytest.approx(expected[2])
    assert fitted.noise_variances[1] == pytest.approx(squares[0] / 50)


def test_fit_maximizes_the_likelihood():
    X = model().sample(60, seed=4)
    fitted = fit(SampleMoments.from_rows(X, NAMES), model().weights)
    best = fitted.log_likelihood(X).sum()
    rng = np.random.default_rng(0)
    for _ in range(20):
        support = fitted.weights != 0
        near = LinearModel(
            NAMES,
            fitted.weights + 0.02 * rng.standard_normal((4, 4)) * support,
            fitted.intercepts + 0.02 * rng.standard_normal(4),
            fitted.noise_variances * np.exp(0.05 * rng.standard_normal(4)),
        )
        assert near.log_likelihood(X).sum() < best


def test_predict_reads_parents_only():
    system = model()
    frame = pd.DataFrame({"c": [1.0, 2.0], "a": [0.0, -1.0]})
    np.testing.assert_allclose(
        system.predict(frame, "b"), -2.0 - 0.7 * frame["a"] + 0.4 * frame["c"]
    )
    np.testing.assert_allclose(system.predict(frame, "c"), [0.5, 0.5])
    X = system.sample(5, seed=0)
    np.testing.assert_allclose(system.predict(X, "d"), 3.0 + 2.0 * X[:, 1])
    with pytest.raises(DataError, match="b"):
        system.predict(frame, "d")
    with pytest.raises(DataError, match="unknown variable 'z'"):
        system.predict(frame, "z")


def test_dependent_parents_get_the_least_norm_solution():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 3))
    X[:, 1] = X[:, 0]
    X[:, 2] = 2 * X[:, 0]
    second = SampleMoments.from_rows(X).second
    coefficients, residual = regress(second, np.array([0, 1]), 2)
    np.testing.assert_allclose(coefficients, [1.0, 1.0], rtol=1e-6)
    assert residual == pytest.approx(0, abs=1e-10)
    assert residual >= 0


def test_tiny_units_are_not_singular():
    second = np.diag([1e-12, 1e12, 1.0])
    second[0, 2] = second[2, 0] = 0.5e-6
    second[1, 2] = second[2, 1] = 0.5e6
    coefficients, residual = regress(second, np.array([0, 1]), 2)
    np.testing.assert_allclose(coefficients, [0.5e6, 0.5e-6])
    assert residual == pytest.approx(0.5)


def test_refit_keeps_the_support():
    moments = SampleMoments.from_rows(model().sample(40, seed=0))
    adjacency = model().weights != 0
    np.testing.assert_array_equal(refit(moments, adjacency) != 0, adjacency)
    assert not refit(moments, np.zeros((4, 4))).any()


def test_round_trip(tmp_path):
    fitted = fit(SampleMoments.from_rows(model().sample(40, seed=0), NAMES), model().weights)
    path = tmp_path / "model.json"
    fitted.save(path)
    loaded = LinearModel.load(path)
    assert loaded.names == NAMES
    for field in ("weights", "intercepts", "noise_variances"):
        np.testing.assert_array_equal(getattr(loaded, field), getattr(fitted, field))
    path.write_text(json.dumps({"format": "something else"}))
    with pytest.raises(DataError, match="does not hold a linear model"):
        LinearModel.load(path)
    path.write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        LinearModel.load(path)


def test_bad_models():
    cycle = np.array([[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(DataError, match="cycle"):
        LinearModel(("a", "b"), cycle, np.zeros(2), np.ones(2))
    with pytest.raises(DataError, match="cycle"):
        fit(SampleMoments(5, np.zeros(2), np.eye(2), ("a", "b")), cycle)
    with pytest.raises(DataError, match="shape"):
        fit(SampleMoments(5, np.zeros(2), np.eye(2), ("a", "b")), np.zeros((3, 3)))
    with pytest.raises(DataError, match="weights"):
        LinearModel(("a", "b"), np.zeros((3, 3)), np.zeros(2), np.ones(2))
    with pytest.raises(DataError, match="negative"):
        LinearModel(("a",), np.zeros((1, 1)), np.zeros(1), np.array([-1.0]))
    silent = LinearModel(("a", "b"), np.zeros((2, 2)), np.zeros(2), np.array([1.0, 0.0]))
    with pytest.raises(DataError, match="b"):
        silent.log_likelihood(np.zeros((1, 2)))
    with pytest.raises(DataError, match="2 columns"):
        silent.predict(np.zeros((1, 3)), "a")


def test_predictions_in_a_class_are_regressions_on_possible_parents():
    """With the level too: the columns have means far from 0."""
    rng = np.random.default_rng(3)
    x = rng.normal(5, 1, 300)
    y = 2 * x - 7 + rng.normal(size=300)
    rows = np.column_stack([x, y, y + rng.normal(3, 1, 300)])
    chain = np.eye(3, k=1, dtype=bool)
    fitted = fit(SampleMoments.from_rows(rows, "xyz"), chain)
    in_class = replace(fitted, marks=chain | chain.T)
    columns = np.column_stack([rows[:, [0, 2]], np.ones(300)])
    solved = np.linalg.lstsq(columns, rows[:, 1], rcond=None)[0]
    np.testing.assert_allclose(in_class.predict(rows, "y"), columns @ solved, atol=0.05)
    assert not np.allclose(fitted.predict(rows, "y"), columns @ solved, atol=0.05)

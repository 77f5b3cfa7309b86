"""Linear systems over time: fit, prediction, density and sampling against independent formulas."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_lyapunov
from scipy.stats import multivariate_normal

from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.series.design import join_blocks, lagged_names, lagged_rows
from flwr_causal.core.systems.linear import LinearModel, fit
from flwr_causal.data.synthetic.series import dynamic_system, simulate_series
from flwr_causal.errors import ConfigError, DataError

FIELDS = ("weights", "lagged", "intercepts", "noise_variances")


def model(d=4, order=2, seed=0):
    weights, lagged = dynamic_system(d, order, instantaneous_degree=2.0, seed=seed)
    rng = np.random.default_rng(seed + 1)
    names = tuple(f"v{j}" for j in range(d))
    intercepts = rng.normal(0, 3, d)
    return LinearModel(names, weights, intercepts, rng.uniform(0.2, 2.0, d), lagged=lagged)


def changed(system, **fields):
    return LinearModel(
        **({name: getattr(system, name) for name in ("names", *FIELDS)} | fields),
    )


def stacked_moments(rows, names, order):
    return SampleMoments.from_rows(rows, lagged_names(names, order))


def edges_of(system):
    return join_blocks(system.weights, system.lagged) != 0


def companion(system):
    """Reduced form as one lag: ``z_t = z_{t-1} F + noise`` for ``z_t = [x_t, ..., x_{t-p+1}]``."""
    d, order = len(system.names), system.order
    inverse = np.linalg.inv(np.eye(d) - system.weights)
    F = np.eye(order * d, k=d)
    F[:, :d] = np.vstack([block @ inverse for block in system.lagged])
    noise = np.zeros((order * d, order * d))
    noise[:d, :d] = inverse.T @ np.diag(system.noise_variances) @ inverse
    return F, noise, inverse


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 100))
def test_fit_is_least_squares_with_intercept_on_rows(d, order, seed):
    system = model(d, order, seed)
    X = simulate_series(system.weights, system.lagged, [60], seed=seed)[0] * 2 + 5
    rows = lagged_rows([X], order)
    edges = edges_of(system)
    fitted = fit(stacked_moments(rows, system.names, order), edges, d)
    assert fitted.names == system.names
    assert fitted.order == order
    stacked = join_blocks(fitted.weights, fitted.lagged)
    for j in range(d):
        parents = np.flatnonzero(edges[:, j])
        design = np.column_stack([rows[:, parents], np.ones(len(rows))])
        expected = np.linalg.lstsq(design, rows[:, j], rcond=None)[0]
        np.testing.assert_allclose(stacked[parents, j], expected[:-1], rtol=1e-7, atol=1e-9)
        assert not np.delete(stacked[:, j], parents).any()
        np.testing.assert_allclose(fitted.intercepts[j], expected[-1], rtol=1e-7, atol=1e-8)
        squares = np.mean((rows[:, j] - design @ expected) ** 2)
        np.testing.assert_allclose(fitted.noise_variances[j], squares, rtol=1e-7)
    # its residuals are those of the regressions: of mean zero, and of these variances
    residuals = fitted.residuals(X)
    np.testing.assert_allclose(residuals.mean(axis=0), 0, atol=1e-8)
    np.testing.assert_allclose(residuals.var(axis=0), fitted.noise_variances, rtol=1e-7)


def test_fit_maximizes_the_likelihood():
    system = model()
    X = system.sample(80, seed=3)
    rows = lagged_rows([X.to_numpy()], 2)
    fitted = fit(stacked_moments(rows, system.names, 2), edges_of(system), 4)
    best = fitted.log_likelihood(X).sum()
    rng = np.random.default_rng(0)
    for _ in range(20):
        near = LinearModel(
            fitted.names,
            fitted.weights + 0.02 * rng.standard_normal((4, 4)) * (system.weights != 0),
            lagged=fitted.lagged + 0.02 * rng.standard_normal((2, 4, 4)) * (system.lagged != 0),
            intercepts=fitted.intercepts + 0.02 * rng.standard_normal(4),
            noise_variances=fitted.noise_variances * np.exp(0.05 * rng.standard_normal(4)),
        )
        assert near.log_likelihood(X).sum() < best


def test_fit_reads_families_only():
    system = model(d=5)
    rows = lagged_rows([system.sample(50, seed=1).to_numpy()], 2)
    moments = stacked_moments(rows, system.names, 2)
    edges = edges_of(system)
    second = np.full((15, 15), np.nan)
    for j in range(5):
        family = np.append(np.flatnonzero(edges[:, j]), j)
        second[np.ix_(family, family)] = moments.second[np.ix_(family, family)]
    assert np.isnan(second).any()
    partial = SampleMoments(moments.n, moments.mean, second, moments.names)
    square = np.zeros((15, 15), dtype=bool)
    square[:, :5] = edges
    expected = fit(moments, edges, 5)
    for fitted in (fit(partial, edges, 5), fit(partial, square, 5)):
        for field in FIELDS:
            np.testing.assert_array_equal(getattr(fitted, field), getattr(expected, field))
    cause, effect = np.argwhere(system.lagged[1])[0]
    second[10 + cause, effect] = second[effect, 10 + cause] = np.nan
    broken = SampleMoments(moments.n, moments.mean, second, moments.names)
    with pytest.raises(DataError, match=rf"v{effect} and v{cause}\[t-2\] is missing"):
        fit(broken, edges, 5)


def test_fit_takes_the_means_of_each_lag():
    names = ("a", "b")
    mean = np.array([1.0, 2.0, 1.5, -1.0])
    second = np.diag([2.0, 3.0, 1.0, 1.0])
    second[0, 3] = second[3, 0] = 0.5
    edges = np.zeros((4, 2), dtype=bool)
    edges[3, 0] = True
    fitted = fit(SampleMoments(9, mean, second, lagged_names(names, 1)), edges, 2)
    np.testing.assert_allclose(fitted.lagged, [[[0, 0], [0.5, 0]]])
    np.testing.assert_allclose(fitted.intercepts, [1.0 + 0.5, 2.0])
    np.testing.assert_allclose(fitted.noise_variances, [1.75, 3.0])


@given(st.integers(1, 5), st.integers(1, 3), st.integers(0, 100), st.integers(1, 9))
def test_predictions_and_residuals(d, order, seed, usable):
    system = model(d, order, seed)
    X = np.random.default_rng(seed).normal(1, 3, (usable + order, d))
    predicted, residuals = system.predict(X), system.residuals(X)
    assert predicted.shape == residuals.shape == (usable, d)
    np.testing.assert_allclose(
        (X[order:] - predicted) @ (np.eye(d) - system.weights), residuals, atol=1e-9
    )
    # step by step from the definition
    for t in range(order, len(X)):
        own = X[t] - X[t] @ system.weights - system.intercepts
        own -= sum(X[t - lag] @ system.lagged[lag - 1] for lag in range(1, order + 1))
        np.testing.assert_allclose(residuals[t - order], own, atol=1e-9)
    # what is to be predicted is not read
    X[-1] += 100.0
    np.testing.assert_array_equal(system.predict(X)[-1], predicted[-1])


def test_density_is_the_reduced_forms():
    system = model()
    X = np.random.default_rng(0).standard_normal((9, 4)) * 2
    _, noise, _ = companion(system)
    expected = [
        multivariate_normal(mean, noise[:4, :4]).logpdf(x)
        for mean, x in zip(system.predict(X), X[2:], strict=True)
    ]
    np.testing.assert_allclose(system.log_likelihood(X), expected, rtol=1e-10)


def test_columns_are_found_by_name():
    system = model()
    X = np.random.default_rng(0).standard_normal((6, 4))
    frame = pd.DataFrame(X, columns=list(system.names), index=[9, 8, 7, 1, 2, 3])
    frame = frame[["v3", "v1", "v0", "v2"]].assign(other="text")
    for method in ("predict", "residuals", "log_likelihood"):
        by_name, by_order = getattr(system, method)(frame), getattr(system, method)(X)
        np.testing.assert_array_equal(by_name, by_order)


@pytest.mark.slow
def test_a_long_sample_has_the_stationary_moments():
    system = model(d=4, order=2, seed=5)
    F, noise, inverse = companion(system)
    assert system.spectral_radius == pytest.approx(np.abs(np.linalg.eigvals(F)).max())
    X = system.sample(200_000, seed=1)
    assert list(X.columns) == list(system.names)
    covariance = solve_discrete_lyapunov(F.T, noise)[:4, :4]
    spread = np.sqrt(np.diagonal(covariance))
    # the fixed point of the reduced form
    mean = system.mean()
    step = mean @ (system.lagged.sum(axis=0) @ inverse) + system.intercepts @ inverse
    np.testing.assert_allclose(mean, step)
    assert (np.abs(mean) > spread).any()
    np.testing.assert_array_less(np.abs(X.to_numpy().mean(axis=0) - mean), 0.03 * spread)
    difference = np.cov(X.to_numpy().T, bias=True) - covariance
    np.testing.assert_array_less(np.abs(difference), 0.03 * np.outer(spread, spread))


def test_the_residuals_of_a_sample_are_its_noise():
    """A wrong lag or an effect that is lost anywhere would leave other residuals."""
    system = model(d=3, order=3, seed=2)
    X = system.sample(50_000, seed=0)
    residuals = system.residuals(X)
    np.testing.assert_allclose(residuals.mean(axis=0), 0, atol=0.03)
    correlation = np.corrcoef(residuals.T)
    np.testing.assert_allclose(correlation, np.eye(3), atol=0.02)
    np.testing.assert_allclose(residuals.var(axis=0), system.noise_variances, rtol=0.03)
    following = np.corrcoef(residuals[1:].T, residuals[:-1].T)[:3, 3:]
    np.testing.assert_allclose(following, 0, atol=0.02)
    still = changed(system, noise_variances=np.zeros(3)).sample(4, seed=0)
    np.testing.assert_allclose(still, np.tile(system.mean(), (4, 1)))


def test_seeds_and_burn_in():
    system = model()
    pd.testing.assert_frame_equal(system.sample(5, seed=3), system.sample(5, seed=3))
    assert (system.sample(5, seed=3) != system.sample(5, seed=4)).to_numpy().all()
    # the same noise, seen later
    long = system.sample(12, seed=3, burn_in=0)
    np.testing.assert_array_equal(system.sample(5, seed=3, burn_in=7), long[7:])


@pytest.mark.slow
def test_the_first_step_and_the_forgotten_start():
    system = model()
    # at the mean before the first step, so that this one is the mean and noise within the step
    _, noise, _ = companion(system)
    first = np.array([system.sample(1, seed=s, burn_in=0).to_numpy()[0] for s in range(1000)])
    limit = 0.1 * noise[:4, :4].max()
    np.testing.assert_allclose(np.cov(first.T, bias=True), noise[:4, :4], atol=limit)
    # the default forgets the start
    slow = LinearModel(
        ("a",), np.zeros((1, 1)), np.zeros(1), np.ones(1), lagged=np.full((1, 1, 1), 0.99)
    )
    last = [slow.sample(1, seed=s).to_numpy()[0, 0] for s in range(400)]
    assert np.var(last) == pytest.approx(1 / (1 - 0.99**2), rel=0.2)


def test_systems_that_are_not_stationary_predict_but_have_no_mean():
    walk = LinearModel(("a",), np.zeros((1, 1)), np.ones(1), np.ones(1), lagged=np.ones((1, 1, 1)))
    assert walk.spectral_radius == 1
    np.testing.assert_array_equal(walk.predict(np.array([[1.0], [3.0]])), [[2.0]])
    np.testing.assert_array_equal(walk.residuals(np.array([[1.0], [3.0]])), [[1.0]])
    for call in (walk.mean, lambda: walk.sample(3, seed=0), lambda: walk.sample(3, 0, burn_in=5)):
        with pytest.raises(DataError, match=r"not stationary \(spectral radius 1"):
            call()


def test_round_trip(tmp_path):
    system = model()
    path = tmp_path / "model.json"
    system.save(path)
    loaded = LinearModel.load(path)
    assert loaded.names == system.names
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(loaded, field), getattr(system, field))
    content = json.loads(path.read_text())
    del content["lagged"]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="without lagged"):
        LinearModel.load(path)
    path.write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        LinearModel.load(path)


def test_arrays_are_read_only_copies():
    given = np.zeros((1, 2, 2))
    system = LinearModel(("a", "b"), np.zeros((2, 2)), np.zeros(2), np.ones(2), lagged=given)
    given[0, 0, 0] = 1.0
    assert not system.lagged.any()
    for field in FIELDS:
        assert not getattr(system, field).flags.writeable
        assert getattr(system, field).dtype == np.float64


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lagged": np.zeros((4, 4))}, r"lagged of a linear model .* \(4, 4, 4\)"),
        ({"lagged": np.full((1, 4, 4), np.nan)}, r"lagged .* got nan at \(0, 0, 0\)"),
        ({"weights": np.zeros((3, 3))}, r"weights .* \(4, 4\), got shape \(3, 3\)"),
        ({"weights": 1 - np.eye(4)}, "cycle"),
        ({"weights": np.eye(4)}, "cycle"),
        ({"intercepts": np.zeros(3)}, "intercepts"),
        ({"intercepts": list("abcd")}, "intercepts .* finite numbers"),
        ({"noise_variances": -np.ones(4)}, "negative"),
        ({"names": ("a", "b", "a", "c")}, "names repeat: a"),
    ],
)
def test_bad_models(fields, message):
    with pytest.raises(DataError, match=message):
        changed(model(), **fields)


@pytest.mark.parametrize("method", ["predict", "residuals", "log_likelihood"])
def test_bad_series(method):
    system = model()
    call = getattr(system, method)
    frame = pd.DataFrame(np.ones((5, 4)), columns=list(system.names))
    assert len(call(frame[:3])) == 1
    with pytest.raises(DataError, match="2 rows, but a model with 2 lags needs at least 3"):
        call(frame[:2])
    with pytest.raises(DataError, match=r"lack the variables \['v1', 'v3'\]"):
        call(frame[["v0", "v2"]])
    with pytest.raises(DataError, match=r"array of 4 columns, got shape \(5, 3\)"):
        call(np.ones((5, 3)))
    with pytest.raises(DataError, match="not all numbers"):
        call(frame.assign(v2="text"))
    for bad in (np.nan, np.inf):
        holed = frame.copy()
        holed.loc[3, "v2"] = bad
        with pytest.raises(DataError, match="missing or infinite value of v2 in row 3"):
            call(holed)


def test_other_errors():
    system = model()
    silent = changed(system, noise_variances=np.array([1.0, 0.0, 1.0, 0.0]))
    with pytest.raises(DataError, match=r"\['v1', 'v3'\] have zero noise"):
        silent.log_likelihood(np.ones((5, 4)))
    with pytest.raises(ConfigError, match="steps is 0"):
        system.sample(0)
    with pytest.raises(ConfigError, match="burn_in -1"):
        system.sample(3, burn_in=-1)
    moments = stacked_moments(np.random.default_rng(0).normal(size=(30, 6)), "ab", 2)
    edges = np.zeros((6, 2), dtype=bool)
    with pytest.raises(DataError, match="6 columns are not those of 4"):
        fit(moments, edges, 4)
    with pytest.raises(DataError, match=r"shape \(4, 2\), expected \(6, 2\) or \(6, 6\)"):
        fit(moments, edges[:4], 2)
    cycle = edges.copy()
    cycle[0, 1] = cycle[1, 0] = True
    with pytest.raises(DataError, match="cycle"):
        fit(moments, cycle, 2)
    into_past = np.zeros((6, 6), dtype=bool)
    into_past[0, 2] = True
    with pytest.raises(DataError, match="into a lagged column"):
        fit(moments, into_past, 2)

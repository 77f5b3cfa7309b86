"""Ridge and lasso on lags: closed forms, optimality conditions, generic solvers, masks, units."""

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from lagged_systems import moments_of, random_rows

from flwr_causal.core.linear.moments import SampleMoments, merge
from flwr_causal.core.series import regression
from flwr_causal.core.series.regression import lasso, leading, order_of, ridge
from flwr_causal.errors import ConfigError, DataError

D = 4


def centred(rows):
    deviations = rows - rows.mean(axis=0)
    return deviations[:, :D], deviations[:, D:]


@pytest.mark.parametrize("penalty", [0.0, 0.01, 2.0])
@pytest.mark.parametrize("order", [1, 3])
def test_ridge_is_least_squares_with_added_rows(penalty, order):
    rows = random_rows(0, 60, D, order)
    now, past = centred(rows)
    q = past.shape[1]
    design = np.vstack([past, np.sqrt(len(rows) * penalty) * np.eye(q)])
    expected = np.linalg.lstsq(design, np.vstack([now, np.zeros((q, D))]), rcond=None)[0]
    weights = ridge(moments_of(rows, D), D, penalty)
    assert weights.shape == (D + q, D)
    assert not weights[:D].any()
    np.testing.assert_allclose(weights[D:], expected, atol=1e-10)


def test_without_penalty_collinear_lags_share_the_weight():
    rows = random_rows(1, 50, D, 1)
    rows[:, D + 1] = rows[:, D]
    now, past = centred(rows)
    weights = ridge(moments_of(rows, D), D, 0.0)
    np.testing.assert_allclose(weights[D], weights[D + 1], atol=1e-9)
    np.testing.assert_allclose(weights[D:], np.linalg.pinv(past) @ now, atol=1e-8)


def test_forbidden_edges_leave_the_regression():
    rows = random_rows(2, 80, D, 2)
    now, past = centred(rows)
    allowed = np.random.default_rng(0).random((3 * D, D)) < 0.5
    allowed[:, 1] = allowed[:, 3]  # two targets that share a pattern
    allowed[D:, 2] = False
    weights = ridge(moments_of(rows, D), D, 0.1, allowed=allowed)
    for j in range(D):
        causes = np.flatnonzero(allowed[D:, j])
        gram = past[:, causes].T @ past[:, causes] / len(rows) + 0.1 * np.eye(len(causes))
        expected = np.linalg.solve(gram, past[:, causes].T @ now[:, j] / len(rows))
        np.testing.assert_allclose(weights[D + causes, j], expected, atol=1e-10)
    assert not weights[D:][~allowed[D:]].any()


def violation(moments, weights, sparsity):
    """Largest breach of the lasso's optimality conditions, over all lagged edges."""
    gradient = moments.second[D:, :D] - moments.second[D:, D:] @ weights[D:]
    at_zero = np.maximum(np.abs(gradient) - sparsity, 0.0)
    elsewhere = np.abs(gradient - sparsity * np.sign(weights[D:]))
    return float(np.where(weights[D:] == 0, at_zero, elsewhere).max())


@given(
    st.integers(0, 10_000),
    st.integers(8, 200),
    st.integers(1, 3),
    st.sampled_from([0.003, 0.05, 0.3]),
)
def test_lasso_meets_its_optimality_conditions(seed, n, order, sparsity):
    moments = moments_of(random_rows(seed, n, D, order), D)
    assert violation(moments, lasso(moments, D, sparsity), sparsity) < 1e-7


@pytest.mark.parametrize("sparsity", [0.01, 0.1, 0.3])
def test_lasso_against_a_generic_optimiser(sparsity):
    moments = moments_of(random_rows(3, 120, D, 2), D)
    gram, products = moments.second[D:, D:], moments.second[D:, :D]
    q = len(gram)
    weights = lasso(moments, D, sparsity)
    for j in range(D):

        def objective(parts, target=products[:, j]):
            a = parts[:q] - parts[q:]
            slope = gram @ a - target
            value = 0.5 * a @ gram @ a - target @ a + sparsity * parts.sum()
            return value, np.concatenate([slope, -slope]) + sparsity

        found = scipy.optimize.minimize(
            objective,
            np.zeros(2 * q),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, None)] * (2 * q),
            options={"ftol": 0.0, "gtol": 1e-12, "maxiter": 20_000},
        ).x
        rough = found[:q] - found[q:]
        np.testing.assert_allclose(weights[D:, j], rough, atol=1e-5)
        # on the support and with the signs that it found the problem is linear
        support = np.abs(rough) > 1e-6
        exact = np.zeros(q)
        exact[support] = np.linalg.solve(
            gram[np.ix_(support, support)],
            products[support, j] - sparsity * np.sign(rough[support]),
        )
        np.testing.assert_allclose(weights[D:, j], exact, atol=1e-10)


def test_lasso_is_empty_from_the_largest_covariance_on():
    moments = moments_of(random_rows(4, 100, D, 1), D)
    largest = np.abs(moments.second[D:, :D]).max()
    assert not lasso(moments, D, largest).any()
    assert np.count_nonzero(lasso(moments, D, 0.999 * largest)) == 1


def test_lasso_masks():
    moments = moments_of(random_rows(5, 100, D, 2), D)
    allowed = np.ones((3 * D, D), dtype=bool)
    allowed[D + 1] = False
    required = np.zeros_like(allowed)
    required[D + 2, 3] = True
    weights = lasso(moments, D, 0.2, allowed=allowed, required=required)
    assert not weights[D + 1].any()
    slope = moments.second[D:, :D] - moments.second[D:, D:] @ weights[D:]
    # a required edge bears no penalty: its gradient vanishes
    assert abs(slope[2, 3]) < 1e-9
    assert weights[D + 2, 3] != 0


def test_the_start_does_not_matter():
    moments = moments_of(random_rows(6, 100, D, 1), D)
    start = np.random.default_rng(0).standard_normal((2 * D, D))
    kept = start.copy()
    warm = lasso(moments, D, 0.05, start=start)
    np.testing.assert_allclose(warm, lasso(moments, D, 0.05), atol=1e-9)
    np.testing.assert_array_equal(start, kept)


@pytest.mark.parametrize("fit", [ridge, lasso])
def test_parties_sums_are_the_pooled_rows(fit):
    rows = random_rows(7, 90, D, 2)
    parts = merge(moments_of(part, D) for part in np.array_split(rows, [10, 11, 50]))
    np.testing.assert_allclose(fit(parts, D, 0.05), fit(moments_of(rows, D), D, 0.05), atol=1e-10)


@pytest.mark.parametrize("fit", [ridge, lasso])
def test_a_lag_that_never_varies_has_no_weight(fit):
    rows = random_rows(8, 40, D, 1)
    rows[:, D] = 3.0
    assert np.abs(fit(moments_of(rows, D), D, 0.01)[D]).max() < 1e-12


def test_fewer_lags_of_the_same_rows():
    rows = random_rows(10, 50, D, 3)
    part = leading(moments_of(rows, D), D, 2)
    np.testing.assert_allclose(part.second, moments_of(rows[:, : 3 * D], D).second)
    assert (part.n, order_of(part, D)) == (50, 2)
    with pytest.raises(ConfigError, match="order must be from 1 to the 3 lags"):
        leading(moments_of(rows, D), D, 4)


@pytest.mark.parametrize("fit", [ridge, lasso])
def test_bad_input(fit):
    moments = moments_of(random_rows(11, 30, D, 1), D)
    with pytest.raises(ConfigError, match="at least 0"):
        fit(moments, D, -1.0)
    with pytest.raises(DataError, match="8 columns are not those of 3 variables"):
        fit(moments, 3, 0.1)
    with pytest.raises(DataError, match="and their lags"):
        fit(moments, 8, 0.1)
    with pytest.raises(ConfigError, match=r"allowed edges must have shape \(8, 4\)"):
        fit(moments, D, 0.1, allowed=np.ones((4, 4)))
    holes = moments.second.copy()
    holes[0, 5] = np.nan
    with pytest.raises(DataError, match="missing or infinite"):
        fit(SampleMoments(30, moments.mean, holes, moments.names), D, 0.1)


def test_a_descent_that_does_not_settle_says_so(monkeypatch):
    monkeypatch.setattr(regression, "MAX_SWEEPS", 2)
    with pytest.raises(DataError, match=r"nearly collinear: raise the sparsity \(now 0.001\)"):
        lasso(moments_of(random_rows(12, 30, D, 2), D), D, 0.001)

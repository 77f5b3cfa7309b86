"""Partial correlations against the inverse covariance and regressions; the ridge from folds."""

import numpy as np
import pytest
import scipy.stats

from flwr_causal.core.linear.moments import SampleMoments, merge
from flwr_causal.core.series.partial_correlation import (
    RIDGE_SHARES,
    held_out_loss,
    held_out_losses,
    partial_correlation,
    select_ridge,
)
from flwr_causal.errors import ConfigError, DataError


def rows_of(seed, n, d, offset=1.0):
    rng = np.random.default_rng(seed)
    mixing = np.eye(d) + np.triu(rng.uniform(-0.8, 0.8, (d, d)), 1)
    return rng.standard_normal((n, d)) @ mixing + offset


def test_it_is_the_correlation_of_residuals():
    rows = rows_of(0, 200, 5)
    deviations = rows - rows.mean(axis=0)
    partial = partial_correlation(SampleMoments.from_rows(rows), 0.0)
    for i in range(5):
        for j in range(i):
            others = deviations[:, [k for k in range(5) if k not in (i, j)]]
            project = others @ np.linalg.pinv(others)
            residual = deviations[:, [i, j]] - project @ deviations[:, [i, j]]
            expected = np.corrcoef(residual.T)[0, 1]
            assert partial[i, j] == pytest.approx(expected, abs=1e-10)
    np.testing.assert_array_equal(partial, partial.T)
    assert not np.diagonal(partial).any()


@pytest.mark.parametrize("ridge", [0.01, 1.0])
def test_it_is_the_scaled_inverse_covariance_with_a_ridge(ridge):
    rows = rows_of(1, 4, 6)  # singular without the ridge
    precision = np.linalg.inv(np.cov(rows.T, bias=True) + ridge * np.eye(6))
    expected = -precision / np.sqrt(np.outer(np.diagonal(precision), np.diagonal(precision)))
    np.fill_diagonal(expected, 0.0)
    moments = SampleMoments.from_rows(rows)
    np.testing.assert_allclose(partial_correlation(moments, ridge), expected, atol=1e-9)


def test_units_do_not_matter_without_ridge():
    moments = SampleMoments.from_rows(rows_of(2, 80, 4))
    other = moments.scaled([1.0, 30.0, 0.01, 2.0])
    np.testing.assert_allclose(
        partial_correlation(other, 0.0), partial_correlation(moments, 0.0), atol=1e-9
    )


def test_held_out_loss_is_that_of_the_rows():
    train, held_out = rows_of(3, 60, 4), rows_of(4, 25, 4, offset=1.3)
    density = scipy.stats.multivariate_normal(
        train.mean(axis=0), np.cov(train.T, bias=True) + 0.2 * np.eye(4)
    )
    loss = held_out_loss(SampleMoments.from_rows(train), SampleMoments.from_rows(held_out), 0.2)
    assert loss == pytest.approx(-density.logpdf(held_out).mean())


def test_the_losses_are_those_of_the_rows_whatever_the_order_of_the_folds():
    parts = [rows_of(seed, n, 8) for seed, n in ((5, 6), (6, 9), (7, 30))]
    folds = [SampleMoments.from_rows(part) for part in parts]
    grid = (0.01, 0.3, 3.0, 100.0)
    losses = held_out_losses(folds, grid)
    for ridge, error in zip(grid, losses, strict=True):
        total = 0.0
        for k, part in enumerate(parts):
            train = np.vstack([other for i, other in enumerate(parts) if i != k])
            covariance = np.cov(train.T, bias=True) + ridge * np.eye(8)
            density = scipy.stats.multivariate_normal(train.mean(axis=0), covariance)
            total -= density.logpdf(part).sum()
        assert error == pytest.approx(total / 45)
    assert losses.argmin() not in (0, len(grid) - 1)
    np.testing.assert_allclose(held_out_losses(folds[::-1], grid), losses)


def test_default_ridges_follow_the_units():
    folds = [SampleMoments.from_rows(rows_of(seed, 20, 3)) for seed in range(3)]
    unit = merge(folds).mean_variance
    ridges = np.array(RIDGE_SHARES) * unit
    chosen = select_ridge(folds)
    assert chosen == pytest.approx(ridges[held_out_losses(folds, ridges).argmin()])
    assert select_ridge([fold.scaled(0.1) for fold in folds]) == pytest.approx(100.0 * chosen)


def test_bad_input():
    moments = SampleMoments.from_rows(rows_of(0, 3, 5))
    with pytest.raises(DataError, match="5 variables in 3 rows is singular"):
        partial_correlation(SampleMoments.from_rows(np.ones((3, 5))), 0.0)
    with pytest.raises(ConfigError, match="ridge must be"):
        partial_correlation(moments, -0.1)
    with pytest.raises(ConfigError, match="at least 2 folds"):
        select_ridge([moments])

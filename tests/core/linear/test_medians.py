"""Geometric medians: their definition, what cannot move them, and what units do not change."""

import numpy as np
import pytest
from scipy.optimize import minimize

from flwr_causal.core.linear.medians import median_shares, second_moment_shares


def wishart(rng, rows, s, mixing):
    x = rng.normal(size=(rows, s)) @ mixing
    return x.T @ x / rows


def parties(seed, rows, s=6, folds=1):
    """Second moments of parties that differ by sampling alone, shape (K, folds, s, s)."""
    rng = np.random.default_rng(seed)
    mixing = np.eye(s) + np.triu(rng.normal(size=(s, s)), 1)
    parts = [[wishart(rng, n, s, mixing) / folds for _ in range(folds)] for n in rows]
    return np.array(parts), np.array(rows, dtype=float)


def test_of_numbers_it_is_the_median():
    values = np.array([3.0, -1.0, 7.0, 100.0, 4.0])
    shares = median_shares(values[:, None], np.ones(5))
    assert shares @ values == pytest.approx(4.0, abs=1e-6)
    assert shares.sum() == pytest.approx(1.0)


def test_it_minimises_the_weighted_distances():
    rng = np.random.default_rng(0)
    points, rows = rng.normal(size=(6, 3)), np.array([10, 50, 20, 20, 40, 30.0])
    spread = np.median(np.abs(points - np.median(points, axis=0)), axis=0)

    def total(z):
        return np.sqrt(rows) @ np.linalg.norm((points - z) / spread, axis=1)

    best = minimize(total, points.mean(axis=0), method="Nelder-Mead", options={"xatol": 1e-9})
    found = median_shares(points, rows) @ points
    np.testing.assert_allclose(found, best.x, atol=1e-5)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e12, 1e40])
def test_a_minority_cannot_move_it_far(size):
    rng = np.random.default_rng(1)
    honest = rng.normal(size=(6, 4, 4))
    false = np.full((3, 4, 4), size)
    arrays = np.concatenate([honest, false])
    found = np.tensordot(median_shares(arrays, np.ones(9)), arrays, axes=1)
    away = np.linalg.norm(found - honest.mean(axis=0))
    assert away < np.linalg.norm(honest.reshape(6, -1), axis=1).max()


def test_entries_on_which_most_agree_exactly_stay():
    arrays = np.random.default_rng(2).normal(size=(7, 5))
    arrays[:, 0] = 0.0
    arrays[3, 0] = 1e6
    shares = median_shares(arrays, np.ones(7))
    assert shares[3] * 1e6 < 5


def test_equal_arrays_have_the_shares_of_their_weights():
    shares = median_shares(np.ones((3, 2, 2)), np.array([1.0, 4.0, 9.0]))
    np.testing.assert_allclose(shares, np.array([1, 2, 3]) / 6)


@pytest.mark.parametrize("folds", [1, 2])
def test_without_false_ones_shares_are_those_of_the_rows(folds):
    moments, rows = parties(3, [100, 100, 400, 400, 1600, 200, 200, 800], s=12, folds=folds)
    shares, distances = second_moment_shares(moments, rows)
    np.testing.assert_allclose(shares, rows / rows.sum(), rtol=0.35)
    assert distances.max() < 1.5


def test_any_linear_map_of_the_columns_gives_the_same_shares():
    moments, rows = parties(4, [60, 80, 100, 90, 70])
    maps = np.random.default_rng(5).normal(size=(6, 6)) + 3 * np.eye(6)
    units = np.diag(10.0 ** np.arange(-6, 6, 2))
    shares, distances = second_moment_shares(moments, rows)
    for a in (units, maps):
        mapped, mapped_distances = second_moment_shares(a.T @ moments @ a, rows)
        np.testing.assert_allclose(mapped, shares, atol=1e-5)
        np.testing.assert_allclose(mapped_distances, distances, rtol=1e-4)


@pytest.mark.parametrize("false", [1, 3])
def test_products_of_other_columns_stand_out_though_their_diagonal_is_right(false):
    moments, rows = parties(6, [100] * 10)
    honest = moments.mean(axis=0)
    order = np.array([3, 5, 0, 2, 1, 4])
    for k in range(false):
        size = np.sqrt(np.diagonal(moments[k, 0]))
        correlation = moments[k, 0] / np.outer(size, size)
        moments[k, 0] = correlation[np.ix_(order, order)] * np.outer(size, size)
    shares, distances = second_moment_shares(moments, rows)
    assert (distances[:false] > 4).all()
    assert (distances[false:] < 2).all()
    assert (shares[:false] < 0.25 * shares[false:].min()).all()
    median = np.tensordot(shares, moments, axes=1)
    assert np.linalg.eigvalsh(median[0])[0] > 0
    away = np.linalg.norm(median - honest)
    assert away < 0.35 * np.linalg.norm(moments.mean(axis=0) - honest)


def test_the_order_of_parties_plays_no_part():
    moments, rows = parties(7, [50, 60, 70, 80])
    order = [2, 0, 3, 1]
    shares, distances = second_moment_shares(moments, rows)
    turned, turned_distances = second_moment_shares(moments[order], rows[order])
    np.testing.assert_allclose(turned, shares[order], atol=1e-7)
    np.testing.assert_allclose(turned_distances, distances[order], rtol=1e-6)


def test_few_rows_and_constant_columns():
    moments, rows = parties(8, [3, 3, 4, 5], s=6)
    moments[:, :, 2, :] = moments[:, :, :, 2] = 0.0
    shares, distances = second_moment_shares(moments, rows)
    assert np.isfinite(distances).all()
    assert (shares > 0).all()


def test_where_most_are_equal_the_other_is_far():
    moments, _ = parties(9, [50])
    moments = np.repeat(moments, 4, axis=0)
    moments[2] *= 1.5
    shares, distances = second_moment_shares(moments, np.full(4, 50.0))
    assert distances[[0, 1, 3]].max() <= 1
    assert distances[2] > 1e6
    assert shares[2] < 1e-6

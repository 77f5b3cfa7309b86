"""Levels of units: moments within them are those of regressions with an intercept for each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f_oneway

from flwr_causal.core.linear.levels import (
    Levels,
    SeenLevels,
    about_means,
    about_one_mean,
    between_units,
    deviations,
    pieces_products,
    unit_products,
    unlike_spreads,
)
from flwr_causal.core.linear.moments import SampleMoments, mean_and_second
from flwr_causal.core.linear.regression import regress
from flwr_causal.core.series.design import lagged_rows


def levels_of(rows, units, count=None):
    products, m = unit_products(rows, units) / len(rows), rows.shape[1]
    return Levels.of(products, len(rows), [f"z{k}" for k in range(m)], count or m)


def shifted(seed=0, units=5, rows=40, d=3, size=1.0):
    rng = np.random.default_rng(seed)
    places = np.repeat(np.arange(units), rows)
    return rng.normal(size=(units * rows, d)) + size * rng.normal(size=(units, d))[places], places


def dummies(units):
    return (units[:, None] == np.unique(units)).astype(float)


@given(st.integers(1, 6), st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_products_of_means(number, seed):
    rng = np.random.default_rng(seed)
    units = np.concatenate([np.arange(number), rng.integers(0, number, 20)])
    rows = rng.normal(size=(len(units), 3)) + 5
    found = unit_products(rows, units)
    means = np.array([rows[units == u].mean(axis=0) for u in range(number)])
    ones = np.column_stack([np.ones(len(rows)), means[units]])
    centred = rows - means[units]
    assert found[0, 0, 0] == len(rows) - number
    np.testing.assert_allclose(found[0, 1:, 1:], centred.T @ centred, atol=1e-12)
    assert not found[0, 0, 1:].any()
    assert not found[0, 1:, 0].any()
    np.testing.assert_allclose(found[1], ones.T @ ones)
    # Sums over parties are those of all units.
    each = [rows[units == u] for u in range(number)]
    parts = [pieces_products([own[:2], own[2:]] if len(own) > 2 else [own]) for own in each]
    np.testing.assert_allclose(np.sum(parts, axis=0), found, atol=1e-9)
    every = np.column_stack([np.ones(len(rows)), rows])
    np.testing.assert_allclose(about_one_mean(found), every.T @ every)
    sums, counts = means * np.bincount(units)[:, None], np.bincount(units)
    between = between_units(sums, counts)
    assert between[0, 0] == number
    np.testing.assert_allclose(between[1:, 1:], found[1, 1:, 1:])
    np.testing.assert_allclose(
        mean_and_second(about_means(every.T @ every, between))[1], found[0, 1:, 1:] / len(rows)
    )


def test_levels_that_are_far_apart_cost_no_digits():
    rows, units = shifted(size=0.0)
    far = rows + 1e9 * (1.0 + units[:, None])
    expected = unit_products(rows, units)[0]
    parts = [pieces_products([far[units == u][:9], far[units == u][9:]]) for u in range(5)]
    for found in (unit_products(far, units), np.sum(parts, axis=0)):
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=1e-5)


def test_regressions_are_those_with_an_intercept_for_each_unit():
    rows, units = shifted()
    rows[:, 2] += 2 * rows[:, 0] - rows[:, 1]
    within = levels_of(rows, units).within
    X = np.column_stack([rows[:, :2], dummies(units)])
    coefficients, residuals, *_ = np.linalg.lstsq(X, rows[:, 2], rcond=None)
    found, variance = regress(within.second, np.array([0, 1]), 2)
    np.testing.assert_allclose(found, coefficients[:2])
    # The degrees of freedom of n rows, the intercepts and the two causes.
    free = len(rows) - X.shape[1]
    np.testing.assert_allclose(variance * within.n / (within.n - 1 - 2), residuals[0] / free)
    np.testing.assert_allclose(within.mean, rows.mean(axis=0))
    assert within.units == 5


def test_the_test_is_the_analysis_of_variance():
    rows, units = shifted(units=4, size=0.3)
    expected = f_oneway(*[rows[units == u] for u in range(4)]).pvalue
    levels = levels_of(rows, units)
    np.testing.assert_allclose(levels._tested[1], expected)
    total = ((rows - rows.mean(axis=0)) ** 2).sum(axis=0)
    inner = sum(((rows[units == u] - rows[units == u].mean(axis=0)) ** 2).sum(0) for u in range(4))
    np.testing.assert_allclose(levels.shares, 1 - inner / total)
    np.testing.assert_allclose(deviations(levels.shares), np.sqrt((total - inner) / inner))
    assert list(levels.differ) == list((expected * 3 < 1e-4) & (levels.shares > 0.02))


def test_seen_cells_give_the_same_test():
    rows, units = shifted(units=4, size=0.5, d=2)
    rows[::7, 0] = np.nan
    seen, filled = ~np.isnan(rows), np.nan_to_num(rows)
    parts = [(seen[units == u].sum(0), filled[units == u].sum(0)) for u in range(4)]
    between = sum(sums**2 / counts for counts, sums in parts)
    found = SeenLevels.of(
        seen.sum(0), filled.sum(0), (filled**2).sum(0), np.array([4.0, 4.0]), between
    )
    for j in range(2):
        own = levels_of(rows[seen[:, j]][:, [j]], units[seen[:, j]])
        np.testing.assert_allclose(found.shares[j], own.shares[0])
        assert found.differ[j] == (own._tested[1][0] * 2 < 1e-4 and own.shares[0] > 0.02)
    assert not found.flat.any()


def test_small_shares_and_chance_are_no_levels():
    many, units = shifted(rows=4000, size=0.05)
    assert (levels_of(many, units)._tested[1] < 1e-5).any()
    assert not levels_of(many, units).differ.any()
    few, units = shifted(units=20, rows=3, size=0.0)
    assert levels_of(few, units).shares.min() > 0.02
    assert not levels_of(few, units).differ.any()


@pytest.mark.parametrize("units", [np.zeros(30, dtype=int), np.arange(30)])
def test_one_unit_or_units_of_one_row_have_no_levels(units):
    rows = np.random.default_rng(0).normal(size=(30, 2))
    levels = levels_of(rows, units)
    assert not levels.differ.any()
    assert levels.within.n == 30 - len(np.unique(units)) + 1


def test_columns_between_units_only_explain_levels():
    rows, units = shifted(size=2.0)
    site = dummies(units)[:, 1:]
    assert levels_of(rows, units).differ.all()
    told = levels_of(np.column_stack([rows, site]), units)
    assert list(told.flat) == [False] * 3 + [True] * 4
    assert not told.differ.any()
    # One number of each unit says no more than a line.
    line = np.random.default_rng(1).normal(size=5)[units]
    assert levels_of(np.column_stack([rows, line]), units).differ[:3].any()


def test_levels_of_series_are_judged_given_their_lags():
    rng = np.random.default_rng(3)
    lagged, units = [], []
    for k in range(6):
        x = np.zeros((300, 2))
        for t in range(1, 300):
            x[t] = 0.95 * x[t - 1] + rng.normal(size=2)
        lagged.append(lagged_rows([x[100:]], 1))
        units.append(np.full(len(lagged[-1]), k))
    rows, units = np.concatenate(lagged), np.concatenate(units)
    assert levels_of(rows[:, :2], units).differ.any()  # as slow series wander
    assert not levels_of(rows, units, 2).differ.any()
    shift = np.repeat([0, 2, -1, 1, 0, -2], len(rows) // 6)[:, None]
    rows[:, :2] += shift
    assert levels_of(rows, units, 2).differ.all()


def test_moments_within_units_are_kept():
    within = levels_of(*shifted()).within
    again = SampleMoments.from_plain(**within.to_plain())
    assert (again.n, again.units) == (within.n, 5)
    assert within.subset([0, 2]).units == 5


def systems(name, rng, n, d=10):
    """Rows of linear systems, or of columns that are seldom 1."""
    if name == "binary":
        return (rng.random((n, d)) < rng.uniform(0.01, 0.5, d)).astype(float)
    noise = {
        "gaussian": rng.normal(size=(n, d)),
        "t3": rng.standard_t(3, size=(n, d)),
        "log-normal": np.exp(1.2 * rng.normal(size=(n, d))),
    }[name]
    weights = np.triu(rng.uniform(0.5, 1.5, (d, d)) * (rng.random((d, d)) < 0.3), 1)
    return noise @ np.linalg.inv(np.eye(d) - weights)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian", "t3", "log-normal", "binary"])
@pytest.mark.parametrize(("units", "rows"), [(5, 500), (20, 50), (64, 4), (300, 10)])
def test_tables_of_one_level_are_seldom_told_of(name, units, rows):
    rng, places = np.random.default_rng(61), np.repeat(np.arange(units), rows)
    told = [
        bool(levels_of(systems(name, rng, units * rows), places).differ.any()) for _ in range(60)
    ]
    assert sum(told) <= 1


@pytest.mark.slow
@pytest.mark.parametrize("rows", [(60, 120, 90, 30, 200), (2000, 300, 500, 100, 90)])
def test_shifted_levels_are_told_of(rows):
    places = np.repeat(np.arange(5), rows)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        own = systems("gaussian", rng, len(places))
        own[:, ::2] += (1.5 * rng.normal(size=(5, 5)))[places]
        assert levels_of(own, places).differ.any()


# -- spreads ---------------------------------------------------------------------------------------


def test_spreads_are_unlike_beyond_chance_and_by_a_quarter():
    rows = np.full((4, 3), 5000.0)
    variances = np.ones((4, 3))
    variances[1, 0], variances[2, 2] = 1.3**2, 1.2**2
    expected = np.zeros((4, 3), dtype=bool)
    expected[1, 0] = True
    np.testing.assert_array_equal(unlike_spreads(variances, rows), expected)
    # Units of columns, and which party comes first, do not matter.
    np.testing.assert_array_equal(unlike_spreads(variances * [4.0, 9.0, 1e6], rows), expected)
    np.testing.assert_array_equal(unlike_spreads(variances[::-1], rows), expected[::-1])
    # Of few rows a quarter is chance: five errors of the logarithm of the variance.
    error = np.sqrt(8 / 100 + 8 / 300)
    for gap, told in ((4.9, False), (5.1, True)):
        few = np.ones((4, 1))
        few[0] = np.exp(gap * error)
        assert unlike_spreads(few, np.full((4, 1), 100.0))[0, 0] == told


def test_spreads_of_columns_that_parties_lack_are_not_compared():
    rows = np.array([[500.0, 0.0], [500.0, 500.0]])
    variances = np.array([[1.0, 0.0], [9.0, 1.0]])
    np.testing.assert_array_equal(unlike_spreads(variances, rows), [[True, False], [True, False]])
    assert not unlike_spreads(np.array([[0.0], [1.0]]), np.full((2, 1), 50.0)).any()

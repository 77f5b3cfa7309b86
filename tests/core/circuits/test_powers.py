"""Powers from sums against scipy's likelihood of the transform."""

import numpy as np
import pytest
from scipy import stats

from flwr_causal.core.circuits.learners.class_conditional.moments import (
    LARGEST,
    choose_powers,
    log_sums,
    power_sums,
    relative_transform,
)
from flwr_causal.core.circuits.leaves import yeo_johnson

GRID = np.arange(-8, 9) / 4.0


def skew_columns(rng, n=200):
    """Columns whose best powers spread over the grid, some below and some above 0."""
    normal = rng.normal(size=(n, 12))
    powers = np.linspace(-1.5, 2.0, 12)
    return yeo_johnson.inverse(0.2 * normal, powers) + rng.normal(size=12) * 0.1


def chosen(columns, classes, grid=GRID, parts=1):
    """Powers chosen from sums that several parties add up."""
    d = columns.shape[1]
    middle, reach = columns.mean(axis=0), np.full(d, 1e3)
    labels = range(classes.max() + 1)
    logs = np.zeros((len(labels), d))
    sums = np.zeros((len(labels), 2, len(grid), d))
    for part in np.array_split(np.arange(len(columns)), parts):
        for c in labels:
            own = columns[part][classes[part] == c]
            logs[c] += log_sums(own, reach)
            sums[c] += power_sums(own, middle, grid, reach)
    counts = np.bincount(classes).astype(float)[:, None]
    return grid[choose_powers(counts, logs, sums, middle, grid)]


@pytest.mark.parametrize("middle", [-3.0, -0.2, 0.0, 0.5, 40.0])
@pytest.mark.parametrize("power", [-6.0, 0.0, 0.3, 1.0, 2.0, 3.0])
def test_the_relative_transform_is_the_transform(middle, power):
    reach = abs(middle) + 4.0
    u = middle + np.linspace(-6.0, 6.0, 25)
    there, _ = yeo_johnson.transform(u, power, reach)
    here, slope = yeo_johnson.transform(np.array(middle), power, reach)
    expected = (there - here) / np.exp(slope)
    scale = np.abs(expected).max() + np.abs(here) / np.exp(slope)
    result = relative_transform(u, middle, power, reach)
    np.testing.assert_allclose(result, expected, atol=1e-12 * scale, rtol=1e-9)


def test_no_digits_are_lost_far_from_zero():
    """Transformed values themselves agree in all but their last digits there."""
    near = relative_transform(1e6 + np.array([-1.0, 1.0]), 1e6, -1.0, 2e6)
    np.testing.assert_allclose(near, [-1.0, 1.0], rtol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_powers_are_those_of_the_likelihood(seed):
    columns = skew_columns(np.random.default_rng(seed))
    likelihoods = [[stats.yeojohnson_llf(power, x) for power in GRID] for x in columns.T]
    best = GRID[np.argmax(likelihoods, axis=1)]
    assert len(set(best)) > 4
    np.testing.assert_array_equal(chosen(columns, np.zeros(len(columns), dtype=int)), best)


def test_powers_of_classes_by_direct_evaluation():
    rng = np.random.default_rng(5)
    columns, classes = skew_columns(rng), rng.integers(0, 2, 200)
    columns[classes == 1] += 1.0
    expected = []
    for x in columns.T:
        likelihoods = []
        for power in GRID:
            t, slopes = yeo_johnson.transform(x, power, 1e3)
            total = slopes.sum()
            for c in (0, 1):
                own = t[classes == c]
                variance = (len(own) * own.var() + t.var()) / (len(own) + 1)
                total -= 0.5 * len(own) * np.log(variance)
            likelihoods.append(total)
        expected.append(GRID[np.argmax(likelihoods)])
    np.testing.assert_array_equal(chosen(columns, classes, parts=4), expected)


def test_powers_that_overflow_are_finite_and_not_chosen():
    columns = np.random.default_rng(2).normal(size=(50, 2)) * 100
    grid = np.array([-200.0, 0.5, 1.0, 200.0])
    sums = power_sums(columns, np.zeros(2), grid, np.full(2, 1e3))
    assert np.isfinite(sums).all()
    assert (sums[1, [0, 3]] >= LARGEST**2).all()
    assert set(chosen(columns, np.zeros(50, dtype=int), grid)) <= {0.5, 1.0}


def test_where_nothing_is_usable_the_column_stays():
    columns = np.random.default_rng(2).normal(size=(50, 1)) * 100
    only = np.array([-200.0, 200.0])
    assert chosen(columns, np.zeros(50, dtype=int), only)[0] in only
    assert chosen(columns, np.zeros(50, dtype=int), np.array([250.0, -200.0, 90.0]))[0] == 90.0

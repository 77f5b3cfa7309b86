"""The test of all pairs at once: against scipy, on known dependences, and with missing values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from flwr_causal.core.circuits.learners.spn.splits import (
    dependent_pairs,
    equal_cuts,
    groups_of,
    indicators,
    joint_counts,
    largest_correlations,
    likelihood_ratios,
)


def coded_of(values, num_states, bins=6, weights=None):
    weights = np.ones(len(values)) if weights is None else weights
    return indicators(values, np.array(num_states), weights, bins), weights


def test_statistics_are_those_of_scipy():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 3, 400)
    b = np.where(rng.random(400) < 0.3, a, rng.integers(0, 4, 400))
    coded, ones = coded_of(np.column_stack((a, b)).astype(float), (3, 4))
    table = np.zeros((3, 4))
    np.add.at(table, (a, b), 1)
    expected = chi2_contingency(table, correction=False, lambda_="log-likelihood")

    statistics, degrees = likelihood_ratios(joint_counts(coded, ones), coded.starts)

    assert statistics[0, 1] == pytest.approx(expected.statistic, rel=1e-10)
    assert statistics[1, 0] == statistics[0, 1]
    assert degrees[0, 1] == expected.dof == 6


def test_states_that_do_not_occur_have_no_degree_of_freedom():
    values = np.array([[0.0, 0], [2, 1], [0, 1], [2, 0]])
    coded, ones = coded_of(values, (5, 2))
    assert likelihood_ratios(joint_counts(coded, ones), coded.starts)[1][0, 1] == 1


def test_rows_in_which_one_value_is_missing_do_not_count():
    rng = np.random.default_rng(1)
    values = rng.integers(0, 3, (300, 3)).astype(float)
    values[:, 1] = np.where(rng.random(300) < 0.5, values[:, 0], values[:, 1])
    values[rng.random((300, 3)) < 0.2] = np.nan
    coded, ones = coded_of(values, (3, 3, 3))
    statistics, _ = likelihood_ratios(joint_counts(coded, ones), coded.starts)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        pair = values[~np.isnan(values[:, [i, j]]).any(axis=1)][:, [i, j]]
        alone, own = coded_of(pair, (3, 3))
        expected, _ = likelihood_ratios(joint_counts(alone, own), alone.starts)
        assert statistics[i, j] == pytest.approx(expected[0, 1], rel=1e-9)


@given(st.integers(0, 2**32 - 1))
def test_weights_are_repetitions(seed):
    rng = np.random.default_rng(seed)
    values = np.column_stack((rng.integers(0, 3, 40), rng.normal(size=40)))
    weights = rng.integers(1, 4, 40)
    coded, own = coded_of(values, (3, 0), 4, weights.astype(float))
    repeated, ones = coded_of(np.repeat(values, weights, axis=0), (3, 0), 4)
    assert np.array_equal(joint_counts(coded, own), joint_counts(repeated, ones))


def test_dependence_that_no_correlation_shows_is_found_and_groups_follow():
    rng = np.random.default_rng(2)
    x = rng.normal(size=1000)
    circle = x**2 + 0.3 * rng.normal(size=1000)  # uncorrelated with x
    label = (rng.random(1000) < 1 / (1 + np.exp(-2 * circle))).astype(float)
    alone, other = rng.normal(size=1000), rng.integers(0, 4, 1000)
    values = np.column_stack((x, alone, circle, other, label))
    for correlation in (None, 0.3):
        coded, ones = coded_of(values, (0, 0, 0, 4, 2))
        groups = groups_of(dependent_pairs(coded, ones, 1e-4, correlation))
        assert [group.tolist() for group in groups] == [[0, 2, 4], [1], [3]]


def test_independent_columns_are_called_dependent_as_often_as_asked_for():
    rng = np.random.default_rng(3)
    coded, ones = coded_of(rng.integers(0, 3, (2000, 60)).astype(float), [3] * 60)
    found = dependent_pairs(coded, ones, 0.05)
    assert 0.03 < found[np.triu_indices(60, 1)].mean() < 0.07


def test_constant_and_empty_columns_depend_on_nothing():
    rng = np.random.default_rng(4)
    values = np.column_stack((rng.normal(size=100), np.full(100, 3.0), np.full(100, np.nan)))
    coded, ones = coded_of(values, (0, 0, 0))
    for correlation in (None, 0.1):
        assert not dependent_pairs(coded, ones, 0.5, correlation).any()


def test_largest_correlation_of_two_binary_columns_is_their_correlation():
    rng = np.random.default_rng(5)
    a = rng.integers(0, 2, 500)
    b = np.where(rng.random(500) < 0.6, a, 1 - a)
    values = np.column_stack((a, b, a)).astype(float)
    coded, ones = coded_of(values, (2, 2, 2))
    found = largest_correlations(joint_counts(coded, ones), coded.starts)
    assert found[0, 1] == pytest.approx(abs(np.corrcoef(a, b)[0, 1]), abs=1e-9)
    assert found[0, 2] == pytest.approx(1.0)
    assert (np.diag(found) == 0).all()


def test_bins_hold_equally_many_rows_and_never_part_equal_numbers():
    numbers = np.array([0.0] * 50 + list(range(1, 51)))
    ones = np.ones(100)
    cuts = equal_cuts(numbers, ones, 4)
    assert cuts.tolist() == [0.0, 25.0]  # half of the rows are one number
    assert equal_cuts(np.full(9, 2.0), np.ones(9), 4).tolist() == []
    assert equal_cuts(np.empty(0), np.empty(0), 4).tolist() == []
    heavy = equal_cuts(np.arange(4.0), np.array([3.0, 1, 1, 1]), 2)
    assert heavy.tolist() == [0.0]

"""Expectation-maximisation by sums, beside brute force, likelihoods and closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from flwr_causal.core.blocks.missing import (
    TOLERANCE,
    MomentEstimate,
    accelerated,
    change,
    completed,
    depends_on,
    expected_sums,
    few_together,
    first_estimate,
    own_sums,
    seen_sums,
    stepped,
)
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.regression import informing_rows

D = 5
MIXING = np.array(
    [
        [1.0, 0.8, 0.0, 0.3, 0.0],
        [0.0, 1.0, -0.6, 0.0, 0.5],
        [0.0, 0.0, 0.7, 0.4, 0.0],
        [0.0, 0.0, 0.0, 1.2, -0.9],
        [0.0, 0.0, 0.0, 0.0, 0.8],
    ]
)
ESTIMATE = MomentEstimate(np.array([0.3, -0.2, 0.0, 1.0, 0.1]), MIXING.T @ MIXING)


def rows_with_gaps(n, share, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, D)) @ MIXING + 0.5
    rows[rng.random((n, D)) < share] = np.nan
    return rows


def iterated(rows, estimate=None, *, faster=True, tolerance=1e-9, most=500):
    """Return the estimate that stands, and the number of steps."""
    estimate = estimate or first_estimate(seen_sums(rows))
    steps = []
    for number in range(1, most + 1):
        led = stepped(expected_sums(rows, estimate))
        steps.append((estimate, led))
        if change(estimate, led) < tolerance:
            return led, number
        estimate = accelerated(steps) if faster else led
    raise AssertionError("the steps do not end")


def log_likelihood(rows, estimate):
    total = 0.0
    for row in rows:
        seen = ~np.isnan(row)
        if seen.any():
            among = estimate.second[np.ix_(seen, seen)]
            total += multivariate_normal(estimate.mean[seen], among).logpdf(row[seen])
    return total


def test_sums_of_seen_cells_are_those_of_a_loop():
    rows = rows_with_gaps(40, 0.4)
    found = seen_sums(rows)
    for i in range(D):
        for j in range(D):
            both = ~np.isnan(rows[:, [i, j]]).any(axis=1)
            assert found.counts[i, j] == both.sum()
            assert found.sums[i, j] == pytest.approx(rows[both, i].sum())
            assert found.products[i, j] == pytest.approx(rows[both, i] @ rows[both, j])


def test_expected_sums_are_those_of_conditional_distributions():
    rows = rows_with_gaps(60, 0.5)
    mean, second = ESTIMATE
    products = np.zeros((1 + D, 1 + D))
    for row in rows:
        seen, lacking = np.flatnonzero(~np.isnan(row)), np.flatnonzero(np.isnan(row))
        if not len(seen):
            continue
        full, spread = row.copy(), np.zeros((1 + D, 1 + D))
        by_seen = np.linalg.solve(second[np.ix_(seen, seen)], second[np.ix_(seen, lacking)])
        full[lacking] = mean[lacking] + (row[seen] - mean[seen]) @ by_seen
        left = second[np.ix_(lacking, lacking)] - second[np.ix_(lacking, seen)] @ by_seen
        spread[np.ix_(1 + lacking, 1 + lacking)] = left
        one = np.concatenate([[1.0], full])
        products += np.outer(one, one) + spread
    np.testing.assert_allclose(expected_sums(rows, ESTIMATE), products, rtol=1e-10)


def test_complete_rows_are_summed_as_they_are():
    rows = rows_with_gaps(50, 0.0)
    ones = np.column_stack([np.ones(50), rows])
    np.testing.assert_allclose(expected_sums(rows, ESTIMATE), ones.T @ ones, rtol=1e-12)


@given(st.integers(1, 49), st.integers(0, 5))
def test_sums_do_not_depend_on_who_has_which_rows(cut, seed):
    rows = rows_with_gaps(50, 0.4, seed)
    order = np.random.default_rng(seed).permutation(50)
    parts = [expected_sums(part, ESTIMATE) for part in np.split(rows[order], [cut])]
    np.testing.assert_allclose(sum(parts), expected_sums(rows, ESTIMATE), rtol=1e-9, atol=1e-9)


def test_the_estimate_is_of_maximum_likelihood():
    rows = rows_with_gaps(80, 0.25, seed=3)
    found, _ = iterated(rows)
    best, rng = log_likelihood(rows, found), np.random.default_rng(0)
    for _ in range(40):
        mean = found.mean + 1e-3 * rng.normal(size=D)
        push = np.eye(D) + 1e-3 * rng.normal(size=(D, D))
        assert log_likelihood(rows, MomentEstimate(mean, push @ found.second @ push.T)) < best


def test_two_columns_of_which_one_has_gaps_have_a_closed_form():
    # Anderson (1957): the moments of x are those of all rows, the regression is of complete rows.
    rng = np.random.default_rng(1)
    x = rng.normal(2, 1, 300)
    y = np.where(x > 2.3, np.nan, 1.5 * x + rng.normal(size=300))
    found, _ = iterated(np.column_stack([x, y]))
    kept = ~np.isnan(y)
    slope, intercept = np.polyfit(x[kept], y[kept], 1)
    assert found.mean == pytest.approx([x.mean(), intercept + slope * x.mean()], abs=1e-6)
    assert found.second[0, 1] / found.second[0, 0] == pytest.approx(slope, abs=1e-6)
    assert found.second[0, 0] == pytest.approx(x.var(), abs=1e-6)


@pytest.mark.parametrize("share", [0.15, 0.3])
def test_acceleration_leads_to_the_same_estimate_in_fewer_steps(share):
    rows = rows_with_gaps(400, share, seed=2)
    plain, slow = iterated(rows, faster=False)
    found, fast = iterated(rows)
    assert change(plain, found) < 1e-6
    assert fast <= slow / 1.5
    assert iterated(rows, tolerance=TOLERANCE)[1] <= 8


def test_an_acceleration_that_leads_to_no_moments_is_not_taken():
    usual = MomentEstimate(np.zeros(2), np.eye(2))
    near = MomentEstimate(np.zeros(2), np.array([[1.0, 0.9], [0.9, 1.0]]))
    nearer = MomentEstimate(np.zeros(2), np.array([[1.0, 0.95], [0.95, 1.0]]))
    # The moves .9 and .89 would be continued to a correlation far above 1.
    found = accelerated([(usual, near), (MomentEstimate(usual.mean, near.second - 0.84), nearer)])
    assert np.linalg.eigvalsh(found.second)[0] > 0


def test_pairs_that_no_row_has_together_are_independent_given_the_others():
    rows = rows_with_gaps(600, 0.0)
    rows[:300, 0] = np.nan
    rows[300:, 3] = np.nan
    seen = seen_sums(rows)
    assert np.argwhere(few_together(seen)).tolist() == [[0, 3], [3, 0]]
    found = first_estimate(seen)
    assert np.linalg.eigvalsh(found.second)[0] > 0
    # Other values of this covariance are as likely: after a step it is set again.
    moved = found.second.copy()
    moved[0, 3] = moved[3, 0] = found.second[0, 3] + 0.05
    again = completed(MomentEstimate(found.mean, moved), seen)
    for estimate in (found, again):
        precision = np.linalg.inv(estimate.second)
        scale = np.sqrt(np.diagonal(precision))
        assert abs(precision[0, 3] / (scale[0] * scale[3])) < 1e-3
    known = ~np.isnan(rows[:, [1, 2]]).any(axis=1)
    of_rows = np.corrcoef(rows[known][:, [1, 2]].T)[0, 1]
    deviations = np.sqrt(np.diagonal(found.second))
    assert found.second[1, 2] / (deviations[1] * deviations[2]) == pytest.approx(of_rows, abs=0.02)
    assert completed(again, seen_sums(rows_with_gaps(50, 0.1))) is again


def test_rows_inform_about_effects_by_what_they_lack():
    # y = x + 2 q + e, all independent of variance 1; q is missing in half of the rows with x and y.
    second = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 2.0], [1.0, 2.0, 6.0]])
    together = np.array([[100.0, 50, 80], [50, 60, 40], [80, 40, 80]])
    moments = SampleMoments(100, np.zeros(3), second, ("x", "q", "y"), together)
    of_x, of_q = informing_rows(moments, np.array([0, 1]), 2)
    # Given x and y the variance of q is 1 / (1 + 4): the residual has 1 + 4 / 5 without q.
    assert of_x == pytest.approx(80 * (0.5 + 0.5 / 1.8))
    assert of_q == pytest.approx(40)
    # Of the residual 2 q + e of y on x alone q tells 4 / 5, in the 20 rows that have x and no y.
    assert informing_rows(moments, np.array([0]), 2) == pytest.approx([80 + 20 * 0.8])
    every = replace(moments, together=None)
    assert informing_rows(every, np.array([0, 1]), 2).tolist() == [100, 100]


def test_it_shows_that_missing_cells_depend_on_seen_ones():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(1000, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0], [0, 0, 1.0]])
    at_random = rows.copy()
    at_random[rng.random(1000) < 0.3, 2] = np.nan
    assert len(depends_on(seen_sums(at_random))) == 0
    rows[rng.random(1000) < 1 / (1 + np.exp(-rows[:, 0])), 2] = np.nan
    assert depends_on(seen_sums(rows))[0].tolist() == [0, 2]


def test_a_row_of_weight_2_is_the_row_twice():
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(80, 3)) @ (np.eye(3) + 0.4)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    times = rng.integers(0, 4, size=80)
    several, weights = rows.repeat(times, axis=0), times.astype(float)
    for own, other in zip(seen_sums(rows, weights), seen_sums(several), strict=True):
        np.testing.assert_allclose(own, other, atol=1e-12)
    start = MomentEstimate(np.zeros(3), np.eye(3) + 0.5)
    for sums in (expected_sums, own_sums):
        np.testing.assert_allclose(
            sums(rows, start, weights), sums(several, start), rtol=1e-9, atol=1e-9
        )

"""Numbers of parties compared with those of the others that agree."""

import numpy as np
import pytest
from scipy import stats

from flwr_causal.core.linear.parties import _as_normal, compared

MANY = 1e6


def of(values, errors, degrees=MANY):
    values = np.atleast_2d(np.asarray(values, dtype=float))
    variances = np.broadcast_to(np.square(errors), values.shape)
    return compared(values, variances, np.full(values.shape, float(degrees)))


def test_a_number_is_compared_with_the_weighted_mean_of_the_others():
    errors = np.array([1.0, 2.0, 0.5, 1.5])
    found = of([1.0, 1.2, 0.9, 1.1], errors)
    assert found.agree.all()
    for k in range(4):
        left = np.arange(4) != k
        weights = 1 / errors[left] ** 2
        values = np.array([1.0, 1.2, 0.9, 1.1])
        others = weights @ values[left] / weights.sum()
        error = np.hypot(errors[k], weights.sum() ** -0.5)
        np.testing.assert_allclose(found.others[0, k], others)
        # They vary less than their errors, which then stay as they are.
        np.testing.assert_allclose(found.error[0, k], error)
        np.testing.assert_allclose(found.z[0, k], (values[k] - others) / error, rtol=1e-3)


def test_the_party_that_differs_is_left_out_of_what_the_others_are_compared_with():
    found = of([0.0, 0.1, -0.1, 0.05, 9.0], 0.1)
    np.testing.assert_array_equal(found.agree, [[True] * 4 + [False]])
    assert np.abs(found.z[0, :4]).max() < 2
    assert found.z[0, 4] > 8


@pytest.mark.parametrize("error", [0.01, 0.1])
def test_a_party_of_most_rows_is_compared_as_each_of_the_others_is(error):
    found = of([5.0, 0.1, -0.1, 0.05, 0.0], [error, *[0.2] * 4])
    np.testing.assert_array_equal(found.agree, [[False] + [True] * 4])
    assert found.z[0, 0] > 8
    assert np.abs(found.z[0, 1:]).max() < 2


def test_two_parties_of_six_that_differ_do_not_hide_each_other():
    found = of([0.0, 5.0, 0.1, -0.1, 7.0, 0.05], 0.1)
    np.testing.assert_array_equal(found.agree[0], [True, False, True, True, False, True])
    assert min(found.z[0, [1, 4]]) > 8


def test_of_two_parties_both_differ():
    found = of([0.0, 5.0], 0.5)
    np.testing.assert_allclose(found.z[0], [-5 / 0.5**0.5, 5 / 0.5**0.5], rtol=0.05)
    assert found.agree.all()


def test_what_is_unknown_counts_for_nothing():
    values = np.array([[0.0, np.nan, 0.2, 3.0, -0.1]])
    variances = np.array([[0.01, 0.01, 0.01, 0.01, 0.0]])
    found = compared(values, variances, np.full((1, 5), MANY))
    np.testing.assert_array_equal(np.isfinite(found.z), [[True, False, True, True, False]])
    # Without the fourth party those that are known agree.
    np.testing.assert_array_equal(found.agree, [[True, False, True, False, False]])


def test_errors_that_are_too_small_are_seen_in_the_variation_of_the_others():
    rng = np.random.default_rng(0)
    values = 3 * rng.normal(size=(400, 8))
    found = of(values, 1.0)
    assert (np.abs(found.z) > 1.96).mean() == pytest.approx(0.05, abs=0.03)


def test_the_order_of_parties_changes_nothing():
    rng = np.random.default_rng(1)
    values, errors = rng.normal(size=(50, 7)), rng.uniform(0.2, 1, size=(50, 7))
    values[:10, 2] += 9
    turned = rng.permutation(7)
    degrees = np.full((50, 7), 20.0)
    plain, other = (
        compared(values[:, order], errors[:, order] ** 2, degrees)
        for order in (np.arange(7), turned)
    )
    np.testing.assert_allclose(plain.z[:, turned], other.z, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(plain.agree[:, turned], other.agree)


@pytest.mark.parametrize("degrees", [3, 10, 50])
def test_students_t_becomes_a_normal_number_of_the_same_p_value(degrees):
    t = np.array([-6.0, -2.0, 0.5, 3.0])
    expected = stats.norm.isf(stats.t.sf(t, degrees))
    np.testing.assert_allclose(_as_normal(t, np.full(4, float(degrees))), expected, rtol=0.03)

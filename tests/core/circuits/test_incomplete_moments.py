"""Joint moments from parts against closed forms."""

import numpy as np
import pytest

from flwr_causal.core.circuits.learners.class_conditional.joint_moments import (
    PartMoments,
    joint_moments,
)
from flwr_causal.errors import DataError

NAMES = ["a", "b", "c", "d", "e"]


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5)) @ rng.normal(size=(5, 5))
    return (x - x.mean(axis=0)) / x.std(axis=0) + 0.3


def part(x, columns):
    own = x[:, columns]
    return PartMoments(np.array(columns), len(x), own.mean(axis=0), np.cov(own.T, bias=True))


def test_one_part_is_itself():
    x = rows(50)
    mean, covariance = joint_moments([part(x, [0, 1, 2, 3, 4])], NAMES)
    np.testing.assert_allclose(mean, x.mean(axis=0), atol=1e-14)
    np.testing.assert_allclose(covariance, np.cov(x.T, bias=True), atol=1e-14)


def test_parts_with_all_columns_are_their_rows_together():
    x = rows(90)
    everything = [0, 1, 2, 3, 4]
    parts = [part(x[:20] + 1.0, everything), part(x[20:], everything)]
    together = np.concatenate((x[:20] + 1.0, x[20:]))
    mean, covariance = joint_moments(parts, NAMES)
    np.testing.assert_allclose(mean, together.mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(covariance, np.cov(together.T, bias=True), atol=1e-6)


def test_two_parts_with_common_columns():
    """p(S) p(a | S) p(b | S): the regressions are each party's own, S comes from all rows."""
    left, right = rows(80, seed=1), rows(120, seed=2) * 1.2 + 0.4
    common, a, b = [1, 3], [0], [2, 4]
    mean, covariance = joint_moments([part(left, [0, 1, 3]), part(right, [1, 2, 3, 4])], NAMES)
    both = np.concatenate((left, right))[:, common]
    inner = np.cov(both.T, bias=True)
    np.testing.assert_allclose(mean[common], both.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(covariance[np.ix_(common, common)], inner, atol=1e-5)
    slopes = {}
    for own, x in ((a, left), (b, right)):
        design = np.column_stack((np.ones(len(x)), x[:, common]))
        fitted, *_ = np.linalg.lstsq(design, x[:, own], rcond=None)
        residual = x[:, own] - design @ fitted
        slope = slopes[own[0]] = fitted[1:].T
        np.testing.assert_allclose(mean[own], fitted[0] + slope @ both.mean(axis=0), atol=1e-5)
        expected = slope @ inner @ slope.T + residual.T @ residual / len(x)
        np.testing.assert_allclose(covariance[np.ix_(own, own)], expected, atol=1e-5)
        np.testing.assert_allclose(covariance[np.ix_(own, common)], slope @ inner, atol=1e-5)
    across = slopes[0] @ inner @ slopes[2].T
    np.testing.assert_allclose(covariance[np.ix_(a, b)], across, atol=1e-5)


def test_parts_without_common_columns_are_independent():
    x = rows(60)
    mean, covariance = joint_moments([part(x, [0, 3]), part(x, [1, 2, 4])], NAMES)
    full = np.cov(x.T, bias=True)
    np.testing.assert_allclose(mean, x.mean(axis=0), atol=1e-7)
    for own in ([0, 3], [1, 2, 4]):
        np.testing.assert_allclose(covariance[np.ix_(own, own)], full[np.ix_(own, own)], atol=1e-6)
    assert (covariance[np.ix_([0, 3], [1, 2, 4])] == 0).all()


def test_a_ring_of_parts():
    """No closed form: what is not known together has a zero in the inverse."""
    x = rows(200, seed=3)
    parts = [part(x, [j, (j + 1) % 4] if j < 3 else [0, 3]) for j in range(4)]
    _, covariance = joint_moments(parts, NAMES[:4])
    inverse = np.linalg.inv(covariance)
    scale = np.sqrt(np.diag(inverse))
    partial = inverse / np.outer(scale, scale)
    assert abs(partial[0, 2]) < 1e-4
    assert abs(partial[1, 3]) < 1e-4
    full = np.cov(x[:, :4].T, bias=True)
    for i, j in ((0, 1), (1, 2), (2, 3), (0, 3)):
        assert covariance[i, j] == pytest.approx(full[i, j], abs=1e-4)


def test_the_order_of_parts_does_not_matter():
    x = rows(80)
    parts = [part(x, [0, 1, 2]), part(x + 0.5, [1, 2, 3]), part(x * 2, [2, 3, 4])]
    one, other = joint_moments(parts, NAMES), joint_moments(parts[::-1], NAMES)
    np.testing.assert_allclose(one[0], other[0], atol=1e-5)
    np.testing.assert_allclose(one[1], other[1], atol=1e-5)


def test_a_column_without_rows():
    x = rows(30)
    empty = PartMoments(np.array([3, 4]), 0.0, np.zeros(2), np.eye(2))
    with pytest.raises(DataError, match="rows of class 1 with the columns d, e"):
        joint_moments([part(x, [0, 1, 2]), empty], NAMES, "class 1")

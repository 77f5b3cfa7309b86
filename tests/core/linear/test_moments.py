"""Moments: equal to the pooled rows', whatever the split and the offset."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.linear.moments import SampleMoments, as_moments, distinct, merge
from flwr_causal.errors import DataError


def rows(seed, n, d, offset=0.0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + offset


def test_moments_are_numpys():
    X = rows(0, 37, 4, offset=3.0)
    moments = SampleMoments.from_rows(X, ["a", "b", "c", "d"])
    assert (moments.n, moments.d, moments.names) == (37, 4, ("a", "b", "c", "d"))
    np.testing.assert_allclose(moments.mean, X.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(moments.second, np.cov(X.T, bias=True), rtol=1e-12)
    np.testing.assert_allclose(moments.variances, X.var(axis=0), rtol=1e-12)
    assert moments.mean_variance == pytest.approx(X.var(axis=0).mean())
    np.testing.assert_array_equal(moments.second, moments.second.T)


def test_without_centering_the_origin_is_the_mean():
    X = rows(0, 10, 3, offset=2.0)
    moments = SampleMoments.from_rows(X, center=False)
    assert not moments.mean.any()
    np.testing.assert_allclose(moments.second, X.T @ X / 10)


@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=8),
    offset=st.sampled_from([0.0, -5.0, 1e3]),
)
def test_merged_parts_equal_the_pooled_rows(seed, sizes, offset):
    X = rows(seed, sum(sizes), 3, offset)
    parts = np.split(X, np.cumsum(sizes)[:-1])
    merged = merge(SampleMoments.from_rows(part) for part in parts)
    pooled = SampleMoments.from_rows(X)
    assert merged.n == pooled.n
    np.testing.assert_allclose(merged.mean, pooled.mean, rtol=1e-12, atol=1e-14)
    scale = np.sqrt(np.outer(pooled.variances, pooled.variances))
    unit = max(1.0, abs(offset))
    assert np.abs(merged.second - pooled.second).max() <= 1e-12 * max(scale.max(), 1e-3) * unit


def test_merge_to_rounding_with_many_parties():
    X = rows(1, 1000, 5)
    merged = merge(SampleMoments.from_rows(part) for part in np.split(X, 250))
    pooled = SampleMoments.from_rows(X)
    error = np.abs(merged.second - pooled.second).max() / np.abs(pooled.second).max()
    assert error < 1e-12


def test_large_offsets_do_not_cancel():
    """The textbook formula (sum xx^T - n mean mean^T) loses all digits here."""
    X = rows(2, 60, 3)
    far = X + 1e8
    moments = merge([SampleMoments.from_rows(far[:20]), SampleMoments.from_rows(far[20:])])
    np.testing.assert_allclose(moments.second, np.cov(X.T, bias=True), rtol=1e-6, atol=1e-6)


def test_merge_needs_parts_with_the_same_names():
    one, two = SampleMoments.from_rows(np.eye(2)), SampleMoments.from_rows(np.eye(2), ["x1", "x0"])
    with pytest.raises(DataError, match="different variables"):
        merge([one, two])
    with pytest.raises(DataError, match="no moments"):
        merge([])


def test_scaling_and_standardizing():
    X = rows(3, 40, 3, offset=1.0)
    moments = SampleMoments.from_rows(X)
    units = np.array([2.0, 0.1, 5.0])
    np.testing.assert_allclose(
        moments.scaled(units).second, SampleMoments.from_rows(X / units).second, rtol=1e-12
    )
    standardized, scale = moments.standardized()
    np.testing.assert_allclose(standardized.second, np.corrcoef(X.T), rtol=1e-12)
    np.testing.assert_allclose(scale, X.std(axis=0))
    np.testing.assert_allclose(standardized.mean, X.mean(axis=0) / scale)


def test_subset_keeps_the_given_order():
    X = rows(4, 20, 4)
    part = SampleMoments.from_rows(X).subset([2, 0])
    assert part.names == ("x2", "x0")
    np.testing.assert_allclose(part.second, SampleMoments.from_rows(X[:, [2, 0]]).second)


def test_constant_columns_are_named_also_with_rounding():
    X = rows(5, 30, 4)
    X[:, 1] = 0.1
    X[:, 3] = 1e9 / 7
    moments = SampleMoments.from_rows(X)
    assert moments.constant_columns() == [1, 3]
    with pytest.raises(DataError, match="x1, x3"):
        moments.standardized()


def test_correlations_also_beside_a_constant():
    X = rows(5, 30, 4)
    expected = np.corrcoef(X.T)
    X[:, 1] = 0.0
    expected[1] = expected[:, 1] = 0.0
    np.testing.assert_allclose(SampleMoments.from_rows(X).correlations, expected, atol=1e-12)


def test_distinct_moments_are_objects_not_values():
    first, second = (SampleMoments.from_rows(rows(7, 12, 2)) for _ in range(2))
    parts, places = distinct([second, first, second])
    assert [id(part) for part in parts] == [id(second), id(first)]
    assert places.tolist() == [0, 1, 0]


def test_as_moments():
    X = rows(6, 12, 2)
    frame = pd.DataFrame(X, columns=["x10", "x2"])
    moments = as_moments(frame)
    assert moments.names == ("x10", "x2")
    assert as_moments(moments) is moments
    np.testing.assert_array_equal(as_moments(X).second, moments.second)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros(3), "shape"),
        (np.zeros((0, 3)), "n >= 1"),
        (np.array([[1.0, np.nan], [0.0, 1.0]]), "x1"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": ["u", "v"]}), "numbers"),
        (pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]), "unique"),
    ],
)
def test_bad_data(data, message):
    with pytest.raises(DataError, match=message):
        as_moments(data)


def test_bad_moments():
    with pytest.raises(DataError, match="at least one row"):
        SampleMoments(0, np.zeros(1), np.eye(1), ("a",))
    with pytest.raises(DataError, match="second moments"):
        SampleMoments(3, np.zeros(2), np.eye(3), ("a", "b"))
    with pytest.raises(DataError, match="2 names"):
        SampleMoments.from_rows(np.eye(3), ["a", "b"])
    holes = SampleMoments(3, np.zeros(2), np.array([[1.0, np.nan], [np.nan, 1.0]]), ("a", "b"))
    with pytest.raises(DataError, match="a and b"):
        holes.require_complete()


def test_arrays_are_copies_and_read_only():
    second = np.eye(2)
    moments = SampleMoments(3, np.zeros(2), second, ("a", "b"))
    second[0, 0] = 9
    assert moments.second[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        moments.second[0, 0] = 2

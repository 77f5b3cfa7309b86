"""Rows that sums by pairs of columns leave out: what all sums together tell of few rows."""

import numpy as np
import pytest

from flwr_causal.core.discrete.small_gaps import left_out, summed_rows


def gaps(rng, rows, columns, minimum):
    """Gaps of some columns: nested, the same but for few rows, scattered, or none."""
    missing = np.zeros((rows, columns), dtype=np.bool_)
    for j in range(columns):
        other = missing[:, rng.integers(0, j)] if j else missing[:, 0]
        kind = rng.integers(0, 4)
        missing[:, j] = other if kind < 2 else rng.random(rows) < rng.choice([0.02, 0.1, 0.4])
        if kind == 1:
            missing[rng.integers(0, rows, rng.integers(1, 3)), j] ^= True
        if missing[:, j].sum() < minimum:
            missing[:, j] = rng.permutation(rows) < (minimum if kind == 3 else 0)
    return missing


def sums_of(missing, summed, x):
    """The sums of column x that are known: which of the rows with a value each is over."""
    held = ~missing[:, x]
    pairs = [held & summed & ~missing[:, c] for c in range(missing.shape[1])]
    return np.array([held, *pairs], dtype=float)[:, held]


def follows(sums, rows):
    """Whether a sum over some of these rows alone follows: without them the rank is smaller."""
    other = np.delete(sums, rows, axis=1)
    return np.linalg.matrix_rank(other) < np.linalg.matrix_rank(sums)


def test_the_solver_sees_a_single_row_behind_nested_gaps():
    missing = np.zeros((40, 3), dtype=np.bool_)
    missing[:20, 1], missing[:21, 2] = True, True
    sums = sums_of(missing, np.ones(40, dtype=np.bool_), 0)
    assert follows(sums, [20])
    assert not follows(sums, [19])
    assert not follows(sums_of(missing, summed_rows(missing, 5), 0), [20])


@pytest.mark.parametrize("seed", range(60))
def test_no_sum_over_few_rows_follows_from_all_sums(seed):
    rng = np.random.default_rng(seed)
    minimum = int(rng.integers(2, 7))
    missing = gaps(rng, int(rng.integers(30, 120)), int(rng.integers(1, 6)), minimum)
    summed = summed_rows(missing, minimum)
    for x in range(missing.shape[1]):
        sums = sums_of(missing, summed, x)
        _, group, rows = np.unique(sums, axis=1, return_inverse=True, return_counts=True)
        # Each combination of sums is over all rows of a group or over none of them.
        assert (rows >= minimum).all()
        for k in range(len(rows)):
            assert not follows(sums, np.flatnonzero(group.ravel() == k)[: minimum - 1])


@pytest.mark.parametrize("seed", range(60))
def test_of_the_rows_left_out_none_or_the_minimum_have_and_lack_each_column(seed):
    rng = np.random.default_rng(seed)
    minimum = int(rng.integers(2, 7))
    missing = gaps(rng, 90, 5, minimum)
    summed = summed_rows(missing, minimum)
    few = np.concatenate([missing[~summed].sum(axis=0), (~missing[~summed]).sum(axis=0)])
    assert not ((few > 0) & (few < minimum)).any()
    _, rows = np.unique(missing, axis=0, return_counts=True)
    assert summed.all() == (rows >= minimum).all()


def test_patterns_of_many_rows_stay_and_few_rows_cost_few():
    patterns = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1]], dtype=np.bool_)
    assert not left_out(patterns, np.array([100, 20, 5, 9]), 5).any()
    out = left_out(patterns, np.array([100, 20, 30, 1]), 5)
    assert out[3] == 1
    assert 5 <= out.sum() <= 15
    # A column that has too few values to be told leaves none.
    counts = np.array([3, 0, 40, 0])
    assert np.array_equal(left_out(patterns, counts, 5), counts)


def test_rows_are_left_out_in_their_order():
    missing = np.zeros((60, 2), dtype=np.bool_)
    missing[[50, 59], 0], missing[30:36, 0] = True, True
    missing[[59], 1], missing[40:46, 1] = True, True
    summed = summed_rows(missing, 5)
    assert not summed[59]
    for pattern in ([True, False], [False, True], [False, False]):
        own = summed[(missing == pattern).all(axis=1)]
        assert np.array_equal(own, np.sort(own))

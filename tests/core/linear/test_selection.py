"""Choosing the sparsity from sums: the scores by their formulas, and what is chosen."""

import numpy as np
import pytest

from flwr_causal.core.folds import num_held_out, split_rows
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.selection import (
    default_grid,
    default_sparsity,
    held_out_error,
    select_by_bic,
    select_by_held_out,
    typical_variance,
)

CHAIN = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)


def chain_rows(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    y = 1.2 * x + rng.standard_normal(n)
    return np.column_stack([x, y, -0.9 * y + rng.standard_normal(n)])


def solver(moments, sparsity):
    return dagma(moments, sparsity=sparsity, threshold=0.05)


def test_default_follows_the_rate_and_the_units():
    assert default_sparsity(400, 10) == pytest.approx(default_sparsity(100, 10) / 2)
    assert default_sparsity(100, 10, 9.0) == pytest.approx(9 * default_sparsity(100, 10))
    moments = SampleMoments.from_rows(chain_rows(50, 0))
    in_other_units = SampleMoments.from_rows(10.0 * chain_rows(50, 0))
    assert typical_variance(in_other_units) == pytest.approx(100 * typical_variance(moments))
    assert list(default_grid(moments)) == sorted(default_grid(moments))


def test_held_out_error_is_that_of_the_rows():
    """The error from sums equals the one computed row by row with the refitted graph."""
    train, validation = chain_rows(60, 1), chain_rows(40, 2)
    zero = np.zeros(3)
    # Sums about one common centre, as the parties send them.
    sums = [
        SampleMoments(len(r), zero, r.T @ r / len(r), ("x0", "x1", "x2"))
        for r in (train, validation)
    ]
    good = held_out_error(sums[0], sums[1], CHAIN)
    assert good < held_out_error(sums[0], sums[1], np.zeros((3, 3), dtype=bool))
    weights = np.zeros((3, 3))
    for i, j in np.argwhere(CHAIN):
        weights[i, j] = train[:, i] @ train[:, j] / (train[:, i] @ train[:, i])
    residual = train - train @ weights
    variances = (residual**2).mean(axis=0)
    errors = ((validation - validation @ weights) ** 2).mean(axis=0)
    by_rows = 0.5 * np.sum(np.log(variances) + errors / variances)
    empty = 0.5 * np.sum(
        np.log((train**2).mean(axis=0)) + (validation**2).mean(axis=0) / (train**2).mean(axis=0)
    )
    difference = held_out_error(sums[0], sums[1], np.zeros((3, 3), dtype=bool)) - good
    assert difference == pytest.approx(empty - by_rows, rel=1e-6)


def test_only_families_are_read():
    moments = SampleMoments.from_rows(chain_rows(80, 3))
    second = moments.second.copy()
    second[0, 2] = second[2, 0] = np.nan
    masked = SampleMoments(moments.n, moments.mean, second, moments.names)
    assert gaussian_bic(masked, CHAIN) == gaussian_bic(moments, CHAIN)
    assert held_out_error(masked, masked, CHAIN) == held_out_error(moments, moments, CHAIN)


def test_bic_and_held_out_choose_the_chain_not_the_extremes():
    moments = SampleMoments.from_rows(chain_rows(400, 4))
    validation = SampleMoments.from_rows(chain_rows(200, 5))
    grid = (1e-4, 0.05, 5.0)
    assert select_by_bic(moments, grid, solver) == 0.05
    assert select_by_held_out(moments, validation, grid, solver) < 5.0
    np.testing.assert_array_equal(solver(moments, 0.05).adjacency, CHAIN)
    # two sparsities without any edge have equal scores
    assert solver(moments, 5.0).num_edges == 0
    assert select_by_bic(moments, (6.0, 5.0), solver) == 6.0
    assert select_by_bic(moments, (5.0, 6.0), solver) == 6.0


def test_folds_are_a_partition_and_the_server_counts_alike():
    for n in (2, 3, 4, 7, 100):
        train, held_out = split_rows(n, seed=1)
        assert sorted([*train, *held_out]) == list(range(n))
        assert len(held_out) == num_held_out(n)
    np.testing.assert_array_equal(split_rows(40, 3)[1], split_rows(40, 3)[1])
    assert list(split_rows(40, 3)[1]) != list(split_rows(40, 4)[1])

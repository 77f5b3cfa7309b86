"""DYNOTEARS from moments: what it minimises, masks, penalties by block, recovery."""

import numpy as np
import pytest
from lagged_systems import moments_of, random_rows, simulate_series

from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.series.design import lagged_rows
from flwr_causal.core.series.regression import dynotears, lasso
from flwr_causal.errors import ConfigError, DataError

D = 4


def system(d=10, seed=0):
    """Weights as in the paper: W of degree 2, one effect a variable at each of two lags."""
    rng = np.random.default_rng(seed)

    def drawn(mask, scale=1.0):
        sizes = rng.uniform(0.3, 0.5, (d, d)) * rng.choice([-1.0, 1.0], (d, d))
        return np.where(mask, sizes * scale, 0.0)

    order = rng.permutation(d)
    now = np.zeros((d, d))
    now[np.ix_(order, order)] = drawn(np.triu(rng.random((d, d)) < 2 / d, 1))
    return now, drawn(rng.random((d, d)) < 1 / d), drawn(rng.random((d, d)) < 1 / d, 1 / 1.5)


@pytest.mark.parametrize("solver", ["dagma", "notears"])
def test_it_recovers_instantaneous_and_lagged_effects(solver):
    now, first, second = system()
    d = len(now)
    rows = lagged_rows([simulate_series(k, 400, now, first, second) for k in range(5)], 2)
    weights = dynotears(moments_of(rows, d), d, 0.03, solver=solver)
    truth = np.vstack([now, first, second])
    kept = np.where(np.abs(weights) > 0.15, weights, 0.0)
    assert is_acyclic(kept[:d])
    assert ((kept != 0) != (truth != 0)).sum() <= 1
    np.testing.assert_allclose(kept[truth != 0], truth[truth != 0], atol=0.12)


def test_without_instantaneous_edges_it_is_the_lasso():
    moments = moments_of(random_rows(0, 150, D, 2), D)
    allowed = np.ones((3 * D, D), dtype=bool)
    allowed[:D] = False
    weights = dynotears(moments, D, 9.0, 0.05, allowed=allowed, solver="notears")
    np.testing.assert_allclose(weights, lasso(moments, D, 0.05), atol=2e-3)


def test_without_lagged_edges_it_is_the_solver_of_rows_without_time():
    moments = moments_of(random_rows(1, 150, D, 1), D)
    allowed = np.ones((2 * D, D), dtype=bool)
    allowed[D:] = False
    weights = dynotears(moments, D, 0.1, allowed=allowed)
    alone = dagma(moments.subset(range(D)), sparsity=0.1, refit=False).raw_weights
    assert not weights[D:].any()
    np.testing.assert_allclose(weights[:D], alone, atol=1e-2)


def test_each_block_has_its_own_sparsity():
    moments = moments_of(random_rows(2, 150, D, 1), D)
    none_now, none_lagged = dynotears(moments, D, 50.0, 0.01), dynotears(moments, D, 0.01, 50.0)
    assert not none_now[:D].any()
    assert none_now[D:].any()
    assert not none_lagged[D:].any()
    assert none_lagged[:D].any()
    np.testing.assert_array_equal(dynotears(moments, D, 0.1), dynotears(moments, D, 0.1, 0.1))


def test_masks():
    moments = moments_of(random_rows(3, 150, D, 1), D)
    allowed = np.ones((2 * D, D), dtype=bool)
    allowed[0] = allowed[:, 2] = False
    required = np.zeros_like(allowed)
    required[D + 3, 0] = True
    weights = dynotears(moments, D, 50.0, allowed=allowed, required=required)
    assert np.argwhere(weights).tolist() == [[D + 3, 0]]
    free = dynotears(moments, D, 0.01)
    assert not np.diagonal(free[:D]).any()
    assert np.diagonal(free[D:]).any()  # a variable's own past may act on it


def test_large_problems_are_solved_on_an_active_set():
    d = 30  # 60 columns: above the limit of all edges
    now, first, _ = system(d, seed=3)
    rows = lagged_rows([simulate_series(k, 500, now, first) for k in range(4)], 1)
    weights = dynotears(moments_of(rows, d), d, 0.05)
    truth = np.vstack([now, first])
    assert ((np.abs(weights) > 0.15) != (truth != 0)).sum() <= 3


def test_bad_input():
    moments = moments_of(random_rows(4, 50, D, 1), D)
    with pytest.raises(ConfigError, match="unknown solver 'lingam'; known are dagma, notears"):
        dynotears(moments, D, 0.1, solver="lingam")
    with pytest.raises(ConfigError, match=r"at least 0 and finite, got -1\.0"):
        dynotears(moments, D, 0.1, -1.0)
    with pytest.raises(ConfigError, match=r"required edges must have shape \(8, 4\)"):
        dynotears(moments, D, 0.1, required=np.zeros((4, 4)))
    with pytest.raises(DataError, match="not those of 5 variables"):
        dynotears(moments, 5, 0.1)
    holes = np.full_like(moments.second, np.nan)
    with pytest.raises(DataError, match="missing"):
        dynotears(SampleMoments(50, moments.mean, holes, moments.names), D, 0.1)

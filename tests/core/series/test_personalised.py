"""The client's problem of PFDBNL, near common weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flwr_causal.core.graphs.acyclicity import h_exponential
from flwr_causal.core.series.personalised import PENALTIES, OwnProblem, own_step, penalties

D, M = 3, 6


def problem_of(seed, *, sparsity=0.05, lagged=0.08, proximity=0.4, n=200):
    rng = np.random.default_rng(seed)
    mixing = np.eye(M) + 0.4 * rng.normal(size=(M, M))
    rows = rng.normal(size=(n, M)) @ mixing
    limits = np.repeat([sparsity, lagged], D)[:, None]
    return OwnProblem(rows.T @ rows / n, limits, proximity)


def objective(problem, weights, common, multiplier, penalty):
    """The problem as it is written, of weights (m, d)."""
    errors = np.eye(M)[:, :D] - weights
    loss = 0.5 * np.trace(errors.T @ problem.second @ errors)
    h = h_exponential(weights[:D])[0]
    near = problem.proximity * ((weights - common) ** 2).sum()
    return (
        loss
        + (problem.sparsity[:, :1] * np.abs(weights)).sum()
        + near
        + multiplier * h
        + 0.5 * penalty * h**2
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(4))
def test_a_step_is_a_minimum_of_the_problem_as_it_is_written(seed):
    """No change of one weight, nor any of many random ones, lowers the objective."""
    rng, problem = np.random.default_rng(seed), problem_of(seed)
    common, penalty = rng.normal(scale=0.3, size=(M, D)), 2.0
    np.fill_diagonal(common[:D], 0.0)
    first = own_step(problem, None, common, penalty, 0)
    state = own_step(problem, first, common, penalty, 1)
    assert not np.diagonal(state.weights[:D]).any()
    assert first.multiplier == pytest.approx(penalty * h_exponential(first.weights[:D])[0])
    best = objective(problem, state.weights, common, first.multiplier, penalty)
    free = ~np.eye(M, D, dtype=bool)
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(200):
            step = rng.normal(scale=size, size=(M, D)) * (rng.random((M, D)) < 0.3) * free
            moved = objective(problem, state.weights + step, common, first.multiplier, penalty)
            assert moved >= best - 1e-7


def test_without_sparsity_and_cycles_it_is_a_ridge_towards_the_common_weights():
    problem = problem_of(5, sparsity=0.0, lagged=0.0, proximity=0.3)
    common = np.zeros((M, D))
    common[D:] = np.random.default_rng(0).normal(size=(M - D, D))
    found = own_step(problem, None, common, 1e-12, 0).weights
    for j in range(D):
        others = [i for i in range(M) if i != j]
        left = problem.second[np.ix_(others, others)] + 0.6 * np.eye(M - 1)
        right = problem.second[others, j] + 0.6 * common[others, j]
        np.testing.assert_allclose(found[others, j], np.linalg.solve(left, right), atol=1e-4)


def test_a_large_proximity_gives_the_common_weights_and_none_does_not_read_them():
    common = np.zeros((M, D))
    common[0, 1], common[3, 2] = 0.7, -0.4
    near = own_step(problem_of(1, proximity=1e6), None, common, 1.0, 0).weights
    np.testing.assert_allclose(near, common, atol=1e-4)
    start = own_step(problem_of(1, proximity=0.0), None, np.zeros((M, D)), 1.0, 0)
    alone = [
        own_step(problem_of(1, proximity=0.0), start, other, 1.0, 1).weights
        for other in (common, 5 * common)
    ]
    np.testing.assert_array_equal(*alone)


def test_weights_become_acyclic_as_the_penalty_grows():
    problem, state = problem_of(2, proximity=0.1), None
    rho = penalties(25)
    assert (rho[0], rho[-1]) == pytest.approx(PENALTIES)
    ratios = np.divide(rho[1:], rho[:-1])
    np.testing.assert_allclose(ratios, ratios[0])
    for number, penalty in enumerate(rho):
        state = own_step(problem, state, np.zeros((M, D)), penalty, number)
    assert h_exponential(state.weights[:D])[0] < 1e-4
    assert state.multiplier > 0


@settings(max_examples=10, deadline=None)
@given(order=st.permutations(range(D)))
def test_the_order_of_the_variables_does_not_matter(order):
    problem = problem_of(3)
    common = np.random.default_rng(1).normal(scale=0.2, size=(M, D))
    np.fill_diagonal(common[:D], 0.0)
    places = np.concatenate([np.array(order), D + np.array(order)])
    usual = own_step(problem, None, common, 0.5, 0).weights
    moved = OwnProblem(
        problem.second[np.ix_(places, places)], problem.sparsity[places], problem.proximity
    )
    other = own_step(moved, None, common[places][:, order], 0.5, 0).weights
    np.testing.assert_allclose(usual[places][:, order], other, atol=1e-3)

"""Mechanisms under interventions: which rows inform about them, and what follows from it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_search import random_dag
from small_graphs import matrix

from flwr_causal.core.ges.cpdag import class_of
from flwr_causal.core.ges.linear_class import linear_class
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.interventions.moments import (
    columns_by_rows,
    distinguished_pairs,
    moments_by_variable,
)
from flwr_causal.core.linear.dagma import dagma
from flwr_causal.core.linear.edge_problem import EdgeProblem, SparseProblem
from flwr_causal.core.linear.gaussian_scores import gaussian_bic
from flwr_causal.core.linear.moments import SampleMoments, data_scale
from flwr_causal.core.linear.regression import least_squares
from flwr_causal.core.systems.linear import fit
from flwr_causal.errors import DataError


def free(d):
    return EdgeMasks(~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool))


def products_of(groups):
    """Mean products of the rows [1, x] of groups of rows."""
    n = sum(map(len, groups))
    extended = [np.column_stack([np.ones(len(rows)), rows]) for rows in groups]
    return np.array([rows.T @ rows / n for rows in extended]), n


def acted_on(d, target_sets):
    return np.array([[j in targets for j in range(d)] for targets in target_sets])


def sample(weights, intercepts, n, rng, targets=(), level=2.0):
    """Rows of a linear system of unit noise; targets get a level and noise of their own."""
    weights, intercepts = weights.copy(), intercepts.copy()
    weights[:, list(targets)] = 0.0
    intercepts[list(targets)] = level
    noise = rng.normal(size=(n, len(weights)))
    return (intercepts + noise) @ np.linalg.inv(np.eye(len(weights)) - weights)


def found_in(groups, target_sets):
    d = groups[0].shape[1]
    products, n = products_of(groups)
    acted = acted_on(d, target_sets)
    moments = moments_by_variable(products, acted, n, [f"x{j}" for j in range(d)])
    return linear_class(moments, free(d), distinguished=distinguished_pairs(acted)), moments


@pytest.mark.parametrize("seed", [5, 21, 37])
def test_a_search_of_few_rows_ends(seed):
    """Where its two stages count rows differently, each may undo what the other has done."""
    rng, d = np.random.default_rng(seed), 8
    signs = rng.choice([-1, 1], (d, d))
    weights = np.triu(rng.random((d, d)) < 0.5, 1) * signs * rng.uniform(0.3, 1.2, (d, d))
    sets = [(), (0,), (3,)]
    groups = [
        sample(weights, np.zeros(d), n, rng, targets)
        for n, targets in zip((20, 40, 40), sets, strict=True)
    ]
    assert np.isfinite(found_in(groups, sets)[0].weights).all()


def test_moments_of_a_mechanism_are_those_of_the_rows_without_interventions_on_it():
    rng = np.random.default_rng(0)
    groups = [rng.normal(k, 1 + k, size=(n, 3)) for k, n in enumerate((20, 30, 25))]
    products, n = products_of(groups)
    found = moments_by_variable(products, acted_on(3, [(), (0,), (0, 2)]), n, "abc")
    for own, rows in zip(found, [(0,), (0, 1, 2), (0, 1)], strict=True):
        expected = SampleMoments.from_rows(np.concatenate([groups[k] for k in rows]), tuple("abc"))
        assert own.n == expected.n
        np.testing.assert_allclose(own.mean, expected.mean, atol=1e-12)
        np.testing.assert_allclose(own.second, expected.second, atol=1e-12)


def test_each_mechanism_is_the_regression_on_its_own_rows():
    rng = np.random.default_rng(1)
    weights = np.array([[0, 0.8, 0.0], [0, 0, -1.2], [0, 0, 0]])
    intercepts = np.array([1.0, -2.0, 0.5])
    target_sets = [(), (0,), (1,)]
    groups = [sample(weights, intercepts, 20_000, rng, targets) for targets in target_sets]
    _, moments = found_in(groups, target_sets)
    model = fit(moments, weights != 0)
    np.testing.assert_allclose(model.weights, weights, atol=0.03)
    np.testing.assert_allclose(model.intercepts, intercepts, atol=0.03)
    np.testing.assert_allclose(model.noise_variances, 1.0, atol=0.03)
    kept = SampleMoments.from_rows(np.concatenate([groups[0], groups[1]]))
    expected, _ = least_squares(kept, weights != 0)
    np.testing.assert_allclose(model.weights[:, 1], expected[:, 1], atol=1e-12)


@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("cause", [0, 1])
def test_one_intervention_directs_an_edge(cause, target):
    """Observations alone leave x - y open; rows with an intervention on either one direct it."""
    rng = np.random.default_rng(cause + 2 * target)
    dag = matrix(2, (cause, 1 - cause))
    weights, intercepts = 0.8 * dag, np.array([0.5, -1.0])
    observed = sample(weights, intercepts, 400, rng)
    acted = sample(weights, intercepts, 400, rng, (target,))
    alone, _ = found_in([observed], [()])
    np.testing.assert_array_equal(alone.marks, dag | dag.T)
    both, _ = found_in([observed, acted], [(), (target,)])
    np.testing.assert_array_equal(both.marks, dag)
    np.testing.assert_allclose(both.weights, weights, atol=0.1)


def test_a_shift_of_the_mean_alone_directs_an_edge():
    """An intervention that sets a cause to a constant informs by the mean of the effect."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    observed = np.column_stack([x, 0.7 * x + rng.normal(size=300)])
    fixed = np.column_stack([np.full(300, 3.0), 2.1 + rng.normal(size=300)])
    found, moments = found_in([observed, fixed], [(), (0,)])
    np.testing.assert_array_equal(found.marks, matrix(2, (0, 1)))
    # With the rows of both groups the effect is known better than from the observations.
    assert moments[1].n == 600
    assert moments[1].second[0, 0] > 2 * moments[0].second[0, 0]


@pytest.mark.parametrize("seed", range(12))
def test_the_class_of_a_system_is_found_from_many_rows(seed):
    rng = np.random.default_rng(seed)
    dag = random_dag(5, rng, 0.4)
    weights = dag * rng.uniform(0.5, 1.2, (5, 5)) * rng.choice([-1, 1], (5, 5))
    target_sets = [(), (int(rng.integers(5)),), tuple(rng.choice(5, 2, replace=False).tolist())]
    intercepts = rng.normal(size=5)
    groups = [sample(weights, intercepts, 20_000, rng, targets) for targets in target_sets]
    found, _ = found_in(groups, target_sets)
    pairs = distinguished_pairs(acted_on(5, target_sets))
    np.testing.assert_array_equal(found.marks, class_of(dag, pairs))


@given(st.integers(0, 10**6))
def test_neither_units_nor_origins_matter(seed):
    rng = np.random.default_rng(seed)
    weights = random_dag(4, rng) * rng.uniform(0.5, 1.2, (4, 4))
    target_sets = [(), (1,), (2, 3)]
    groups = [sample(weights, np.zeros(4), 60, rng, targets) for targets in target_sets]
    units, origins = 10.0 ** rng.uniform(-3, 3, 4), rng.normal(size=4)
    one, _ = found_in(groups, target_sets)
    other, _ = found_in([(rows + origins) * units for rows in groups], target_sets)
    np.testing.assert_array_equal(other.marks, one.marks)
    np.testing.assert_allclose(other.weights, one.weights * units / units[:, None], rtol=1e-6)


def three_groups(seed):
    """Groups with targets (), (0,) and (0, 2) at different levels; the rows by variable."""
    rng = np.random.default_rng(seed)
    groups = [rng.normal(k, 1 + k, size=(n, 3)) for k, n in enumerate((20, 30, 25))]
    products, n = products_of(groups)
    moments = moments_by_variable(products, acted_on(3, [(), (0,), (0, 2)]), n, "abc")
    rows = [np.concatenate([groups[k] for k in own]) for own in [(0,), (0, 1, 2), (0, 1)]]
    return moments, [own - own.mean(axis=0) for own in rows]


def test_columns_of_equal_rows_are_found_together():
    found = columns_by_rows(acted_on(4, [(), (0,), (0, 2)]))
    assert [(rows.tolist(), columns.tolist()) for rows, columns in found] == [
        ([True, False, False], [0]),
        ([True, True, True], [1, 3]),
        ([True, True, False], [2]),
    ]


def test_the_loss_of_each_column_runs_over_its_own_rows():
    moments, rows = three_groups(2)
    sparse = SparseProblem.of_unit_variance(moments, free(3), 0.1)
    problem = EdgeProblem.from_mask(
        sparse.second, free(3).allowed, 0.1, free(3).required, sparse.own
    )
    values = np.random.default_rng(0).normal(size=6)
    weights = problem.matrix(values)
    # In units of the mean number of rows and of the variables' own variances.
    unit = np.mean([len(own) for own in rows])
    unit *= data_scale(np.array([rows[j][:, j].var() for j in range(3)]))
    squares = [((rows[j] @ (np.eye(3) - weights)[:, j]) ** 2).sum() for j in range(3)]
    loss, gradient = problem.loss(values)
    assert loss == pytest.approx(0.5 * sum(squares) / unit, rel=1e-8)
    for k, (i, j) in enumerate(zip(problem.rows, problem.columns, strict=True)):
        slope = -rows[j][:, i] @ rows[j] @ (np.eye(3) - weights)[:, j] / unit
        assert gradient[k] == pytest.approx(slope, rel=1e-8)
        # The condition of stationarity of an edge without weight is read from the same rows.
        empty = sparse.violations(np.zeros((3, 3)))[i, j]
        covariance = abs(rows[j][:, i] @ rows[j][:, j]) / unit
        assert empty == pytest.approx(covariance - sparse.sparsity, rel=1e-6)


def test_scores_sum_over_each_variables_own_rows():
    moments, rows = three_groups(3)
    dag = matrix(3, (0, 1), (1, 2))
    residuals = [rows[0][:, 0]]
    for i, j in ((0, 1), (1, 2)):
        cause, effect = rows[j][:, i], rows[j][:, j]
        residuals.append(effect - cause * (cause @ effect) / (cause @ cause))
    counts, squares = np.array([[len(e), e @ e] for e in residuals]).T
    cost = np.log(counts.mean())
    expected = 0.5 * counts @ np.log(squares / counts) + cost
    assert gaussian_bic(moments, dag) == pytest.approx(expected)


def test_where_all_variables_share_the_rows_nothing_changes():
    moments = SampleMoments.from_rows(np.random.default_rng(4).normal(size=(60, 3)) @ CHAIN_ROWS)
    listed = [moments] * 3
    one, other = (dagma(given, sparsity=0.05) for given in (moments, listed))
    assert np.array_equal(one.weights, other.weights)
    assert np.array_equal(one.raw_weights, other.raw_weights)


CHAIN_ROWS = np.linalg.inv(np.eye(3) - np.array([[0, 1.5, 0], [0, 0, -1.0], [0, 0, 0]]))


@pytest.mark.parametrize("seed", range(5))
def test_dagma_ignoring_interventions_is_wrong_where_using_them_is_right(seed):
    """x -> y, and many rows in which y was held near 0: it then varies less than x."""
    rng = np.random.default_rng(seed)
    weights = np.array([[0, 0.9], [0, 0]])
    observed = sample(weights, np.zeros(2), 1000, rng)
    acted = np.column_stack([rng.normal(size=4000), 0.1 * rng.normal(size=4000)])
    products, n = products_of([observed, acted])
    moments = moments_by_variable(products, acted_on(2, [(), (1,)]), n, "xy")
    found = dagma(moments, sparsity=0.05).weights
    expected = least_squares(SampleMoments.from_rows(observed), matrix(2, (0, 1)))[0]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    naive = dagma(np.concatenate([observed, acted]), sparsity=0.05).weights
    assert naive[1, 0] > 0.3


def test_a_variable_that_no_row_informs_about_is_refused():
    groups = [np.random.default_rng(0).normal(size=(9, 2))] * 2
    products, n = products_of(groups)
    with pytest.raises(DataError, match=r"column 'a' is the target .* in all rows"):
        moments_by_variable(products, acted_on(2, [(0,), (0, 1)]), n, "ab")

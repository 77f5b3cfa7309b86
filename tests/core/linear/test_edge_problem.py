"""The solvers' common problem: gradients, dense against sparse products, active set, signs."""

import itertools

import numpy as np
import pytest
from small_graphs import h_logdet

from flwr_causal.core.graphs.acyclicity import h_exponential
from flwr_causal.core.linear import edge_problem
from flwr_causal.core.linear.edge_problem import (
    VIOLATION_TOLERANCE,
    EdgeProblem,
    SparseProblem,
    exponential_block,
    logdet_measure,
)


def covariance(seed, d, n=200):
    rng = np.random.default_rng(seed)
    mixing = np.eye(d) + rng.standard_normal((d, d)) * (rng.random((d, d)) < 2 / d)
    return np.cov((rng.standard_normal((n, d)) @ mixing).T, bias=True)


def problem_of(seed, d, fill=0.5, sparsity=0.1):
    candidates = (np.random.default_rng(seed).random((d, d)) < fill) & ~np.eye(d, dtype=bool)
    required = np.zeros((d, d), dtype=bool)
    return EdgeProblem.from_mask(covariance(seed, d), candidates, sparsity, required)


def numeric_gradient(function, point, step=1e-6):
    gradient = np.zeros(len(point))
    for k in range(len(point)):
        moved = np.zeros(len(point))
        moved[k] = step
        gradient[k] = (function(point + moved) - function(point - moved)) / (2 * step)
    return gradient


def sparse_point(problem, seed, fill=0.5, scale=0.3):
    rng = np.random.default_rng(seed)
    m = len(problem.rows)
    return rng.standard_normal(m) * scale * (rng.random(m) < fill)


@pytest.mark.parametrize("dense_limit", [0, 64])
def test_loss_is_its_definition_whatever_the_product(monkeypatch, dense_limit):
    monkeypatch.setattr(edge_problem, "DENSE_PRODUCT_LIMIT", dense_limit)
    monkeypatch.setattr(edge_problem, "DENSE_PRODUCT_FILL", 1.0)
    problem = problem_of(0, 8)
    point = sparse_point(problem, 1)
    residual = np.eye(8) - problem.matrix(point)
    value, gradient = problem.loss(point)
    assert value == pytest.approx(0.5 * np.trace(residual.T @ problem.second[0] @ residual))
    numeric = numeric_gradient(lambda w: problem.loss(w)[0], point)
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)


@pytest.mark.parametrize("fill", [0.15, 0.3, 0.9])
def test_acyclicity_is_that_of_the_matrix(fill):
    for seed in range(5):
        problem = problem_of(seed, 9, fill)
        point = sparse_point(problem, seed)
        edges = problem.rows, problem.columns
        for measure, whole in (
            (exponential_block, h_exponential),
            (logdet_measure(1.2), lambda w: h_logdet(w, 1.2)),
        ):
            value, gradient = problem.acyclicity(point, measure)
            expected, expected_gradient = whole(problem.matrix(point))
            assert value == pytest.approx(expected, abs=1e-13)
            np.testing.assert_allclose(gradient, expected_gradient[edges], atol=1e-13)


def test_outside_the_domain_there_is_no_gradient():
    problem = problem_of(0, 4, fill=1.0)
    value, gradient = problem.acyclicity(np.full(len(problem.rows), 2.0), logdet_measure(1.0))
    assert value == np.inf
    assert gradient is None


def convex(h):
    """No price of cycles: the problem is then convex and its minimum unique."""
    return 0.0 * h, 0.0


def tight(problem, start, **options):
    options |= {"relative_decrease": 1e-15, "gradient_tolerance": 1e-9}
    return problem.minimize(start, exponential_block, convex, **options)


def test_minimum_satisfies_its_conditions():
    problem = problem_of(2, 7, sparsity=0.2)
    point = tight(problem, np.zeros(len(problem.rows)))
    gradient = problem.loss(point)[1]
    at_zero = point == 0
    assert at_zero.any()
    assert (~at_zero).any()
    assert (np.abs(gradient[at_zero]) <= 0.2 + 1e-6).all()
    np.testing.assert_allclose(gradient[~at_zero], -0.2 * np.sign(point[~at_zero]), atol=1e-5)


def test_units_of_the_variables_are_taken_out():
    """Units of a thousandth and a thousand make the plain problem hopeless for L-BFGS."""
    second = covariance(3, 6)
    units = np.array([1.0, 1e-3, 1.0, 1e3, 1.0, 1.0])
    forward = np.triu(np.ones((6, 6), dtype=bool), 1)  # on cycles h would overflow
    required = np.zeros((6, 6), dtype=bool)
    plain = EdgeProblem.from_mask(second, forward, 0.0, required)
    scaled = EdgeProblem.from_mask(second / np.outer(units, units), forward, 0.0, required)
    start = np.zeros(len(plain.rows))
    found = scaled.matrix(tight(scaled, start)) * units / units[:, None]
    expected = plain.matrix(tight(plain, start))
    visible = [0, 1, 2, 4, 5]  # the loss of a variable in large units is below rounding
    np.testing.assert_allclose(found[:, visible], expected[:, visible], atol=1e-3)


def test_overflow_counts_as_outside_the_domain():
    value, gradient = exponential_block(np.full((3, 3), 40.0))
    assert value == np.inf
    assert gradient is None


def test_one_sign_reaches_the_same_minimum_when_signs_are_right():
    problem = problem_of(4, 8, sparsity=0.15)
    both = tight(problem, np.zeros(len(problem.rows)))
    one = tight(problem, both * 0.5, both_signs=False)
    np.testing.assert_allclose(one, both, atol=1e-4)
    wrong = tight(problem, -both, both_signs=False)
    assert (wrong * both <= 0).all()


def test_no_candidates_no_weights():
    problem = EdgeProblem.from_mask(
        np.eye(3), np.zeros((3, 3), dtype=bool), 0.1, np.zeros((3, 3), dtype=bool)
    )
    assert problem.minimize(np.zeros(0), exponential_block, convex).shape == (0,)


@pytest.mark.parametrize("seed", range(3))
def test_active_set_finds_the_minimum_over_all_edges(seed):
    """Convex case: one minimum, so the active set must end in that of all allowed edges."""
    d = 12
    rng = np.random.default_rng(seed)
    allowed = (rng.random((d, d)) < 0.8) & ~np.eye(d, dtype=bool)
    required = np.zeros((d, d), dtype=bool)
    required[tuple(np.argwhere(allowed)[:4].T)] = True
    second = covariance(seed, d)
    found = {}
    for all_edges in (True, False):
        problem = SparseProblem(second, allowed, required, 0.1, all_edges)
        found[all_edges] = problem.minimize(
            np.zeros((d, d)),
            exponential_block,
            convex,
            passes=20,
            relative_decrease=1e-15,
            gradient_tolerance=1e-9,
        )
        violations = problem.violations(found[all_edges])
        assert violations[~required].max() <= VIOLATION_TOLERANCE * 0.1 + 1e-6
    np.testing.assert_allclose(found[False], found[True], atol=5e-3)


def test_violations_by_the_definition():
    d = 5
    second = covariance(1, d)
    allowed = ~np.eye(d, dtype=bool)
    allowed[0, 1] = False
    required = np.zeros((d, d), dtype=bool)
    required[2, 3] = True
    weights = np.zeros((d, d))
    weights[3, 4] = 0.5
    violations = SparseProblem(second, allowed, required, 0.2, False).violations(weights)
    gradient = second - second @ weights
    for i, j in itertools.product(range(d), repeat=2):
        if not allowed[i, j] or weights[i, j]:
            assert violations[i, j] == -np.inf
        else:
            price = 0.0 if required[i, j] else 0.2
            assert violations[i, j] == pytest.approx(abs(gradient[i, j]) - price)

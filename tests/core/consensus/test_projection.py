"""The server's problem: exact reduction against a generic solver, box, masks, robustness."""

import numpy as np
import paper_admm
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.consensus import projection
from flwr_causal.core.consensus.projection import project
from flwr_causal.core.graphs.acyclicity import h_exponential


def objective(W, M, sparsity, curvature, multiplier, penalty):
    d = W.shape[1]
    h = paper_admm.h_function(W[:d])[0]
    return (
        np.sum(sparsity * np.abs(W))
        + multiplier * h
        + 0.5 * penalty * h**2
        + 0.5 * curvature * np.sum((W - M) ** 2)
    )


def sparse_mean(rng, m, d, density=0.5):
    return rng.standard_normal((m, d)) * (rng.random((m, d)) < density)


def solve_generically(M, sparsity, curvature, multiplier, penalty, start):
    """The full problem in W = P - N, with no use of signs, blocks or boxes."""
    m, d = M.shape
    sparsity = np.broadcast_to(sparsity, M.shape)

    def smooth(parts):
        P, N = parts.reshape(2, m, d)
        W = P - N
        h, slope = paper_admm.h_function(W[:d])
        gradient = curvature * (W - M)
        gradient[:d] += (multiplier + penalty * h) * slope
        value = (
            np.sum(sparsity * (P + N))
            + multiplier * h
            + 0.5 * penalty * h**2
            + 0.5 * curvature * np.sum((W - M) ** 2)
        )
        return value, np.stack([gradient + sparsity, sparsity - gradient]).ravel()

    upper = np.full((2, m, d), np.inf)
    upper[:, np.arange(d), np.arange(d)] = 0.0
    result = scipy.optimize.minimize(
        smooth,
        np.stack([np.maximum(start, 0), np.maximum(-start, 0)]).ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=scipy.optimize.Bounds(np.zeros(2 * m * d), upper.ravel()),
        options={"maxiter": 20000, "maxfun": 80000, "ftol": 0.0, "gtol": 1e-10, "maxcor": 30},
    )
    P, N = result.x.reshape(2, m, d)
    return P - N


@pytest.mark.parametrize(("d", "lags"), [(2, 0), (5, 0), (9, 0), (4, 2), (1, 1)])
@pytest.mark.parametrize(("multiplier", "penalty"), [(0.0, 0.3), (0.5, 2.0), (20.0, 1e3)])
def test_equals_the_full_problem(d, lags, multiplier, penalty):
    rng = np.random.default_rng([d, lags])
    M = sparse_mean(rng, d * (1 + lags), d)
    numbers = {
        "sparsity": 0.4,
        "curvature": 3.0,
        "multiplier": multiplier,
        "penalty": penalty,
    }
    start = 0.5 * np.sign(M) * np.maximum(np.abs(M) - 0.4 / 3.0, 0)
    reduced = project(M, **numbers, start=start, max_iterations=5000, tolerance=1e-11)
    full = solve_generically(M, **numbers, start=start)
    value, reference = (objective(W, M, **numbers) for W in (reduced.weights, full))
    np.testing.assert_allclose(reduced.weights, full, atol=2e-6)
    assert value <= reference + 1e-9 * max(1, abs(reference))
    assert reduced.h == pytest.approx(h_exponential(reduced.weights[:d])[0], abs=1e-12)


def test_elementwise_sparsity_equals_the_full_problem():
    rng = np.random.default_rng(3)
    M = sparse_mean(rng, 12, 6)
    sparsity = rng.uniform(0, 1, M.shape)
    numbers = {"sparsity": sparsity, "curvature": 2.0, "multiplier": 1.0, "penalty": 1.0}
    start = np.zeros_like(M) + 0.2 * np.sign(M)
    reduced = project(M, **numbers, start=start, tolerance=1e-11)
    full = solve_generically(M, **numbers, start=start)
    np.testing.assert_allclose(reduced.weights, full, atol=2e-6)


def test_exempt_edges_are_not_shrunk():
    M = np.array([[0.0, 0.5, 0.3], [0.0, 0.0, 0.05], [0.0, 0.0, 0.0]])
    sparsity = np.where(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool), 0.0, 0.4)
    W = project(M, sparsity=sparsity, curvature=2.0, multiplier=5.0, penalty=5.0).weights
    np.testing.assert_allclose(W, [[0, 0.5, 0.1], [0, 0, 0.05], [0, 0, 0]], atol=1e-15)


@given(seed=st.integers(0, 2**32 - 1), lags=st.integers(0, 2), log_penalty=st.floats(-3, 6))
def test_solution_is_stationary_and_in_the_box(seed, lags, log_penalty):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 7))
    M = sparse_mean(rng, d * (1 + lags), d)
    sparsity, curvature, penalty = 0.2, 1.5, 10.0**log_penalty
    W, h, _ = project(
        M, sparsity=sparsity, curvature=curvature, multiplier=0.1, penalty=penalty, tolerance=1e-9
    )
    bound = np.maximum(np.abs(M) - sparsity / curvature, 0)
    np.fill_diagonal(bound[:d], 0)
    assert (np.abs(W) <= bound).all()
    assert (W * M >= 0).all()
    # first-order conditions of the problem in |W|
    slope = curvature * (np.abs(W) - bound)
    slope[:d] += (0.1 + penalty * h) * paper_admm.h_function(np.abs(W[:d]))[1]
    inside = (np.abs(W) > 0) & (np.abs(W) < bound)
    scale = max(1.0, penalty * 1e-3)
    assert np.abs(slope[inside]).max(initial=0) < 1e-5 * scale
    assert slope[np.abs(W) == bound].max(initial=0) < 1e-5 * scale


def test_acyclic_support_is_a_soft_threshold():
    M = np.triu(np.random.default_rng(0).standard_normal((6, 6)), 1)
    result = project(M, sparsity=0.3, curvature=1.0, multiplier=100.0, penalty=100.0)
    np.testing.assert_array_equal(result.weights, np.sign(M) * np.maximum(np.abs(M) - 0.3, 0))
    assert (result.h, result.iterations) == (0.0, 0)


def test_lagged_rows_are_a_soft_threshold():
    rng = np.random.default_rng(1)
    M = sparse_mean(rng, 15, 5, density=1.0)
    W = project(M, sparsity=0.3, curvature=2.0, multiplier=3.0, penalty=1.0).weights
    np.testing.assert_array_equal(W[5:], (np.sign(M) * np.maximum(np.abs(M) - 0.15, 0))[5:])
    assert (np.diagonal(W) == 0).all()
    assert (np.diagonal(W[5:10]) != 0).any()


def test_objective_inside_the_components_has_the_right_gradient():
    rng = np.random.default_rng(2)
    bound = np.abs(sparse_mean(rng, 8, 8, 0.8))
    bound[:4, 4:] = 0  # at least two components
    np.fill_diagonal(bound, 0)
    blocks = projection._inner_blocks(bound)
    upper = projection._gather(bound, blocks)
    values = upper * rng.uniform(0.1, 0.9, len(upper))
    error = scipy.optimize.check_grad(
        lambda v: projection._acyclicity(v, blocks)[0],
        lambda v: projection._acyclicity(v, blocks)[1],
        values,
        seed=0,
    )
    assert len(blocks) >= 2
    assert error < 1e-5


def test_forbidden_edges_are_exactly_zero():
    rng = np.random.default_rng(4)
    M = rng.standard_normal((14, 7))
    allowed = rng.random(M.shape) < 0.5
    W = project(M, sparsity=0.0, curvature=1.0, multiplier=0.1, penalty=0.1, allowed=allowed)[0]
    assert (W[~allowed] == 0).all()
    rows, columns = np.nonzero(allowed[:7] & ~np.eye(7, dtype=bool))
    assert (W[rows, columns] != 0).any()


def test_grows_towards_a_dag():
    M = np.random.default_rng(5).standard_normal((8, 8))
    previous = np.inf
    for penalty in (0.1, 10.0, 1e3, 1e5, 1e7):
        h = project(M, sparsity=0.1, curvature=1.0, penalty=penalty).h
        assert h <= previous
        previous = h
    assert previous < 1e-3


def test_independent_of_units():
    """The loss, and with it every number it is weighed against, may be scaled freely."""
    rng = np.random.default_rng(6)
    M = sparse_mean(rng, 9, 9)
    numbers = {"sparsity": 0.2, "curvature": 2.0, "multiplier": 0.7, "penalty": 3.0}
    scaled = {key: 1e6 * value for key, value in numbers.items()}
    np.testing.assert_allclose(
        project(M, **scaled).weights, project(M, **numbers).weights, rtol=1e-6, atol=1e-8
    )


def test_permuting_variables_permutes_the_solution():
    rng = np.random.default_rng(7)
    M = sparse_mean(rng, 8, 8)
    order = rng.permutation(8)
    numbers = {"sparsity": 0.2, "curvature": 2.0, "multiplier": 0.7, "penalty": 3.0}
    W = project(M, **numbers, tolerance=1e-11).weights
    permuted = project(M[np.ix_(order, order)], **numbers, tolerance=1e-11).weights
    np.testing.assert_allclose(permuted, W[np.ix_(order, order)], atol=1e-7)


def test_survives_means_whose_exponential_overflows():
    M = 100.0 * np.random.default_rng(8).standard_normal((6, 6))
    W, h, _ = project(M, sparsity=0.1, curvature=1.0, multiplier=1.0, penalty=1.0)
    assert np.isfinite(W).all()
    assert np.isfinite(h)
    assert (W != 0).any()


def test_rounds_may_be_solved_roughly():
    M = np.random.default_rng(9).standard_normal((30, 30))
    result = project(M, sparsity=0.1, curvature=1.0, penalty=1.0, max_iterations=3)
    assert result.iterations <= 3


@pytest.mark.parametrize(
    ("mean", "curvature", "message"),
    [
        (np.zeros((3, 2)), 1.0, "rows"),
        (np.zeros((2, 2)), 0.0, "curvature"),
    ],
)
def test_wrong_arguments_are_named(mean, curvature, message):
    with pytest.raises(ValueError, match=message):
        project(mean, sparsity=0.1, curvature=curvature)

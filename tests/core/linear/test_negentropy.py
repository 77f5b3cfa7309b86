"""Negentropies from two means: closed forms, a brute-force fit, their distribution for a test."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize

from flwr_causal.core.linear.negentropy import mean_functions, negentropies

ROOT2 = np.sqrt(2)
DENSITIES = {
    "Gaussian": lambda u: np.exp(-u * u / 2) / np.sqrt(2 * np.pi),
    "Laplace": lambda u: np.exp(-ROOT2 * abs(u)) / ROOT2,
    "exponential": lambda u: np.exp(-(u + 1)) * (u >= -1),
    "uniform": lambda u: (abs(u) <= np.sqrt(3)) / (2 * np.sqrt(3)),
}
# 1/2 log(2 pi e) minus the differential entropy.
GAUSSIAN_ENTROPY = 0.5 * np.log(2 * np.pi * np.e)
TRUE = {
    "Gaussian": 0.0,
    "Laplace": GAUSSIAN_ENTROPY - 1 - np.log(ROOT2),
    "exponential": GAUSSIAN_ENTROPY - 1,
    "uniform": GAUSSIAN_ENTROPY - np.log(2 * np.sqrt(3)),
}


def functions(u):
    return np.log(np.cosh(u)), u * np.exp(-u * u / 2)


def expected(name):
    points = (-np.sqrt(3), -1, 0, np.sqrt(3))
    return [
        quad(lambda u, k=k: functions(u)[k] * DENSITIES[name](u), -30, 30, points=points)[0]
        for k in range(2)
    ]


@pytest.mark.parametrize("name", DENSITIES)
def test_it_is_at_most_the_true_negentropy(name):
    (found,) = negentropies(np.array([expected(name)]))
    assert found <= TRUE[name] + 1e-6
    assert found >= 0.5 * TRUE[name]


@pytest.mark.parametrize("name", DENSITIES)
def test_it_is_the_gain_in_likelihood_of_the_fitted_density(name):
    """The same density, fitted by another optimiser on another grid."""
    grid = np.linspace(-8, 8, 1601)
    statistics = np.stack([grid, grid**2, *functions(grid)])
    means = expected(name)

    def loss(parameters):
        exponent = parameters @ statistics - grid**2 / 2
        top = exponent.max()
        total = top + np.log(np.exp(exponent - top).sum() * (grid[1] - grid[0]))
        return total - parameters @ [0, 1, *means]

    best = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-8}).fun
    (found,) = negentropies(np.array([means]))
    # The ridge takes a little off.
    assert found == pytest.approx(0.5 * np.log(2 * np.pi) - best, abs=2e-3)


def test_skewness_counts_alike_to_either_side():
    tails, skew = expected("exponential")
    left, right = negentropies(np.array([[tails, skew], [tails, -skew]]))
    assert left == pytest.approx(right, rel=1e-9)


def test_each_density_is_fitted_for_itself():
    means = np.array([expected(name) for name in DENSITIES])
    together = negentropies(np.repeat(means, 700, axis=0))
    assert np.allclose(together.reshape(4, 700), negentropies(means)[:, None], atol=1e-12)
    assert negentropies(np.zeros((0, 2))).shape == (0,)


@pytest.mark.parametrize("means", [(np.log(np.cosh(1)), 0.0), (0.0, 0.0), (0.2, 0.6), (5.0, -0.6)])
def test_means_at_the_limits_and_beyond_give_finite_numbers(means):
    (found,) = negentropies(np.array([means]))
    assert 0 < found < np.inf


def test_gaussian_rows_give_a_chi_squared_variable():
    rng = np.random.default_rng(0)
    n, statistics = 400, []
    for _ in range(300):
        u = rng.normal(size=(n, 1))
        u = (u - u.mean()) / u.std()
        statistics.append(2 * n * negentropies(mean_functions(u, np.eye(1)))[0])
    assert np.mean(statistics) == pytest.approx(2, abs=0.35)
    assert np.mean(np.array(statistics) > 9.21) < 0.035


def test_means_over_many_rows_and_combinations():
    rng = np.random.default_rng(1)
    rows, directions = rng.standard_t(2, size=(9000, 3)), rng.normal(size=(70, 3))
    u = rows @ directions.T
    log_cosh = np.logaddexp(u, -u) - np.log(2)
    direct = np.column_stack([log_cosh.mean(axis=0), (u * np.exp(-u * u / 2)).mean(axis=0)])
    assert np.allclose(mean_functions(rows, directions), direct, rtol=1e-12, atol=1e-14)
    assert mean_functions(rows, directions[:0]).shape == (0, 2)

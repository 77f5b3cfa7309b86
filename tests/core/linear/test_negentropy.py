"""Negentropies from two means and from rows: closed forms, a brute-force fit, distributions."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize

from flwr_causal.core.linear.negentropy import mean_functions, negentropies, of_rows

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


DRAWN = {
    "Gaussian": lambda rng, n: rng.normal(size=n),
    "Laplace": lambda rng, n: rng.laplace(size=n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "uniform": lambda rng, n: rng.uniform(size=n),
}


@pytest.mark.parametrize("name", DRAWN)
def test_of_rows_is_the_true_negentropy(name):
    rng = np.random.default_rng(3)
    for n, most in ((150, 0.04), (5000, 0.01)):
        found = [of_rows(DRAWN[name](rng, n)) for _ in range(100)]
        assert np.mean(found) == pytest.approx(TRUE[name], abs=most)


@pytest.mark.parametrize("n", [10, 50, 300, 2000])
def test_of_gaussian_rows_it_is_less_than_the_price_of_a_shape(n):
    rng = np.random.default_rng(n)
    assert n * np.mean([of_rows(rng.normal(size=n)) for _ in range(200)]) < np.log(n)


def test_of_rows_has_no_units_and_no_order():
    values = np.random.default_rng(0).exponential(size=200)
    assert of_rows(3e6 - 1e3 * values[::-1]) == pytest.approx(of_rows(values), abs=1e-6)
    assert of_rows(np.full(5, 2.5)) == of_rows(np.ones(1)) == 0.0


def test_rounded_values_are_not_taken_for_a_density_of_peaks():
    rng = np.random.default_rng(1)
    values = rng.normal(size=1000)
    assert of_rows(np.round(values, 1)) == pytest.approx(of_rows(values), abs=0.02)
    assert of_rows(np.repeat(np.arange(5.0), 40)) == pytest.approx(TRUE["uniform"], abs=0.05)

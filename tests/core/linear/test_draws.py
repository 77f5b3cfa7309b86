"""Second moments of other samples: their distribution, units, rank and order."""

import numpy as np
import pytest

from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.stability import redrawn


def moments(second, n):
    second = np.asarray(second, dtype=float)
    return SampleMoments(n, np.zeros(len(second)), second, tuple("abcd"[: len(second)]))


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("n", [3, 4, 40])
def test_draws_have_the_mean_and_the_variance_of_the_wishart_distribution(n):
    root = np.random.default_rng(5).normal(size=(3, 3))
    true = root @ root.T
    drawn = np.array([one.second for one in redrawn(moments(true, n), 8000)])
    spread = np.sqrt((true**2 + np.outer(np.diag(true), np.diag(true))) * (n - 1)) / n
    np.testing.assert_allclose(drawn.std(axis=0), spread, rtol=0.08)
    error = np.abs(drawn.mean(axis=0) - true * (n - 1) / n)
    assert (error < 4 * spread / np.sqrt(len(drawn))).all()
    np.testing.assert_allclose(drawn, drawn.swapaxes(1, 2))


def test_draws_have_the_units_of_the_moments_and_come_again():
    units = np.array([1.0, 1e3, 1e-3])
    own = moments([[1.0, 0.5, 0.2], [0.5, 1.0, 0.1], [0.2, 0.1, 1.0]], 1000)
    for one, scaled in zip(redrawn(own, 5), redrawn(own.scaled(units), 5), strict=True):
        expected = one.second / np.outer(units, units)
        np.testing.assert_allclose(scaled.second, expected, rtol=1e-6)


def test_draws_of_collinear_moments_are_collinear():
    factor = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    (drawn,) = redrawn(moments(factor @ factor.T, 50), 1)
    assert np.linalg.matrix_rank(drawn.second, tol=1e-6) == 2

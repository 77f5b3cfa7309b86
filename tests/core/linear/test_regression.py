"""Shares of variance that all other variables explain, and moments given other variables."""

import numpy as np
import pytest

from flwr_causal.core.linear.moments import SampleMoments
from flwr_causal.core.linear.regression import explained_shares, given_others


def by_least_squares(rows):
    centred = rows - rows.mean(axis=0)
    shares = []
    for j in range(rows.shape[1]):
        others = np.delete(centred, j, axis=1)
        left = centred[:, j] - others @ np.linalg.lstsq(others, centred[:, j], rcond=None)[0]
        shares.append(1 - (left**2).sum() / (centred[:, j] ** 2).sum())
    return shares


@pytest.mark.parametrize("case", ["usual", "units", "combination", "few rows"])
def test_they_are_those_of_regressions_on_the_rows(case):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(4 if case == "few rows" else 60, 5)) @ rng.normal(size=(5, 5))
    if case == "units":
        rows *= [1.0, 1e6, 1e-6, 1.0, 10.0]
    if case == "combination":
        rows[:, 4] = rows[:, 0] - 2 * rows[:, 1]
    found = explained_shares(np.cov(rows, rowvar=False, bias=True))
    np.testing.assert_allclose(found, by_least_squares(rows), atol=1e-7)


def test_a_constant_is_explained_by_nothing_and_explains_nothing():
    rows = np.random.default_rng(0).normal(size=(60, 4)) @ np.triu(np.ones((4, 4)))
    rows[:, 1] = 3.0
    found = explained_shares(np.cov(rows, rowvar=False, bias=True))
    assert found[1] == 0
    np.testing.assert_allclose(found[[0, 2, 3]], by_least_squares(rows[:, [0, 2, 3]]), atol=1e-7)
    assert explained_shares(np.zeros((2, 2))).tolist() == [0, 0]


def test_moments_given_others_are_those_of_residuals():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 5)) + 2
    moments = SampleMoments.from_rows(rows, list("abcde"))
    found = given_others(moments, 2)
    design = np.column_stack([rows[:, 2:], np.ones(200)])
    residuals = rows[:, :2] - design @ np.linalg.lstsq(design, rows[:, :2], rcond=None)[0]
    np.testing.assert_allclose(found.second, residuals.T @ residuals / 200, atol=1e-10)
    assert (found.n, found.names) == (197, ("a", "b"))
    assert given_others(moments, 5) is moments

"""Linear combinations among variables, from their second moments."""

import numpy as np
import pytest

from flwr_causal.core.linear.determined import combinations
from flwr_causal.core.linear.gaussian_scores import partial_correlations
from flwr_causal.core.linear.regression import regress

RNG = np.random.default_rng(0)
BASE = RNG.normal(size=(60, 6))


def found(rows):
    return combinations(np.cov(np.asarray(rows).T, bias=True))


def test_independent_variables_are_none():
    assert found(BASE) == {}


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e9])
def test_a_sum_names_its_terms_in_any_unit(unit):
    rows = np.column_stack([BASE, BASE[:, 1] - 3 * BASE[:, 4] + 7]) * np.array([*[1.0] * 6, unit])
    assert found(rows) == {6: (1, 4)}


def test_several_combinations_refer_to_variables_that_are_none():
    rows = np.column_stack([BASE[:, :2], BASE[:, 0] * 2.54, BASE[:, 0] + BASE[:, 1], BASE[:, 2]])
    assert found(rows) == {2: (0,), 3: (0, 1)}


def test_dummies_of_one_category_add_up_to_one():
    state = RNG.integers(0, 3, 90)
    rows = np.column_stack([np.eye(3)[state], RNG.normal(size=90)])
    assert found(rows) == {2: (0, 1)}


def test_what_is_nearly_a_combination_is_none():
    noisy = BASE[:, 1] + BASE[:, 2] + 1e-4 * BASE[:, 5]
    assert found(np.column_stack([BASE[:, :3], noisy])) == {}


def test_a_variable_that_does_not_vary_is_left_aside():
    assert found(np.column_stack([np.full(60, 0.1), BASE[:, 0], -BASE[:, 0]])) == {2: (1,)}


def test_nothing_is_left_of_a_combination_and_nothing_explains_what_is_left():
    """In any order of the rows: what is left is the rounding error of the sums."""
    rows = np.column_stack([BASE, 1.1 * BASE[:, 1] - 0.3 * BASE[:, 4] + BASE[:, 2] / 7])
    parents = np.array([1, 2, 4])
    for seed in range(20):
        second = np.cov(np.random.default_rng(seed).permutation(rows).T, bias=True)
        assert regress(second, parents, 6)[1] == 0
        scale = np.sqrt(np.diagonal(second))
        strengths = partial_correlations(second / np.outer(scale, scale), parents, 6)
        assert (strengths[[0, 3, 5]] == 0).all()
        assert strengths[parents] == pytest.approx(1)

"""The basis of additive models: orthonormal functions, shares of variance, scales."""

import numpy as np
import pytest
from mixed_parties import mixed_parties

from flwr_causal.core.fedcausal import group
from flwr_causal.core.nonlinear.basis import (
    RIDGE,
    SIZE,
    basis_moments,
    noise_scale,
    orthonormal_basis,
    partial_shares,
    prior_noise_scale,
    raw_basis,
    standardised,
    strengths,
)

ONE = mixed_parties(3, sizes=(300,))


def test_functions_are_orthonormal_within_a_variable():
    rows = ONE[1][0] * 7.0 + 3.0
    functions = orthonormal_basis(rows)
    for i in range(rows.shape[1]):
        block = functions[:, i]
        np.testing.assert_allclose(block.T @ block / len(rows), np.eye(SIZE), atol=1e-10)
        np.testing.assert_allclose(block.mean(axis=0), 0, atol=1e-10)
        raw = raw_basis(standardised(rows)[:, i])
        raw -= raw.mean(axis=0)
        projected = block @ (block.T @ raw) / len(rows)  # the same space
        np.testing.assert_allclose(projected, raw, atol=1e-8)


def test_columns_with_few_values_have_fewer_functions():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 2, 60), np.full(60, 0.1), rng.integers(0, 3, 60)])
    functions = orthonormal_basis(rows.astype(float))
    ranks = [round((functions[:, i] ** 2).mean(axis=0).sum()) for i in range(3)]
    assert ranks == [1, 0, 2]
    moments = basis_moments(rows.astype(float))
    assert moments.variances[1] == 0
    assert np.isfinite(partial_shares(moments, np.zeros((3, 3), dtype=bool))).all()
    step = group.client_step([group.local_problem(moments)], None, np.zeros((3, 3)), 0.1, 0)
    assert (step.squared_norms[1] == 0).all()
    assert (step.squared_norms[:, 1] == 0).all()


def test_a_party_may_have_one_row():
    moments = basis_moments(np.ones((1, 4)))
    assert prior_noise_scale(moments) == 1.0
    assert noise_scale(moments, np.zeros((4, 4), dtype=bool)) == 1.0
    assert (partial_shares(moments, np.zeros((4, 4), dtype=bool)) == 0).all()
    step = group.client_step([group.local_problem(moments)], None, np.zeros((4, 4)), 0.1, 0)
    assert (step.formed == 0).all()


def test_partial_shares_are_those_of_regressions():
    graph, (rows,) = ONE
    n, d = rows.shape
    functions = orthonormal_basis(rows)
    centred = rows - rows.mean(axis=0)

    def residual_variance(child, causes):
        """Of the ridge regression, corrected for the functions fitted."""
        design = functions[:, causes].reshape(n, -1)
        stacked = np.vstack([design / np.sqrt(n), np.sqrt(RIDGE) * np.eye(design.shape[1])])
        target = np.concatenate([centred[:, child] / np.sqrt(n), np.zeros(design.shape[1])])
        rest = np.linalg.lstsq(stacked, target)[1][0] if causes else target @ target
        return rest / (n - 1 - design.shape[1])

    shares = partial_shares(basis_moments(rows), graph)
    for i in range(d):
        for j in range(d):
            parents = [int(p) for p in np.flatnonzero(graph[:, j]) if p != i]
            expected = (
                0.0
                if i == j
                else 1 - residual_variance(j, [*parents, i]) / residual_variance(j, parents)
            )
            assert shares[i, j] == pytest.approx(expected, abs=1e-9)


def test_strength_is_the_partial_correlation_of_a_linear_model():
    rng = np.random.default_rng(1)
    n = 20000
    a, b = rng.standard_normal((2, n))
    effect = 0.6 * a + 2.0 * b + rng.standard_normal(n)
    rows = np.column_stack([a, b, effect, rng.standard_normal(n)]) * [1.0, 50.0, 3.0, 1e-3]
    graph = np.zeros((4, 4), dtype=bool)
    graph[:2, 2] = True
    strength = strengths(partial_shares(basis_moments(rows), graph))
    assert strength[0, 2] == pytest.approx(np.sqrt(0.36 / 1.36), abs=0.02)
    assert strength[1, 2] == pytest.approx(np.sqrt(4 / 5), abs=0.02)
    assert strength[3].max() < 0.03


def test_shares_of_nothing_are_zero_on_average():
    rng = np.random.default_rng(2)
    empty = np.zeros((10, 10), dtype=bool)
    shares = np.mean(
        [partial_shares(basis_moments(rng.standard_normal((80, 10))), empty) for _ in range(20)],
        axis=0,
    )
    assert abs(shares[~np.eye(10, dtype=bool)].mean()) < 3e-3  # without the correction .064


def test_scales():
    graph, (rows,) = ONE
    moments = basis_moments(rows)
    assert noise_scale(moments, graph) == pytest.approx(1.0, abs=0.15)
    assert noise_scale(basis_moments(9.0 * rows), graph) == pytest.approx(
        9 * noise_scale(moments, graph)
    )
    assert prior_noise_scale(basis_moments(9.0 * rows)) == pytest.approx(
        9 * prior_noise_scale(moments)
    )

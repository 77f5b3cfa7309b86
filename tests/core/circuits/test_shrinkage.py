"""Moments and held-out likelihoods from sums against the rows themselves."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from flwr_causal.core.circuits.learners.class_conditional.moments import (
    FLOOR,
    ClassMoments,
    ClassSums,
    Shrinkage,
    choose_shrinkage,
    correlation_blocks,
    held_out_likelihoods,
    judge,
    pooled_covariance,
    shrunk_moments,
)

NUM_FOLDS = 3


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    classes = rng.choice(3, 120, p=[0.5, 0.4, 0.1])
    mixing = rng.normal(size=(3, 4, 4))
    z = np.einsum("nij,nj->ni", mixing[classes], rng.normal(size=(120, 4))) + classes[:, None]
    return z, classes, rng.integers(0, NUM_FOLDS, 120)


def sums_of(z, classes, folds, num_classes=3):
    offsets = np.arange(num_classes * z.shape[1], dtype=float).reshape(num_classes, -1) / 10
    own = [
        [z[(folds == f) & (classes == c)] - offsets[c] for c in range(num_classes)]
        for f in range(folds.max() + 1)
    ]
    return ClassSums(
        np.array([[len(x) for x in fold] for fold in own], dtype=float),
        np.array([[x.sum(axis=0) for x in fold] for fold in own]),
        np.array([[x.T @ x for x in fold] for fold in own]),
        offsets,
    )


def expected_moments(z, classes, shrinkage, num_classes=3):
    """The formula of the docstring, from rows."""
    d = z.shape[1]
    groups = [z[classes == c] for c in range(num_classes)]
    pooled = sum((x - x.mean(axis=0)).T @ (x - x.mean(axis=0)) for x in groups) / len(z)
    k = max(shrinkage.pooled / (1 - shrinkage.pooled) * len(z) / num_classes, 1.0)
    means, covariances = [], []
    for x in groups:
        centered = x - x.mean(axis=0)
        full = (centered.T @ centered + k * pooled) / (len(x) + k) + FLOOR * np.eye(d)
        shrunk = (1 - shrinkage.diagonal) * full
        np.fill_diagonal(shrunk, np.diag(full))
        means.append(x.mean(axis=0))
        covariances.append(shrunk)
    return np.array(means), np.array(covariances)


@pytest.mark.parametrize("shrinkage", [Shrinkage(0.0, 0.0), Shrinkage(0.3, 0.2)], ids=str)
def test_moments_are_those_of_the_rows(rows, shrinkage):
    z, classes, folds = rows
    found = shrunk_moments(sums_of(z, classes, folds).total(), shrinkage)
    means, covariances = expected_moments(z, classes, shrinkage)
    np.testing.assert_allclose(found.means, means, atol=1e-12)
    np.testing.assert_allclose(found.covariances, covariances, atol=1e-12)


def test_all_pooled(rows):
    sums = sums_of(*rows).total()
    found = shrunk_moments(sums, Shrinkage(0.0, 1.0))
    for covariance in found.covariances:
        np.testing.assert_allclose(covariance, pooled_covariance(sums), atol=1e-12)


def test_held_out_likelihoods_are_those_of_the_rows(rows):
    z, classes, folds = rows
    diagonals, pooled = (0.0, 0.1, 1.0), (0.0, 0.3)
    found = held_out_likelihoods(sums_of(*rows), diagonals, pooled)
    for i, diagonal in enumerate(diagonals):
        for k, share in enumerate(pooled):
            expected = 0.0
            for f in range(NUM_FOLDS):
                others = folds != f
                means, covariances = expected_moments(
                    z[others], classes[others], Shrinkage(diagonal, share)
                )
                for x, c in zip(z[~others], classes[~others], strict=True):
                    expected += multivariate_normal.logpdf(x, means[c], covariances[c])
            assert found[i, k] == pytest.approx(expected, abs=1e-8)
    best = choose_shrinkage(sums_of(*rows), diagonals, pooled)
    i, k = np.unravel_index(found.argmax(), found.shape)
    assert best == Shrinkage(diagonals[i], pooled[k])


def test_a_class_without_rows_and_one_with_a_single_row(rows):
    z, classes, folds = rows
    few = np.flatnonzero((classes != 2) & (np.cumsum(classes == 1) * (classes == 1) <= 1))
    z, classes, folds = z[few], classes[few], folds[few]
    assert (classes == 1).sum() == 1
    sums = sums_of(z, classes, folds).total()
    found = shrunk_moments(sums, Shrinkage(0.0, 0.0))
    pooled = pooled_covariance(sums)
    np.testing.assert_allclose(found.covariances[2], pooled, atol=1e-9)
    np.testing.assert_allclose(found.covariances[1], pooled / 2, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found.means[1], z[classes == 1][0], atol=1e-12)
    np.testing.assert_allclose(found.means[2], z.mean(axis=0), atol=1e-12)


def test_blocks_join_correlated_columns():
    covariance = np.eye(5)
    covariance[0, 2] = covariance[2, 0] = -0.9
    covariance[1, 4] = covariance[4, 1] = 0.5
    scale = np.array([1.0, 10.0, 0.1, 3.0, 7.0])
    found = correlation_blocks(scale[:, None] * covariance * scale, (0.0, 0.2, 0.6, 1.0))
    expected = [[0, 1, 2, 3, 4], [0, 1, 0, 2, 3], [0, 1, 0, 2, 1], [0, 0, 0, 0, 0]]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(correlation_blocks(np.eye(1), (0.5, 1.0)), [[0], [0]])


def test_held_out_losses_of_blocks_by_direct_evaluation(rows):
    z, classes, _ = rows
    means, covariances = expected_moments(z, classes, Shrinkage(0.1, 0.1))
    priors = np.log([0.2, 0.3, 0.5])
    blocks = np.array([[0, 0, 0, 0], [0, 1, 0, 1]])
    found = judge(
        z,
        classes,
        ClassMoments(means, covariances),
        np.broadcast_to(priors, (len(z), 3)),
        blocks,
        np.array([np.inf]),
    )

    def density(columns):
        return np.stack(
            [
                multivariate_normal.logpdf(
                    z[:, columns], means[c][columns], covariances[c][np.ix_(columns, columns)]
                )
                for c in range(3)
            ],
            axis=1,
        )

    index = np.arange(len(z))
    full = density([0, 1, 2, 3])
    assert found.likelihoods[0] == pytest.approx(full[index, classes].sum())
    for loss, joint in zip(
        found.log_losses[:, 0], (full, density([0, 2]) + density([1, 3])), strict=True
    ):
        scores = np.exp(joint + priors)
        posterior = scores / scores.sum(axis=1, keepdims=True)
        assert loss == pytest.approx(-np.log(posterior[index, classes]).sum())

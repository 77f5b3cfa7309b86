"""Class-conditional circuits from products of columns of which only some parties know the class."""

import numpy as np
import pytest

from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.class_conditional.joined import (
    ClassColumns,
    labelled_numbers,
)
from flwr_causal.core.circuits.learners.class_conditional.learner import ClassConditional
from flwr_causal.core.circuits.learners.class_conditional.moments import Coordinates
from flwr_causal.errors import DataError

#: Two numbers of the party with the class, two of the other one.
DOMAIN = Domain((*(Variable(name) for name in "abcd"), Variable("kind", ("no", "yes"))))
PRESENCE = np.array([[1, 1, 0, 0, 1], [0, 0, 1, 1, 0]], dtype=bool)


def columns(min_rows=1, labelled=(0, 1)):
    plan = ClassConditional(target="kind").plan(DOMAIN, min_rows=min_rows)
    ones, zeros = np.ones(4), np.zeros(4)
    coordinates = Coordinates(ones, zeros, 100 * ones, ones, zeros, ones)
    return ClassColumns(plan, coordinates, labelled)


def rows(n, covariances, seed=0):
    """Return rows of two classes with means 0 and 1."""
    rng = np.random.default_rng(seed)
    classes = (np.arange(n) % 3 == 0).astype(float)
    roots = [np.linalg.cholesky(one) for one in covariances]
    noise = np.stack([roots[int(c)] @ rng.normal(size=4) for c in classes])
    return np.column_stack([noise + classes[:, None], classes])


def joined(columns, values, known=None):
    """Return products, sums and counts of rows; ``known`` says which party has each row."""
    known = np.ones((2, len(values)), dtype=bool) if known is None else known
    parts = []
    for own, held in zip(known, PRESENCE, strict=True):
        table = np.where(held, values, np.nan)
        parts.append(columns.values(table, np.zeros(len(values), dtype=int)) * own[:, None])
    held = PRESENCE[:, columns.owners]
    matrix = np.where(held[0], parts[0], parts[1])
    there = np.where(held[0], known[0][:, None], known[1][:, None]).astype(float)
    wanted = columns.wanted
    products, sums = matrix.T @ matrix * wanted, matrix.T @ there * wanted
    return products, sums, np.maximum(there.T @ there, 0).astype(np.int64)


def within_classes(values):
    labels = values[:, 4].astype(int)
    means = np.stack([values[labels == c, :4].mean(axis=0) for c in (0, 1)])
    own = np.stack([np.cov(values[labels == c, :4].T, bias=True) for c in (0, 1)])
    shares = np.bincount(labels) / len(labels)
    return means, own, np.einsum("c,cij->ij", shares, own)


def less_correlated(covariance, n):
    """Return the covariance with correlations that are smaller by the share of 2005."""
    deviations = np.sqrt(np.diagonal(covariance))
    r = (covariance / np.outer(deviations, deviations))[~np.eye(len(covariance), dtype=bool)]
    share = min(1.0, ((1 - r**2) ** 2).sum() / (n - 1) / (r**2).sum())
    return np.where(np.eye(len(covariance), dtype=bool), covariance, (1 - share) * covariance)


ALIKE = 0.6 * np.eye(4) + 0.4
OTHER = 0.6 * np.eye(4) + 0.4 * np.outer([1, -1, 1, 1], [1, -1, 1, 1])


def test_classes_that_are_alike_share_the_covariance_within_them():
    values = rows(600, (ALIKE, ALIKE))
    found = columns().trained(*joined(columns(), values))
    means, _, within = within_classes(values)
    assert found.counts.tolist() == [400, 200]
    np.testing.assert_allclose(found.moments.means, means, atol=1e-12)
    for covariance in found.moments.covariances:
        np.testing.assert_allclose(covariance, less_correlated(within, 600), atol=3e-6)


def test_classes_that_differ_have_covariances_of_labelled_numbers_of_their_own():
    values = rows(60_000, (ALIKE, OTHER))
    found = columns().trained(*joined(columns(), values)).moments.covariances
    _, own, within = within_classes(values)
    np.testing.assert_allclose(found[:, :2], own[:, :2], atol=1e-3)
    shares = np.array([2, 1]) / 3
    average = np.einsum("c,cij->ij", shares, found)
    np.testing.assert_allclose(average[2:, 2:], within[2:, 2:], atol=1e-3)
    # Given the labelled numbers the others have one covariance.
    rest = [one[2:, 2:] - one[2:, :2] @ np.linalg.solve(one[:2, :2], one[:2, 2:]) for one in found]
    np.testing.assert_allclose(*rest, atol=1e-9)


def test_without_labelled_numbers_there_is_one_covariance():
    values = rows(5000, (ALIKE, OTHER))
    none = columns(labelled=())
    found = none.trained(*joined(none, values)).moments.covariances
    np.testing.assert_allclose(found[0], found[1])
    np.testing.assert_allclose(found[0], within_classes(values)[2], atol=2e-3)


def test_rows_that_one_party_lacks_count_for_the_pairs_that_know_them():
    values, known = rows(3000, (ALIKE, ALIKE)), np.ones((2, 3000), dtype=bool)
    known[1, 2000:] = False
    found = columns().trained(*joined(columns(), values, known)).moments
    both = within_classes(values[:2000])[0]
    np.testing.assert_allclose(found.means[:, :2], within_classes(values)[0][:, :2], atol=1e-12)
    np.testing.assert_allclose(found.means[:, 2:], both[:, 2:], atol=1e-12)
    assert np.linalg.eigvalsh(found.covariances).min() > 0


def test_labelled_numbers_are_those_of_all_parties_with_the_class():
    plan = columns().plan
    assert labelled_numbers(plan, PRESENCE) == [0, 1]
    third = np.array([[0, 1, 1, 0, 1]], dtype=bool)
    assert labelled_numbers(plan, np.concatenate([PRESENCE, third])) == [1]


def test_a_class_of_few_rows_of_a_pattern_is_in_no_product():
    values = rows(9, (ALIKE, ALIKE))
    patterns = np.array([0] * 4 + [1] * 5)  # of class 1 two rows, and one
    own = columns(min_rows=2).values(values, patterns)
    assert own[:, 5].tolist() == [1, 0, 0, 1, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(own[:, 8:10], values[:, :2] * own[:, [5]])
    assert columns(min_rows=1).values(values, patterns)[6, 5] == 1


def test_too_few_rows_are_refused():
    values = rows(300, (ALIKE, ALIKE))
    alone = columns()
    with pytest.raises(DataError, match=r"no class of 'kind' has two rows"):
        alone.trained(*joined(alone, values[:2]))
    known = np.ones((2, 300), dtype=bool)
    known[1, values[:, 4] > 0] = False
    with pytest.raises(DataError, match=r"no common row of class 1 of 'kind' that knows 'c'"):
        alone.trained(*joined(alone, values, known))

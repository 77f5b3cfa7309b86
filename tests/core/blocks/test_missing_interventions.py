"""Expectation-maximisation under known interventions, beside closed forms and likelihoods."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from flwr_causal.core.blocks.missing import (
    MomentEstimate,
    accelerated,
    change,
    expected_sums,
    first_estimate,
    seen_sums,
)
from flwr_causal.core.blocks.missing_interventions import UnderTargets, implied_by_targets
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.interventions.moments import rows_by_variable
from flwr_causal.errors import DataError

D = 4
NAMES = tuple("abcd")
ONE_EACH = [1] * D
FREE = EdgeMasks(~np.eye(D, dtype=bool), np.zeros((D, D), dtype=bool))
#: a causes b and c, b and c cause d.
WEIGHTS = np.zeros((D, D))
WEIGHTS[0, 1], WEIGHTS[0, 2], WEIGHTS[1, 3], WEIGHTS[2, 3] = 1.2, -0.8, 0.9, 0.7
NOISE = np.array([1.0, 0.5, 2.0, 1.5])
#: Nothing, b, and c with d.
ACTED = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]], dtype=bool)
SHARES = np.array([0.5, 0.3, 0.2])
SET_TO = np.array([0.0, 3.0, -1.0, 2.0])


def moments_of(acted):
    """Means and second moments of rows whose targets are drawn around ``SET_TO``, variance .25."""
    weights = np.where(acted, 0.0, WEIGHTS)
    spread = np.linalg.inv(np.eye(D) - weights)
    noise = np.where(acted, 0.25, NOISE)
    return np.where(acted, SET_TO, 0.5) @ spread, spread.T @ np.diag(noise) @ spread


def products_of(mean, second):
    row = np.append(1.0, mean)
    return np.outer(row, row) + np.pad(second, (1, 0))


TRUE = [moments_of(own) for own in ACTED]
PRODUCTS = np.array([share * products_of(*own) for share, own in zip(SHARES, TRUE, strict=True)])


def drawn(n, share, seed=0):
    """Rows with gaps, and the set of each."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(3, n, p=SHARES)
    rows = np.array([rng.multivariate_normal(*TRUE[k]) for k in codes])
    rows[rng.random(rows.shape) < share] = np.nan
    return rows, codes


def expected(rows, codes, estimate):
    return np.array([expected_sums(rows[codes == k], estimate.of_set(k)) for k in range(3)])


def implied(products, order, **options):
    return implied_by_targets(products, ACTED, ONE_EACH, order, NAMES, **options)


def log_likelihood(rows, codes, estimate):
    total = 0.0
    for row, k in zip(rows, codes, strict=True):
        seen = ~np.isnan(row)
        if seen.any():
            mean, second = estimate.of_set(k)
            among = second[np.ix_(seen, seen)]
            total += multivariate_normal(mean[seen], among).logpdf(row[seen])
    return total


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_the_true_moments_stand_along_an_order_of_the_causes(order):
    found = implied(PRODUCTS, order)
    for k, (mean, second) in enumerate(TRUE):
        np.testing.assert_allclose(found.mean[k], mean, atol=1e-9)
        np.testing.assert_allclose(found.second[k], second, atol=2e-6)
    against = implied(PRODUCTS, (3, 2, 1, 0))
    assert np.abs(against.second - found.second).max() > 0.1


def test_without_targets_any_order_leaves_the_moments_as_they_are():
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        found = implied_by_targets(
            PRODUCTS[:1], np.zeros((1, D), dtype=bool), ONE_EACH, order, NAMES
        )
        np.testing.assert_allclose(found.mean[0], TRUE[0][0], atol=1e-9)
        np.testing.assert_allclose(found.second[0], TRUE[0][1], atol=1e-9)


def test_rows_in_which_a_variable_is_a_target_say_nothing_of_its_causes():
    # b set to other values: its own family in the other sets stays, and that of d, its effect, too.
    other = moments_of(ACTED[1])
    moved = other[0] + 5.0 * np.array([0, 1, 0, WEIGHTS[1, 3]])
    changed = PRODUCTS.copy()
    changed[1] = SHARES[1] * products_of(moved, other[1])
    found, before = implied(changed, range(D)), implied(PRODUCTS, range(D))
    for k in (0, 2):
        np.testing.assert_allclose(found.mean[k], before.mean[k], atol=1e-9)
        np.testing.assert_allclose(found.second[k], before.second[k], atol=1e-9)
    assert found.mean[1, 1] == pytest.approx(before.mean[1, 1] + 5)


@pytest.mark.slow
def test_plain_steps_raise_the_likelihood():
    rows, codes = drawn(400, 0.3, seed=1)
    estimate = first_estimate(seen_sums(rows)).for_sets(3)
    reached = []
    for _ in range(8):
        estimate = implied(expected(rows, codes, estimate), range(D))
        reached.append(log_likelihood(rows, codes, estimate))
    assert (np.diff(reached) > 0).all()


@pytest.mark.slow
def test_steps_lead_to_the_order_and_the_moments_of_complete_rows():
    rows, codes = drawn(6000, 0.2, seed=2)
    seen = seen_sums(rows)
    steps, under = [], UnderTargets(ACTED, ONE_EACH, NAMES, FREE, 5000, seen)
    estimate = first_estimate(seen).for_sets(3)
    for number in range(30):
        after = under.step(expected(rows, codes, estimate))
        steps = [*([] if under.began else steps), (estimate, after)]
        assert under.began or number > 0
        if not under.began and change(*steps[-1]) < 1e-4:
            break
        estimate = under.restricted(accelerated(steps))
    assert number < 15
    for k, (mean, second) in enumerate(TRUE):
        np.testing.assert_allclose(after.mean[k], mean, atol=0.2)
        np.testing.assert_allclose(after.second[k], second, atol=0.35)
    best = log_likelihood(rows[:500], codes[:500], after)
    truth = MomentEstimate(*(np.array(part) for part in zip(*TRUE, strict=True)))
    assert best == pytest.approx(log_likelihood(rows[:500], codes[:500], truth), abs=15)
    # What satisfies the restrictions stays as it is.
    again = under.restricted(after)
    np.testing.assert_allclose(again.second, after.second, atol=1e-5)


def test_a_target_of_one_value_and_a_set_without_rows_have_moments():
    products = PRODUCTS.copy()
    mean, second = TRUE[1][0], TRUE[1][1].copy()
    second[1] = second[:, 1] = 0.0
    products[1], products[2] = products_of(mean, second), 0.0
    found = implied(products, range(D))
    assert np.linalg.eigvalsh(found.second).min() > 0
    assert found.mean[1, 1] == pytest.approx(mean[1])
    assert found.second[1, 1, 1] < 1e-5


def test_blocks_of_several_columns_and_pairs_that_no_row_has():
    # a and b are one variable, c and d another, which the second set hits.
    acted = np.array([[False, False], [False, True]])
    hit = TRUE[0][1].copy()
    hit[:2, 2:] = hit[2:, :2] = 0.0
    products = np.array([products_of(*TRUE[0]), products_of(TRUE[0][0], hit)])
    found = implied_by_targets(products, acted, [2, 2], [0, 1], ("x", "y"))
    np.testing.assert_allclose(found.second[0], TRUE[0][1], atol=1e-9)
    np.testing.assert_allclose(found.second[1], hit, atol=2e-6)
    rows, _ = drawn(200, 0.0)
    rows[:100, 0], rows[100:, 3] = np.nan, np.nan
    unseen = implied(PRODUCTS, range(D), unseen=seen_sums(rows))
    precision = np.linalg.inv(unseen.second[0])
    assert precision[0, 3] == pytest.approx(0, abs=1e-3)


def test_a_variable_that_is_a_target_in_all_rows_is_named():
    with pytest.raises(DataError, match="'b' is the target"):
        implied_by_targets(PRODUCTS[1:2], ACTED[1:2], ONE_EACH, range(D), NAMES)


def test_counts_are_those_of_the_rows_in_which_a_variable_is_no_target():
    rows, codes = drawn(300, 0.3)
    counts = np.array([seen_sums(rows[codes == k]).counts for k in range(3)])
    found = rows_by_variable(counts, ACTED)
    for j in range(D):
        np.testing.assert_array_equal(found[j], seen_sums(rows[~ACTED[codes, j]]).counts)
    assert found[2] is found[3]

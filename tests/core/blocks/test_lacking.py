"""Moments of parties that lack whole columns."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from flwr_causal.core.blocks.lacking import (
    ColumnSet,
    column_sets,
    estimate_of_sets,
    fitted,
    log_likelihood,
    step_of_sets,
    structured,
    with_partial,
)
from flwr_causal.core.blocks.missing import (
    MomentEstimate,
    change,
    expected_sums,
    first_estimate,
    own_sums,
    seen_sums,
    stepped,
)
from flwr_causal.core.graphs.knowledge import EdgeMasks

WEIGHTS = np.zeros((5, 5))
WEIGHTS[[0, 1, 2, 3], [1, 2, 3, 4]] = 1.2, -0.9, 1.0, 0.8
# Each party lacks one column or two; no party has the first and the last one.
LACKING = ([4], [0], [0, 2], [4, 1])


def chain(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 5)) @ np.linalg.inv(np.eye(5) - WEIGHTS) + np.arange(5)


def parties(n=4000, share=0.0, seed=0):
    tables = np.array_split(chain(n, seed), len(LACKING))
    rng = np.random.default_rng(seed)
    for table, own in zip(tables, LACKING, strict=True):
        table[rng.random(table.shape) < share] = np.nan
        table[:, own] = np.nan
    return tables


def seen(tables):
    return seen_sums(np.concatenate(tables))


def sets_of(tables):
    start = first_estimate(seen(tables))
    none = np.zeros(tables[0].shape[1], dtype=bool)
    return column_sets([own_sums(table, start) for table in tables], seen(tables), none), start


def anything(d):
    return EdgeMasks(~np.eye(d, dtype=bool), np.zeros((d, d), dtype=bool))


def test_of_complete_columns_the_sums_are_those_of_the_rows():
    table = parties()[2]
    start = first_estimate(seen(parties()))
    products = own_sums(table, start)
    rows = np.column_stack([np.ones(len(table)), np.nan_to_num(table)])
    np.testing.assert_allclose(products, rows.T @ rows)
    assert not own_sums(np.full((3, 2), np.nan), MomentEstimate(np.zeros(2), np.eye(2))).any()


def test_a_party_alone_reaches_its_own_maximum():
    (table, *_) = parties(share=0.2)
    products = own_sums(table, first_estimate(seen(parties(share=0.2))))
    columns = [0, 1, 2, 3]
    mean, second = stepped(products)
    own = MomentEstimate(mean[columns], second[np.ix_(columns, columns)])
    further = stepped(expected_sums(table[:, columns], own))
    assert change(own, further) < 1e-3


@pytest.mark.parametrize("n", [3, 12])
def test_a_party_of_few_rows_takes_one_step(n):
    table = parties(share=0.2)[0][:n]
    start = first_estimate(seen(parties(share=0.2)))
    own = MomentEstimate(start.mean[:4], start.second[:4, :4])
    np.testing.assert_allclose(own_sums(table, start)[:5, :5], expected_sums(table[:, :4], own))


def test_a_column_that_is_constant_at_a_party_does_no_harm():
    table = parties(share=0.2)[0]
    table[:, 1] = np.where(np.isnan(table[:, 1]), np.nan, 7.0)
    products = own_sums(table, first_estimate(seen(parties(share=0.2))))
    assert np.isfinite(products).all()
    assert np.linalg.eigvalsh(products)[0] > -1e-6


def test_a_step_over_sets_is_the_step_over_their_rows():
    tables = parties()
    sets, start = sets_of(tables)
    of_rows = stepped(sum(expected_sums(table, start) for table in tables))
    of_sets = step_of_sets(sets, start)
    np.testing.assert_allclose(of_sets.mean, of_rows.mean)
    np.testing.assert_allclose(of_sets.second, of_rows.second)


def test_parties_of_the_same_columns_add_up():
    tables = parties()
    halves = [half for table in tables for half in np.array_split(table, 2)]
    for one, other in zip(sets_of(tables)[0], sets_of(halves[::-1])[0][::-1], strict=True):
        np.testing.assert_array_equal(one.columns, other.columns)
        assert one.rows == pytest.approx(other.rows)
        np.testing.assert_allclose(one.estimate.second, other.estimate.second)


def test_rows_count_as_far_as_their_cells_are_seen():
    tables = parties(share=0.3)
    sets, _ = sets_of(tables)
    told = sum(own.rows * len(own.columns) ** 2 for own in sets)
    assert told == pytest.approx(seen(tables).counts.sum())
    assert [own.rows for own in sets_of(parties())[0]] == pytest.approx([1000.0] * 4)


def test_the_likelihood_is_that_of_the_rows():
    tables = parties(400)
    sets, start = sets_of(tables)
    estimate = estimate_of_sets(sets, start, seen(tables))

    def of_rows(at):
        total = 0.0
        for table in tables:
            own = np.flatnonzero(~np.isnan(table[0]))
            law = multivariate_normal(at.mean[own], at.second[np.ix_(own, own)])
            total += law.logpdf(table[:, own]).sum()
        return total

    gain = log_likelihood(sets, estimate) - log_likelihood(sets, start)
    assert gain == pytest.approx(of_rows(estimate) - of_rows(start))
    assert gain > 0


def test_a_fit_has_the_covariances_of_its_graph():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(50, 5)) @ rng.normal(size=(5, 5))
    estimate = MomentEstimate(rows.mean(axis=0), np.cov(rows.T))
    ordered = np.triu(np.ones((5, 5), dtype=bool), 1)
    full = fitted(ordered, estimate, [1] * 5)
    np.testing.assert_allclose(full.second, estimate.second)
    # Blocks of columns: two variables of two and three columns.
    whole = fitted(ordered[:2, :2], estimate, [2, 3])
    np.testing.assert_allclose(whole.second, estimate.second)
    apart = fitted(np.zeros((2, 2), dtype=bool), estimate, [2, 3])
    assert not apart.second[:2, 2:].any()
    np.testing.assert_allclose(apart.second[2:, 2:], estimate.second[2:, 2:])
    # 4 -> 0 -> 2: the regression of 2 on 0, and 4 and 2 independent given 0.
    dag = np.zeros((5, 5), dtype=bool)
    dag[4, 0] = dag[0, 2] = True
    sparse = fitted(dag, estimate, [1] * 5).second
    assert sparse[0, 2] == pytest.approx(estimate.second[0, 2])
    assert sparse[4, 2] == pytest.approx(sparse[4, 0] * sparse[0, 2] / sparse[0, 0])


@pytest.mark.parametrize("part", [-0.9, 0.0, 0.5])
def test_another_partial_correlation_changes_that_pair_alone(part):
    rows = np.random.default_rng(2).normal(size=(50, 5)) @ np.random.default_rng(3).normal(
        size=(5, 5)
    )
    estimate = MomentEstimate(rows.mean(axis=0), np.cov(rows.T))
    found = with_partial(estimate, np.array([1]), np.array([3]), part).second
    precision = np.linalg.inv(found)
    sign = np.sign(estimate.second[1, 3])
    partial = -precision[1, 3] / np.sqrt(precision[1, 1] * precision[3, 3])
    assert partial == pytest.approx(sign * part, abs=1e-9)
    changed = ~np.isclose(found, estimate.second)
    assert {(1, 3), (3, 1)} >= set(map(tuple, np.argwhere(changed).tolist()))
    # Blocks of columns: as large a canonical correlation, the only one.
    blocks = np.array([0, 1]), np.array([2, 3, 4])
    found = with_partial(estimate, *blocks, part).second
    assert np.linalg.eigvalsh(found)[0] > 0
    roots = [np.linalg.cholesky(found[np.ix_(own, own)]) for own in blocks]
    whitened = np.linalg.solve(roots[1], np.linalg.solve(roots[0], found[:2, 2:]).T)
    singular = np.linalg.svd(whitened)[1]
    np.testing.assert_allclose(singular, [abs(part), 0.0], atol=1e-9)


def test_a_pair_that_no_row_has_together_follows_from_the_graph():
    tables = parties(share=0.1)
    sets, start = sets_of(tables)
    start = estimate_of_sets(sets, start, seen(tables))
    dag, estimate = structured(sets, start, seen(tables), [1] * 5, anything(5))
    np.testing.assert_array_equal(dag | dag.T, (WEIGHTS != 0) | (WEIGHTS.T != 0))
    truth = np.cov(chain(100_000, seed=5).T)
    assert estimate.second[0, 4] == pytest.approx(truth[0, 4], rel=0.1)


@pytest.mark.slow
def test_the_graph_keeps_to_what_is_known_and_to_pairs_of_enough_rows():
    tables = parties(share=0.1)
    few = np.flatnonzero(~np.isnan(tables[3][:, 0]))[5:]
    tables[3][few, 0] = np.nan
    tables[0][:, 0] = np.nan
    sets, start = sets_of(tables)
    masks = anything(5)
    masks.allowed[2, 3] = masks.allowed[3, 2] = False
    masks.required[3, 4] = True
    dag, _ = structured(sets, start, seen(tables), [1] * 5, masks)
    joined = dag | dag.T
    # The rows that have the first column have it with two others.
    assert not joined[0, [2, 3]].any()
    assert dag[3, 4]
    assert not joined[2, 3]


def test_one_set_of_all_columns_is_its_own_maximum():
    table = chain(300)
    start = MomentEstimate(np.zeros(5), np.eye(5))
    sets = column_sets([own_sums(table, start)], seen_sums(table), np.zeros(table.shape[1], bool))
    found = estimate_of_sets(sets, start, seen_sums(table))
    assert isinstance(sets[0], ColumnSet)
    np.testing.assert_allclose(found.mean, table.mean(axis=0))
    np.testing.assert_allclose(found.second, np.cov(table.T, bias=True))


def test_a_column_that_is_constant_at_every_party_is_there():
    """As the name of the party, of which the indicators are 0 or 1 in all of its rows."""
    tables = [np.column_stack([table, np.zeros((len(table), 2))]) for table in parties(share=0.1)]
    tables[1][:, 5], tables[2][:, 6] = 1.0, 1.0
    sets, start = sets_of(tables)
    assert all({5, 6} <= set(one.columns.tolist()) for one in sets)
    found = estimate_of_sets(sets, start, seen(tables))
    shares = np.concatenate(tables)[:, 5:].mean(axis=0)
    np.testing.assert_allclose(found.mean[5:], shares, atol=0.01)
    np.testing.assert_allclose(np.diagonal(found.second)[5:], shares * (1 - shares), atol=0.01)

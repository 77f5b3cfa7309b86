"""Gains of the log-likelihood and their means, against every table with the same margins."""

from itertools import permutations

import numpy as np
import pytest
from category_federations import random_rows
from scipy.stats import hypergeom

from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.discrete.families import empty_families, row_of
from flwr_causal.core.discrete.scores import TableGains


def filled(source, d, y, given):
    families, row = row_of(empty_families(d), y, given)
    wanted = ~np.isin(np.arange(d), [y, *given])
    source.fill(families, np.array([row]), wanted[None])
    return families.gains[row]


def gain(table, x, y, given=()):
    return filled(TableGains(table).likelihoods(), len(table.names), y, list(given))[x]


def mean(table, x, y, given=()):
    return filled(TableGains(table).means(), len(table.names), y, list(given))[x]


def test_a_gain_is_rows_times_mutual_information():
    table = random_rows((3, 2, 2), 200, seed=1)
    for given in ((), (2,)):
        total = 0.0
        strata = table.codes[2] if given else np.zeros(200, dtype=int)
        for s in np.unique(strata):
            both = np.zeros((3, 2))
            np.add.at(both, tuple(table.codes[:2, strata == s]), 1)
            n = both.sum()
            ratio = both * n / (both.sum(0) * both.sum(1)[:, None])
            total += (both * np.log(ratio)).sum()
        assert gain(table, 0, 1, given) == pytest.approx(total)
        assert gain(table, 1, 0, given) == pytest.approx(total)


@pytest.mark.slow
def test_the_mean_is_that_over_all_orders_of_one_column():
    """With the margins fixed, independence makes every order of a column equally likely."""
    codes = np.array([[0, 0, 1, 1, 2, 0, 1], [0, 1, 1, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1, 1]])
    states = (("a", "b", "c"), ("a", "b"), ("a", "b"))
    names = ("v0", "v1", "v2")

    def table(column):
        return DiscreteTable(names, states, np.array([codes[0], column, codes[2]], dtype=np.uint8))

    orders = [list(order) for order in permutations(codes[1].tolist())]
    over_all = np.mean([gain(table(order), 0, 1) for order in orders])
    assert mean(table(codes[1]), 0, 1) == pytest.approx(over_all)
    # Given v2 the column is permuted within the rows of each state.
    within = [[*o, *p] for o in permutations(codes[1, :3]) for p in permutations(codes[1, 3:])]
    over_all = np.mean([gain(table(order), 0, 1, [2]) for order in within])
    assert mean(table(codes[1]), 0, 1, [2]) == pytest.approx(over_all)


# Counts above 2^16 are beyond the table of factorials.
@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("num_rows", [60, 3000, 200_000])
def test_the_mean_is_that_of_hypergeometric_counts(num_rows):
    table = random_rows((2, 3), num_rows, seed=3)
    by_x, by_y = (np.bincount(codes).astype(int) for codes in table.codes)
    expected = num_rows * np.log(num_rows)
    expected -= sum(count * np.log(count) for count in (*by_x, *by_y))
    for a in by_x:
        for b in by_y:
            k = np.arange(1, min(a, b) + 1)
            expected += (hypergeom.pmf(k, num_rows, a, b) * k * np.log(k)).sum()
    assert mean(table, 0, 1) == pytest.approx(expected, rel=1e-4)
    assert mean(table, 1, 0) == pytest.approx(expected, rel=1e-4)
    # Large counts: half the number of parameters.
    assert mean(table, 0, 1) == pytest.approx(1.0, rel=6 / num_rows**0.5)


@pytest.mark.parametrize("cards", [(2, 3, 2, 4), (40, 30, 5, 2), (1, 2, 3, 1)])
def test_weights_are_repeated_rows_and_order_does_not_matter(cards):
    table = random_rows(cards, 150, seed=5, weighted=True)
    repeated = np.repeat(table.codes, table.weights, axis=1)
    plain = DiscreteTable(table.names, table.states, repeated)
    for given in ([], [2], [2, 3]):
        weighted, whole = (mean(t, 0, 1, given) for t in (table, plain))
        assert weighted == pytest.approx(whole)
        assert mean(table, 1, 0, given) == pytest.approx(whole)
        assert whole >= 0
        assert (whole == 0) == (cards[0] == 1)


def test_no_mean_is_negative_where_a_column_has_one_state_only():
    """The mean is 0 then, and a rounding error must not make a party's reply impossible."""
    states = (("a", "b"), ("a", "b"))
    for some, others in ((17, 21), (21, 17), (42, 33)):
        codes = np.zeros((2, some + others), dtype=np.uint8)
        codes[1, :some] = 1
        assert 0 <= mean(DiscreteTable(("v0", "v1"), states, codes), 0, 1) < 1e-12

"""Gains from summed tables against gains from the rows."""

from itertools import combinations

import numpy as np
import pytest
from category_federations import random_rows

from flwr_causal.core.discrete.contingency_tables import sets_of, tabulate
from flwr_causal.core.discrete.families import empty_families, row_of
from flwr_causal.core.discrete.scores import KINDS, TableGains, terms_of
from flwr_causal.core.ges.speculative_search import CountedGains, lacking_sets

SCORES = [("bdeu", 1.0), ("bdeu", 8.0), ("bic", 1.0), ("qnml", 1.0)]


def counting(table, score="bic", size=1.0, **options):
    terms = terms_of(KINDS[score], size, table.num_rows)
    return CountedGains(table.cardinalities, terms, price=1.0, **options)


def asked_gains(source, families, y, given, others):
    families, row = row_of(families, y, given)
    wanted = np.zeros((1, families.gains.shape[1]), dtype=bool)
    wanted[0, list(others)] = True
    source.fill(families, np.array([row]), wanted)
    return families, families.gains[row, list(others)].copy()


@pytest.mark.parametrize(("score", "size"), SCORES)
@pytest.mark.parametrize("cards", [(2, 3, 4, 2, 3), (1, 2, 5, 2, 1), (40, 30, 9, 2, 3)])
def test_one_table_tells_every_gain_within_its_set(score, size, cards):
    table = random_rows(cards, 300, seed=1)
    rows = TableGains(table, score, size)
    cases = [(range(5), False), ((0, 2, 4), True), ((0, 1, 2), True), ((1, 3), False)]
    for members, own in cases:
        source = counting(table, score, size, own_margins=own)
        sets = sets_of([members])
        source.learn_counts(sets, tabulate(table, sets))
        families, truth = empty_families(5), empty_families(5)
        for y, x in combinations(members, 2):
            given = [m for m in members if m not in (y, x)]
            for owner, other in ((y, x), (x, y)):
                families, found = asked_gains(source, families, owner, given, [other])
                truth, expected = asked_gains(rows, truth, owner, given, [other])
                np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-9)
        assert len(source.asked) == 0


def test_smaller_sets_are_known_too():
    # Of {0, 1, 2} come the sums of {0, 1}, {0}, ... that a gain given nothing needs.
    table = random_rows((2, 3, 4), 200, seed=2)
    source = counting(table)
    sets = sets_of([[0, 1, 2]])
    source.learn_counts(sets, tabulate(table, sets))
    # The empty set is missing: three variables without two are one.
    _, _ = asked_gains(source, empty_families(3), 0, [], [1])
    assert len(source.asked) == 1
    small = sets_of([[0, 1]])
    source.start_again()
    source.learn_counts(small, tabulate(table, small))
    _, found = asked_gains(source, empty_families(3), 0, [], [1])
    _, expected = asked_gains(TableGains(table, "bic"), empty_families(3), 0, [], [1])
    np.testing.assert_allclose(found, expected, rtol=1e-11)
    assert len(source.asked) == 0


@pytest.mark.parametrize("score", ["bdeu", "qnml"])
def test_many_tables_at_once_make_room(score):
    """More sets than the memory begins with, larger ones, and more kinds of tables of terms."""
    d = 11
    cards = tuple(2 + k % 4 for k in range(d))
    table = random_rows(cards, 400, seed=3)
    lists = [*combinations(range(d), 3), range(10), range(1, 11)]
    sets = sets_of(lists)
    source = counting(table, score)
    source.learn_counts(sets, tabulate(table, sets))
    families, truth = empty_families(d), empty_families(d)
    rows = TableGains(table, score)
    for members in (*lists[::7], lists[-2], lists[-1]):
        y, x, *given = members
        families, found = asked_gains(source, families, y, given, [x])
        truth, expected = asked_gains(rows, truth, y, given, [x])
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-8)
    assert len(source.asked) == 0


def test_the_sets_asked_for_are_those_that_lack():
    source = counting(random_rows((2,) * 6, 50))
    families = empty_families(6)
    for y, given, others in ((0, [], [3, 1]), (3, [], [0, 5]), (4, [2, 5], [1]), (1, [2, 5], [4])):
        families, _ = asked_gains(source, families, y, given, others)
    source.take_back(families)
    assert sorted(members.tolist() for members in lacking_sets([source]).lists()) == [
        [0, 1],
        [0, 3],
        [1, 2, 4, 5],
        [3, 5],
    ]


def test_sets_that_several_searches_lack_are_asked_for_once():
    sources = [counting(random_rows((2,) * 5, 50)) for _ in range(3)]
    for source, (y, given, others) in zip(
        sources, [(0, [], [3]), (3, [], [0, 1]), (4, [0, 1, 2], [3])], strict=True
    ):
        families, _ = asked_gains(source, empty_families(5), y, given, others)
        source.take_back(families)
    found = sorted(members.tolist() for members in lacking_sets(sources).lists())
    assert found == [[0, 1, 2, 3, 4], [0, 3], [1, 3]]


def test_the_cost_of_an_edge_is_subtracted_from_every_gain():
    table = random_rows((2, 3, 4), 200, seed=2)
    sets = sets_of([[0, 1, 2]])
    gains = []
    for cost in (0.0, 1.75):
        source = counting(table, edge_cost=cost)
        source.learn_counts(sets, tabulate(table, sets))
        gains.append(asked_gains(source, empty_families(3), 0, [2], [1])[1])
    np.testing.assert_allclose(gains[1], gains[0] - 1.75)


def test_nothing_lacking_asks_for_no_set():
    sets = lacking_sets([counting(random_rows((2, 2), 9))])
    assert len(sets.sizes) == len(sets.members) == 0
    assert sets.sizes.dtype == np.uint16

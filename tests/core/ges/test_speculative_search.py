"""Speculative search: the questions, and a result that no estimate can change."""

import math

import numpy as np
import pytest
from category_federations import coded, make_tables, plain_search

from flwr_causal.core.discrete.families import empty_families, row_of
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.ges import speculative_search
from flwr_causal.core.ges.greedy_search import prepared_search
from flwr_causal.core.ges.speculative_search import SpeculativeGains, answer

TABLES = [make_tables(d=8, n=500, parties=2, seed=seed)[0] for seed in range(3)]


def sources_of(tables, score="bdeu"):
    return [TableGains(part, score) for part in coded(tables)]


def exchanges(source, sources, names, turn=False, **options):
    """Search until nothing is unknown; return the searches, one an exchange."""
    searches = []
    while True:
        start = np.zeros((len(names),) * 2, dtype=bool)
        search = prepared_search(source, names, start=start, **options)
        source.start_again()
        search.families = source.families
        search.run(turn=turn)
        source.take_back(search.families)
        searches.append(search)
        if len(source.asked) == 0:
            return searches
        questions = source.questions()
        source.learn(sum(answer(questions, own, len(names)) for own in sources))


class Wild(SpeculativeGains):
    """Estimates that have nothing to do with the data, and a run that ends where it likes."""

    def __init__(self, cards, seed):
        super().__init__(cards, price=0.0)
        self._rng = np.random.default_rng(seed)

    def fill(self, families, rows, wanted):
        super().fill(families, rows, wanted)
        for row, x in self._asked[-1] if self._asked else ():
            families.gains[row, x] = self._rng.normal(scale=50)

    def must_stop(self):
        # Wild gains may lead in circles; where something is unknown it may stop anywhere.
        return len(self._asked) > 12


@pytest.mark.parametrize("tables", TABLES)
@pytest.mark.parametrize("turn", [False, True])
def test_the_result_does_not_depend_on_the_estimates(tables, turn):
    sources = sources_of(tables)
    _, expected = plain_search(tables, turn=turn)
    names, cards = coded(tables)[0].names, coded(tables)[0].cardinalities
    kinds = [SpeculativeGains(cards, price) for price in (0.0, 4.0, 1e6)]
    for source in [*kinds, Wild(cards, 1), Wild(cards, 2)]:
        last = exchanges(source, sources, names, turn=turn)[-1]
        assert np.array_equal(last.marks, expected.marks)
        assert last.gain == pytest.approx(expected.gain, abs=1e-6)


@pytest.mark.parametrize("tables", TABLES)
def test_there_are_fewer_exchanges_than_operator_by_operator(tables):
    part = coded(tables)[0]
    source = SpeculativeGains(part.cardinalities, 4.0)
    searches = exchanges(source, sources_of(tables), part.names)
    plain, _ = plain_search(tables)
    assert len(searches) - 1 <= plain.needed / 2


def test_a_run_on_known_gains_stops_at_the_first_unknown_one():
    source = SpeculativeGains(np.array([2, 2, 2]), 1.0)
    families, row = row_of(empty_families(3), 0, [])
    for known_only in (True, False):
        source.known_only = known_only
        assert not source.must_stop()
        source.fill(families, np.array([row]), np.array([[False, True, True]]))
        assert source.must_stop() is known_only
        source.take_back(families)
        source.start_again()
    assert not source.must_stop()
    assert len(source.asked) == 0


def test_estimates_leave_no_trace():
    source = SpeculativeGains(np.array([2, 3, 2, 2]), 1.0)
    families, row = row_of(empty_families(4), 1, [])
    wanted = np.array([[True, False, True, False]])
    source.fill(families, np.array([row]), wanted)
    assert (families.gains[row][wanted[0]] == -1.0).all()
    source.take_back(families)
    assert np.isnan(source.families.gains).all()
    source.learn(np.array([7.0, 8.0]))
    assert source.families.gains[row].tolist()[::2] == [7.0, 8.0]
    # What is known is neither estimated nor asked for, from the other end neither.
    source.start_again()
    families, other = row_of(source.families, 2, [])
    source.fill(families, np.array([other]), np.array([[True, True, False, False]]))
    assert families.gains[other, 1] == 8.0
    assert source.asked.tolist() == [[other, 0]]


def test_the_estimate_is_the_least_with_one_parent_fewer_less_the_price_of_the_cells():
    cards = np.array([2, 3, 4, 5])
    source = SpeculativeGains(cards, price=0.5)
    families, alone = row_of(empty_families(4), 0, [])
    families, by_1 = row_of(families, 0, [1])
    families, by_2 = row_of(families, 0, [2])
    families, both = row_of(families, 0, [1, 2])
    families.gains[alone, 3] = 40.0
    wanted = np.array([[False, False, False, True]])
    source.fill(families, np.array([by_1]), wanted)
    # 3 - 1 more configurations for each of (5 - 1) (2 - 1) parameters, at a half each.
    assert families.gains[by_1, 3] == 40.0 - 0.5 * 2 * 4 * 1
    families.gains[by_1, 3], families.gains[by_2, 3] = 30.0, 20.0
    source.fill(families, np.array([both]), wanted)
    through_1 = 30.0 - 0.5 * 3 * (4 - 1) * 4 * 1
    through_2 = 20.0 - 0.5 * 4 * (3 - 1) * 4 * 1
    assert families.gains[both, 3] == min(through_1, through_2)
    # Only the gain given nothing is known: it stands for itself.
    families, far = row_of(families, 3, [1, 2])
    families, root = row_of(families, 3, [])
    families.gains[root, 0] = 9.0
    families.gains[both, 3] = np.nan
    source.fill(families, np.array([far]), np.array([[True, False, False, False]]))
    assert families.gains[far, 0] == 9.0
    assert not math.isnan(families.gains[far, 0])


def test_answers_come_in_the_order_of_the_questions():
    table = coded(TABLES[1])[0]
    gains = TableGains(table, "bic")
    questions = speculative_search.Questions(
        *(
            np.array(array, dtype=np.uint16)
            for array in ([4, 0, 4], [2, 0, 1], [1, 3, 7], [2, 1, 3], [0, 6, 5, 0, 1, 2])
        )
    )
    found = answer(questions, gains, 8)
    expected = [
        gains.family_score(y, sorted([*given, x])) - gains.family_score(y, given)
        for y, given, x in (
            (4, [1, 3], 0),
            (4, [1, 3], 6),
            (0, [], 5),
            (4, [7], 0),
            (4, [7], 1),
            (4, [7], 2),
        )
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-9)
    empty = speculative_search.Questions(*[np.zeros(0, dtype=np.uint16)] * 5)
    assert len(answer(empty, gains, 8)) == 0


def test_more_questions_than_a_chunk(monkeypatch):
    gains = TableGains(coded(TABLES[0])[0])
    pairs = np.array([(y, z) for y in range(8) for z in range(8) if y != z])
    others = [np.setdiff1d(np.arange(8), pair)[: 1 + sum(pair) % 6] for pair in pairs]
    parts = (pairs[:, 0], np.ones(56), pairs[:, 1], [len(o) for o in others])
    questions = speculative_search.Questions(
        *(np.asarray(part).astype(np.uint16) for part in (*parts, np.concatenate(others)))
    )
    whole = answer(questions, gains, 8)
    monkeypatch.setattr(speculative_search, "CHUNK", 5)
    assert np.array_equal(answer(questions, gains, 8), whole)
    assert len(whole) == len(np.concatenate(others))

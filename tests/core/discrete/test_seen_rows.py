"""Gains and tables of rows with missing cells: those of the rows that have the columns."""

import numpy as np
import pytest
from category_federations import random_rows
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.discrete.contingency_tables import num_cells, sets_of, tables_of, tabulate
from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.discrete.families import empty_families, row_of
from flwr_causal.core.discrete.scores import TableGains
from flwr_causal.core.discrete.seen_rows import SeenGains, SeenTable, tabulate_seen

CARDS = (2, 3, 2, 4)
#: The gains that parties send, from a table.
GAINS = {
    "likelihood": lambda table: TableGains(table, "qnml").likelihoods(),
    "mean": lambda table: TableGains(table).means(),
    "bdeu": lambda table: TableGains(table, "bdeu", 2.0),
}


def with_gaps(seed, n=80, share=0.3):
    table = random_rows(CARDS, n, seed)
    return SeenTable(table, np.random.default_rng(seed).random((len(CARDS), n)) > share)


def filled(source, y, members):
    families, row = row_of(empty_families(len(CARDS)), y, members)
    wanted = ~np.isin(np.arange(len(CARDS)), [y, *members])
    source.fill(families, np.array([row]), wanted[None])
    return families.gains[row]


@pytest.mark.slow
@pytest.mark.parametrize("kind", GAINS)
@given(seed=st.integers(0, 1000), y=st.integers(0, 3))
def test_a_gain_is_that_of_the_rows_that_have_all_columns_for_all_rows(kind, seed, y):
    rows = with_gaps(seed)
    members = [k for k in range(4) if k != y][: seed % 3]
    found = filled(SeenGains(rows, GAINS[kind](rows.table)), y, members)
    for x in set(range(4)) - {y, *members}:
        kept = rows.seen[[*members, x, y]].all(axis=0)
        table = rows.table
        part = DiscreteTable(table.names, table.states, table.codes[:, kept])
        expected = filled(GAINS[kind](part), y, members)[x] * 80 / kept.sum()
        assert found[x] == pytest.approx(expected, abs=1e-9)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", GAINS)
def test_without_gaps_gains_are_those_of_the_table(kind):
    table = random_rows(CARDS, 100, 3)
    rows = SeenTable(table, np.ones((4, 100), dtype=bool))
    found = filled(SeenGains(rows, GAINS[kind](table)), 1, [0])
    np.testing.assert_allclose(found, filled(GAINS[kind](table), 1, [0]), atol=1e-9)


def test_columns_that_no_row_has_together_gain_nothing():
    rows = with_gaps(1)
    rows.seen[0, :40] = False
    rows.seen[1, 40:] = False
    found = filled(SeenGains(rows, GAINS["likelihood"](rows.table)), 1, [])
    assert found[0] == 0.0
    assert found[2] > 0.0


@given(seed=st.integers(0, 1000), large=st.booleans())
def test_tables_count_the_rows_that_have_all_columns(seed, large):
    cards = (9, 9, 9, 9) if large else CARDS  # 6561 cells are sent as a list
    table = random_rows(cards, 70, seed)
    rows = SeenTable(table, np.random.default_rng(seed).random((4, 70)) > 0.3)
    lists = [(0,), (1, 3), (0, 1, 2), (0, 1, 2, 3)]
    sets = sets_of(lists)
    counts = tabulate_seen(rows, sets)
    for members, found in zip(lists, tables_of(sets, counts, table.cardinalities), strict=True):
        expected = np.zeros([cards[k] for k in members], dtype=int)
        for i in np.flatnonzero(rows.seen[list(members)].all(axis=0)):
            expected[tuple(table.codes[list(members), i])] += 1
        np.testing.assert_array_equal(found, expected)


def test_tables_without_gaps_are_those_of_tabulate():
    table = random_rows((9, 9, 9, 9), 70, 2)
    sets = sets_of([(0,), (1, 3), (0, 1, 2, 3)])
    rows = SeenTable(table, np.ones((4, 70), dtype=bool))
    for one, other in zip(tabulate_seen(rows, sets), tabulate(table, sets), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_scaled_tables_count_as_many_rows_each():
    table = random_rows((9, 9, 9, 9), 500, 2)
    rows = SeenTable(table, np.random.default_rng(0).random((4, 500)) > 0.2)
    sets = sets_of([(0,), (1, 3), (0, 1, 2, 3)])
    cards = table.cardinalities
    counts = tabulate_seen(rows, sets)
    scaled = counts.scaled(sets, cards, 500)
    cells = num_cells(sets, cards)
    for size, one, other in zip(
        cells, tables_of(sets, counts, cards), tables_of(sets, scaled, cards), strict=True
    ):
        assert abs(other.sum() - 500) <= 0.5 * min(size, one.astype(bool).sum())
        np.testing.assert_allclose(other, one * (500 / one.sum()), atol=0.5)
    again = tabulate(table, sets).scaled(sets, cards, 500)
    np.testing.assert_array_equal(again.dense, tabulate(table, sets).dense)

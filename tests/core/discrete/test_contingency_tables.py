"""Contingency tables against counting row by row, and their sums against the pooled rows."""

from math import prod

import numpy as np
import pytest
from category_federations import random_rows
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.discrete.contingency_tables import (
    DENSE_CELLS,
    ContingencyCounts,
    num_cells,
    sets_of,
    tables_of,
    tabulate,
)
from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.errors import DataError


def summed(parties):
    """The sum as the server makes it: dense tables are added, the others merged."""
    dense = np.sum([one.dense.astype(np.int64) for one in parties], axis=0)
    return ContingencyCounts.summed(
        dense, [(one.cells, one.values, one.lengths) for one in parties]
    )


def counted(table, members):
    """Count one row after the other."""
    result = np.zeros([len(table.states[m]) for m in members], dtype=np.int64)
    weights = np.ones(table.codes.shape[1]) if table.weights is None else table.weights
    for row, weight in zip(table.codes.T, weights, strict=True):
        result[tuple(row[list(members)])] += int(weight)
    return result


# The last three sets together have more cells than travel whole.
CARDS = (2, 3, 4, 5, 1, 70, 80)
SETS = [[0], [2, 0], [1, 3, 4], [5], [0, 5, 6], [], [1, 5, 6], [5, 6]]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [0, 1, 90])
def test_tables_are_counts_of_rows(n, weighted):
    table = random_rows(CARDS, n, weighted=weighted)
    sets = sets_of(SETS)
    counts = tabulate(table, sets)
    found = tables_of(sets, counts, table.cardinalities)
    for members, cells in zip(SETS, found, strict=True):
        assert np.array_equal(cells, counted(table, sorted(members)))


def test_members_ascend_and_come_apart_again():
    sets = sets_of(SETS)
    assert [members.tolist() for members in sets.lists()] == [sorted(s) for s in SETS]
    assert sets.sizes.dtype == sets.members.dtype == np.uint16


def test_large_tables_travel_as_their_filled_cells():
    table = random_rows((65, 64, 2), 50)
    narrow, wide = sets_of([[1, 2]]), sets_of([[0, 1]])
    assert 64 * 2 <= DENSE_CELLS < 65 * 64
    whole = tabulate(table, narrow)
    assert len(whole.dense) == 128
    assert len(whole.cells) == len(whole.lengths) == 0
    listed = tabulate(table, wide)
    assert len(listed.dense) == 0
    assert listed.lengths.tolist() == [len(listed.cells)]
    assert len(listed.cells) <= 50
    assert (listed.values > 0).all()
    # The last variable runs fastest.
    assert set(listed.cells) == set((table.codes[0] * 64.0 + table.codes[1]).astype(int))


def test_the_bound_between_the_two_forms_is_exact():
    # 64 * 64 = 4096 cells are the most that travel whole.
    assert len(tabulate(random_rows((64, 64), 5), sets_of([[0, 1]])).dense) == DENSE_CELLS
    assert len(tabulate(random_rows((17, 241), 5), sets_of([[0, 1]])).dense) == 0


@given(st.lists(st.integers(1, 64), max_size=7))
def test_cells_are_counted_without_rounding(cards):
    sets = sets_of([range(len(cards)), []])
    cells = num_cells(sets, np.array(cards, dtype=np.int64))
    assert cells[1] == 1
    # Whatever the size, the relative error is that of a float; small numbers are exact.
    assert cells[0] == pytest.approx(prod(cards), rel=1e-12)
    if prod(cards) <= 10**6:
        assert cells[0] == prod(cards)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=4), st.integers(0, 10**6), st.booleans())
def test_sums_over_parties_are_the_tables_of_all_rows(sizes, seed, weighted):
    whole = random_rows(CARDS, sum(sizes), seed, weighted=weighted)
    ends = np.cumsum(sizes)
    parts = [
        DiscreteTable(
            whole.names,
            whole.states,
            whole.codes[:, end - size : end],
            whole.weights[end - size : end] if weighted else None,
        )
        for end, size in zip(ends, sizes, strict=True)
    ]
    sets = sets_of(SETS)
    total = summed([tabulate(part, sets) for part in parts])
    expected = tabulate(whole, sets)
    for one, other in zip(total, expected, strict=True):
        assert np.array_equal(one, other)


def test_sums_do_not_overflow_the_narrow_type():
    table = random_rows((1, 65, 64), 200)
    same = DiscreteTable(table.names, table.states, table.codes * 0)
    sets = sets_of([[0], [1, 2]])
    one = tabulate(same, sets)
    assert one.dense.dtype == one.values.dtype == np.uint8
    total = summed([one] * 3)
    assert total.dense.tolist() == [600]
    assert total.values.tolist() == [600]
    # Parties of other sizes send other types.
    wide = random_rows((1, 65, 64), 300)
    many = tabulate(DiscreteTable(wide.names, wide.states, wide.codes * 0), sets)
    assert many.dense.dtype == many.values.dtype == np.uint16
    assert summed([one, many]).dense.tolist() == summed([many, one]).values.tolist() == [500]
    assert tabulate(random_rows((2,), 256), sets_of([[0]])).dense.dtype == np.uint16


def test_tables_without_bounds_are_refused():
    table = random_rows((250,) * 8, 3)
    with pytest.raises(DataError, match=r"8 variables.*max_parents"):
        tabulate(table, sets_of([[0], range(8)]))
    assert tabulate(table, sets_of([range(7)])).lengths.tolist() == [3]

"""Who holds which column."""

import numpy as np
import pytest
from circuit_cases import presences
from hypothesis import given

from flwr_causal.core.circuits.presence import (
    ColumnGroup,
    column_groups,
    common_rows,
    setting_of,
)
from flwr_causal.errors import DataError


def test_groups_are_the_distinct_columns_of_the_matrix():
    presence = [[1, 1, 0, 1, 0], [1, 0, 1, 1, 0], [0, 0, 0, 0, 1]]
    assert column_groups(presence) == (
        ColumnGroup((0, 3), (0, 1)),
        ColumnGroup((1,), (0,)),
        ColumnGroup((2,), (1,)),
        ColumnGroup((4,), (2,)),
    )


@given(presences())
def test_every_column_is_in_the_group_of_its_holders(presence):
    groups = column_groups(presence)
    assert sorted(column for group in groups for column in group.columns) == list(
        range(presence.shape[1])
    )
    assert len({group.parties for group in groups}) == len(groups)
    for group in groups:
        for column in group.columns:
            assert tuple(np.flatnonzero(presence[:, column])) == group.parties


@pytest.mark.parametrize(
    ("presence", "setting"),
    [
        ([[1, 1]], "horizontal"),
        ([[1, 1], [1, 1]], "horizontal"),
        ([[1, 0], [0, 1]], "vertical"),
        ([[1, 1], [0, 1]], "hybrid"),
        ([[1, 0, 1], [0, 1, 1]], "hybrid"),
    ],
)
def test_the_setting_follows_from_the_matrix(presence, setting):
    assert setting_of(presence) == setting


@pytest.mark.parametrize(
    ("presence", "message"),
    [
        ([[1, 1], [0, 0]], "party 1 holds none of the columns"),
        ([[1, 0], [1, 0]], "no party holds column 1"),
        ([1, 0], r"got the shape \(2,\)"),
        (np.empty((0, 3)), "got the shape"),
    ],
)
def test_bad_matrices_are_refused(presence, message):
    with pytest.raises(DataError, match=message):
        column_groups(presence)


def test_common_rows_are_in_the_order_of_the_first_party():
    first, second, third = common_rows([["d", "a", "b", "c"], ["a", "x", "d"], ["d", "a", "c"]])
    np.testing.assert_array_equal(first, [0, 1])
    np.testing.assert_array_equal(second, [2, 0])
    np.testing.assert_array_equal(third, [0, 1])


def test_parties_without_a_common_row():
    assert [len(places) for places in common_rows([[1, 2], [3, 4]])] == [0, 0]


def test_a_repeated_id_names_the_party():
    with pytest.raises(DataError, match="party 1 has ids that repeat"):
        common_rows([[1, 2], [2, 2]])

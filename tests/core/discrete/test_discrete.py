"""Tables of categories: states, codes, weights, and what is refused."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.discrete.discrete import (
    MAX_STATES,
    DiscreteTable,
    as_discrete,
    sorted_states,
    state_name,
)
from flwr_causal.errors import DataError

TABLE = DiscreteTable(
    ("b", "a"), (("no", "yes"), ("1", "2", "10")), np.array([[0, 1, 1, 0], [2, 0, 1, 2]])
)


def decoded(table):
    return [
        [states[code] for code in row]
        for states, row in zip(table.states, table.codes, strict=True)
    ]


def test_a_frame_of_categories():
    frame = pd.DataFrame({"b": ["no", "yes", "yes", "no"], "a": [10, 1, 2, 10]})
    table = as_discrete(frame)
    assert (table.names, table.states) == (TABLE.names, TABLE.states)
    np.testing.assert_array_equal(table.codes, TABLE.codes)
    assert table.codes.dtype == np.uint8
    assert table.num_rows == 4
    np.testing.assert_array_equal(table.cardinalities, [2, 3])
    assert as_discrete(table) is table


@pytest.mark.parametrize(
    "values",
    [
        np.array([10, 1, 2, 10]),
        np.array([10.0, 1.0, 2.0, 10.0]),
        np.array(["10", "1", "2", "10"]),
        np.array([10, "1", 2.0, np.int8(10)], dtype=object),
        pd.Series([10, 1, 2, 10], dtype="Int64"),
        pd.Series(["10", "1", "2", "10"], dtype="category"),
        pd.Series(["10", "1", "2", "10"], dtype="string"),
    ],
)
def test_the_same_states_whatever_holds_them(values):
    table = as_discrete(pd.DataFrame({"a": values}))
    assert table.states == (("1", "2", "10"),)
    np.testing.assert_array_equal(table.codes, [[2, 0, 1, 2]])


def test_arrays_get_names_and_can_be_taken_in_part():
    rows = np.array([[1, 7, 0], [0, 7, 1]])
    table = as_discrete(rows)
    assert table.names == ("x0", "x1", "x2")
    assert table.states == (("0", "1"), ("7",), ("0", "1"))
    part = as_discrete(rows, ["x2", "x0"])
    assert part.names == ("x2", "x0")
    assert decoded(part) == [["0", "1"], ["1", "0"]]
    np.testing.assert_array_equal(as_discrete(rows[:, [2, 0]]).codes, part.codes)


def test_columns_by_name_are_all_that_a_table_needs():
    class Columns(dict):
        columns = property(dict.keys)

    table = as_discrete(Columns(b=["v", "u", "v"], a=np.array([3, 1, 3])))
    assert (table.names, table.states) == (("b", "a"), (("u", "v"), ("1", "3")))
    assert table.codes.tolist() == [[1, 0, 1], [1, 0, 1]]


def test_names_of_columns_that_repeat_are_refused():
    with pytest.raises(DataError, match="names repeat: a"):
        as_discrete(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_a_coded_table_is_taken_in_part():
    part = as_discrete(TABLE, ["a"], [("1", "2", "10")])
    assert (part.names, decoded(part)) == (("a",), [["10", "1", "2", "10"]])
    with pytest.raises(DataError, match="no column 'z'; it has b, a"):
        as_discrete(TABLE, ["z"])
    with pytest.raises(DataError, match="'a' of the table has other states"):
        as_discrete(TABLE, ["a"], [("10", "2", "1")])


def test_given_states_keep_their_order_and_those_that_do_not_occur():
    table = as_discrete(np.array([[True], [False]]), states=[["True", "maybe", "False"]])
    assert table.states == (("True", "maybe", "False"),)
    assert table.codes.tolist() == [[0, 2]]
    with pytest.raises(DataError, match="'x0' has a value that is not among its 1 states"):
        as_discrete(np.array([[1], [2]]), states=[["1"]])


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (np.int8(1), "1"),
        (np.float32(0.5), "0.5"),
        (True, "True"),
        (np.bool_(False), "False"),
        ("1", "1"),
        ("", ""),
        (np.str_("red"), "red"),
    ],
)
def test_names_of_states(value, name):
    assert state_name(value) == name


def test_values_that_name_no_state():
    with pytest.raises(DataError, match="type list"):
        state_name([1])
    with pytest.raises(DataError, match=r"column 'when': a value of type (date|Timestamp)"):
        as_discrete(pd.DataFrame({"when": np.array([pd.Timestamp("2020-01-01")], dtype=object)}))


@given(st.lists(st.sampled_from(["nan", "inf", "a", "1", "1.0", "-2", "1e3", "Zoë", "10", ""])))
def test_states_have_one_order(states):
    ordered = sorted_states(states)
    assert set(ordered) == set(states)
    assert sorted_states(reversed(ordered)) == ordered
    expected = ["-2", "1", "1.0", "10", "1e3", "inf", "", "Zoë", "a", "nan"]
    assert list(ordered) == [state for state in expected if state in states]


@pytest.mark.parametrize(
    "column",
    [
        np.array([1.0, np.nan]),
        np.array(["a", None], dtype=object),
        pd.array([1, pd.NA], dtype="Int64"),
        pd.array(["a", pd.NA], dtype="string"),
        np.array([1, pd.NA], dtype=object),
        pd.Categorical(["a", None]),
    ],
)
def test_missing_values_are_refused(column):
    with pytest.raises(DataError, match="'c' has missing values: fill them in"):
        as_discrete(pd.DataFrame({"c": column}))


def test_too_many_values_are_no_categories():
    assert len(as_discrete(np.arange(256)[:, None]).states[0]) == MAX_STATES
    with pytest.raises(DataError, match=r"'x0' has 257 different values.*discretize"):
        as_discrete(np.arange(257)[:, None])
    with pytest.raises(DataError, match="1000 different values, more than the 256"):
        as_discrete(np.random.default_rng(0).normal(size=(1000, 1)))


def test_no_table():
    with pytest.raises(DataError, match="shape"):
        as_discrete([1, 2, 3])
    with pytest.raises(DataError, match="no column 'z'; it has x0"):
        as_discrete([[1], [2]], ["z"])
    with pytest.raises(DataError, match="names repeat: a"):
        as_discrete(pd.DataFrame([[1, 2]], columns=["a", "a"]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codes": [[0, 1]]}, "one row of codes for each name"),
        ({"codes": [0, 1]}, "one row of codes for each name"),
        ({"states": (("a",),)}, "one list and one row"),
        ({"states": (("a", "a"), ("1", "2"))}, "'b' has 2 states: expected .* all different"),
        ({"states": (tuple(map(str, range(257))), ("1", "2"))}, "'b' has 257 states"),
        ({"codes": [[0, 2], [0, 0]]}, "'b' has the code 2, but only 2 states"),
        ({"codes": [[0, 257], [0, 0]]}, "codes must be whole numbers from 0 to 255"),
        ({"codes": [[0, -1], [0, 0]]}, "codes must be whole numbers"),
        ({"codes": [[0, 0.5], [0, 0]]}, "codes must be whole numbers"),
        ({"weights": [1]}, "one non-negative whole number for each row"),
        ({"weights": [1, -1]}, "one non-negative whole number for each row"),
        ({"names": ("a", "a")}, "names repeat: a"),
    ],
)
def test_parts_that_do_not_belong_together(changes, message):
    parts = {
        "names": ("b", "a"),
        "states": (("no", "yes"), ("1", "2")),
        "codes": [[0, 1], [1, 1]],
        "weights": None,
    }
    DiscreteTable(**parts)
    with pytest.raises(DataError, match=message):
        DiscreteTable(**(parts | changes))


@given(st.integers(0, 60), st.integers(1, 3), st.booleans(), st.integers(0, 9))
def test_compressing_keeps_what_each_row_counts(num_rows, states, weighted, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, states, (3, num_rows))
    weights = rng.integers(0, 4, num_rows) if weighted else None
    known = tuple(tuple("abc"[:states]) for _ in range(3))
    table = DiscreteTable(("x", "y", "z"), known, codes, weights)
    short = table.compressed()
    assert short.num_rows == table.num_rows
    assert short.names == table.names
    assert short.states == table.states
    assert row_counts(short) == row_counts(table)
    distinct = len({tuple(column) for column in codes.T})
    expected = distinct if 2 * distinct <= num_rows else num_rows
    assert short.codes.shape == (3, expected)
    assert (short is table) == (2 * distinct > num_rows)


def row_counts(table):
    counts = {}
    weights = np.ones(table.codes.shape[1], int) if table.weights is None else table.weights
    for column, weight in zip(table.codes.T.tolist(), weights.tolist(), strict=True):
        counts[tuple(column)] = counts.get(tuple(column), 0) + weight
    return {key: count for key, count in counts.items() if count}


def test_large_weights_are_kept_exactly():
    codes = np.zeros((1, 6))
    weights = np.array([2**30 + 1, 1, 2**30, 0, 5, 2])
    table = DiscreteTable(("x",), (("a",),), codes, weights)
    assert table.compressed().weights.tolist() == [2**31 + 9]


def test_another_order_of_the_variables():
    weighted = DiscreteTable(TABLE.names, TABLE.states, TABLE.codes, np.array([1, 2, 3, 4]))
    turned = weighted.reordered([1, 0])
    assert turned.names == ("a", "b")
    assert turned.states == TABLE.states[::-1]
    np.testing.assert_array_equal(turned.codes, TABLE.codes[::-1])
    np.testing.assert_array_equal(turned.weights, [1, 2, 3, 4])
    assert weighted.nbytes == 8 + 32

"""Tables about the same things, joined by their ids."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.errors import DataError


def test_rows_of_one_id_become_one():
    left = pd.DataFrame({"id": [3, 1, 2], "a": [0.3, 0.1, 0.2]})
    right = pd.DataFrame({"b": ["x", "y", "z"], "id": [1, 2, 4]})
    joined = joined_tables([left, right], "id")
    assert joined.columns.tolist() == ["id", "a", "b"]
    by_id = joined.set_index("id").sort_index()
    assert by_id.index.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(by_id["a"], [0.1, 0.2, 0.3, np.nan])
    assert by_id["b"].fillna("-").tolist() == ["x", "y", "-", "z"]


def test_what_one_table_lacks_comes_from_another():
    left = pd.DataFrame({"id": [1, 2], "a": [np.nan, 0.2], "b": [None, "x"]})
    right = pd.DataFrame({"id": [2, 1], "a": [np.nan, 0.1], "b": ["x", "y"]})
    for tables in ([left, right], [right, left], [left, right, left]):
        by_id = joined_tables(tables, "id").set_index("id")
        assert by_id.loc[[1, 2], "a"].tolist() == [0.1, 0.2]
        assert by_id.loc[[1, 2], "b"].tolist() == ["y", "x"]


def test_whole_numbers_and_booleans_stay_what_they_are():
    left = pd.DataFrame({"id": [1, 2], "a": [7, 8], "c": [True, False]})
    right = pd.DataFrame({"id": [2, 1], "b": [10, 20]})
    joined = joined_tables([left, right], "id")
    assert [dtype.kind for dtype in joined.dtypes] == ["i", "i", "b", "i"]
    assert joined["b"].tolist() == [20, 10]


def test_one_table_is_itself():
    frame = pd.DataFrame({"x": [1.0, 2.0], "id": ["b", "a"]})
    pd.testing.assert_frame_equal(joined_tables([frame], "id"), frame)
    pd.testing.assert_frame_equal(joined_tables([frame[["x"]]], "id"), frame[["x"]])


def test_tables_without_rows():
    left = pd.DataFrame({"id": [1, 2], "a": [0.1, 0.2]})
    right = pd.DataFrame({"id": [1, 2], "b": [0.3, 0.4]})
    joined = joined_tables([left[:0], right[:0]], "id")
    assert joined.columns.tolist() == ["id", "a", "b"]
    assert len(joined) == 0
    assert joined_tables([left, right[:0]], "id")["a"].tolist() == [0.1, 0.2]


def test_tables_without_ids_are_put_below_each_other():
    left, right = pd.DataFrame({"a": [1, 2]}), pd.DataFrame({"a": [3], "b": ["x"]})
    joined = joined_tables([left, right], "id")
    assert joined["a"].tolist() == [1, 2, 3]
    assert joined["b"].isna().tolist() == [True, True, False]
    assert joined.index.tolist() == [0, 1, 2]


def test_values_that_contradict_each_other():
    left = pd.DataFrame({"id": [1, 2], "a": [0.1, 0.2]})
    with pytest.raises(DataError, match="table 1 has other values of 'a'"):
        joined_tables([left, left.assign(a=[0.1, 0.3])], "id")
    # Of different things they may differ.
    assert len(joined_tables([left, left.assign(a=0.3, id=[3, 4])], "id")) == 4

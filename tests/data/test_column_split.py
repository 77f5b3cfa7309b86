import numpy as np
import pandas as pd
import pytest

from flwr_causal.core.circuits.presence import joined_tables
from flwr_causal.data.partition import hold_out, split_columns, split_sorted
from flwr_causal.data.roles import ROW_ID
from flwr_causal.errors import ConfigError, DataError


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 10)), columns=[f"x{j}" for j in range(10)])
    return frame.assign(label=np.where(frame["x0"] > 0, "yes", "no"))


def test_vertical_deals_every_column_once_and_all_rows(table):
    parts = split_columns(table, 3, "vertical", target="label", seed=1)
    names = [name for part in parts for name in part.columns if name != ROW_ID]
    assert sorted(names) == sorted(table.columns)
    assert ["label" in part.columns for part in parts] == [True, False, False]
    assert all(len(part) == len(table) for part in parts)
    again = joined_tables(parts, ROW_ID)[list(table.columns)]
    pd.testing.assert_frame_equal(again, table)


def test_hybrid_shares_columns_and_rows(table):
    parts = split_columns(table, 2, "hybrid", target="label", seed=1)
    left, right = (set(part.columns) for part in parts)
    assert len(left & right - {"label", ROW_ID}) == 3
    assert "label" in left & right
    ids = [set(part[ROW_ID]) for part in parts]
    assert ids[0] & ids[1]
    assert ids[0] - ids[1]
    assert ids[0] | ids[1] == set(range(40))
    whole = joined_tables(parts, ROW_ID).set_index(ROW_ID)
    original = table.reindex(whole.index)
    for name in table.columns:
        known = whole[name].notna()
        assert (whole[name][known] == original[name][known]).all()


def test_a_test_row_is_one_at_every_party(table):
    parts = split_columns(table, 3, "vertical", target="label")
    train, test = hold_out(parts, 0.25, seed=3)
    kept = {tuple(part[ROW_ID]) for part in train}
    assert len(kept) == 1
    assert set(kept.pop()) | set(test[ROW_ID]) == set(range(40))
    assert 4 <= len(test) <= 17
    assert test.notna().all().all()
    assert not hold_out(parts, 0.25, seed=4)[1].equals(test)
    nothing = hold_out(parts, 0.0)
    assert len(nothing[1]) == 0


def test_rows_without_ids_are_put_below_each_other(table):
    halves = [table.iloc[:25], table.iloc[25:]]
    train, test = hold_out(halves, 0.2)
    assert len(test) + sum(map(len, train)) == 40
    # Which rows are set aside does not depend on the party that has them.
    assert (
        hold_out([table], 0.2)[1]
        .sort_values("x0", ignore_index=True)
        .equals(test.sort_values("x0", ignore_index=True))
    )


def test_what_cannot_be_joined_is_refused(table):
    parts = split_columns(table, 2, "hybrid", target="label")
    with pytest.raises(DataError, match="only some"):
        joined_tables([parts[0], parts[1].drop(columns=ROW_ID)], ROW_ID)
    with pytest.raises(DataError, match="repeat"):
        joined_tables([parts[0], pd.concat([parts[1], parts[1]])], ROW_ID)
    other = parts[1].assign(label="maybe")
    with pytest.raises(DataError, match="other values of 'label'"):
        joined_tables([parts[0], other], ROW_ID)
    with pytest.raises(ConfigError, match="below 1"):
        hold_out(parts, 1.0)
    with pytest.raises(ConfigError, match="setting"):
        split_columns(table, 2, "diagonal")
    with pytest.raises(ConfigError, match="'colour'"):
        split_columns(table, 2, "vertical", target="colour")
    with pytest.raises(DataError, match="too few"):
        split_columns(table, 11, "vertical", target="label")


def test_sorted_gives_each_party_its_labels(table):
    parts = split_sorted(table, "label", 2, seed=0)
    assert [len(part) for part in parts] == [20, 20]
    assert set(parts[0]["label"]) == {"no"}
    assert pd.concat(parts)["x0"].sort_values().tolist() == table["x0"].sort_values().tolist()
    with pytest.raises(ConfigError, match="partition-column"):
        split_sorted(table, "colour", 2)

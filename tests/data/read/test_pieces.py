"""Tables in pieces: any file gives the rows, reports and sums of the same table in memory."""

import os

import numpy as np
import pandas as pd
import pytest

from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import describe
from flwr_causal.data.read import pieces as reading
from flwr_causal.data.read.pieces import LargeFile, joined, open_table, pieces, whole
from flwr_causal.data.read.tables import read_table
from flwr_causal.errors import DataError
from flwr_causal.simulations import simulate


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Files of more than 100 bytes are large, and pieces have 40 values."""
    monkeypatch.setattr(reading, "LARGE", 100)
    monkeypatch.setattr(reading, "PIECE", 40)


def numbers(n=101, d=4, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) @ (np.eye(d) + np.triu(rng.standard_normal((d, d)), 1))
    return pd.DataFrame(rows + np.array([1e6, 0, -3, 50]), columns=list("abcd"))


def mixed():
    frame = numbers()
    frame["whole"] = np.arange(101)
    frame["late"] = [*range(60), *np.linspace(0.5, 2, 41)]
    frame["yes"] = frame.b > 0
    frame["text"] = np.where(frame.c > -3, "up", "down")
    frame["same"] = frame.text
    frame["one"] = "only"
    frame["copy"] = frame.a
    frame["flat"] = 7.1
    frame["sum"] = frame.b + 2 * frame.c
    frame.loc[[3, 77], "d"] = np.nan
    frame.loc[90, "text"] = None
    return frame


@pytest.fixture(params=["t.csv", "t.tsv", "t.csv.gz", "t.parquet"])
def save(request, tmp_path):
    def save(frame, name=request.param):
        path = tmp_path / name
        if name.endswith("parquet"):
            frame.to_parquet(path, row_group_size=33)
        else:
            frame.to_csv(path, index=False, sep="\t" if "tsv" in name else ",")
        return path

    return save


def test_a_large_file_has_the_rows_of_the_same_table_in_memory(save):
    table = open_table(save(mixed()))
    assert isinstance(table, LargeFile)
    assert list(table.columns) == list(mixed())
    parts = list(pieces(table))
    assert [len(part) for part in parts] == [3] * 33 + [2]
    assert [len(part) for part in pieces(mixed())] == [3] * 33 + [2]
    again = pd.concat(parts, ignore_index=True)
    pd.testing.assert_frame_equal(again, whole(table))
    pd.testing.assert_frame_equal(again, mixed(), check_dtype=False)


@pytest.mark.few(4)
@pytest.mark.slow
@pytest.mark.parametrize("missing", ["fail", "drop", "keep"])
def test_a_report_does_not_depend_on_where_the_rows_stand(save, missing):
    handling = Handling(missing_values=missing)
    options = {"sums": True, "relations": True}
    found = describe(open_table(save(mixed())), handling, **options)
    assert found == describe(mixed(), handling, **options)


@pytest.mark.few(4)
@pytest.mark.parametrize("missing", ["fail", "drop", "keep"])
@pytest.mark.parametrize("size", [1, 7, 300, 700])
def test_a_report_does_not_depend_on_the_size_of_pieces(monkeypatch, missing, size):
    handling = Handling(missing_values=missing)
    monkeypatch.setattr(reading, "PIECE", 10**6)
    at_once = describe(mixed(), handling, sums=True, relations=True)
    monkeypatch.setattr(reading, "PIECE", size)
    found = describe(mixed(), handling, sums=True, relations=True)
    assert found.rows == at_once.rows == (98 if missing == "drop" else 101)
    for own, other in zip(found.columns, at_once.columns, strict=True):
        assert own.squares == pytest.approx(other.squares, rel=1e-12)
        total = own.mean * found.rows + own.remainder
        assert total == pytest.approx(other.mean * found.rows + other.remainder, rel=1e-14)
        for fact in ("kind", "missing", "distinct_one", "copy_of", "combination_of", "dominated"):
            assert getattr(own, fact) == getattr(other, fact)
    by_name = {column.name: column for column in found.columns}
    assert by_name["sum"].combination_of == (1, 2)
    assert by_name["flat"].distinct_one
    assert by_name["flat"].mean == 7.1
    assert by_name["one"].distinct_one
    # A missing text is a difference.
    assert by_name["same"].copy_of == (7 if missing == "drop" else None)
    assert by_name["copy"].copy_of == 0


def test_an_outlier_and_an_infinite_value_are_found_in_any_piece():
    frame = numbers()
    frame.loc[70, "b"] = 1e4
    found = describe(frame, sums=True, relations=True).columns
    assert [column.dominated for column in found] == [False, True, False, False]
    frame.loc[70, "b"] = np.inf
    found = describe(frame, sums=True, relations=True).columns
    assert [column.infinite for column in found] == [0, 1, 0, 0]
    assert found[1].squares == 0


def test_large_whole_numbers_of_different_pieces_are_compared():
    frame = pd.DataFrame({"id": np.arange(90, dtype=np.int64), "x": np.arange(90.0)})
    frame.loc[2, "id"], frame.loc[80, "id"] = 2**53 + 4, 2**53 + 5
    with pytest.raises(DataError, match="column 'id' holds whole numbers beyond 2\\^53"):
        describe(frame)


def test_a_large_offset_costs_no_digits():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(1000)
    report = describe(pd.DataFrame({"x": x + 1e9, "y": x}), sums=True)
    own, other = (column.squares - column.remainder**2 / report.rows for column in report.columns)
    assert own == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        ["1"] * 50 + ["x"] * 51,
        ["True"] * 50 + ["1"] * 51,
        [""] * 50 + ["x"] * 51,
        [*map(str, range(100)), "2020-01-01"],
    ],
)
def test_a_column_whose_pieces_differ_in_kind_is_read_as_a_whole(tmp_path, values):
    path = tmp_path / "t.csv"
    rows = [f"{value},{k}.5" for k, value in enumerate(values)]
    path.write_text("\n".join(["v,x", *rows]) + "\n")
    table, expected = open_table(path), read_table(path)
    assert len(table) == 101
    pd.testing.assert_frame_equal(pd.concat(pieces(table)), expected)
    assert describe(table) == describe(expected)


@pytest.mark.parametrize(
    ("line", "match"),
    [("1", "line 62 has 1 fields"), ("1,2,3", "Expected 2 fields in line 62, saw 3")],
)
def test_a_row_of_another_width_far_down_is_an_error(tmp_path, line, match):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,b", *["1,2"] * 60, line, *["3,4"] * 9]) + "\n")
    with pytest.raises(DataError, match=match):
        describe(open_table(path))


def test_a_file_that_is_changed_between_two_passes_is_an_error(save):
    path = save(numbers())
    table = open_table(path)
    os.utime(path, ns=(1, 1))
    for read in (whole, len, lambda table: list(pieces(table))):
        with pytest.raises(DataError, match=r"was changed while a run was reading it"):
            read(table)


def test_all_rows_are_read_once(save, monkeypatch):
    table = open_table(save(numbers()))
    calls = []
    monkeypatch.setattr(reading, "read_table", lambda path, _: calls.append(path) or numbers())
    monkeypatch.setattr(reading, "_file_pieces", lambda *_: pytest.fail("read in pieces"))
    assert whole(table) is whole(table)
    assert len(calls) == 1


def test_repeated_names_are_kept(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["a,a", *["1,2"] * 60]) + "\n")
    table = open_table(path)
    assert list(table.columns) == ["a", "a"]
    assert describe(table).duplicate_names == ("a",)


def test_joined_rows_are_those_of_the_parts():
    rows = np.arange(12.0).reshape(6, 2)
    parts = [rows[:2], rows[2:5], rows[5:]]
    np.testing.assert_array_equal(joined(iter(parts), 6), rows)
    np.testing.assert_array_equal(joined(iter(parts), 9), rows)
    assert joined(iter([rows]), 9) is rows


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("moments", {}),
        ("moments", {"standardize": True, "sparsity": "held-out", "center": "party"}),
        ("moments", {"model": "additive"}),
        ("notears-admm", {"max_rounds": 6}),
        ("notears-admm", {"max_rounds": 6, "sparsity": "held-out"}),
        ("fedcausal", {"max_rounds": 4}),
        ("lingam", {}),
    ],
)
def test_a_method_on_files_equals_the_method_on_tables_in_memory(
    tmp_path, monkeypatch, method, options
):
    tables = [numbers(), numbers(80, seed=1)]
    paths = [tmp_path / "a.csv", tmp_path / "b.parquet"]
    tables[0].to_csv(paths[0], index=False)
    tables[1].to_parquet(paths[1])
    files, memory = (simulate(method, parties, **options) for parties in (paths, tables))
    np.testing.assert_array_equal(files.graph.raw_weights, memory.graph.raw_weights)
    monkeypatch.setattr(reading, "PIECE", 10**6)
    at_once = simulate(method, tables, **options)
    np.testing.assert_allclose(
        files.graph.raw_weights, at_once.graph.raw_weights, rtol=1e-6, atol=1e-9
    )

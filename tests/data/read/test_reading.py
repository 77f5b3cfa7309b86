"""What cells hold: missing values, numbers, codes and text, in files as in DataFrames."""

import numpy as np
import pandas as pd
import pytest

from flwr_causal.data.read import pieces as in_pieces
from flwr_causal.data.read.pieces import open_table, selected, whole
from flwr_causal.data.read.reading import Reading, as_read, typed
from flwr_causal.data.read.tables import read_table, texts_of_missing
from flwr_causal.data.read.texts import MISSING, are_codes, are_whole_codes, is_spelled


@pytest.mark.parametrize("codes", [0, 64])
@pytest.mark.parametrize("text", sorted(MISSING))
def test_marks_of_missing_values_are_missing_among_numbers_and_states_in_text(write, text, codes):
    path = write(f"number,whole,flag,state\n1.5,1,True,{text}\n{text},{text},{text},x\n2,3,no?,\n")
    frame = read_table(path, Reading(codes=codes))
    assert frame["number"].isna().tolist() == [False, True, False]
    assert frame["number"].dtype == frame["whole"].dtype == np.float64
    assert frame["flag"].tolist() == ["True", text, "no?"]
    assert frame["state"].isna().tolist() == [False, False, True]
    assert frame["state"].tolist()[:2] == [text, "x"]
    path = write(f"flag,only\nTRUE,{text}\n{text},{text}\n")
    frame = read_table(path, Reading(codes=codes))
    assert frame["flag"].isna().tolist() == [False, True]
    assert frame["flag"].tolist()[0] is True
    # At a party where all states are None it is one, too.
    assert frame["only"].notna().all() == (text == "None")


@pytest.mark.parametrize("missing", [False, True])
def test_texts_are_typed_as_pandas_types_them(write, missing):
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(200) * 10.0 ** rng.integers(-300, 300, 200)
    frame = pd.DataFrame({"n": numbers, "k": rng.integers(-9, 9, 200), "b": numbers > 0})
    frame["large"] = 2**60 + np.arange(200)
    path = write(frame.to_csv(index=False))
    as_texts = read_table(path, Reading(codes=64))
    pd.testing.assert_frame_equal(as_texts, read_table(path))
    pd.testing.assert_frame_equal(as_texts, frame)
    if missing:
        frame.loc[3, ["n", "k"]] = np.nan
        path = write(frame.to_csv(index=False, na_rep="NA"))
        pd.testing.assert_frame_equal(read_table(path, Reading(codes=64)), frame)
        pd.testing.assert_frame_equal(read_table(path), frame)


@pytest.mark.parametrize(
    ("texts", "codes"),
    [
        (["250.0", "250.00"], True),
        (["250", "250.00", "401.1"], True),
        (["007", "7"], True),
        (["1E2", "100"], True),
        (["1.5", "1.50"], True),
        (["7", "7.0", "7."], False),
        (["0", "-0", "-0.0", "0.0"], False),
        (["+7", "7"], False),
        (["01", "02", "12"], False),
        (["01234", "80331"], True),
        (["000", "100"], True),
        (["1E2", "1E3"], True),
        (["1E+02", "1e3", "1.5E2"], False),
        (["0.1", "1e-05", "100000.0"], False),
    ],
)
def test_codes_are_told_by_their_spelling(write, texts, codes):
    assert are_codes(texts) is codes
    path = write("\n".join(["x", *texts]) + "\n")
    kept = read_table(path, Reading(codes=64))["x"]
    assert (kept.tolist() == texts) is codes
    # Without need of states, and with more of them than may be states, they are numbers.
    for reading in (Reading(), Reading(codes=1), Reading(codes=64, numbers=("x",))):
        assert read_table(path, reading)["x"].dtype.kind in "fi"
    assert read_table(path, Reading(categories=("x",)))["x"].tolist() == texts


@pytest.mark.parametrize(
    ("texts", "codes"),
    [
        (["01234", "80331"], True),
        (["007", "7", "12"], False),
        (["007", "x12"], False),
        (["007", "12.5"], False),
        (["12", "13"], False),
    ],
)
def test_whole_codes(texts, codes):
    assert are_whole_codes(texts) is codes


def test_among_codes_marks_of_missing_values_are_missing(write):
    frame = read_table(write("x,y\n007,1\nNA,2\n7,3\n,4\n"), Reading(codes=64))
    assert frame["x"].isna().tolist() == [False, True, False, True]
    assert frame["x"].tolist()[::2] == ["007", "7"]
    assert frame["y"].dtype == np.int64


def test_declared_columns_are_the_same_from_every_source(write, tmp_path):
    frame = pd.DataFrame({"code": ["007", "12"], "age": ["30", "41.5"], "n": [1.0, -999.0]})
    frame.to_parquet(tmp_path / "t.parquet")
    csv = write(frame.to_csv(index=False))
    reading = Reading(("code", "n"), ("age",), ("-999", "12"))
    for source in (frame, csv, tmp_path / "t.parquet"):
        read = read_table(source, reading)
        assert read["code"].tolist()[0] == "007"
        assert read["code"].isna().tolist() == [False, True]
        assert read["age"].tolist() == [30.0, 41.5]
    plain = as_read(pd.DataFrame({"n": [1, 0], "f": [0.5, 2.0], "b": [True, False]}), reading)
    assert plain["n"].tolist() == ["1", "0"]
    assert plain["b"].tolist() == [True, False]
    assert as_read(frame, Reading()) is frame


def test_further_missing_texts_are_compared_as_numbers_and_as_texts():
    frame = pd.DataFrame({"n": [1, -999, 3], "t": ["?", "-999", "x"], "b": [True, False, True]})
    read = as_read(frame, Reading(missing=("?", "-999")))
    assert read.isna().to_numpy().tolist() == [
        [False, True, False],
        [True, True, False],
        [False] * 3,
    ]
    assert frame.notna().all(axis=None)


def test_a_text_that_is_no_number_stays_when_it_is_declared_one():
    frame = pd.DataFrame({"t": ["1", "2x"]})
    assert as_read(frame, Reading(numbers=("t",)))["t"].tolist() == ["1", "2x"]


def test_large_files_are_read_as_small_ones(write, monkeypatch):
    rows = [f"{k % 7},{'NA' if k % 5 else 'x'},{'NA' if k % 3 else k}" for k in range(300)]
    path = write("\n".join(["code,state,n", *rows]) + "\n")
    small = read_table(path, Reading(categories=("code",)))
    monkeypatch.setattr(in_pieces, "LARGE", 1)
    monkeypatch.setattr(in_pieces, "PIECE", 60)
    table = open_table(path, reading=Reading(categories=("code",)))
    assert isinstance(table, in_pieces.LargeFile)
    read = pd.concat(in_pieces.pieces(table), ignore_index=True)
    pd.testing.assert_frame_equal(read, small)
    pd.testing.assert_frame_equal(whole(table), small)
    chosen = selected(table, ["state", "n", "nowhere"])
    assert list(chosen.columns) == ["state", "n"]
    assert len(chosen) == 300
    pd.testing.assert_frame_equal(whole(chosen), small[["state", "n"]])
    read = pd.concat(in_pieces.pieces(chosen), ignore_index=True)
    pd.testing.assert_frame_equal(read, small[["state", "n"]])
    assert selected(table, [*table.columns]) is table


def test_texts_that_stand_for_missing_values_are_counted(write):
    path = write("n,t\n1,NA\nNA,\n,x\nnull,y\nNA,\n")
    assert texts_of_missing(path) == {"n": {"NA": 2, "": 1, "null": 1}, "t": {"": 2}}


@pytest.mark.parametrize("text", ["007", "+7", "7.0", "1E2", "-01"])
def test_numbers_in_another_spelling(text):
    assert is_spelled(text)
    assert not is_spelled("7")
    assert not is_spelled("12345678901234567890")
    assert not is_spelled("A7")


def test_whole_numbers_beyond_all_types_keep_their_digits():
    column = typed(pd.Series(["99999999999999999999", "5"]))
    assert column.tolist() == [99999999999999999999, 5]
    # More digits than Python takes for a whole number.
    assert typed(pd.Series(["1" * 5000, "5"])).tolist() == [np.inf, 5.0]
    assert typed(pd.Series(["18446744073709551615", "5"])).dtype == np.uint64

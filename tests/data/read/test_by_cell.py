"""Files read for runs with epsilon: one row changes nothing but its own numbers."""

import csv
import gzip
import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flwr_causal.data.read import pieces as reading
from flwr_causal.data.read.by_cell import number_of, read_by_cell
from flwr_causal.data.read.pieces import LargeFile, open_table, pieces
from flwr_causal.errors import DataError

any_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def numbers_in(tmp_path):
    """The numbers in the bytes of a file, which is read as a whole and in pieces."""

    def numbers_in(content, name="t.csv"):
        path = tmp_path / name
        content = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        found = read_by_cell(path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reading, "LARGE", 1)
            patch.setattr(reading, "PIECE", 2 * found.shape[1])
            large = open_table(path, by_cell=True)
            assert isinstance(large, LargeFile)
            parts = list(pieces(large))
            assert max(map(len, parts)) <= 2
            assert sum(map(len, parts)) == len(large) == len(found)
            pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), found)
            pd.testing.assert_frame_equal(large.whole, found)
        assert set(found.dtypes) == {np.dtype(float)}
        return found.to_numpy()

    return numbers_in


LINES = ["1,0.5,True", "2,,False", "-3,1e3,TRUE", ' 4 ,"5",true', "nan,inf,x"]
# Each is left out, or is a row whose first number is missing.
BROKEN = {
    "one field": b"7",
    "too few fields": b"7,8",
    "too many fields": b"7,8,1,",
    "empty": b"",
    "blank": b"  ",
    "a mark that is not closed": b'"7,8,1',
    "a mark that is not closed at the end": b'7,8,"',
    "a mark behind a quoted text": b'"7"7,8,1',
    "a doubled mark that is not closed": b'"7"",8,1',
    "a mark alone": b'"',
    "text": b"text,8,1",
    "not UTF-8": b"\xff,8,1",
    "half a character": b"7\xe2\x82,8,1",
    "two bytes": "7,8,1".encode("utf-16"),
    "zeros": b"7\0,8,1",
    "a carriage return": b"x\r7,8,1",
    "a line separator": "x\u20287,8,1".encode(),
    "other separators": b"7;8;1",
    "a comment": b"# 7,8,1",
    "a long text": b'"' + b"7" * 200_000 + b'x",8,1',
}


def lines_with(line, place, lines=LINES):
    lines = [one.encode() for one in lines]
    return b"\n".join([b"a,b,c", *lines[:place], line, *lines[place:], b""])


@pytest.mark.few(20)
@pytest.mark.parametrize("place", [0, 2, 5])
@pytest.mark.parametrize("line", BROKEN)
def test_a_line_that_cannot_be_read_is_left_out_alone(numbers_in, line, place):
    expected = [[1, 0.5, 1], [2, np.nan, 0], [-3, 1000, 1], [4, 5, 1], [np.nan] * 3]
    found = numbers_in(lines_with(BROKEN[line], place))
    if len(found) > 5:
        assert np.isnan(found[place, 0])
        found = np.delete(found, place, axis=0)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "t.tsv.gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_delimited_files_of_all_kinds(numbers_in, name, end):
    lines = ["", "a, b", "1,2", ' 3 ,"4"', '"5\n6",7', "8,true"]
    text = end.join(lines).replace(",", "\t") if "tsv" in name else end.join(lines)
    found = numbers_in("\ufeff" + text, name)
    np.testing.assert_array_equal(found, [[1, 2], [3, 4], [np.nan, 7], [8, 1]])


def test_the_character_at_the_end_of_the_header_ends_all_lines(numbers_in):
    np.testing.assert_array_equal(numbers_in("a,b\n1,2\r3,4\n5,6\r\n"), [[5, 6]])
    np.testing.assert_array_equal(numbers_in("a,b\r1,2\n3,4\r5,6\r"), [[5, 6]])


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.npz"])
def test_a_table_without_rows_is_one_piece(name, tmp_path, monkeypatch):
    path, frame = tmp_path / name, pd.DataFrame({"a": [], "b": []})
    if name == "t.csv":
        frame.to_csv(path, index=False)
    elif name == "t.parquet":
        frame.to_parquet(path)
    else:
        np.savez(path, X=frame.to_numpy(), names=["a", "b"])
    monkeypatch.setattr(reading, "LARGE", 1)
    for table in (read_by_cell(path), open_table(path, by_cell=True)):
        (piece,) = pieces(table)
        assert (len(piece), list(piece.columns)) == (0, ["a", "b"])


pieces_of_cells = st.sampled_from(['"', ",", "\n", "1", "2", ".", "x", " ", "true", "\n1,2\n"])
cells = st.lists(pieces_of_cells, max_size=8).map("".join)


@any_file
@given(rows=st.lists(st.tuples(cells, cells), max_size=6))
def test_a_well_formed_file_has_the_numbers_of_its_cells(numbers_in, rows):
    """Also where texts hold lines that look like rows."""
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *rows])
    expected = [[number_of(cell) for cell in row] for row in rows]
    np.testing.assert_array_equal(numbers_in(text.getvalue()), np.reshape(expected, (-1, 2)))


plain = st.lists(st.sampled_from("0123.-e,"), max_size=7).map("".join)


@any_file
@given(lines=st.lists(plain, min_size=1, max_size=5))
def test_lines_of_plain_numbers_have_the_numbers_of_their_cells(numbers_in, lines):
    rows = [line.split(",") for line in lines]
    expected = [[number_of(cell) for cell in row] for row in rows if len(row) == 2]
    found = numbers_in("\n".join(["a,b", *lines, ""]))
    np.testing.assert_array_equal(found, np.reshape(expected, (-1, 2)))


raw = st.binary(max_size=12) | st.text(st.sampled_from('",1x\r'), max_size=8).map(str.encode)


@pytest.mark.slow
@any_file
@given(line=raw.map(lambda line: line.replace(b"\n", b"")), place=st.integers(0, 4))
@example(b'1,"', 1)
@example(b'"1,2"', 1)
@example(b'"1\r', 1)
def test_any_line_changes_one_row_at_most(numbers_in, line, place):
    """Of a table without quoted texts, or with the usual ones."""
    for lines in (["1,2", "x,4", "5,6", ",8"], ['"1","2"', '"x","4"', '"5",6', '"","8"']):
        before = numbers_in("\n".join(["a,b", *lines, ""]))
        found = numbers_in(lines_with(line, place, lines).replace(b"a,b,c", b"a,b"))
        if len(found) > len(before):
            found = np.delete(found, place, axis=0)
        np.testing.assert_array_equal(found, before)


@pytest.mark.slow
def test_many_marks_that_are_not_closed_take_no_longer(numbers_in):
    lines = ['"x', *["1"] * 500, '"",', '"x'] * 4
    assert len(numbers_in("\n".join(["a", *lines]))) == 500 * 4


HEADERS = {
    "": "is empty",
    "\n \n": "is empty",
    "1.5,2": "no header line",
    "a,": "number 2 has no name",
    "a;b": "separated by semicolons",
    'a,"b': "quotation mark in the header",
    'a,"b\nc"': "quotation mark in the header",
    "a,b\udcff": "not UTF-8",
}


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize("rows", [b"", b"\n1,2\n", b'\nx"\n\xff'])
def test_only_the_header_is_an_error(tmp_path, header, rows):
    path = tmp_path / "t.csv"
    blank = not header.strip()
    path.write_bytes(header.encode(errors="surrogateescape") + (b"" if blank else rows))
    with pytest.raises(DataError, match=HEADERS[header]):
        read_by_cell(path)


def test_an_index_of_pandas_is_no_column(tmp_path):
    frame = pd.DataFrame({"a": [1, 2, 3], "id": [7, 5, 6], "b": ["1", "x", "4"]}).set_index("id")
    frame.to_parquet(tmp_path / "t.parquet")
    found = read_by_cell(tmp_path / "t.parquet")
    assert list(found.columns) == ["a", "b"]
    np.testing.assert_array_equal(found, [[1, 1], [2, np.nan], [3, 4]])


@pytest.mark.parametrize("rows", [3, 5])
def test_no_error_tells_the_number_of_rows(tmp_path, rows):
    path = tmp_path / "t.npz"
    for arrays, message in (
        ({"X": np.ones(rows)}, "array 'X' of .* has 1 dimensions: a table has two"),
        ({"A": np.ones((rows, 2)), "B": np.ones((rows, 2))}, "holds A, B: save"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=message) as caught:
            read_by_cell(path)
        assert str(rows) not in str(caught.value).replace(str(path), "")
    with pytest.raises(DataError, match="list of tables"):
        read_by_cell([np.ones((rows, 2))])

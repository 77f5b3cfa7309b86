import bz2
import gzip
import lzma
import unicodedata
import zipfile

import numpy as np
import pandas as pd
import pytest

from flwr_causal import simulate
from flwr_causal.data.read.by_cell import read_by_cell
from flwr_causal.data.read.origin import Delimited
from flwr_causal.data.read.pieces import open_table_cached
from flwr_causal.data.read.tables import delimited_pieces, read_table
from flwr_causal.data.roles import SERIES
from flwr_causal.errors import DataError

TEXT = "a,b\n1,2\n3,4\n"


def test_csv_keeps_names_order_and_exact_numbers(write):
    values = np.random.default_rng(0).standard_normal((50, 3)) * [1e-300, 1.0, 1e300]
    lines = [",".join(map(repr, row)) for row in values.tolist()]
    path = write("\n".join([" x10 ,x2,a b", *lines]) + "\n")
    frame = read_table(path)
    assert list(frame.columns) == ["x10", "x2", "a b"]
    assert isinstance(frame.index, pd.RangeIndex)
    np.testing.assert_array_equal(frame.to_numpy(), values)


def test_csv_gz_tsv_bom_blank_lines_and_capital_suffix(tmp_path, write):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    (tmp_path / "b.TSV.GZ").write_bytes(gzip.compress(b"a\tb\n1\t2\n"))
    paths = [
        tmp_path / "a.csv.gz",
        tmp_path / "b.TSV.GZ",
        write("a\tb\n1\t2\n", "c.tsv"),
        write("\ufeffa,b\r\n1,2\r\n", "d.CSV"),
        write("\n  \na,b\n\n1,2\n\n", "e.csv"),
    ]
    for path in paths:
        pd.testing.assert_frame_equal(read_table(str(path)), pd.DataFrame({"a": [1], "b": [2]}))


def test_csv_keeps_doubled_names(write):
    frame = read_table(write("x,y,x\n1,2,3\n"))
    assert list(frame.columns) == ["x", "y", "x"]
    assert frame.iloc[0].tolist() == [1, 2, 3]


def test_csv_missing_values_in_the_last_column_are_not_a_short_row(write):
    frame = read_table(write('a,b\n1,\n2,NA\n"3",4\n'))
    assert frame["b"].isna().tolist() == [True, True, False]


def test_csv_header_only_is_a_table_of_no_rows(write):
    assert read_table(write("a,b\n")).shape == (0, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["is empty", "header line"]),
        ("\n \n", ["is empty"]),
        ("a,b,c\n1,2,3\n4,5\n", ["line 3", "2 fields", "header has 3"]),
        ("a,b,c\n1,2,3\n4,5,6,7\n", ["line 3", "saw 4", "one field for each name"]),
        # pandas would take the first field of every row as an index
        ("a,b\n1,2,3\n4,5,6\n", ["line 2", "3 fields", "header has 2"]),
        ("a,b\n0,2,3\n1,5,6\n", ["line 2", "3 fields"]),
        (",a\n0,1.5\n", ["column number 1", "no name", "index=False", "row.names"]),
        ("a;b\n1;2\n", ["semicolons", "commas"]),
        ("a\tb\n1\t2\n", ["tabs", "commas"]),
        ("1.5,2.5\n3,4\n", ["no header line", "names of the variables"]),
    ],
)
def test_bad_csv(write, text, words):
    path = write(text)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_whole_numbers_and_special_words_are_fine_as_names(write):
    assert list(read_table(write("0,1,2\n1,2,3\n")).columns) == ["0", "1", "2"]
    assert list(read_table(write("nan,inf\n1,2\n")).columns) == ["nan", "inf"]


@pytest.mark.parametrize("policy", ["whole", "by cell"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (TEXT.encode("utf-16"), 'UTF-16, which Excel calls "Unicode text"'),
        (TEXT.encode("utf-16-be"), "zero bytes in its header"),
        (TEXT.encode("utf-16-le"), "zero bytes in its header"),
        (bz2.compress(TEXT.encode()), "bzip2"),
        (lzma.compress(TEXT.encode()), "xz"),
        (b"\x28\xb5\x2f\xfd0", "zstd"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "a workbook: give it a name that ends in .xls"),
        ("zip", "a ZIP archive or a workbook: unpack it"),
        ("parquet", "a name that ends in .parquet"),
    ],
)
def test_files_of_other_formats_named_csv(tmp_path, content, words, policy):
    path = tmp_path / "a.csv"
    if content == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.csv", TEXT)
    elif content == "parquet":
        pd.DataFrame({"a": [1, 2], "b": [3, 4]}).to_parquet(path)
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_table(path) if policy == "whole" else read_by_cell(path)


def test_undecodable_and_broken_gzip_files(tmp_path):
    latin = tmp_path / "latin.csv"
    latin.write_bytes("größe,b\n1,2\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.csv is not UTF-8.*save it as UTF-8"):
        read_table(latin)
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 1000)[:30])
    with pytest.raises(DataError, match=r"cut\.csv\.gz"):
        read_table(cut)


def test_path_problems(tmp_path, write):
    with pytest.raises(DataError, match=r"nowhere\.csv does not exist: check the path"):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(DataError, match="is a directory, and a party's table is one file"):
        read_table(tmp_path)
    with pytest.raises(DataError, match=r"\.docx .*unknown file type.*\.csv.*\.parquet.*\.npz"):
        read_table(write("a,b", "party.docx"))
    with pytest.raises(DataError, match="a table of type dict cannot be read: give a path"):
        read_table({"a": [1, 2]})


def test_array_gets_names_in_order():
    frame = read_table(np.arange(24.0).reshape(2, 12))
    assert list(frame.columns) == [f"x{j}" for j in range(12)]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.arange(3.0), r"1 dimension, shape \(3,\).*reshape\(-1, 1\)"),
        (np.zeros((2, 3, 4)), r"3 dimensions, shape \(2, 3, 4\)"),
        (np.array([[1, "a"]], dtype=object), "type object.*pandas DataFrame"),
        (np.zeros((3, 0)), "no columns"),
    ],
)
def test_bad_arrays(array, words):
    with pytest.raises(DataError, match=words):
        read_table(array)


def test_dataframe_is_copied_and_cleaned():
    original = pd.DataFrame({1: [1.0, 2.0], "b": [3.0, 4.0]}, index=[7, 7])
    frame = read_table(original)
    assert list(frame.columns) == ["1", "b"]
    assert frame.index.tolist() == [0, 1]
    assert list(original.columns) == [1, "b"]
    assert original.index.tolist() == [7, 7]


def test_bad_dataframes():
    nested = pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")]))
    with pytest.raises(DataError, match="several levels: give every column one name"):
        read_table(nested)
    with pytest.raises(DataError, match="no columns"):
        read_table(pd.DataFrame(index=[0, 1]))
    with pytest.raises(DataError, match=r"column number 2 .* no name: name it"):
        read_table(pd.DataFrame([[1, 2]], columns=["a", ""]))
    for nothing in (None, np.nan, " ", pd.NaT):
        with pytest.raises(DataError, match="column number 1 of the table has no name"):
            read_table(pd.DataFrame([[1, 2]], columns=pd.Index([nothing, "b"], dtype=object)))
    half = pd.DataFrame([[1, 2]], columns=pd.Index(["a", "\udc80"], dtype=object))
    with pytest.raises(DataError, match=r"column number 2 is no UTF-8 text .*rename"):
        read_table(half)


def test_npz_by_name_or_single_table(tmp_path):
    X = np.random.default_rng(0).standard_normal((4, 2))
    np.savez(tmp_path / "a.npz", X=X, W=np.eye(2), names=np.array(["u", "v"]))
    np.savez_compressed(tmp_path / "b.npz", table=X, seed=np.array(3), names=np.array([b"u", b"v"]))
    np.savez(tmp_path / "c.npz", X)
    for name, columns in (("a", ["u", "v"]), ("b", ["u", "v"]), ("c", ["x0", "x1"])):
        frame = read_table(tmp_path / f"{name}.npz")
        assert list(frame.columns) == columns
        np.testing.assert_array_equal(frame.to_numpy(), X)


def test_bad_npz(tmp_path):
    def message(**arrays):
        path = tmp_path / "bad.npz"
        np.savez(path, **arrays)
        with pytest.raises(DataError, match=r"bad\.npz") as caught:
            read_table(path)
        return str(caught.value)

    assert "A (2, 2), B (2, 2): save the table of samples" in message(A=np.eye(2), B=np.eye(2))
    assert "named X" in message(W=np.eye(2), series=np.zeros((3, 4, 2)))
    assert "v (3,)" in message(v=np.arange(3))
    assert "1 dimension" in message(X=np.arange(3))
    few = message(X=np.eye(2), names=np.array(["a"]))
    assert "2 columns but 'names' has the shape (1,)" in few
    assert "no UTF-8 text" in message(X=np.eye(2), names=np.array([b"a", b"\xff"]))
    assert "the type |V4" in message(X=np.zeros((2, 2), "V4"))
    assert "is refused" in message(X=np.array([[1, None]], dtype=object))

    for name, content in (
        ("text.npz", b"no archive"),
        ("empty.npz", b""),
        ("zip.npz", b"PK\3\4.."),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=name):
            read_table(tmp_path / name)
    np.save(tmp_path / "single.npy", np.eye(2))
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    with pytest.raises(DataError, match=r"numpy\.savez"):
        read_table(tmp_path / "single.npz")


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"b": [1.5, np.nan], "a": ["x", "y"]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_parquet(tmp_path / "t.pq")
    for name in ("t.parquet", "t.pq"):
        pd.testing.assert_frame_equal(read_table(tmp_path / name), frame, check_dtype=False)
    (tmp_path / "bad.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"bad\.parquet cannot be read .*save the table again"):
        read_table(tmp_path / "bad.parquet")


def test_parquet_without_pyarrow_says_what_to_install(write, monkeypatch):
    def fail(path):
        raise ImportError("Unable to find a usable engine")

    monkeypatch.setattr(pd, "read_parquet", fail)
    with pytest.raises(DataError, match=r'pip install "flwr-causal\[parquet\]"'):
        read_table(write("", "t.parquet"))


def test_cache_returns_the_same_frame_until_the_file_changes(write):
    path = write("a,b\n1,2\n")
    first = open_table_cached(path)
    assert open_table_cached(str(path)) is first
    write("a,b\n1,2\n3,4\n")
    assert len(open_table_cached(path)) == 2
    assert len(first) == 1


def test_cache_is_bounded(write):
    paths = [write("a\n1\n", f"{k}.csv") for k in range(9)]
    frames = [open_table_cached(path) for path in paths]
    assert open_table_cached(paths[-1]) is frames[-1]
    assert open_table_cached(paths[0]) is not frames[0]


def test_cache_of_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        open_table_cached(tmp_path / "other.csv")


def test_a_list_is_several_series_of_one_party(write):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((steps, 2)) for steps in (3, 1, 2)]
    frame = read_table(arrays)
    assert list(frame.columns) == [SERIES, "x0", "x1"]
    assert frame[SERIES].tolist() == [0, 0, 0, 1, 2, 2]
    np.testing.assert_array_equal(frame[["x0", "x1"]], np.vstack(arrays))
    assert isinstance(frame.index, pd.RangeIndex)
    pd.testing.assert_frame_equal(read_table(tuple(arrays)), frame)
    # of any kind, each in its own order of columns; one of them is a list too
    table = pd.DataFrame({"b": [1.5, 2.5], "a": ["u", "v"]}, index=[5, 5])
    mixed = read_table([table, write("a,b\nw,3.5\n")])
    assert mixed.to_dict("list") == {SERIES: [0, 0, 1], "b": [1.5, 2.5, 3.5], "a": ["u", "v", "w"]}
    assert list(table.columns) == ["b", "a"]


AB = pd.DataFrame({"a": [1.0], "b": [2.0]})


@pytest.mark.parametrize(
    ("series", "words"),
    [
        ([], "list of series is empty: give at least one"),
        (
            [[1, 2]],
            "series 1 of 1 in the party's list: a table of type list cannot be read: give each",
        ),
        ([AB, np.zeros(3)], r"series 2 of 2: the array has 1 dimension"),
        ([AB, AB[["a"]]], "series 2 of 2 has no column 'b', unlike the first"),
        ([AB, AB.assign(c=1.0)], "series 2 of 2 alone has a column 'c'"),
        ([AB, AB.rename(columns={"b": "a"})], "series 2 of 2 has several columns 'a'"),
        ([AB.assign(**{SERIES: 0})], r"series 1 of 1 has a column '\(series\)'.*rename"),
    ],
)
def test_bad_lists_of_series(series, words):
    with pytest.raises(DataError, match=words):
        read_table(series)


@pytest.mark.parametrize("text", ["sep=,\n", "\n sep=,\r\n", '"sep=,"\n', "SEP=,\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_the_line_that_tells_excel_the_separator_is_no_header(tmp_path, text, name):
    path = tmp_path / name
    content = f"{text}a,b\n1,2\n3,\n".encode()
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert read_table(path)["a"].tolist() == [1, 3]
    assert read_by_cell(path)["a"].tolist() == [1.0, 3.0]
    assert pd.concat(delimited_pieces(Delimited(path, ","), lambda _: 1))["b"].tolist()[0] == 2


@pytest.mark.parametrize("read", [read_table, read_by_cell])
def test_other_separators_are_named(write, read):
    for line, name in (("a|b", "bars"), ("a;b", "semicolons"), ("sep=;\na;b", "semicolons")):
        with pytest.raises(DataError, match=f"is separated by {name}: a .csv file needs commas"):
            read(write(f"{line}\n1\n"))


@pytest.mark.parametrize("read", [read_table, read_by_cell])
def test_compressed_files_are_told_by_their_content(tmp_path, read):
    plain, packed = tmp_path / "plain.csv.gz", tmp_path / "packed.csv"
    plain.write_bytes(b"a,b\n1,2\n")
    packed.write_bytes(gzip.compress(b"a,b\n1,2\n"))
    for path in (plain, packed):
        assert read(path).to_numpy().tolist() == [[1, 2]]


@pytest.mark.parametrize("kind", ["cut", "dtype"])
def test_intervals_are_states_with_their_texts(kind):
    x = pd.Series([0.5, 1.5, np.nan, 2.5], name="x")
    column = pd.cut(x, [0.0, 1.0, 2.0, 9.0])
    column = column if kind == "cut" else pd.Series(pd.arrays.IntervalArray(column))
    found = read_table(pd.DataFrame({"x": column, "y": x}))
    assert found.x.dropna().tolist() == ["(0.0, 1.0]", "(1.0, 2.0]", "(2.0, 9.0]"]
    assert found.x.isna().tolist() == [False, False, True, False]
    assert found.y.equals(x.rename("y"))


def test_names_and_states_are_the_same_however_accents_and_ends_of_lines_are_written(tmp_path):
    """As of files that macOS writes, and of workbooks with headers of two lines."""
    apart, one = unicodedata.normalize("NFD", "\u00e2ge"), "\u00e2ge"
    rows = pd.DataFrame({"x": [1.0, 2, 4, 7] * 20, "s": [one, "b c"] * 40})
    path = tmp_path / "t.csv"
    spelled = rows.replace({"s": {one: apart, "b c": "b\nc"}})
    spelled = spelled.rename(columns={"x": "dose\n(mg)", "s": apart})
    spelled.to_csv(path, index=False)
    named = rows.rename(columns={"x": "dose (mg)", "s": one})
    runs = [
        simulate("fedges", [table, table], discretize=2, minimum_count=0)
        for table in (named, spelled, path)
    ]
    for run in runs:
        assert run.graph.names == ("dose (mg)", one)
        assert run.model.states[1] == (*sorted(["b c", one]),)
        assert list(run.model.predict(spelled, one)) == list(runs[0].model.predict(named, one))
    with pytest.raises(DataError, match="column 'a b': 2 columns have this name"):
        simulate("describe", [rows.rename(columns={"x": "a\nb", "s": "a b"})] * 2)

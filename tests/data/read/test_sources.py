"""Tables of other programs: each format gives the table, and the run, that the CSV file gives."""

import datetime as dt
import os
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyreadstat
import pytest
import sqlalchemy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flwr_causal.data.check.columns import kind_of
from flwr_causal.data.check.party_table import describe
from flwr_causal.data.dictionary.entries import Dictionary
from flwr_causal.data.dictionary.faults import DictionaryFaultError
from flwr_causal.data.dictionary.party_dictionary import PartyDictionary
from flwr_causal.data.read import pieces as reading
from flwr_causal.data.read.by_cell import read_by_cell
from flwr_causal.data.read.origin import origin_of, tables_in
from flwr_causal.data.read.pieces import LargeFile, open_table, pieces, whole
from flwr_causal.data.read.reading import Reading, of_cells
from flwr_causal.data.read.tables import read_table, texts_of_missing
from flwr_causal.errors import DataError
from flwr_causal.party.table_digest import digest
from flwr_causal.simulations import simulate

SEXES = ["male", "female"]


def people(n=60, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.uniform(20, 80, n).round(1)
    frame = pd.DataFrame({"person": np.arange(n) + 1, "age": age})
    frame["pressure"] = (80 + 0.7 * age + rng.standard_normal(n)).round(2)
    frame["visits"] = rng.integers(0, 9, n).astype(float)
    frame["sex"] = np.array(SEXES, dtype=object)[rng.integers(0, 2, n)]
    frame["town"] = np.array(["Köln", "Århus", "Łódź"], dtype=object)[rng.integers(0, 3, n)]
    frame.loc[[3, 17], "pressure"] = np.nan
    frame.loc[[5], "visits"] = np.nan
    frame.loc[[7], "sex"] = None
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(n), "D")
    return frame


def as_codes(frame):
    """The sex as numbers, with labels."""
    codes = frame.sex.map({"male": 1.0, "female": 2.0}).astype(float)
    return frame.assign(sex=codes), {"sex": {1.0: "male", 2.0: "female"}}


def to_database(frame, folder, monkeypatch):
    monkeypatch.setenv("HOSPITAL_DB", f"sqlite:///{folder}/hospital.db")
    engine = sqlalchemy.create_engine(f"sqlite:///{folder}/hospital.db")
    frame.to_sql("people", engine, index=False)
    engine.dispose()


def save(frame, kind, folder, monkeypatch):
    path = folder / f"people.{kind}"
    coded, labels = as_codes(frame)
    if kind == "xlsx":
        frame.to_excel(path, index=False)
    elif kind == "feather":
        pyarrow.feather.write_feather(frame, path, chunksize=7)
    elif kind == "arrow":
        table = pa.Table.from_pandas(frame)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table, max_chunksize=7)
    elif kind == "dta":
        pyreadstat.write_dta(coded, path, variable_value_labels=labels)
    elif kind in ("sav", "zsav"):
        pyreadstat.write_sav(
            coded, path, compress=kind == "zsav", variable_value_labels=labels,
            variable_format={"day": "DATE11"},
        )  # fmt: skip
    elif kind == "xpt":
        dates = frame.assign(day=frame.day.dt.date)
        pyreadstat.write_xport(dates, path, variable_format={"day": "DATE9."})
    elif kind == "db":
        to_database(frame, folder, monkeypatch)
        path = folder / "people.table.toml"
        path.write_text(
            'url-variable = "HOSPITAL_DB"\nquery = "select * from people order by person"\n'
        )
    return path


KINDS = ["xlsx", "feather", "arrow", "dta", "sav", "zsav", "xpt", "db"]


@pytest.fixture(params=KINDS)
def both(request, tmp_path, monkeypatch):
    """The same table as CSV and in another format."""
    frame = people()
    csv = tmp_path / "people.csv"
    frame.to_csv(csv, index=False)
    return csv, save(frame, request.param, tmp_path, monkeypatch)


def without_dates(frame):
    return frame.drop(columns="day")


def test_a_format_gives_the_cells_of_the_csv_file(both):
    csv, other = map(read_table, both)
    assert list(other.columns) == list(csv.columns)
    pd.testing.assert_frame_equal(without_dates(other), without_dates(csv), check_dtype=False)
    assert other.person.dtype == csv.person.dtype == np.int64
    assert other.visits.dtype == csv.visits.dtype == np.float64
    assert list(pd.to_datetime(other.day)) == list(pd.to_datetime(csv.day))
    assert [column.kind for column in describe(without_dates(other)).columns] == [
        column.kind for column in describe(without_dates(csv)).columns
    ]


def test_types_of_the_source_are_used(both, tmp_path):
    other = both[1]
    if "toml" not in other.name:  # SQLite has no dates
        assert pd.api.types.is_datetime64_any_dtype(pd.to_datetime(read_table(other).day))
        assert {column.name: column.kind for column in describe(read_table(other)).columns}[
            "day"
        ] == "other"


def test_a_format_gives_the_run_of_the_csv_file(both):
    csv, other = both
    options = {"exclude": "day,person,town", "missing_values": "drop"}
    mixed = {**options, "categories": "sex", "discretize": 3}
    for method, how in (("moments", {**options, "text_columns": "drop"}), ("fedges", mixed)):
        first, second = (simulate(method, [path, path], **how).graph for path in (csv, other))
        assert first.names == second.names
        np.testing.assert_array_equal(first.raw_weights, second.raw_weights)
        assert first.marked_edges() == second.marked_edges()


def test_a_large_table_is_read_in_pieces_of_the_same_rows(both, monkeypatch):
    monkeypatch.setattr(reading, "LARGE", 100)
    monkeypatch.setattr(reading, "PIECE", 70)
    monkeypatch.setattr(reading, "HELD", 2)
    other = both[1]
    table, expected = open_table(other), read_table(other)
    assert isinstance(table, LargeFile) is (other.suffix != ".xlsx")
    assert len(table) == 60
    assert [len(piece) for piece in pieces(table)] == [10] * 6
    pd.testing.assert_frame_equal(
        pd.concat(list(pieces(table)), ignore_index=True), expected, check_dtype=False
    )
    pd.testing.assert_frame_equal(whole(table), expected, check_dtype=False)
    plain = open_table(other, by_cell=True)
    pd.testing.assert_frame_equal(
        pd.concat(list(pieces(plain)), ignore_index=True), read_by_cell(expected)
    )


def test_cells_alone_are_those_of_the_csv_file(both):
    csv, other = map(read_by_cell, both)
    names = ["person", "age", "pressure", "visits"]
    pd.testing.assert_frame_equal(other[names], csv[names])


def test_a_digest_tells_that_a_table_of_a_database_has_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PIECE", 70)
    monkeypatch.setattr(reading, "HELD", 2)
    path = save(people(), "db", tmp_path, monkeypatch)
    first = digest(open_table(path), "key")
    assert digest(open_table(path), "key") == first
    table = open_table(path)
    engine = sqlalchemy.create_engine(os.environ["HOSPITAL_DB"])
    assert len(table) == 60
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("update people set age = 1 where person = 59"))
    assert digest(open_table(path), "key") != first
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("delete from people where person = 59"))
    engine.dispose()
    with pytest.raises(DataError, match="was changed while a run was reading it"):
        list(pieces(table))


def test_a_described_file_changes_with_the_description(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "LARGE", 10)
    (tmp_path / "a.csv").write_text("x;y\n" + "1,5;2\n" * 50)
    path = tmp_path / "a.table.toml"
    path.write_text('file = "a.csv"\nseparator = ";"\ndecimal = ","\n')
    table = open_table(path)
    first = digest(table, "key")
    assert len(table) == 50
    path.write_text('file = "a.csv"\nseparator = ";"\n')
    with pytest.raises(DataError, match="was changed while"):
        whole(table)
    assert digest(open_table(path), "key") != first


# Delimited text.


def described(folder, content, *lines, encoding="utf-8"):
    """Write a file and its description."""
    (folder / "export.csv").write_bytes(content.encode(encoding))
    path = folder / "t.table.toml"
    path.write_text("\n".join(['file = "export.csv"', *lines]))
    return path


SEMICOLONS = ('separator = ";"', 'decimal = ","')
GERMAN = 'größe;wert;stadt\n1,5;1;Köln\n-2,25;NA;"a;b"\n;3;Århus\n1e-3;4;x\n'


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("size", [None, 2])
def test_semicolons_decimal_commas_and_encodings(tmp_path, monkeypatch, encoding, size):
    if size:
        monkeypatch.setattr(reading, "LARGE", 1)
        monkeypatch.setattr(reading, "PIECE", 3 * size)
    path = described(tmp_path, GERMAN, *SEMICOLONS, f'encoding = "{encoding}"', encoding=encoding)
    table = open_table(path)
    assert isinstance(table, LargeFile) is bool(size)
    expected = pd.DataFrame(
        {
            "größe": [1.5, -2.25, np.nan, 1e-3],
            "wert": [1, np.nan, 3, 4],
            "stadt": ["Köln", "a;b", "Århus", "x"],
        }
    )
    pd.testing.assert_frame_equal(whole(table), expected, check_dtype=False)
    numbers = pd.concat(list(pieces(open_table(path, by_cell=True))), ignore_index=True)
    pd.testing.assert_frame_equal(numbers, expected.assign(stadt=np.nan), check_dtype=False)


def test_semicolons_give_the_run_of_commas(tmp_path):
    frame = people().drop(columns=["day", "person", "town", "sex"])
    plain = tmp_path / "plain.csv"
    frame.to_csv(plain, index=False)
    path = described(tmp_path, frame.to_csv(index=False, sep=";", decimal=","), *SEMICOLONS)
    first, second = (
        simulate("moments", [one, one], missing_values="drop").graph for one in (plain, path)
    )
    np.testing.assert_array_equal(first.raw_weights, second.raw_weights)
    private = {"epsilon": 100.0, "scales": "age=100,pressure=200,visits=10"}
    assert (
        simulate("moments", [plain], **private).graph.names
        == simulate("moments", [path], **private).graph.names
    )


def test_a_point_between_thousands_is_no_decimal_point(tmp_path):
    path = described(tmp_path, "a;b\n1.500;1\n2,5;2\n", *SEMICOLONS)
    with pytest.raises(DataError, match=r"'a' has '1\.500' in a table with decimal commas"):
        read_table(path)
    assert read_by_cell(path).a.tolist() == pytest.approx([np.nan, 2.5], nan_ok=True)
    assert read_table(path, Reading(categories=("a",))).a.tolist() == ["1.500", "2,5"]
    # Dates and codes with letters are text as they are.
    path = described(tmp_path, "a;b\n01.02.2020;V45\n02.02.2020;250.00\n", *SEMICOLONS)
    assert read_table(path).a.tolist() == ["01.02.2020", "02.02.2020"]
    assert read_table(path).b.tolist() == ["V45", "250.00"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.none(), st.floats(-1e9, 1e9), st.integers(-999, 999), st.sampled_from(["NA", "x"])
        ),
        min_size=1,
        max_size=6,
    )
)
def test_a_decimal_comma_reads_as_a_decimal_point(tmp_path, cells):
    texts = ["" if cell is None else str(cell) for cell in cells]
    lines = [f"{text};1" for text in texts]
    pointed = described(tmp_path, "\n".join(["a;b", *lines]), 'separator = ";"')
    plain, numbers = read_table(pointed), read_by_cell(pointed)
    path = described(tmp_path, "\n".join(["a;b", *lines]).replace(".", ","), *SEMICOLONS)
    pd.testing.assert_frame_equal(read_table(path), plain)
    pd.testing.assert_frame_equal(read_by_cell(path), numbers)


def test_codes_and_stray_cells_in_a_table_with_decimal_commas(tmp_path):
    text = "a;b\n" + "1,50;1\n1,5;2\n" * 3
    path = described(tmp_path, text, *SEMICOLONS)
    assert read_table(path).a.tolist() == [1.5] * 6
    assert set(read_table(path, Reading(codes=9)).a) == {"1.50", "1.5"}
    path = described(tmp_path, "a;b\n1,5;1\n2,5;2\n12 mg;3\n", *SEMICOLONS)
    assert read_table(path).a.tolist() == ["1.5", "2.5", "12 mg"]
    path = described(tmp_path, "a;b\n1,5;1\nNA;2\n", *SEMICOLONS)
    assert texts_of_missing(path) == {"a": {"NA": 1}, "b": {}}


def test_errors_of_delimited_text_say_how_to_describe_it(tmp_path):
    path = tmp_path / "k.csv"
    path.write_text("a;b\n1;2\n")
    with pytest.raises(DataError, match=r'NAME\.table\.toml .*file = "k.csv" and separator = ";"'):
        read_table(path)
    path.write_bytes("a,b\nKöln,2\n".encode("latin-1"))
    with pytest.raises(
        DataError, match=r'is not UTF-8 text, at byte 5: .* and encoding = "cp1252"'
    ):
        read_table(path)
    path = described(tmp_path, "a;b\nKöln;2\n", *SEMICOLONS, 'encoding = "ascii"')
    with pytest.raises(DataError, match="is not ascii text"):
        read_table(path)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['file = "export.csv"', "x"], "is no TOML file"),
        (['file = "export.csv"', 'seperator = ";"'], "did you mean 'separator'"),
        (['file = "export.csv"', "separator = 3"], "must be a text in quotation marks"),
        (['file = "export.csv"', 'separator = ",;"'], "write one of a comma"),
        (['file = "export.csv"', 'separator = ","', 'decimal = ","'], "both a comma"),
        (['file = "export.csv"', 'decimal = ","'], "name the separator too"),
        (['file = "export.csv"', 'separator = ";"', 'decimal = "x"'], "'decimal' is 'x'"),
        (['file = "export.csv"', 'encoding = "klingon"'], "Python does not know"),
        (['file = "export.csv"', 'encoding = "base64"'], "Python does not know"),
        (['file = "export.csv"', 'sheet = "a"'], "'sheet' says nothing of a table of this type"),
        (['file = "nowhere.csv"'], "does not exist"),
        (['file = "export.doc"'], "unknown file type"),
        ([], "either a 'file', or a 'query'"),
        (['url-variable = "DB"'], "'query' is missing"),
        (['query = "select 1 order by 1"'], "'url-variable' is missing"),
        (['url-variable = "DB"', 'query = "select 1"'], "no ORDER BY"),
        (['url-variable = "a b"', 'query = "select 1 order by 1"'], "no name of an environment"),
        (['file = "export.csv"', 'unlabelled = ["a"]'], "'unlabelled' says nothing"),
    ],
)
def test_a_description_that_cannot_be_used(tmp_path, lines, words):
    (tmp_path / "export.csv").write_text("a,b\n1,2\n")
    (tmp_path / "export.doc").write_text("a,b\n1,2\n")
    path = tmp_path / "t.table.toml"
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=re.escape(words)) as caught:
        read_table(path)
    assert str(path) in str(caught.value)


def test_a_described_file_counts_once_in_a_directory(tmp_path):
    described(tmp_path, "a;b\n1;2\n", *SEMICOLONS)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "dictionary.toml").write_text("")
    assert [path.name for path in tables_in(tmp_path)] == ["other.csv", "t.table.toml"]
    assert origin_of(tmp_path / "t.table.toml").file == tmp_path / "export.csv"


# Workbooks.


def test_cells_of_a_workbook(tmp_path):
    rows = [
        [None, None, None, None, None, None],
        ["n", "text", "mixed", "stray", 2020, "flag"],
        [1, "007", 1.5, 1, None, True],
        [None, None, None, None, None, None],
        [None, "7", "NA", "<5", None, False],
        [3, None, 2, 3, 4.5, None],
    ]
    path = tmp_path / "a.xlsx"
    pd.DataFrame(rows).to_excel(path, index=False, header=False)
    frame = read_table(path)
    assert list(frame.columns) == ["n", "text", "mixed", "stray", "2020", "flag"]
    assert frame.n.tolist() == pytest.approx([1, np.nan, 3], nan_ok=True)
    assert frame.text.fillna("").tolist() == ["007", "7", ""]
    assert frame.mixed.tolist() == pytest.approx([1.5, np.nan, 2], nan_ok=True)
    assert frame.stray.tolist() == ["1", "<5", "3"]
    assert frame.flag.tolist()[:2] == [True, False]
    kinds = [column.kind for column in describe(frame).columns]
    assert kinds == ["numeric", "category", "numeric", "category", "numeric", "boolean"]


def test_sheets_of_a_workbook(tmp_path):
    path = tmp_path / "a.xlsx"
    with pd.ExcelWriter(path) as book:
        for name in ("one", "two"):
            pd.DataFrame({name: [1, 2]}).to_excel(book, sheet_name=name, index=False)
        pd.DataFrame().to_excel(book, sheet_name="none")
    with pytest.raises(DataError, match=r"several sheets \(one, two\): name one by 'sheet'"):
        read_table(path)
    described = tmp_path / "a.table.toml"
    described.write_text('file = "a.xlsx"\nsheet = "two"\n')
    assert read_table(described).two.tolist() == [1, 2]
    described.write_text('file = "a.xlsx"\nsheet = "three"\n')
    with pytest.raises(DataError, match="no sheet 'three': name one of one, two, none"):
        read_table(described)
    described.write_text('file = "a.xlsx"\nsheet = "none"\n')
    with pytest.raises(DataError, match="is empty"):
        read_table(described)
    pd.DataFrame([["a", None], [1, 2]]).to_excel(path, index=False, header=False)
    with pytest.raises(DataError, match="1 of 2 columns have no name in the first row, row 1"):
        read_table(path)


# Statistics programs.


def test_labels_are_states_and_declared_codes_are_missing(tmp_path):
    frame = pd.DataFrame(
        {"sex": [1.0, 2, 9, 3], "age": [30.0, 99, 41, 42], "code": ["m", "f", "", "x"]}
    )
    path = tmp_path / "a.sav"
    pyreadstat.write_sav(
        frame, path,
        variable_value_labels={
            "sex": {1: "male", 2: "female", 9: "not known"},
            "age": {99: "not known"},
            "code": {"m": "male", "f": "female"},
        },
        missing_ranges={"sex": [9], "age": [{"lo": 98, "hi": 99}]},
    )  # fmt: skip
    found = read_table(path)
    assert found.sex.fillna("").tolist() == ["male", "female", "", "3"]
    assert found.age.tolist() == pytest.approx([30, np.nan, 41, 42], nan_ok=True)
    assert found.code.fillna("").tolist() == ["male", "female", "", "x"]
    described = tmp_path / "a.table.toml"
    described.write_text('file = "a.sav"\nunlabelled = ["sex"]\n')
    assert read_table(described).sex.tolist() == pytest.approx([1, 2, np.nan, 3], nan_ok=True)
    described.write_text('file = "a.sav"\nunlabelled = ["age"]\n')
    with pytest.raises(DataError, match="names 'age', which is no column with value labels"):
        read_table(described)
    pyreadstat.write_sav(frame, path, variable_value_labels={"sex": {1: "x", 2: "x"}})
    assert kind_of(read_table(path).sex) == "other"


def test_missing_values_of_stata_with_labels_make_no_states(tmp_path):
    frame = pd.DataFrame({"age": [30.0, "a", 41.0]}, dtype=object)
    path = tmp_path / "a.dta"
    pyreadstat.write_dta(
        frame, path, missing_user_values={"age": ["a"]},
        variable_value_labels={"age": {"a": "refused"}},
    )  # fmt: skip
    assert read_table(path).age.tolist() == pytest.approx([30, np.nan, 41], nan_ok=True)


def test_codes_that_share_a_label_make_no_state_where_they_occur(tmp_path):
    labels = {1: "work", 2: "home", 8: "elsewhere", 9: "elsewhere", 7: "elsewhere"}
    frame = pd.DataFrame({"x": np.arange(60.0), "where": np.arange(60) % 2 + 8, "why": 1.0, "n": 2})
    for suffix, write in ((".sav", pyreadstat.write_sav), (".dta", pyreadstat.write_dta)):
        path = tmp_path / f"a{suffix}"
        write(frame, path, variable_value_labels=dict.fromkeys(("where", "why"), labels))
        kinds = [kind_of(column) for _, column in read_table(path).items()]
        assert kinds == ["numeric", "other", "category", "numeric"]
        with pytest.raises(DataError, match="codes that share a label") as caught:
            simulate("fedges", [path, path], discretize=3, constant_columns="drop", strict=True)
        assert caught.value.settings == {"exclude": "where"}
        assert simulate("describe", [path, path], exclude="where").model.rows == 120
        described = tmp_path / "a.table.toml"
        described.write_text(f'file = "a{suffix}"\nunlabelled = ["where"]\n')
        assert set(read_table(described)["where"]) == {8, 9}


TITLED = [["Export of ward 3"], [], ["all", "patients"], ["age", "dose"], [1, 2.5], [3, 4.5]]


def test_lines_above_the_names_are_skipped(tmp_path):
    pd.DataFrame(TITLED).to_excel(tmp_path / "a.xlsx", index=False, header=False)
    lines = [",".join(map(str, row)) for row in TITLED]
    (tmp_path / "a.csv").write_text("\n".join(['Of "ward" 3', *lines[1:]]))
    titled = ["Wards", *(line.replace(",", ";") for line in ("sep=,", *lines[3:]))]
    (tmp_path / "b.txt").write_text("\n".join(titled))
    with pytest.raises(DataError, match=r"1 of 2 columns .* row 1: .* row 3 .* skip-lines = 2"):
        read_table(tmp_path / "a.xlsx")
    with pytest.raises(DataError, match=r"if this is a title.* skip-lines"):
        read_table(tmp_path / "a.csv")
    path = tmp_path / "t.table.toml"
    for how in (
        '"a.xlsx"\nskip-lines = 3',
        '"a.csv"\nskip-lines = 3',
        '"b.txt"\nseparator = ";"\nskip-lines = 1',
    ):
        path.write_text(f"file = {how}\n")
        for read in (read_table, read_by_cell):
            assert read(path).to_dict("list") == {"age": [1, 3], "dose": [2.5, 4.5]}
    path.write_text('file = "a.csv"\nskip-lines = 4\n')
    with pytest.raises(DataError, match="no header line"):
        read_table(path)
    path.write_text('file = "a.csv"\nskip-lines = -1\n')
    with pytest.raises(DataError, match="'skip-lines' must be a number of lines"):
        read_table(path)


def test_hidden_sheets_are_left_out_and_called_hidden(tmp_path):
    path = tmp_path / "a.xlsx"
    for visible in (["one"], ["one", "two"]):
        with pd.ExcelWriter(path) as book:
            for name in ("one", "two", "three"):
                pd.DataFrame({name: [1]}).to_excel(book, sheet_name=name, index=False)
                if name not in visible:
                    book.sheets[name].sheet_state = "hidden"
        if len(visible) == 1:
            assert [*read_table(path)] == ["one"]
    with pytest.raises(DataError, match=r"several sheets \(one, two, three \(hidden\)\)"):
        read_table(path)


# Databases.

SECRET, HOST = "hunter2secret", "db.hospital.invalid"


ORDERED = {
    "select a from t order by a": True,
    "(select a from t order by a);": True,
    "(select a from t) union (select a from s) order by 1": True,
    "select a from t where b = 'it''s -- ' order\n by f(g(a))": True,
    "select a, row_number() over (order by a) from t": False,
    "select * from (select * from t order by a) s": False,
    "with s as (select * from t order by a) select * from s": False,
    "select a from t -- order by a": False,
    "select a /* order by a */ from t": False,
    "select 'order by' from t": False,
    'select a as "order by" from t': False,
}


@pytest.mark.parametrize(("text", "ordered"), ORDERED.items())
def test_the_rows_themselves_are_ordered(tmp_path, text, ordered):
    path = query(tmp_path, text.replace("''", "x"))
    if ordered:
        assert origin_of(path).query
    else:
        with pytest.raises(DataError, match="no ORDER BY of its own"):
            origin_of(path)


@pytest.mark.parametrize("url", ["sqlite:///{}", "sqlite:///file:{}?mode=rwc&uri=true"])
def test_reading_makes_no_database(tmp_path, monkeypatch, url):
    file = tmp_path / "clinik.db"
    monkeypatch.setenv("HOSPITAL_DB", url.format(file))
    with pytest.raises(DataError, match="does not exist: check the path") as caught:
        read_table(query(tmp_path))
    assert "clinik" not in str(caught.value)
    assert not file.exists()
    sqlalchemy.create_engine(f"sqlite:///{file}").connect().close()
    assert len(read_table(query(tmp_path))) == 1


def query(folder, text="select 1 as a order by 1", variable="HOSPITAL_DB"):
    path = folder / "q.table.toml"
    path.write_text(f"url-variable = {variable!r}\nquery = '''{text}'''\n")
    return path


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "environment variable HOSPITAL_DB is not set"),
        (f"postgresql+psycopg://bob:{SECRET}@{HOST}/x", "cannot be reached"),
        (f"postgresql+psycopg://bob:{SECRET}@127.0.0.1:1/x", "cannot be reached"),
        (f"{SECRET}", "holds no SQLAlchemy URL"),
        (f"postgresql+psycopg://bob:{SECRET}@{HOST}:port{SECRET}/x", "holds no SQLAlchemy URL"),
        (f"nonesuch://bob:{SECRET}@{HOST}/x", "holds no SQLAlchemy URL"),
        (f"oracle://bob:{SECRET}@{HOST}/x", "pip install"),
        (f"sqlite:////nowhere/{SECRET}/a.db", "does not exist: check the path"),
        (f"duckdb:////nowhere/{SECRET}/a.db", "does not exist: check the path"),
    ],
)
@pytest.mark.parametrize("by_cell", [False, True])
def test_errors_of_a_database_hold_no_secret(tmp_path, monkeypatch, caplog, url, words, by_cell):
    monkeypatch.setenv("HOSPITAL_DB", url)
    with pytest.raises(DataError, match=words) as caught:
        open_table(query(tmp_path), by_cell=by_cell)
    error = caught.value
    shown = ""
    while error is not None:
        shown += repr(error) + str(error)
        error = error.__cause__ or error.__context__
    for secret in (SECRET, HOST, "bob"):
        assert secret not in shown + caplog.text


def test_a_query_that_is_refused(tmp_path, monkeypatch):
    to_database(people(), tmp_path, monkeypatch)
    with pytest.raises(DataError, match=r"refused the query \(OperationalError\)") as caught:
        read_table(query(tmp_path, "select Smith from people order by 1"))
    assert "Smith" not in str(caught.value)


def test_signs_of_a_query_are_no_parameters_and_nothing_is_written(tmp_path, monkeypatch):
    to_database(people(), tmp_path, monkeypatch)
    text = "select person, '12:30 :x %s' as t from people where town like '%ö%' order by person;"
    found = read_table(query(tmp_path, text))
    assert set(found.t) == {"12:30 :x %s"}
    assert len(found) == (people().town == "Köln").sum()
    # SQLite and MySQL would keep some of these, whatever is rolled back.
    for statement in ("delete from people", "drop table people", "/* select */ drop table people"):
        with pytest.raises(DataError, match="the query begins neither with SELECT nor"):
            read_table(query(tmp_path, f"{statement} -- order by"))
    commented = "-- persons\n/* all */ (with p as (select * from people) select * from p order by 1"
    assert origin_of(query(tmp_path, commented)).query == commented
    assert len(read_table(query(tmp_path, "select * from people order by 1"))) == 60
    none = read_table(query(tmp_path, "select age, sex from people where 1 = 0 order by 1"))
    assert none.shape == (0, 2)


@pytest.mark.parametrize("piece", [10_000, 20, 2])
def test_rows_of_a_query_that_do_not_fit_the_dictionary_are_all_named(tmp_path, monkeypatch, piece):
    """Also where they are in different pieces of the rows, few pieces or many."""
    monkeypatch.setattr(reading, "PIECE", piece)
    frame = pd.DataFrame({"row": range(1, 41), "x": np.arange(40.0)})
    frame.loc[[3, 37], "x"] = -5.0
    to_database(frame, tmp_path, monkeypatch)
    columns = {"row": {"kind": "number"}, "x": {"kind": "number", "least": 0, "most": 50}}
    own = PartyDictionary(Dictionary.from_dict({"columns": columns}), as_numbers=True)
    with pytest.raises(DictionaryFaultError) as caught:
        len(
            open_table(
                query(tmp_path, "select * from people order by 1"),
                reading=Reading(dictionary=own),
            )
        )
    (line,) = caught.value.local()
    assert "'x', rows 4, 38" in line


def test_whole_numbers_beyond_float64_stay_apart_where_one_is_missing():
    found = of_cells([2**53 + 1, None, 2**53])
    assert found[0] == 2**53 + 1
    assert found.nunique() == 2
    assert of_cells([1, None, 2]).dtype == np.float64


def test_a_sas_file_is_what_pandas_reads():
    """airline.sas7bdat is a file of pandas' own tests; no free program writes such files."""
    file = Path(__file__).parent / "files" / "airline.sas7bdat"
    found, expected = read_table(file), pd.read_sas(file)
    assert found.shape == (32, 6)
    assert list(found.columns) == list(expected.columns)
    np.testing.assert_array_equal(found.to_numpy(dtype=float), expected.to_numpy(dtype=float))
    assert found.YEAR.dtype == np.int64
    assert len(open_table(file, by_cell=True)) == 32


def test_a_table_of_duckdb(tmp_path, monkeypatch):
    pytest.importorskip("duckdb_engine")
    monkeypatch.setenv("HOSPITAL_DB", f"duckdb:///{tmp_path}/hospital.duckdb")
    engine = sqlalchemy.create_engine(os.environ["HOSPITAL_DB"])
    frame = people()
    frame.to_sql("people", engine, index=False)
    engine.dispose()
    monkeypatch.setattr(reading, "PIECE", 70)
    monkeypatch.setattr(reading, "HELD", 2)
    table = open_table(query(tmp_path, "select * from people order by person"))
    assert [len(piece) for piece in pieces(table)] == [10] * 6
    frame.to_csv(tmp_path / "people.csv", index=False)
    expected = without_dates(read_table(tmp_path / "people.csv"))
    pd.testing.assert_frame_equal(without_dates(whole(table)), expected, check_dtype=False)
    with pytest.raises(DataError, match=r"refused the query \(BinderException\)"):
        read_table(query(tmp_path, "select Smith from people order by 1"))


# Broken files, missing libraries.


@pytest.mark.parametrize("kind", ["xlsx", "xls", "ods", "feather", "dta", "sav", "sas7bdat", "xpt"])
@pytest.mark.parametrize("content", [b"", b"no such file\n" * 99])
def test_a_broken_file_is_named(tmp_path, kind, content):
    path = tmp_path / f"a.{kind}"
    path.write_bytes(content)
    for read in (read_table, read_by_cell):
        with pytest.raises(DataError, match=r"cannot be read .* save the table again") as caught:
            read(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "library", "extra"),
    [
        ("xlsx", "python_calamine", "excel"),
        ("sav", "pyreadstat", "statistics"),
        ("feather", "pyarrow", "parquet"),
        ("db", "sqlalchemy", "sql"),
    ],
)
def test_a_missing_library_is_named(tmp_path, monkeypatch, kind, library, extra):
    path = save(people(), kind, tmp_path, monkeypatch)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=rf'pip install "flwr-causal\[{extra}\]"'):
        read_table(path)


def test_times_of_a_workbook_order_a_series(tmp_path):
    rng = np.random.default_rng(0)
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=k) for k in range(200)]
    frame = pd.DataFrame(rng.standard_normal((200, 2)).cumsum(axis=0) * 0.1, columns=["a", "b"])
    frame.insert(0, "day", days)
    frame.to_excel(tmp_path / "a.xlsx", index=False)
    frame.to_csv(tmp_path / "a.csv", index=False)
    first, second = (
        simulate("moments", [tmp_path / name], order=1, time_column="day").graph
        for name in ("a.xlsx", "a.csv")
    )
    np.testing.assert_allclose(first.lagged, second.lagged, rtol=1e-6, atol=1e-9)

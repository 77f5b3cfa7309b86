"""Tables by the dictionary: values, units, codes, what does not fit, and where."""

import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.data.dictionary.entries import Dictionary
from flwr_causal.data.dictionary.faults import DictionaryFaultError
from flwr_causal.data.dictionary.party_dictionary import LocalMap, PartyDictionary
from flwr_causal.data.read import pieces as in_pieces
from flwr_causal.data.read.pieces import open_table, pieces, whole
from flwr_causal.data.read.reading import Reading
from flwr_causal.data.read.tables import read_table
from flwr_causal.errors import ConfigError
from flwr_causal.simulations import simulate

SHARED = {
    "missing": ["-999"],
    "columns": {
        "weight": {"kind": "number", "unit": "kg", "least": 2, "most": 300},
        "visits": {"kind": "count", "missing": ["99"]},
        "sex": {"kind": "category", "states": {"female": ["f", "0"], "male": ["m", "1"]}},
        "stage": {"kind": "ordered", "states": ["I", "II", "III"]},
        "town": {"kind": "category"},
        "smoker": {"kind": "category", "states": ["no", "yes"], "optional": True},
        "day": {"kind": "date", "role": "time"},
        "patient": {"kind": "id", "role": "row-id"},
        "note": {"kind": "text"},
        "height": {"kind": "number", "use": False},
    },
}
TABLE = """note,patient,weight,visits,sex,stage,town,day,height,own
a,007,70.5,3,f,I,Bonn,2024-01-31,x,1
b,7,-999,99,m,III,NA,2024-02-01T12:00,y,2
c,x,  8 ,0,1,II,, 2024-02-01 ,z,3
"""


def dictionary(columns=None):
    values = SHARED if columns is None else {"columns": columns}
    return Dictionary.from_dict(values)


def reading(columns=None, own=None, **more):
    shared = dictionary(columns)
    local = LocalMap.from_dict(own or {}, shared)
    return Reading(dictionary=PartyDictionary(shared, local, **more))


def listed(column):
    return [None if pd.isna(value) else value for value in column.tolist()]


def test_columns_names_and_cells_become_those_of_the_dictionary(write):
    frame = read_table(write(TABLE), reading())
    assert [*frame.columns] == ["weight", "visits", "sex", "stage", "town", "day", "patient"]
    assert listed(frame.weight) == [70.5, None, 8.0]
    assert listed(frame.visits) == [3.0, None, 0.0]
    assert listed(frame.sex) == ["female", "male", "male"]
    assert listed(frame.stage) == ["I", "III", "II"]
    # Without a list any text is a state, but an empty field.
    assert listed(frame.town) == ["Bonn", "NA", None]
    assert listed(frame.day) == [
        *map(pd.Timestamp, ("2024-01-31", "2024-02-01T12:00", "2024-02-01"))
    ]
    assert listed(frame.patient) == ["007", "7", "x"]


def test_methods_of_numbers_get_the_places_of_ordered_and_of_two_states(write):
    frame = read_table(write(TABLE), reading(as_numbers=True))
    assert listed(frame.sex) == [0.0, 1.0, 1.0]
    assert listed(frame.stage) == [0.0, 2.0, 1.0]
    assert listed(frame.town) == ["Bonn", "NA", None]


def test_a_map_has_the_partys_names_codes_and_units(write):
    own = {
        "weight": {"from": "w_g", "factor": 0.001, "missing": [0]},
        "sex": {"1": "male", "2": "female"},
        "stage": {"from": "grade", "states": {"low": "I", "from": "II"}},
        "visits": {"factor": 2, "offset": 1},
    }
    columns = {k: SHARED["columns"][k] for k in ("weight", "sex", "stage", "visits")}
    text = "w_g,sex,grade,visits,weight\n71500,1,low,3,a\n0,2.0,from,4,b\n80000,male,III,,c\n"
    frame = read_table(write(text), reading(columns, own))
    assert listed(frame.weight) == [71.5, None, 80.0]
    assert listed(frame.sex) == ["male", "female", "male"]
    assert listed(frame.stage) == ["I", "II", "III"]
    assert listed(frame.visits) == [7.0, 9.0, None]


def test_codes_of_the_dictionary_are_none_where_a_party_has_its_own(write):
    """0 is female in the dictionary; at a party of 1 and 2 it is a mistake."""
    columns = {"sex": SHARED["columns"]["sex"]}
    with pytest.raises(DictionaryFaultError) as caught:
        read_table(write("sex\n1\n0\n2\n"), reading(columns, {"sex": {"1": "male", "2": "female"}}))
    (fault,) = caught.value.faults
    assert [(one.value, one.rows) for one in fault.values] == [("0", (2,))]


def test_what_does_not_fit_is_told_with_values_here_and_by_counts_elsewhere(write):
    text = TABLE + "d,y,1000,-1,x,IV,Köln,31.1.2024,,\ne,z,7 kg,1.5,x,I,Ulm,2024-01-31,,\n"
    with pytest.raises(DictionaryFaultError) as caught:
        read_table(write(text.replace("visits", "Visits")), reading())
    error = caught.value
    assert [(one.column, one.reason, one.count) for one in error.faults] == [
        ("visits", "is missing in the table", 0),
        ("weight", "no number", 1),
        ("weight", "outside 2 to 300 kg", 1),
        ("sex", "outside its states (female, male)", 2),
        ("stage", "outside its states (I, II, III)", 1),
        ("day", "no date such as 2024-01-31", 1),
    ]
    assert error.local()[0] == (
        "column 'visits' is missing in the table; the table has 'Visits': map it, "
        'visits = {from = "Visits"}'
    )
    assert "column 'sex', rows 4, 5: 'x': outside its states (female, male)" in error.local()
    assert "column 'weight', row 5: '7 kg': no number" in error.local()
    said = str(error)
    assert "column 'sex', 2 values: outside its states" in said
    for hidden in ("7 kg", "1000", "'x'", "IV", "31.1", "Visits", "row 4"):
        assert hidden not in said
    assert "2 values" not in str(error.without_counts())
    assert "column 'sex', some values: outside" in str(error.without_counts())


def test_dates_far_apart_and_nanoseconds_are_one_column(write):
    days = ["0001-01-01", "2024-01-31T00:00:00.123456789", "9999-12-31"]
    columns = {"day": {"kind": "date", "role": "time"}}
    found = read_table(write("\n".join(["day", *days, ""])), reading(columns))
    assert [day.year for day in found.day] == [1, 2024, 9999]


def test_counts_are_whole_numbers_from_0_on_within_their_range(write):
    columns = {"visits": {"kind": "count", "most": 5}}
    with pytest.raises(DictionaryFaultError) as caught:
        read_table(write("visits\n1\n-1\n1.5\n6\ninf\n5\nNA\n"), reading(columns))
    assert {one.reason: [v.value for v in one.values] for one in caught.value.faults} == {
        "no number": ["inf"],
        "no whole number from 0 on": ["-1.0", "1.5"],
        "outside at most 5": ["6.0"],
    }


def test_a_table_lacks_columns_that_it_does_not_have_twice_or_may_not_show(write):
    columns = {"a": {"kind": "number"}, "b": {"kind": "number", "optional": True}}
    assert [*read_table(write("a\n1\n"), reading(columns)).columns] == ["a"]
    with pytest.raises(DictionaryFaultError, match="column 'a' is there more than once"):
        read_table(write("a,b,a\n1,2,3\n"), reading(columns))
    with pytest.raises(DictionaryFaultError, match="column 'a' is missing in the table"):
        read_table(write("a,b\nx,2\n"), reading(columns, hidden=("a",)))
    # What is hidden is not looked at.
    assert [*read_table(write("a,b\n1,x\n"), reading(columns, hidden=("b",))).columns] == ["a"]


def test_frames_arrays_and_parquet_are_read_as_text_is(write, tmp_path):
    text = read_table(write(TABLE), reading())
    frame = pd.read_csv(write(TABLE), dtype={"patient": str}, keep_default_na=False)
    frame["day"] = pd.to_datetime(frame.day.str.strip(), format="ISO8601")
    frame.to_parquet(tmp_path / "own.parquet")
    for source in (frame, tmp_path / "own.parquet"):
        pd.testing.assert_frame_equal(read_table(source, reading()), text, check_dtype=False)
    columns = {
        "x0": {"kind": "number", "least": 0},
        "x1": {"kind": "category", "states": ["1", "2"]},
    }
    found = read_table(np.array([[1.0, 2.0], [3.0, 1.0]]), reading(columns))
    assert listed(found.x1) == ["2", "1"]


def test_booleans_are_states_by_their_names():
    columns = {"x": {"kind": "category", "states": {"no": ["False"], "yes": ["True"]}}}
    assert listed(read_table(pd.DataFrame({"x": [True, False]}), reading(columns)).x) == [
        "yes",
        "no",
    ]


def test_series_of_a_list_keep_their_numbers():
    read_as = reading({"x0": {"kind": "number", "missing": [9]}})
    found = read_table([np.array([[1.0], [9.0]]), np.array([[3.0]])], read_as)
    assert listed(found["(series)"]) == [0, 0, 1]
    assert listed(found.x0) == [1.0, None, 3.0]


ROWS = st.lists(
    st.tuples(
        st.sampled_from(["1", "0", "2.0", "-999", "", "7", "x", "1e3"]),
        st.sampled_from(["f", "0", "m", "1.0", "female", "-999", "", "z"]),
        st.sampled_from(["2024-01-31", "2024-02-01 10:00", "x", ""]),
    ),
    min_size=1,
    max_size=40,
)
THREE = {
    "weight": {"kind": "count", "most": 10},
    "sex": SHARED["columns"]["sex"],
    "day": SHARED["columns"]["day"],
}


@given(ROWS, st.integers(1, 7), st.booleans())
def test_a_large_file_is_read_in_pieces_as_in_one(tmp_path_factory, rows, size, as_parquet):
    path = tmp_path_factory.mktemp("large") / "own.csv"
    lines = [",".join((*row, "end")) for row in rows]
    path.write_text("\n".join(["weight,sex,day,note", *lines]) + "\n")
    if as_parquet:
        frame = pd.read_csv(path, dtype=str)
        path = path.with_suffix(".parquet")
        frame.to_parquet(path, index=False)
    read_as = reading({"id": {"kind": "text"}, **THREE} | {"note": {"kind": "text"}})
    try:
        expected, faults = read_table(path, read_as), None
    except DictionaryFaultError as error:
        faults = error
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_pieces, "LARGE", 1)
        patch.setattr(in_pieces, "PIECE", 4 * size)
        table = open_table(path, reading=read_as)
        if faults is None:
            together = pd.concat(pieces(table), ignore_index=True)
            pd.testing.assert_frame_equal(together, expected, check_dtype=False)
            pd.testing.assert_frame_equal(whole(table), expected)
            return
        with pytest.raises(DictionaryFaultError) as caught:
            list(pieces(table))
    assert str(caught.value) == str(faults)
    told = {(one.column, one.reason): one.count for one in caught.value.faults}
    assert told == {(one.column, one.reason): one.count for one in faults.faults}
    first = [one.values[0].rows[0] for one in faults.faults]
    assert [one.values[0].rows[0] for one in caught.value.faults] == first


WRONG = {
    "weigth = {factor = 2}": "the dictionary has no column 'weigth'; did you mean 'weight'",
    "weight = 3": "column 'weight' is 3: write codes",
    "weight = {}": "column 'weight' is {}: write codes",
    "weight = {form = 'w_g'}": "has no states, and the map has the code 'form'.*the key 'from'",
    "weight = {from = ''}": "'from' is '': write the column's name",
    "weight = {factor = 0}": "'factor' is 0: write a number",
    "weight = {offset = 'a'}": "'offset' is 'a': write a number",
    "weight = {missing = 3}": "'missing' is 3: write a list",
    "sex = {factor = 2}": "of the kind 'category', no number: it has no 'factor'",
    "sex = {1 = 'mal'}": "the code '1' stands for 'mal', which is no state .*: female, male",
    "sex = {states = 3}": "'states' is 3: write codes",
    "weight = {from = 'visits'}": "'weight' and 'visits' of the dictionary are both read from",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_map_that_does_not_fit_the_dictionary_is_named(text, tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=WRONG[text]) as caught:
        LocalMap.read(file, dictionary())
    assert "The map to the dictionary" in str(caught.value)
    assert "own.toml" in str(caught.value)


def test_a_map_that_is_changed_is_read_anew(tmp_path):
    file = tmp_path / "own.toml"
    for factor in (2.0, 3.0):
        file.write_text(f"weight = {{factor = {factor}}}")
        os.utime(file, ns=(int(factor), int(factor)))
        assert LocalMap.read(file, dictionary()).of("weight").factor == factor


def test_a_column_of_states_without_any_value_is_none_of_numbers(tmp_path):
    """Also where no party's gaps are known, as with secure sums."""
    file = tmp_path / "dictionary.toml"
    file.write_text(
        '[columns.x]\nkind = "number"\n[columns.s]\nkind = "category"\nstates = ["u", "v"]\n'
    )
    tables = [pd.DataFrame({"x": np.arange(30.0) + k, "s": ["u", "v", "v"] * 10}) for k in range(3)]
    tables[1]["s"] = None
    files = [tmp_path / f"{k}.csv" for k in range(3)]
    for table, path in zip(tables, files, strict=True):
        table.to_csv(path, index=False)
    for parties in (tables, files):
        run = simulate("describe", parties, dictionary=str(file), secure_aggregation=True)
        assert run.model["s"].states == {"u": 20, "v": 40}
        assert run.model["s"].missing == 30


def test_marks_between_thousands_are_read_where_the_map_says_so(tmp_path):
    dictionary = Dictionary.from_dict({"columns": {"x": {"kind": "number"}}})
    cells = pd.DataFrame({"x": ["1,234.5", "-12,345,678", "999", "1,23", "12,34.5", "1,234e2", ""]})

    def read_by(own):
        local = LocalMap.from_dict({"x": own} if own else {}, dictionary)
        return PartyDictionary(dictionary, local).applied(cells)

    found, (fault,) = read_by({"thousands": ",", "factor": 2})
    np.testing.assert_array_equal(found["x"][:3], [2469.0, -24691356.0, 1998.0])
    assert found["x"][3:].isna().all()
    assert [one.value for one in fault.values] == ["1,23", "12,34.5", "1,234e2"]
    assert sum(one.count for one in read_by(None)[1][0].values) == 5
    for mark in (" ", "'", "\u202f"):
        cells["x"] = [f"1{mark}000", f"1{mark}000,5", f"1{mark}000.5", *["5"] * 4]
        found, faults = read_by({"thousands": mark})
        assert found["x"][:3].tolist() == [1000.0, 1000.5, 1000.5]
        assert faults == []
    for mark in (".", "", 3):
        with pytest.raises(ConfigError, match=r"column 'x': 'thousands' is .*: write a comma"):
            read_by({"thousands": mark})


def test_truth_values_are_the_same_numbers_with_and_without_a_gap():
    own = PartyDictionary(Dictionary.from_dict({"columns": {"x": {"kind": "number"}}}))
    for cells, expected in (([True, False], [1, 0]), ([True, None, False], [1, np.nan, 0])):
        found, faults = own.applied(pd.DataFrame({"x": cells}))
        np.testing.assert_array_equal(found["x"], expected)
        assert faults == []

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.core.options import from_plain, to_plain
from flwr_causal.data.check.columns import kind_of
from flwr_causal.data.check.handling import Handling
from flwr_causal.data.check.party_table import complete_rows, describe, prepare, stray_cells
from flwr_causal.data.check.report import TableReport
from flwr_causal.errors import ConfigError, DataError

DROP = Handling(missing_values="drop")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pd.Series([1, 2]), "numeric"),
        (pd.Series([1.0, np.nan]), "numeric"),
        (pd.Series([1, None], dtype="Int64"), "numeric"),
        (pd.Series([1, 2.5], dtype=object), "numeric"),
        (pd.Series([Decimal("1.5"), None], dtype=object), "numeric"),
        (pd.Series([None, None], dtype=object), "numeric"),
        (pd.Series([True, False]), "boolean"),
        (pd.Series([True, None], dtype=object), "boolean"),
        (pd.Series([True, None], dtype="boolean"), "boolean"),
        (pd.Series(["a", "b"]), "category"),
        (pd.Series(["a", None], dtype=object), "category"),
        (pd.Series(["a", "b"], dtype="string"), "category"),
        (pd.Series([1, 2], dtype="category"), "category"),
        (pd.Series([1, "b"], dtype=object), "other"),
        (pd.Series([1j, 2]), "other"),
        (pd.Series(pd.to_datetime(["2020-01-01"])), "other"),
    ],
)
def test_kinds(values, kind):
    assert kind_of(values) == kind
    column = describe(values.to_frame("v"), sums=True).columns[0]
    assert column.kind == kind
    assert column.missing == values.isna().sum()


def test_numbers_of_every_dtype_give_the_same_report():
    plain = pd.DataFrame({"a": [0.0, 1.0, 1.0], "b": [3.0, 5.0, 9.0]})
    expected = describe(plain, sums=True)
    for dtype in ("int64", "Int64", "float32", "Float64", object):
        assert describe(plain.astype(dtype), sums=True) == expected
    mixed = plain.astype({"a": bool})
    assert [column.kind for column in describe(mixed).columns] == ["boolean", "numeric"]
    assert describe(mixed, sums=True).columns[0].mean == expected.columns[0].mean
    np.testing.assert_array_equal(prepare(mixed, ["b", "a"]), plain[["b", "a"]].to_numpy())


def test_counts_and_flags():
    frame = pd.DataFrame(
        {
            "a": [1.0, np.nan, np.inf, -np.inf],
            "b": [2.0, 2.0, 2.0, 2.0],
            "c": [0.0, 1.0, 2.0, 3.0],
            "d": [-0.0, 1.0, 2.0, 3.0],
            "e": ["u", "v", None, "u"],
            "f": ["u", "v", None, "u"],
            "g": ["u", "u", "u", "u"],
        }
    )
    report = describe(frame, sums=True)
    by_name = {column.name: column for column in report.columns}
    assert (report.rows, report.dropped_rows, report.names) == (4, 0, tuple("abcdefg"))
    assert (by_name["a"].missing, by_name["a"].infinite) == (1, 2)
    assert by_name["e"].missing == 1
    assert [name for name in by_name if by_name[name].distinct_one] == ["b", "g"]
    assert {name: by_name[name].copy_of for name in "cdef"} == {
        "c": None,
        "d": 2,
        "e": None,
        "f": 4,
    }


def test_sums_are_exact_on_three_rows():
    frame = pd.DataFrame({"a": [1.0, 2.0, 6.0], "t": ["x", "y", "z"]})
    a, t = describe(frame, sums=True).columns
    assert (a.mean, a.remainder, a.squares) == (3.0, 0.0, 14.0)
    assert (t.mean, t.remainder, t.squares) == (0.0, 0.0, 0.0)
    assert describe(frame).columns[0].squares == 0.0


def test_a_constant_has_its_own_value_as_mean():
    # The mean of three 0.1 is not 0.1 in float64.
    column = describe(pd.DataFrame({"a": [0.1] * 3}), sums=True).columns[0]
    assert (column.mean, column.remainder, column.squares) == (0.1, 0.0, 0.0)


def test_the_report_holds_no_value_but_the_sums():
    frame = pd.DataFrame({"secret": ["alice", "bob"], "x": [123456.0, 654321.0]})
    text = repr(describe(frame).to_dict()) + repr(describe(frame, sums=True).to_dict())
    for value in ("alice", "bob", "123456", "654321"):
        assert value not in text


def test_overflow_is_reported_as_infinite_squares():
    column = describe(pd.DataFrame({"a": [1e300, -1e300]}), sums=True).columns[0]
    assert column.squares == np.inf


def test_missing_values_drop_decides_rows_for_the_whole_table():
    frame = pd.DataFrame(
        {
            "a": [1.0, np.nan, 3.0, 4.0, 5.0],
            "b": [1, 2, 3, np.inf, 5],
            "t": ["u", "v", "w", "x", None],
        }
    )
    assert complete_rows(frame).all()
    assert complete_rows(frame, DROP).tolist() == [True, False, True, False, False]
    without_text = Handling(missing_values="drop", text_columns="drop")
    assert complete_rows(frame, without_text).tolist() == [True, False, True, False, True]
    report = describe(frame, without_text, sums=True)
    assert (report.rows, report.dropped_rows) == (3, 2)
    assert report.columns[0].missing == 1
    assert report.columns[0].mean == 3.0
    np.testing.assert_array_equal(
        prepare(frame, ["b", "a"], without_text), [[1, 1], [3, 3], [5, 5]]
    )


def test_flags_are_those_of_the_kept_rows():
    frame = pd.DataFrame({"a": [1.0, 1.0, 2.0], "b": [1.0, 1.0, 5.0], "c": [0.0, 1.0, np.nan]})
    a, b, c = describe(frame, DROP).columns
    assert a.distinct_one
    assert b.copy_of == 0
    assert not c.distinct_one


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["z"], "'z' is missing.*which has a, t, a, n.*this name"),
        (["a"], "'a' is there 2 times"),
        (["t"], r"'t' is not numeric \(.*text_columns='drop'"),
        (["n"], "columns n have missing or infinite values.*missing_values='drop'"),
    ],
)
def test_prepare_refuses(names, words):
    frame = pd.DataFrame([[1, "u", 2, np.nan]], columns=["a", "t", "a", "n"])
    with pytest.raises(DataError, match=words):
        prepare(frame, names)


def test_empty_table():
    report = describe(pd.DataFrame({"a": [], "b": []}), DROP, sums=True)
    assert report.rows == 0
    assert not any(column.distinct_one for column in report.columns)
    assert prepare(pd.DataFrame({"a": []}), ["a"]).shape == (0, 1)


COLUMNS = st.sampled_from(
    [
        [1.0, 2.0, 3.0],
        [1.0, 1.0, 1.0],
        [np.nan, 2.0, 3.0],
        [1.0, np.inf, 3.0],
        [True, False, True],
        ["a", "b", "a"],
        ["a", None, "a"],
        [None, None, None],
    ]
)


@given(
    columns=st.lists(COLUMNS, min_size=1, max_size=5),
    sums=st.booleans(),
    missing=st.sampled_from(["fail", "drop"]),
    text=st.sampled_from(["fail", "drop", "keep"]),
)
def test_report_round_trips_and_counts_what_prepare_returns(columns, sums, missing, text):
    frame = pd.DataFrame({f"c{j}": pd.Series(column) for j, column in enumerate(columns)})
    handling = Handling(missing_values=missing, text_columns=text)
    report = describe(frame, handling, sums=sums)
    plain = report.to_dict()
    for value in plain.values():
        entries = value if type(value) is list else [value]
        # exactly these types, alike in a list: what a Flower record takes
        assert {type(entry) for entry in entries} <= {str, int, float}
        assert len({type(entry) for entry in entries}) <= 1
    assert TableReport.from_dict(plain) == report
    if missing == "drop":
        usable = [column.name for column in report.columns if column.is_number]
        rows = prepare(frame, usable, handling)
        assert len(rows) == report.rows
        if sums:
            for values, name in zip(rows.T, usable, strict=True):
                column = report.columns[report.names.index(name)]
                total = column.mean * report.rows + column.remainder
                np.testing.assert_allclose(total, values.sum(), atol=1e-12)
                np.testing.assert_allclose(
                    column.squares, report.rows * np.var(values) if len(values) else 0
                )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda plain: plain.pop("rows"),
        lambda plain: plain.update(missing=[0]),
        lambda plain: plain.update(kinds=["numeric", "wishful"]),
        lambda plain: plain.update(means=[0.0]),
        lambda plain: plain.update(missing=["many", "few"]),
        lambda plain: plain.update(names=3),
    ],
)
def test_malformed_reports_are_refused(spoil):
    plain = describe(pd.DataFrame({"a": [1.0], "b": [2.0]}), sums=True).to_dict()
    spoil(plain)
    with pytest.raises(DataError, match="malformed"):
        TableReport.from_dict(plain)


def test_duplicate_names_are_kept_apart():
    frame = pd.DataFrame([[1.0, 2.0, 3.0], [4.0, 6.0, 8.0]], columns=["a", "b", "a"])
    report = describe(frame, sums=True)
    assert report.duplicate_names == ("a",)
    assert [column.mean for column in report.columns] == [2.5, 4.0, 5.5]


def test_policy_round_trips_and_refuses_unknown_values():
    handling = Handling(missing_values="drop", constant_columns="keep", min_rows=5)
    plain = to_plain(handling)
    assert from_plain(Handling, plain) == handling
    assert {type(value) for value in plain.values()} == {str, int, bool}
    with pytest.raises(ConfigError, match="'missing_values' is 'fill'; it must be 'fail' or"):
        Handling(missing_values="fill")
    with pytest.raises(ConfigError, match="'text_columns' is 'no'; it must be 'fail' or 'drop'"):
        Handling(text_columns="no")
    with pytest.raises(ConfigError, match="'min_rows' is -1; it must be 0 or more"):
        Handling(min_rows=-1)
    with pytest.raises(ConfigError, match="'min_rows' is True"):
        Handling(min_rows=True)
    with pytest.raises(ConfigError, match="no option 'outliers'"):
        from_plain(Handling, {**plain, "outliers": "drop"})
    with pytest.raises(ConfigError, match="'min_rows' is None"):
        from_plain(Handling, {k: v for k, v in plain.items() if k != "min_rows"})


def stray_of(values, **options):
    frame = pd.DataFrame({"a": range(len(values)), "b": pd.Series(values, dtype=object)})
    found = describe(frame, **options)
    return found.columns[1].stray, [*stray_cells(frame, found)]


@pytest.mark.parametrize("states", [False, True])
def test_stray_cells_are_counted_in_the_report_and_shown_at_the_party_alone(states):
    handling = Handling(text_columns="keep", missing_values="keep")
    values = ["1", "2.5", "12,5", "7", None, "NA", "1e3", "7,0"]
    count, cells = stray_of(values, handling=handling, states=states)
    assert count == 2
    assert cells == [("b", 3, "12,5"), ("b", 8, "7,0")]
    sent = describe(pd.DataFrame({"b": values}), handling).to_dict()
    assert sent["stray"] == [2]
    assert "12,5" not in str(sent)
    # Numbers and texts in one column of objects.
    assert stray_of([1, 2.5, "x", 4], handling=handling)[1] == [("b", 3, "x")]


@pytest.mark.parametrize("values", [["1", "2", "3"], ["a", "b", "1"], ["1", "x"], [1, 2], []])
def test_text_and_numbers_have_no_stray_cells(values):
    assert stray_of(values, handling=Handling(text_columns="keep")) == (0, [])

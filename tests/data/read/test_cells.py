"""The number of a cell follows from this cell alone, whatever column or file it stands in."""

import datetime as dt
from decimal import Decimal
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.data.read.by_cell import (
    number_of,
    numbers_of_array,
    numbers_of_arrow,
    numbers_of_column,
    numbers_of_lines,
    numbers_of_texts,
    read_by_cell,
    text_of,
)

pa = pytest.importorskip("pyarrow")
nan = np.nan

TEXTS = {
    **{"1": 1, "-0": -0.0, "+5": 5, " 12 ": 12, "1e3": 1000, ".5": 0.5, "5.": 5, "1_000": 1000},
    **{"True": 1, "TRUE": 1, "true": 1, " false ": 0, "False": 0, "1e308": 1e308, "1e-400": 0},
    **{"9007199254740993": 2.0**53, "18446744073709551615": 2.0**64, "٣": 3, "1\n": 1},
    **dict.fromkeys(("", " ", "NA", "null", "nan", "NaN", "None", "<NA>", "Inf", "-inf"), nan),
    **dict.fromkeys(("infinity", "1e400", "-1e400", "yes", "no", "t", "1,5", "1.000,5"), nan),
    **dict.fromkeys(("0x1F", "1 000", "1.2.3", "--1", "e5", "1e", "1-2", "."), nan),
    **dict.fromkeys(("2020-01-01", "10:30", "1 days", "(1+0j)", "$5", "5%", '"1"'), nan),
    **dict.fromkeys(("\ud800"), nan),
}
CELLS = [
    *((True, 1), (np.True_, 1), (False, 0), (7, 7), (np.int8(7), 7), (2**53 + 1, 2.0**53)),
    *((np.float32(0.5), 0.5), (Decimal("1.10"), 1.1), (1 + 0j, 1), (np.complex64(2), 2)),
    *((np.longdouble(3), 3), (np.str_("4"), 4)),
    *((cell, nan) for cell in (None, pd.NA, pd.NaT, nan, np.inf, 10**400, 10**5000, 1 + 1j)),
    *((cell, nan) for cell in (Decimal("sNaN"), Decimal("1e400"), Decimal("Infinity"))),
    *((cell, nan) for cell in (np.longdouble("1e400"), b"5", [1], np.array(5), object())),
    *((cell, nan) for cell in (pd.Timestamp("2020"), dt.date(2020, 1, 1), np.datetime64(5, "D"))),
    *((cell, nan) for cell in (pd.Timedelta(5), dt.timedelta(5), np.timedelta64(5, "D"))),
]


def test_a_text_is_the_number_that_it_spells_beside_any_other_text():
    for text, number in TEXTS.items():
        np.testing.assert_equal(number_of(text), number, err_msg=repr(text))
        for others in ([], ["1.5"], ["7", ""], ["a text"], ["True"]):
            found = numbers_of_texts([text, *others, text])
            np.testing.assert_array_equal(found[[0, -1]], [number, number], err_msg=repr(text))
            assert len(found) == 2 + len(others)
    assert numbers_of_texts([]).shape == (0,)


def test_a_cell_of_python_is_its_number_beside_any_other_cell():
    cells, expected = map(list, zip(*CELLS, *TEXTS.items(), strict=True))
    column = pd.Series(cells, dtype=object)
    np.testing.assert_array_equal(numbers_of_column(column), expected)
    for cell, number in CELLS:
        np.testing.assert_equal(number_of(cell), number, err_msg=str(type(cell)))


def test_a_cell_of_python_has_a_text_whatever_it_is():
    for cell, _ in CELLS:
        assert isinstance(text_of(cell), str)
    spelled = {"": [nan, Decimal("sNaN"), Decimal("NaN"), np.array([1, 2]), 10**5000, pd.NA]}
    for text, cells in {**spelled, "1": [1, 1.0, " 1 ", np.int8(1)], "True": [True]}.items():
        assert [*map(text_of, cells)] == [text] * len(cells)


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
def test_true_and_false_are_read_fast_where_they_are_whole_cells(separator):
    """As 1 and 0; within another text they are none: the slower reader reads such lines."""
    cells = ["True", "False", "1.5", "", "0"]
    lines = [separator.join(pair) for pair in product(cells, repeat=2)]
    expected = [[*map(number_of, pair)] for pair in product(cells, repeat=2)]
    np.testing.assert_array_equal(numbers_of_lines(lines, separator, 2), expected)
    for text in ("0True", "True0", "-True", "TrueFalse", "True ", "True.", "eFalse", "TRUE"):
        for pair in ([text, "1"], ["1", text], ["True", text], [text, "False"]):
            assert numbers_of_lines([separator.join(pair)], separator, 2) is None
        np.testing.assert_array_equal(numbers_of_texts([text, "True"]), [number_of(text), 1.0])


def test_the_faster_reader_reads_what_float_reads():
    """All texts of up to three characters, first alone and then beside a number."""
    texts = ["".join(chosen) for n in range(4) for chosen in product("019+-.eE", repeat=n)]
    for text in texts:
        for column in ([text], [text, "2.5"]):
            assert numbers_of_texts(column)[0] == number_of(text) or np.isnan(number_of(text))
            assert np.isnan(numbers_of_texts(column)[0]) == np.isnan(number_of(text))


@given(
    st.lists(st.from_regex(r"[+-]?[0-9]{0,25}\.?[0-9]{0,25}(e[+-]?[0-9]{1,4})?", fullmatch=True))
)
def test_the_faster_reader_is_exact(texts):
    np.testing.assert_array_equal(numbers_of_texts(texts), [*map(number_of, texts)])


@given(st.lists(st.one_of(st.text(max_size=8), st.sampled_from(sorted(TEXTS)))))
def test_any_texts_are_read_one_by_one(texts):
    np.testing.assert_array_equal(numbers_of_texts(texts), [*map(number_of, texts)])


COLUMNS = {
    "numbers": [1, 0, None, 1],
    "booleans": [True, False, None, True],
    "texts": ["1", "false", None, "TRUE"],
    "decimals": [Decimal("1.0"), Decimal(0), None, Decimal("1e0")],
}
TYPES = {
    "numbers": ["float64", "float32", "Int64", "UInt8", "Float64", "object", "category", "Sparse"],
    "booleans": ["boolean", "object", "category"],
    "texts": ["str", "object", "category", "string"],
    "decimals": ["object"],
}


@pytest.mark.parametrize(("kind", "dtype"), [(k, t) for k, own in TYPES.items() for t in own])
def test_the_type_of_a_column_does_not_matter(kind, dtype, tmp_path):
    column = pd.Series(COLUMNS[kind], dtype=object)
    column = (
        column.astype(float).astype("Sparse[float64]")
        if dtype == "Sparse"
        else column.astype(dtype)
    )
    np.testing.assert_array_equal(numbers_of_column(column), [1, 0, nan, 1])
    if "Sparse" in dtype:
        return
    frame = pd.DataFrame({"a": column})
    np.testing.assert_array_equal(read_by_cell(frame).a, [1, 0, nan, 1])
    frame.to_parquet(tmp_path / "t.parquet")
    np.testing.assert_array_equal(read_by_cell(tmp_path / "t.parquet").a, [1, 0, nan, 1])


ARROW = {
    "numbers": [
        pa.int8(),
        pa.uint64(),
        pa.float16(),
        pa.float64(),
        pa.dictionary(pa.int8(), pa.int32()),
    ],
    "booleans": [pa.bool_()],
    "texts": [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    "decimals": [pa.decimal128(5, 2), pa.decimal256(50, 3)],
}


@pytest.mark.parametrize(("kind", "type_"), [(k, t) for k, own in ARROW.items() for t in own])
def test_the_type_of_a_column_of_arrow_does_not_matter(kind, type_):
    values = COLUMNS[kind]
    if pa.types.is_dictionary(type_):
        array = pa.array(values, type_.value_type).dictionary_encode()
    else:
        array = pa.array(np.array(values, np.float16) if type_ == pa.float16() else values, type_)
    column = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([array, array[:0], array])))
    for found in (numbers_of_column(column), np.tile(numbers_of_arrow(array), 2)):
        np.testing.assert_array_equal(found, [1, 0, nan, 1] * 2)


def test_what_is_no_number_of_arrow_is_missing():
    bad = [pa.array([b"1", b"\xff"]).buffers(), pa.array([b"1", b"\xff"], pa.binary(1))]
    not_utf8 = pa.Array.from_buffers(pa.string(), 2, bad[0])
    np.testing.assert_array_equal(numbers_of_arrow(not_utf8), [1, nan])
    far = pa.array([2**40, 1], pa.int64())  # beyond the years of Python's dates
    dates = [far.cast(pa.timestamp("s")), pa.array([2**30, 1], pa.int32()).cast(pa.date32())]
    others = [bad[1], pa.nulls(2), pa.array([[1], [2]]), far.cast(pa.duration("s")), *dates]
    periods = pa.array(pd.period_range("2020", periods=2, freq="D"))
    for array in (*others, periods):
        assert np.isnan(numbers_of_arrow(array)).all(), array.type


def test_arrays_are_read_cell_by_cell():
    cells = np.array([[1.5, "a"], [True, None]], dtype=object)
    expected = [[1.5, nan], [1, nan]]
    np.testing.assert_array_equal(numbers_of_array(cells), expected)
    np.testing.assert_array_equal(numbers_of_array(cells.view(np.matrix)), expected)
    np.testing.assert_array_equal(read_by_cell(cells).to_numpy(), expected)
    texts = np.array([["1.5", "a"], ["True", ""]])
    np.testing.assert_array_equal(numbers_of_array(texts), expected)
    numbers = np.array([[1.5, 2 + 1j], [1, np.inf]])
    np.testing.assert_array_equal(numbers_of_array(numbers), expected)
    masked = np.ma.array([[1.5, 7], [1, 7]], mask=[[0, 1], [0, 1]])
    np.testing.assert_array_equal(numbers_of_array(masked), expected)
    with np.errstate(all="raise"):
        assert np.isnan(numbers_of_array(np.array([np.longdouble("1e400")]))).all()
    for other in (np.array([[10**9]], "M8[Y]"), np.array([[5]], "m8[D]"), np.array([[b"5"]])):
        assert np.isnan(numbers_of_array(other)).all()

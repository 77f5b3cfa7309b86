"""Ids of rows: what is accepted, and what their hashes tell."""

import hashlib
import hmac
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

from flwr_causal.data.check.row_ids import (
    DRAWN_ROWS,
    HASH_BYTES,
    checked_ids,
    hashed_ids,
    hashes_of_rows,
    keyed_normals,
    kind_of_ids,
    name_of_ids,
    plain_ids,
    problem_of_ids,
)
from flwr_causal.errors import DataError

SECRET = b"blue heron"


def as_texts(hashes):
    return [row.tobytes() for row in hashes]


def test_a_hash_is_the_keyed_one_cut_off():
    hashes = hashed_ids(pd.Series([7, 12], name="row_id"), SECRET)
    assert hashes.shape == (2, HASH_BYTES) == (2, 16)
    assert hashes.dtype == np.uint8
    assert as_texts(hashes) == [
        hmac.new(SECRET, text, hashlib.sha256).digest()[:16] for text in (b"7", b"12")
    ]


@pytest.mark.parametrize(
    "ids",
    [
        pd.Series([3, 1, 2], dtype="int32"),
        pd.Series([3.0, 1.0, 2.0]),
        pd.Series(["3", "1", "2"]),
        pd.Series([3, 1, 2], dtype="Int64"),
        pd.Series([3, 1, 2], dtype=object),
        pd.Series(["3", "1", "2"], dtype="category"),
        pd.Series([3, 1, 2], index=[10, 10, 12]),
    ],
    ids=lambda ids: str(ids.dtype),
)
def test_an_id_is_the_same_whatever_its_type(ids):
    expected = hashed_ids(pd.Series([3, 1, 2], name="row_id"), SECRET)
    np.testing.assert_array_equal(hashed_ids(ids.rename("row_id"), SECRET), expected)


@pytest.mark.parametrize("first", [2**60, 10**20])
def test_large_numbers_are_told_apart(first):
    hashes = hashed_ids(pd.Series([first, first + 1], name="row_id"), SECRET)
    texts = hashed_ids(pd.Series([str(first), str(first + 1)], name="row_id"), SECRET)
    assert len(set(as_texts(hashes))) == 2
    np.testing.assert_array_equal(hashes, texts)


@pytest.mark.parametrize("dtype", ["Int64", "UInt64", "int64[pyarrow]"])
def test_large_numbers_of_nullable_types_are_told_apart(dtype):
    plain = pd.Series([2**53 + k for k in (1, 2, 3)], name="row_id")
    ids = plain.astype(dtype)
    assert problem_of_ids(ids) == ""
    assert kind_of_ids(ids) == "numbers"
    np.testing.assert_array_equal(hashed_ids(ids, SECRET), hashed_ids(plain, SECRET))
    assert "1 missing" in problem_of_ids(pd.concat([ids, pd.Series([pd.NA], dtype=dtype)]))


@pytest.mark.parametrize("dtype", [object, "category", "string"])
def test_blanks_around_ids_are_no_part_of_them(dtype):
    padded = plain_ids(pd.Series([" P1", "P2  ", "P 3"], name="row_id", dtype=dtype))
    assert padded.tolist() == ["P1", "P2", "P 3"]
    doubled = pd.Series(["P1", "P1 "], name="row_id", dtype=dtype)
    assert "1 that repeat" in problem_of_ids(plain_ids(doubled))
    missing = plain_ids(pd.Series(["P1 ", None], name="row_id", dtype=dtype))
    assert "1 missing" in problem_of_ids(missing)
    numbers = pd.Series([1, 2])
    assert plain_ids(numbers) is numbers


def test_hashes_are_in_the_order_of_the_rows():
    ids = pd.Series([f"p{k}" for k in range(500)], name="row_id")
    hashes = as_texts(hashed_ids(ids, SECRET))
    assert len(set(hashes)) == 500
    order = np.random.default_rng(0).permutation(500)
    assert as_texts(hashed_ids(ids.iloc[order], SECRET)) == [hashes[k] for k in order]


def test_another_secret_gives_other_hashes():
    ids = pd.Series(range(100), name="row_id")
    one, other = (set(as_texts(hashed_ids(ids, s))) for s in (SECRET, b"blue heron "))
    assert not one & other


def test_the_column_of_ids_is_found():
    frame = pd.DataFrame({"row_id": [1, 2], "patient": ["a", "b"], "x": [0.5, 1.5]})
    assert name_of_ids(frame.columns) == "row_id"
    assert name_of_ids(frame.columns, "patient") == "patient"
    assert name_of_ids(["x"]) is None


@pytest.mark.parametrize(
    ("frame", "row_id", "words"),
    [
        ({"row_id": [1, 2, 1, 1]}, "row_id", "'row_id' of ids has 2 that repeat"),
        ({"row_id": [1.0, np.nan, np.nan]}, "row_id", "'row_id' of ids has 2 missing"),
        ({"patient": ["a", None]}, "patient", "'patient' of ids has 1 missing"),
        ({"patient": ["a", "a"]}, "patient", "'patient' of ids has 1 that repeat"),
    ],
)
def test_ids_that_cannot_be(frame, row_id, words):
    with pytest.raises(DataError, match=words):
        checked_ids(pd.DataFrame(frame)[row_id])


def test_a_column_of_ids_that_the_user_names_must_be_there():
    with pytest.raises(DataError, match="no column 'patient', which the option 'row_id' names"):
        name_of_ids(["row_id", "x"], "patient")


def test_an_id_and_the_secret_determine_normal_numbers():
    ids = pd.Series(np.arange(DRAWN_ROWS + 500), name="row_id")
    parts = list(keyed_normals(ids, SECRET, 64))
    assert [part.shape for part in parts] == [(DRAWN_ROWS, 64), (500, 64)]
    drawn = np.concatenate(parts)
    # The same in another order, as text, and as a float.
    for other in (ids[::-1].astype(str), ids[::-1].astype(float)):
        again = np.concatenate(list(keyed_normals(other, SECRET, 64)))
        np.testing.assert_array_equal(again[::-1], drawn)
    assert abs(drawn.mean()) < 0.02
    assert abs(drawn.std() - 1) < 0.02
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 0.5
    other = np.concatenate(list(keyed_normals(ids, b"another", 64)))
    assert abs(np.corrcoef(drawn.ravel(), other.ravel())[0, 1]) < 0.02


def test_the_numbers_of_an_id_stay_the_same():
    """Parties with other versions must draw alike."""
    (drawn,) = keyed_normals(pd.Series([7], name="row_id"), SECRET, 3)
    key = hashlib.sha256(b"normal numbers" + SECRET).digest()
    places = np.frombuffer(hashlib.shake_256(key + b"7").digest(6), dtype="<u2")
    shares = (places + 0.5) / 2**16
    expected = [NormalDist().inv_cdf(float(share)) for share in shares]
    np.testing.assert_allclose(drawn, [expected], atol=1e-12)


def test_a_row_of_several_steps_has_the_hash_of_all_their_ids_in_their_order():
    hashes = hashed_ids(pd.Series(["a", "b", "c", "d"], name="row_id"), SECRET)
    np.testing.assert_array_equal(hashes_of_rows(hashes[:, None], SECRET), hashes)
    steps = np.array([[1, 0], [2, 1], [2, 0], [0, 1], [1, 0]])
    found = as_texts(hashes_of_rows(hashes[steps], SECRET))
    assert found[0] == found[4]
    assert len({*found, *as_texts(hashes)}) == 4 + 4
    other = hashed_ids(pd.Series(["a", "b"], name="row_id"), b"blue heron ")
    assert not {*found} & {*as_texts(hashes_of_rows(other[steps[:1]], b"blue heron "))}


def test_dates_are_hashed_as_text_with_their_time_of_day():
    dates = pd.Series(pd.to_datetime(["2024-01-31", "2024-02-29"]), name="row_id")
    texts = pd.Series(["2024-01-31 00:00:00", "2024-02-29 00:00:00"], name="row_id")
    np.testing.assert_array_equal(hashed_ids(dates, SECRET), hashed_ids(texts, SECRET))
    months = pd.Series(pd.PeriodIndex(["2024-01", "2024-02"], freq="M"), name="row_id")
    texts = pd.Series(["2024-01", "2024-02"], name="row_id")
    np.testing.assert_array_equal(hashed_ids(months, SECRET), hashed_ids(texts, SECRET))


LARGE = [2**53 + 2, 2**60, 5]


@pytest.mark.parametrize(
    "ids",
    [
        pd.Series(LARGE, dtype=float),
        pd.Series(LARGE, dtype="Float64"),
        pd.Series([*map(float, LARGE)], dtype=object),
        pd.Series([2**24 + 2, 2**25, 5], dtype="float32"),
        pd.Series([*LARGE[:2], None], dtype=float),
    ],
    ids=lambda ids: str(ids.dtype),
)
def test_ids_that_have_lost_digits_are_refused(ids):
    with pytest.raises(DataError, match=r"'row_id' of ids holds decimal.* 2 of them.*digits"):
        checked_ids(ids.rename("row_id"))


@pytest.mark.parametrize(
    "ids",
    [
        pd.Series(LARGE),
        pd.Series(LARGE, dtype="Int64"),
        pd.Series(LARGE, dtype=object),
        pd.Series([*map(str, LARGE)]),
        pd.Series([2.0**53, 5.0, 0.5]),
        pd.Series([2**24, 5], dtype="float32"),
        pd.Series(pd.date_range("2024-01-01", periods=3)),
    ],
    ids=lambda ids: str(ids.dtype),
)
def test_ids_with_all_digits_are_fine(ids):
    assert problem_of_ids(ids.rename("row_id")) == ""


@pytest.mark.parametrize(
    ("ids", "kind"),
    [
        ([1, 2], "numbers"),
        ([1.0, 2.0], "numbers"),
        (["1", "2"], "text"),
        (["a1", "007b"], "text"),
        (["12", "007"], "digits"),
        (["12", "7.0"], "digits"),
        (pd.Categorical(["12", "007"]), "digits"),
        (pd.Series([7, "007"], dtype=object), "digits"),
        (pd.date_range("2024-01-01", periods=2), "text"),
    ],
)
def test_what_ids_are(ids, kind):
    assert kind_of_ids(pd.Series(ids)) == kind

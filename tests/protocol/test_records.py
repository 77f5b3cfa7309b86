"""Flower's records: how things travel, and how they are counted."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.protocol import records


def test_whole_numbers_and_masks_keep_their_type():
    arrays = {"count": np.arange(3), "mask": np.array([True, False])}
    received = records.unpack_arrays(records.pack_arrays(arrays, "float32"))
    for name, value in arrays.items():
        assert received[name].dtype == value.dtype
        assert np.array_equal(received[name], value)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=6, max_size=6))
def test_arrays_round_trip_exactly(values):
    array = np.array(values).reshape(2, 3)
    for layout in (array, array.T, array[:, ::-1]):
        assert np.array_equal(
            records.unpack_arrays(records.pack_arrays({"a": layout}))["a"], layout
        )


def test_arrays_keep_their_names_and_order():
    arrays = {name: np.zeros(1) for name in ("z", "a", "x10", "x2")}
    assert list(records.unpack_arrays(records.pack_arrays(arrays))) == list(arrays)


def test_bytes_are_counted_one_by_one():
    array = records.pack_arrays({"w": np.zeros((2, 2))})
    buffer = len(array["w"].data)
    assert 32 < buffer <= 32 + 128  # numpy's own header
    content = records.message_content(array, {"kind": "train", "round": 3, "names": ["ab", "c"]})
    expected = (1 + buffer) + (4 + 5) + (5 + 8) + (5 + 3)
    assert records.num_bytes(content) == expected
    assert records.values_bytes({"m": [1.0, 2.0], "b": b"123", "t": True}) == 17 + 4 + 9
    assert records.num_bytes(RecordDict({"metrics": MetricRecord({"a": 1.0, "b": [1, 2]})})) == 26


def test_an_error_reply_weighs_nothing():
    class Failed:
        def has_content(self):
            return False

    assert records.reply_bytes(Failed()) == 0


def test_a_message_carries_one_config_and_no_empty_arrays():
    content = records.message_content(None, {"a": 1, "b": 2})
    assert records.config_of(content) == {"a": 1, "b": 2}
    assert not content.array_records
    assert len(content.config_records) == 1


def test_a_request_says_what_it_is_and_who_goes_first():
    further = {"site": "A", "exchange": "?", "method": "?", "round": 99, "penalty": -1.0}
    values = {"weights": np.full(2, 1 / 3), "cuts": np.full(2, 1 / 3), "penalty": 0.5}
    content = records.request(
        "round", "toy", 3, values, precision="float32", exact={"cuts"}, config=further
    )
    config = {"site": "A", "exchange": "round", "method": "toy", "round": 3, "penalty": 0.5}
    assert records.config_of(content) == config
    arrays = records.arrays_of(content)
    assert np.array_equal(arrays["cuts"], values["cuts"])
    assert np.array_equal(arrays["weights"], values["weights"].astype(np.float32))
    assert list(arrays) == ["weights", "cuts"]


@pytest.mark.parametrize("kind", [">f8", ">i4", "<i2", "f2", "g", "?"])
@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3)])
def test_arrays_of_any_number_arrive_in_the_byte_order_of_this_machine(kind, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind)
    received = records.unpack_arrays(ArrayRecord({"a": Array(np.asarray(array, order="F"))}))["a"]
    assert received.dtype.isnative
    assert received.shape == shape
    assert np.array_equal(received, array)


def with_header(text):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\x03\x04 no archive",
        b"PK\x05\x06" + bytes(18),  # an empty archive
        b"\x93NUMPY\x02\x00" + bytes(4),
        with_header(b"(" * 5000),
        with_header(b"'''"),
        with_header(b"{'descr': '<f8', 'fortran_order': False, 'shape': (9, ), }") + bytes(8),
        with_header(b"{'descr': '|O', 'fortran_order': False, 'shape': (1, ), }") + bytes(8),
        with_header(b"{'descr': '|V0', 'fortran_order': False, 'shape': (1, ), }"),
    ],
)
def test_bytes_that_are_no_array_are_refused(data):
    record = ArrayRecord({"a": Array("float64", (1,), "numpy.ndarray", data)})
    with pytest.raises(ValueError, match=r"."):
        records.unpack_arrays(record)

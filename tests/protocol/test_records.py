"""The only door: what is refused, how it travels, how it is counted."""

import numpy as np
import pytest
from flwr.app import MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.door import outgoing
from flwr_causal.protocol.exchange import Disclosure

DECLARED = (
    Disclosure("weights", "W", ("d", "d")),
    Disclosure("bank", "several", ("*", "d")),
    Disclosure("pair", "two", (2,)),
    Disclosure("loss", "a number"),
    Disclosure("curve", "numbers", ("*",)),
)


def send(arrays=None, numbers=None, **options):
    return outgoing(DECLARED, arrays or {}, numbers or {}, weight=1, dimensions={"d": 3}, **options)


def test_a_reply_has_flowers_form():
    content = send({"weights": np.eye(3)}, {"loss": 0.5, "curve": [1.0, 2.0]})
    assert list(content.array_records) == ["arrays"]
    assert list(content.metric_records) == ["metrics"]
    assert content["metrics"] == {"loss": 0.5, "curve": [1.0, 2.0], "num-examples": 1.0}
    assert np.array_equal(records.arrays_of(content)["weights"], np.eye(3))
    assert records.numbers_of(content) == {"loss": 0.5, "curve": [1.0, 2.0]}
    assert not send(numbers={"loss": 1.0}).array_records
    assert records.arrays_of(send()) == {}


def test_undeclared_names_do_not_leave():
    for arrays, numbers in (({"rows": np.eye(3)}, {}), ({}, {"rows": 7})):
        with pytest.raises(FederationError, match=r"'rows' may not leave.*'weights'.*Disclosure"):
            send(arrays, numbers)
    with pytest.raises(FederationError, match="declares only nothing"):
        outgoing((), {"weights": np.eye(3)}, {}, weight=1, dimensions={"d": 3})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weights", np.zeros((4, 3))),
        ("weights", np.zeros(9)),
        ("weights", np.zeros((1, 3, 3))),
        ("bank", np.zeros((7, 4))),
        ("pair", np.zeros(3)),
        ("loss", np.zeros(1)),
    ],
)
def test_other_shapes_do_not_leave(name, value):
    with pytest.raises(FederationError, match=f"'{name}' of shape .* may not leave"):
        send({name: value})


def test_a_list_in_place_of_a_number_does_not_leave():
    with pytest.raises(FederationError, match="'loss' of shape"):
        send(numbers={"loss": [1.0, 2.0]})


def test_any_length_stands_for_one_dimension():
    for length in (0, 1, 8):
        send({"bank": np.zeros((length, 3))})


def test_raw_rows_cannot_be_declared():
    for shape in (("n",), ("n", "d"), ("d", "n")):
        with pytest.raises(ConfigError, match="raw rows never leave"):
            Disclosure("rows", "the data", shape)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_do_not_leave(bad):
    with pytest.raises(FederationError, match="'weights' has values that are not finite"):
        send({"weights": np.full((3, 3), bad)})
    with pytest.raises(FederationError, match="'loss'"):
        send(numbers={"loss": bad})
    with pytest.raises(FederationError, match="'curve'"):
        send(numbers={"curve": [0.0, bad]})


def test_overflow_in_float32_does_not_leave():
    with pytest.raises(FederationError, match="not finite"):
        send({"weights": np.full((3, 3), 1e39)}, precision="float32")


def test_numpy_numbers_become_plain():
    content = send(numbers={"loss": np.float64(2.0), "curve": [np.int64(1), np.int64(2)]})
    values = content["metrics"]
    assert [type(values["loss"]), *map(type, values["curve"])] == [float, int, int]


def test_precision():
    value = np.full((3, 3), 1 / 3)
    wide, narrow = (
        send({"weights": value}, precision=precision) for precision in records.PRECISIONS
    )
    assert np.array_equal(records.arrays_of(wide)["weights"], value)
    received = records.arrays_of(narrow)["weights"]
    assert received.dtype == np.float64
    assert np.array_equal(received, value.astype(np.float32))
    assert records.num_bytes(wide) - records.num_bytes(narrow) == 9 * 4


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
    content = records.instruction(array, {"phase": "train", "round": 3, "names": ["ab", "c"]})
    expected = (1 + buffer) + (5 + 5) + (5 + 8) + (5 + 3)
    assert records.num_bytes(content) == expected
    assert records.values_bytes({"m": [1.0, 2.0], "b": b"123", "t": True}) == 17 + 4 + 9
    assert records.num_bytes(RecordDict({"metrics": MetricRecord({"a": 1.0, "b": [1, 2]})})) == 26


def test_an_error_reply_weighs_nothing():
    class Failed:
        def has_content(self):
            return False

    assert records.reply_bytes(Failed()) == 0


def test_an_instruction_carries_one_config_and_no_empty_arrays():
    content = records.instruction(None, {"a": 1, "b": 2})
    assert records.config_of(content) == {"a": 1, "b": 2}
    assert not content.array_records
    assert len(content.config_records) == 1

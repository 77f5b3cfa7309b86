"""The only door: what is let out, what is let in, and that both ends ask for the same."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of_any

from flwr_causal.contract.exchange import WHOLE
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent, door, records
from flwr_causal.protocol.door import RefusedError, accepted, outgoing, sizes_of

ROWS = 9
SIZES = {"d": 3, "n": ROWS}
EXCHANGE = Exchange(
    "toy",
    "",
    sends=(
        Sent("graphs", "", ("searches", "d", "d")),
        Sent("cuts", "", ("*",), optional=True, exact=True),
        Sent("penalty", ""),
    ),
    returns=(
        Disclosure("weights", "", ("d", "d")),
        Disclosure("pair", "", (2,), optional=True),
        Disclosure("bank", "", ("*", "d"), optional=True),
        Disclosure("cells", "", ("filled",), "index", optional=True),
        Disclosure("values", "", ("filled",), "count", optional=True),
        Disclosure("loss", "", optional=True),
        Disclosure("gains", "", ("searches",), optional=True),
    ),
)
EYE = np.eye(3)
# Of the exchange in the run.
NUMBER = 4


def send(arrays, exchange=EXCHANGE, weight=ROWS, **options):
    return outgoing(exchange, arrays, SIZES, weight=weight, number=NUMBER, **options)


def receive(content, exchange=EXCHANGE, weight=ROWS):
    return accepted(exchange, content, SIZES, weight=weight, number=NUMBER)


def forged(arrays, weight: float = ROWS):
    """A reply that did not go through the door."""
    plain = {name: np.asarray(a).item() for name, a in arrays.items() if np.ndim(a) == 0}
    # A metric cannot be a truth value.
    plain = {name: int(a) if isinstance(a, bool) else a for name, a in plain.items()}
    rest = {name: a for name, a in arrays.items() if name not in plain}
    metrics = MetricRecord({**plain, records.WEIGHT: float(weight), records.NUMBER: NUMBER})
    return RecordDict({"arrays": records.pack_arrays(rest), "metrics": metrics})


def refused(arrays, words, exchange=EXCHANGE):
    """Check that neither end lets this through, for the same reason."""
    with pytest.raises(RefusedError, match=f"The reply was not sent: .*{words}"):
        send(arrays, exchange)
    with pytest.raises(RefusedError, match=words):
        receive(forged(arrays), exchange)


# Form.


def test_a_reply_has_flowers_form():
    content = send({"weights": EYE, "loss": np.array(0.5)})
    assert list(content.array_records) == ["arrays"]
    assert list(content.metric_records) == ["metrics"]
    assert content["metrics"] == {"loss": 0.5, "num-examples": 9.0, "round": NUMBER}
    arrays = receive(content)
    assert set(arrays) == {"weights", "loss"}
    assert np.array_equal(arrays["weights"], EYE)
    assert arrays["loss"].shape == ()


def test_numbers_of_no_dimension_travel_as_plain_numbers():
    only = Exchange("one", "", returns=(Disclosure("loss", ""), Disclosure("k", "", (), "count")))
    content = send({"loss": np.float64(2.5), "k": np.int64(7)}, only)
    assert not content.array_records
    assert content["metrics"] == {"loss": 2.5, "k": 7, "num-examples": 9.0, "round": NUMBER}
    assert [type(content["metrics"][name]) for name in ("loss", "k")] == [float, int]
    assert {name: a.item() for name, a in receive(content, only).items()} == {"loss": 2.5, "k": 7}


def test_an_exchange_may_return_nothing():
    nothing = Exchange("nothing", "")
    assert receive(send({}, nothing), nothing) == {}
    refused({"weights": EYE}, "declares only nothing", nothing)


# Names and shapes.


def test_names():
    refused({"weights": EYE, "rows": EYE}, r"'rows' may not leave.*'toy'.*'weights'.*Disclosure")
    refused({"weights": EYE, "rows": np.array(7)}, "'rows' may not leave")
    refused({"loss": np.array(1.0)}, "'weights' of the exchange 'toy' is missing")
    assert set(receive(send({"weights": EYE}))) == {"weights"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("weights", np.zeros((4, 3))),
        ("weights", np.zeros(9)),
        ("weights", np.zeros((1, 3, 3))),
        ("weights", np.array(1.0)),
        ("bank", np.zeros((7, 4))),
        ("pair", np.zeros(3)),
        ("loss", np.zeros(1)),
        ("loss", np.zeros(ROWS)),
    ],
)
def test_shapes(name, value):
    refused({"weights": EYE, name: value}, f"'{name}' has the shape .* declared with")


def test_any_size_and_sizes_that_are_equal():
    for size in (0, 1, 8):
        content = send(
            {
                "weights": EYE,
                "bank": np.zeros((size, 3)),
                "cells": np.arange(size),
                "values": np.ones(size, np.uint8),
            }
        )
        assert len(receive(content)["bank"]) == size
    refused({"weights": EYE, "cells": np.arange(3), "values": np.arange(4)}, "'values' has the")


# Values.


def of_values(values):
    return Exchange("kinds", "", returns=(Disclosure("x", "", ("*",), values),))


@pytest.mark.parametrize(
    ("values", "good", "bad"),
    [
        (
            "finite",
            [[-1e45, 2.5], [1]],
            [[np.nan], [np.inf], [-np.inf], [-1.1e45], [1e308]],
        ),
        ("non-negative", [[0.0, 1e45]], [[-1e-300], [np.nan], [1.1e45]]),
        ("probability", [[0.0, 0.5, 1.0]], [[-0.1], [1.0 + 1e-9], [np.inf]]),
        ("count", [[0, ROWS], [3.0]], [[-1], [ROWS + 1], [0.5]]),
        ("index", [[0, 10**12], [4.0]], [[-1], [1.5]]),
        ("mark", [[0, 1], [True, False]], [[2], [-1], [0.5]]),
        ("bytes", [[0, 255]], [[256], [-1], [0.5]]),
        ("log-density", [[-1e5, 40.0, -np.inf]], [[np.nan], [np.inf], [1e46]]),
    ],
)
@pytest.mark.parametrize("plain", [False, True])
def test_kinds_of_values(values, good, bad, plain):
    exchange = of_values(values)
    if plain:
        exchange = Exchange("kinds", "", returns=(Disclosure("x", "", (), values),))
        good, bad = [[one] for own in good for one in own], bad
    for own in good:
        array = np.array(own[0] if plain else own)
        assert np.array_equal(receive(send({"x": array}, exchange), exchange)["x"], array)
    for own in bad:
        refused({"x": np.array(own[0] if plain else own)}, "'x'", exchange)


def test_an_index_may_have_a_bound():
    exchange = Exchange("edges", "", returns=(Disclosure("x", "", ("*", 2), "index", below="d"),))
    edges = np.array([[0, 2], [1, 0]])
    assert np.array_equal(receive(send({"x": edges}, exchange), exchange)["x"], edges)
    refused({"x": np.array([[0, 3]])}, "'x' is 3, .*at most 2", exchange)


def test_an_empty_array_is_of_any_kind():
    for values in ("finite", "count", "mark", "log-density"):
        exchange = of_values(values)
        assert receive(send({"x": np.zeros(0)}, exchange), exchange)["x"].shape == (0,)


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1j]), np.array([None])])
def test_only_numbers_leave(array):
    with pytest.raises(RefusedError, match=r"declared to hold .*numbers"):
        send({"x": array}, of_values("index"))


def test_texts_do_not_arrive():
    record = ArrayRecord({"x": Array(np.array(["a"]))})
    content = RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 9.0})})
    with pytest.raises(RefusedError, match=r"declared to hold .*numbers"):
        receive(content, of_values("finite"))


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_minus_infinity_among_log_densities_arrives(precision):
    exchange = of_values("log-density")
    values = np.array([-np.inf, -3.5, 0.0, 7.25])
    for array in (values, values.astype(np.float32)):
        content = send({"x": array}, exchange, precision=precision)
        assert np.isfinite(records.arrays_of(content)["x"]).all()
        assert np.array_equal(receive(content, exchange)["x"], values)


# Precision.


def test_precision():
    value = np.full((3, 3), 1 / 3)
    wide, narrow = (send({"weights": value}, precision=p) for p in ("float64", "float32"))
    assert np.array_equal(receive(wide)["weights"], value)
    received = receive(narrow)["weights"]
    assert received.dtype == np.float64
    assert np.array_equal(received, value.astype(np.float32))
    assert records.num_bytes(wide) - records.num_bytes(narrow) == 9 * 4


def test_overflow_in_float32_does_not_leave():
    big = np.full((3, 3), 1e39)
    with pytest.raises(RefusedError, match=r"not sent: 'weights' has values that are not finite"):
        send({"weights": big}, precision="float32")
    with pytest.raises(RefusedError, match="'loss'"):
        send({"weights": EYE, "loss": np.array(1e39)}, precision="float32")
    assert receive(send({"weights": big}))["weights"].max() == 1e39


# Weights and records.


def test_the_weight_is_that_of_the_agreement():
    assert send({"weights": EYE}, weight=1)["metrics"]["num-examples"] == 1.0
    receive(send({"weights": EYE}, weight=1), weight=1)
    for given_, wanted in ((ROWS + 1, ROWS), (1, ROWS), (ROWS, 1), (0, ROWS), (np.nan, ROWS)):
        with pytest.raises(RefusedError, match=rf"weight .*{given_}.* reported {wanted}"):
            receive(forged({"weights": EYE}, given_), weight=wanted)


def test_other_records_are_refused():
    good = send({"weights": EYE})
    for name, record in (("rows", ArrayRecord()), ("config", ConfigRecord({"a": 1}))):
        content = RecordDict({**good, name: record})
        with pytest.raises(RefusedError, match=f"the record '{name}'"):
            receive(content)
    for missing, words in (("metrics", "does not say which exchange"), ("arrays", "missing")):
        content = RecordDict({k: v for k, v in good.items() if k != missing})
        with pytest.raises(RefusedError, match=words):
            receive(content)
    swapped = RecordDict({"arrays": good["arrays"], "metrics": ConfigRecord({"num-examples": 9.0})})
    with pytest.raises(RefusedError, match="does not say which exchange"):
        receive(swapped)


def test_an_array_that_cannot_be_read_is_refused():
    """Not an error of the server, which would end the run for all."""
    broken = Array("float64", (3, 3), "numpy.ndarray", b"not an array")
    short = Array("float64", (3, 3), "numpy.ndarray", Array(np.zeros((3, 3))).data[:-8])
    other = Array("float64", (3, 3), "torch.tensor", b"")
    for array in (broken, short, other):
        metrics = MetricRecord({"num-examples": 9.0})
        content = RecordDict({"arrays": ArrayRecord({"weights": array}), "metrics": metrics})
        with pytest.raises(RefusedError, match="cannot be read"):
            receive(content)


def test_lists_in_the_metrics_are_no_numbers():
    metrics = MetricRecord({"loss": [1.0, 2.0], "num-examples": 9.0})
    content = RecordDict({"arrays": records.pack_arrays({"weights": EYE}), "metrics": metrics})
    with pytest.raises(RefusedError, match="'loss' is a list among"):
        receive(content)


def test_a_refusal_is_an_error_of_the_federation():
    assert issubclass(RefusedError, FederationError)


# Symbols.


def question(**values):
    return records.request("toy", "method", 1, {"penalty": 0.5, **values})


def test_symbols_are_bound_by_what_was_sent():
    sizes = sizes_of(EXCHANGE, question(graphs=np.zeros((4, 3, 3))), SIZES)
    assert sizes == {**SIZES, "searches": 4}
    assert SIZES == {"d": 3, "n": ROWS}
    good = {"weights": EYE, "gains": np.zeros(4)}
    content = outgoing(EXCHANGE, good, sizes, weight=ROWS, number=NUMBER)
    assert accepted(EXCHANGE, content, sizes, weight=ROWS, number=NUMBER)["gains"].shape == (4,)
    bad = {"weights": EYE, "gains": np.zeros(5)}
    with pytest.raises(RefusedError, match=r"'gains' has the shape \(5,\).*here \(4,\)"):
        outgoing(EXCHANGE, bad, sizes, weight=ROWS, number=NUMBER)
    with pytest.raises(RefusedError, match="'gains'"):
        accepted(EXCHANGE, forged(bad), sizes, weight=ROWS, number=NUMBER)


def test_what_the_server_sends_is_checked_too():
    graphs = np.zeros((4, 3, 3))
    assert sizes_of(EXCHANGE, question(graphs=graphs, cuts=np.ones(7)), SIZES)["searches"] == 4
    with pytest.raises(RefusedError, match=r"the server sent 'extra'.*does not declare"):
        sizes_of(EXCHANGE, question(graphs=graphs, extra=EYE), SIZES)
    with pytest.raises(RefusedError, match="the server did not send 'graphs'"):
        sizes_of(EXCHANGE, question(), SIZES)
    with pytest.raises(RefusedError, match="did not send 'graphs'"):
        sizes_of(EXCHANGE, None, SIZES)
    with pytest.raises(RefusedError, match="'graphs' has the shape"):
        sizes_of(EXCHANGE, question(graphs=np.zeros((4, 2, 2))), SIZES)
    # A plain number is declared as one.
    with pytest.raises(RefusedError, match="the server sent 'penalty'"):
        sizes_of(EXCHANGE, question(graphs=graphs, penalty=np.ones(1)), SIZES)
    # And an array as one: where both were read, a party could be asked for two values of one name.
    twice = question(graphs=graphs)
    twice["config"]["graphs"] = [1, 0]
    with pytest.raises(RefusedError, match="'graphs' of the exchange 'toy' as a plain value"):
        sizes_of(EXCHANGE, twice, SIZES)


def test_a_question_without_arrays():
    plain = Exchange("plain", "", sends=(Sent("penalty", ""),))
    assert sizes_of(plain, None, SIZES) == SIZES
    assert sizes_of(plain, records.request("plain", "m", 1, {"penalty": 1.0}), SIZES) == SIZES


# Properties.

VALUES = (
    "finite",
    "non-negative",
    "probability",
    "count",
    "index",
    "mark",
    "bytes",
    "log-density",
)
SYMBOLS = ("d", "k", "*", 2)


@st.composite
def exchanges(draw):
    names = draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=3))
    return Exchange(
        "any",
        "",
        returns=tuple(
            Disclosure(
                name,
                "",
                tuple(draw(st.lists(st.sampled_from(SYMBOLS), max_size=2))),
                draw(st.sampled_from(VALUES)),
                draw(st.sampled_from(("sum", "each"))),
                optional=draw(st.booleans()),
            )
            for name in names
        ),
    )


NUMBERS = arrays_of_any.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_]),
    arrays_of_any.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    elements=None,
)
SMALL = st.builds(
    lambda shape, value: np.full(shape, value),
    arrays_of_any.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
    st.sampled_from([0, 1, 0.5, -1.0, 7, 300, -np.inf]),
)


def allowed(exchange, arrays):
    """Whether the declaration allows these arrays, in the words of its documentation."""
    known = dict(SIZES)
    declared = {item.name: item for item in exchange.returns}
    if set(arrays) - set(declared):
        return False
    for name, item in declared.items():
        if name not in arrays:
            if not item.optional:
                return False
            continue
        array = np.asarray(arrays[name])
        if array.ndim != len(item.shape):
            return False
        for symbol, size in zip(item.shape, array.shape, strict=True):
            if symbol != "*" and (known.setdefault(symbol, size) if symbol != 2 else 2) != size:
                return False
        values = array.astype(np.float64).ravel()
        low = values == -np.inf if item.values == "log-density" else np.zeros(len(values), bool)
        if not np.isfinite(values[~low]).all():
            return False
        whole = (values == np.round(values)).all()
        most = {"probability": 1, "mark": 1, "bytes": 255, "count": ROWS}.get(item.values, np.inf)
        if item.values not in ("finite", "log-density") and not (
            (values >= 0).all() and (values <= most).all()
        ):
            return False
        if item.values in ("count", "index", "mark", "bytes") and not whole:
            return False
    return True


@given(exchanges(), st.dictionaries(st.sampled_from("abcd"), SMALL | NUMBERS, max_size=3))
def test_what_is_let_out_is_let_in_and_nothing_else(exchange, arrays):
    if not allowed(exchange, arrays):
        with pytest.raises(RefusedError):
            send(arrays, exchange)
        return
    received = receive(send(arrays, exchange), exchange)
    assert set(received) == set(arrays)
    for name, array in arrays.items():
        assert np.array_equal(received[name], array)


@given(exchanges(), st.dictionaries(st.sampled_from("abcd"), SMALL | NUMBERS, max_size=3))
def test_what_is_not_let_out_is_not_let_in(exchange, arrays):
    logs = {item.name for item in exchange.returns if item.values == "log-density"}
    whole = {item.name for item in exchange.returns if item.values in WHOLE}
    # As it would travel: log densities are finite, and whole numbers in place of floats are floats.
    finite = {
        name: np.maximum(array, door.LOWEST) if name in logs else array
        for name, array in arrays.items()
    }
    finite = {
        name: array if name in whole else np.asarray(array, dtype=np.float64)
        for name, array in finite.items()
    }
    if allowed(exchange, arrays):
        assert set(receive(forged(finite), exchange)) == set(arrays)
        return
    with pytest.raises(RefusedError):
        receive(forged(finite), exchange)


@given(exchanges(), st.data())
def test_every_declaration_can_be_met(exchange, data):
    """Zeros and ones are values of every kind."""
    sizes = {**SIZES, "k": data.draw(st.integers(0, 4)), "*": data.draw(st.integers(0, 4)), 2: 2}
    arrays = {
        item.name: np.full([sizes[s] for s in item.shape], data.draw(st.integers(0, 1)))
        for item in exchange.returns
    }
    for precision in ("float64", "float32"):
        received = receive(send(arrays, exchange, precision=precision), exchange)
        assert all(np.array_equal(received[name], array) for name, array in arrays.items())


# Products of columns.

MOMENTS = Exchange("moments", "", returns=(Disclosure("x", "", ("*", "s", "s"), "second-moments"),))
PRODUCTS = Exchange("products", "", returns=(Disclosure("x", "", ("*", "s", "s"), "products"),))


@given(
    rows=st.integers(1, 6),
    columns=st.integers(1, 5),
    units=st.lists(st.floats(-30, 30), min_size=5, max_size=5),
    seed=st.integers(0, 999),
    precision=st.sampled_from(["float64", "float32"]),
)
def test_second_moments_of_any_rows_and_units_pass(rows, columns, units, seed, precision):
    data = np.random.default_rng(seed).normal(size=(rows, columns)) * np.exp2(units[:columns])
    data[:, 0] = 0.0 if seed % 5 == 0 else data[:, 0]
    moments = data.T @ data / rows
    receive(send({"x": moments[None]}, MOMENTS, precision=precision), MOMENTS)
    masked = np.where(np.random.default_rng(seed).random((columns, columns)) < 0.5, 0.0, moments)
    masked = np.where(np.eye(columns, dtype=bool), moments, np.minimum(masked, masked.T))
    masked = np.where(masked == masked.T, masked, 0.0)
    receive(send({"x": masked[None]}, PRODUCTS, precision=precision), PRODUCTS)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ([[1.0, 0.5], [0.4, 1.0]], "not symmetric"),
        ([[-1.0, 0.0], [0.0, 1.0]], "negative mean squares"),
        ([[1.0, 1.1], [1.1, 1.0]], "larger than their mean squares allow"),
        ([[0.0, 0.1], [0.1, 1.0]], "larger than their mean squares allow"),
        ([[1e200, 0.0], [0.0, 1.0]], "too large to be computed with"),
    ],
)
def test_what_is_no_product_of_columns_is_refused(matrix, words):
    for exchange in (MOMENTS, PRODUCTS):
        refused({"x": np.array([matrix])}, words, exchange)


def test_second_moments_are_positive_semi_definite():
    # Every pair could be two columns of data, all three together could not.
    matrix = np.array([[[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]]])
    refused({"x": matrix}, "not positive semi-definite", MOMENTS)
    receive(send({"x": matrix}, PRODUCTS), PRODUCTS)


def test_the_reply_to_another_exchange_is_refused():
    late = outgoing(EXCHANGE, {"weights": EYE}, SIZES, weight=ROWS, number=NUMBER - 1)
    with pytest.raises(RefusedError, match="answers exchange 3 instead of exchange 4"):
        receive(late)
    for name in ("num-examples", "round"):
        exchange = Exchange("x", "", returns=(Disclosure(name, ""),))
        with pytest.raises(ConfigError, match="part of every reply"):
            Contract("mine", (exchange,))


# Types, and buffers that contradict what is said of them.


def test_an_array_has_the_type_that_is_declared():
    words = Exchange("w", "", returns=(Disclosure("x", "", ("*",), "bytes", dtype="uint8"),))
    good = np.array([1, 0, 255], np.uint8)
    np.testing.assert_array_equal(receive(send({"x": good}, words), words)["x"], good)
    for dtype in (np.int64, np.float64, np.uint16, np.bool_):
        refused({"x": np.array([1, 0, 1], dtype)}, "declared to hold uint8", words)


def test_what_arrives_may_be_asked_to_be_of_one_type():
    content = RecordDict({"arrays": records.pack_arrays({"x": np.zeros(2, np.uint8)})})
    assert door.received(content, "uint8")["x"].tolist() == [0, 0]
    with pytest.raises(RefusedError, match="'x' holds uint8, but it is declared to hold uint64"):
        door.received(content, "uint64")


def test_shapes_are_those_of_the_buffers():
    graphs = np.zeros((2, 3, 3))
    buffer = records.pack_arrays({"graphs": np.zeros((2, 3, 4))})["graphs"].data
    forged = Array("float64", graphs.shape, "numpy.ndarray", buffer)
    content = RecordDict({"arrays": ArrayRecord({"graphs": forged})})
    with pytest.raises(RefusedError, match="'graphs' has the shape"):
        sizes_of(EXCHANGE, content, SIZES)


@pytest.mark.parametrize("shape", ["(-1,)", "(2, -1)"])
def test_a_buffer_without_a_possible_shape_is_refused(shape):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(32)
    content = RecordDict(
        {"arrays": ArrayRecord({"x": Array("float64", (4,), "numpy.ndarray", data)})}
    )
    for read in (door.received, lambda one: sizes_of(EXCHANGE, one, SIZES)):
        with pytest.raises(RefusedError, match="an array cannot be read: it states the shape"):
            read(content)


def test_a_question_is_what_all_parties_are_sent_alike():
    asked = Exchange("q", "", sends=(Sent("x", "", ("*",)), Sent("own", "", ("*",), by_party=True)))

    def question(x, own, **config):
        values = {"x": np.array(x), "own": np.array(own), **config}
        return door.question_of(asked, records.request("q", "toy", 3, values))

    first = question([1.0, 2.0], [5.0])
    assert first == question([1.0, 2.0], [6.0, 7.0])
    agreement = {"setup-exchange": "0" * 16}
    assert first == question([1.0, 2.0], [5.0], **agreement)
    others = {question([2.0, 1.0], [5.0]), question([1, 2], [5.0]), question([1.0], [5.0])}
    others.add(question([1.0, 2.0], [5.0], within=1))
    assert len(others | {first}) == 5


# What the server sends.

LISTS = Exchange(
    "lists",
    "",
    sends=(
        Sent("weights", "", ("*",), optional=True),
        Sent("owners", "", ("*",), optional=True, values="index", below="d"),
        Sent("marks", "", ("*",), optional=True, values="mark"),
        Sent("graph", "", ("*", 2), optional=True, values="dag", below="d"),
        Sent("sizes", "", ("*",), optional=True, values="index"),
        Sent("members", "", ("*",), optional=True, values="index", below="d", parts="sizes"),
        Sent("lengths", "", ("*",), optional=True, values="index"),
        Sent("edges", "", ("*", 2), optional=True, values="dag", below="d", parts="lengths"),
    ),
)
PATH, BACK = [[0, 1], [1, 2]], [[2, 0]]


def sent(**values):
    arrays = {name: np.asarray(value) for name, value in values.items()}
    return door.asked(LISTS, records.request("lists", "method", 1, arrays), SIZES)


@pytest.mark.parametrize(
    "values",
    [
        {"weights": [1, 2], "owners": [0, 2], "marks": [True, False]},
        {"graph": PATH},
        {"graph": np.zeros((0, 2), int), "sizes": np.zeros(0, int), "members": np.zeros(0, int)},
        {"sizes": [2, 0, 1], "members": [0, 2, 1]},
        # Together they would be a cycle.
        {"lengths": [2, 0, 1], "edges": PATH + BACK},
        {"sizes": np.array([1], np.uint8), "members": np.array([2], np.uint16)},
    ],
)
def test_what_a_party_computes_with(values):
    assert sent(**values)["d"] == 3


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"weights": [np.nan]}, "'weights' has values that are not finite"),
        ({"weights": [-np.inf]}, "'weights' has values that are not finite"),
        ({"weights": ["1"]}, "'weights' holds <U1, but it is declared as finite"),
        ({"weights": [1j]}, "'weights' holds complex128"),
        ({"owners": [3]}, "'owners' is 3, but it is declared as index, at most 2"),
        ({"owners": [-1]}, "'owners' has negative values"),
        ({"owners": [1.0]}, "'owners' holds float64, but it is declared as index"),
        ({"marks": [2]}, "'marks' is 2, but it is declared as mark, at most 1"),
        ({"graph": PATH + BACK}, "'graph' are the edges of a graph with a cycle"),
        ({"graph": [[0, 3]]}, "'graph' is 3"),
        ({"sizes": [2], "members": [0]}, "'members' has 1 entries, not those of 'sizes'"),
        ({"sizes": [1], "members": [0, 1]}, "'members' has 2 entries, not those of 'sizes'"),
        ({"sizes": [-1, 2], "members": [0]}, "'sizes' has negative values"),
        # Their sum is 1 in 64 bits.
        (
            {"sizes": np.array([2**63, 2**63, 1], np.uint64), "members": [0]},
            "'members' has 1 entries",
        ),
        ({"sizes": [2], "members": [0, 0]}, "a list of 'members' is not in ascending order"),
        ({"sizes": [2], "members": [1, 0]}, "a list of 'members' is not in ascending order"),
        ({"sizes": [2], "members": np.array([1, 0], np.uint8)}, "not in ascending order"),
        ({"sizes": [1], "members": [3]}, "'members' is 3"),
        ({"lengths": [3], "edges": PATH + BACK}, "'edges' are the edges of a graph with a cycle"),
        ({"lengths": [1], "edges": PATH}, "'edges' has 2 entries, not those of 'lengths'"),
    ],
)
def test_what_a_party_does_not_compute_with(values, words):
    with pytest.raises(RefusedError, match=words):
        sent(**values)


GRAPHS = Exchange(
    "graphs",
    "",
    sends=(Sent("graphs", "", ("q", "d", "d"), values="dag"),),
    returns=(Disclosure("own", "", ("q", "d", "d"), "dag"),),
)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_each_graph_of_a_stack_has_no_cycle(count):
    graphs = np.triu(np.ones((count, 3, 3), int), 1)

    def asked(graphs):
        return door.asked(GRAPHS, records.request("graphs", "method", 1, {"graphs": graphs}), SIZES)

    def replied(graphs):
        return send({"own": graphs}, GRAPHS)

    assert asked(graphs)["q"] == count
    assert replied(graphs)["arrays"]["own"].shape == (count, 3, 3)
    for k in range(count):
        cyclic = graphs.copy()
        cyclic[k, 2, 0] = 1
        with pytest.raises(RefusedError, match="'graphs' are the edges of a graph with a cycle"):
            asked(cyclic)
        with pytest.raises(RefusedError, match="'own' are the edges of a graph with a cycle"):
            replied(cyclic)


def test_an_array_does_not_come_as_a_plain_value():
    with pytest.raises(RefusedError, match=r"'members' .* as a plain value"):
        door.asked(LISTS, records.request("lists", "method", 1, {"members": [7]}), SIZES)


def test_what_flower_could_not_average_is_refused():
    whole = send({"weights": EYE})
    metrics = MetricRecord({**whole["metrics"], "weights": 1.0})
    with pytest.raises(RefusedError, match="'weights' is there twice"):
        receive(RecordDict({**whole, "metrics": metrics}))
    array = whole["arrays"]["weights"]
    other = ArrayRecord({"weights": Array(array.dtype, array.shape, "unknown", array.data)})
    with pytest.raises(RefusedError, match="'weights' is stated in the form 'unknown'"):
        receive(RecordDict({**whole, "arrays": other}))

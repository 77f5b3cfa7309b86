"""A few bytes that state a large size are refused before anything of that size is made."""

import io
import json
import struct
import tracemalloc
import zipfile
from copy import deepcopy
from functools import partial

import numpy as np
import pandas as pd
import pytest
from circuit_cases import MIXED, domain_of, random_circuit, random_elliptical
from flwr.app import Array, ArrayRecord

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.report import MOST_COLUMNS
from flwr_causal.core import limits
from flwr_causal.core.circuits.circuit import Circuit, packed, unpacked
from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.core.discrete.contingency_tables import Sets, tabulate
from flwr_causal.core.discrete.discrete import DiscreteTable
from flwr_causal.core.received import array_of, arrays_of, json_of
from flwr_causal.data.check.party_table import describe
from flwr_causal.data.check.report import TableReport
from flwr_causal.errors import CausalError, DataError, FederationError
from flwr_causal.protocol import bundle, door, records, replay
from flwr_causal.protocol.contract import Contract

HOSTILE = (20_000_000, -1, 2**63, 1e300, float("nan"), "x", None, [1, [2]])
#: Far more than what the small forms here need, far less than what they state.
MOST = 24 * 2**20


def peak_of(call):
    """The most memory that a call takes, in bytes."""
    tracemalloc.start()
    try:
        call()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST, f"{peak / 2**20:.0f} MiB"


def refused(call, error=CausalError, match=None):
    """Check that a call is refused, with little memory."""

    def attempt():
        with pytest.raises(error, match=match):
            call()

    peak_of(attempt)


def tried(call, errors):
    """Check that a call is refused, or has a result, with little memory."""

    def attempt():
        try:
            call()
        except errors:
            return

    peak_of(attempt)


def changes(plain, values=HOSTILE):
    """All copies of nested lists and dicts in which one number has another value, with its path."""

    def paths(value, path):
        if isinstance(value, dict | list):
            for key, one in value.items() if isinstance(value, dict) else enumerate(value):
                yield from paths(one, (*path, key))
        elif isinstance(value, int | float):
            yield path

    for path in paths(plain, ()):
        for value in values:
            result = deepcopy(plain)
            place = result
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            yield (*path, value), result


def tree():
    tables = ([[0.3, 0.7]], [[0.2, 0.8], [0.6, 0.4]])
    return ChowLiuTree((4, 5), (-1, 0), tables)


def circuits():
    rng = np.random.default_rng(0)
    mixed = [random_circuit(seed, MIXED, depth=2) for seed in range(2)]
    return mixed, mixed[0].domain, rng


def members(data):
    with np.load(io.BytesIO(data.tobytes())) as file:
        return dict(file)


def npz(arrays, compressed=True):
    buffer = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(buffer, **arrays)
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def stating(shape, kind="<f8", entries=b"", order=False):
    """An array in numpy's format whose header states any shape."""
    head = f"{{'descr': {kind!r}, 'fortran_order': {order}, 'shape': {shape!r}, }}"
    head = head.ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + entries


# -- packed circuits -------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_number_in_the_head_of_packed_circuits():
    mixed, domain, _ = circuits()
    arrays = members(packed(mixed[:1], domain))
    head = json.loads(str(arrays.pop("head")))
    found = list(changes(head))
    assert {path[:-1] for path, _ in found} >= {("num",)}
    for path, changed in found:
        data = npz({"head": np.array(json.dumps(changed)), **arrays})
        if path[0] == "num":
            refused(lambda data=data: unpacked(data), DataError)
        tried(lambda data=data: unpacked(data), DataError)


@pytest.mark.slow
def test_each_number_in_the_arrays_of_packed_circuits():
    mixed, _, rng = circuits()
    two = domain_of((0, 0, 0, 0, 2, 2))
    forms = [
        mixed[0],
        Circuit(two, Sum([tree(), tree()], [0.5, 0.5])),
        Circuit(two, Product([random_elliptical(rng, (0, 1, 2), 7.3), tree()])),
    ]
    structure = ("leaf_counts", "scope_sizes", ".shapes", "inner.sizes", "inner.children", "scope")
    for own in forms:
        arrays = own.to_arrays()
        assert Circuit.from_arrays(own.domain, arrays).num_nodes == own.num_nodes
        places = [
            (name, k) for name, array in arrays.items() for k in {0, array.size - 1} if k >= 0
        ]
        places += [("leaf_counts", k) for k in range(1, arrays["leaf_counts"].size - 1)]
        for name, place in places:
            if not arrays[name].size:
                continue
            for value in (20_000_000, -1, 2**62, np.nan):
                changed = arrays[name].astype(np.float64 if value != value else np.int64)
                changed.flat[place] = value
                given = partial(Circuit.from_arrays, own.domain, {**arrays, name: changed})
                check = refused if name.endswith(structure) else tried
                with np.errstate(invalid="ignore"):
                    check(given, CausalError)


def test_the_size_of_what_is_packed_is_limited_by_the_size_of_the_pack():
    mixed, domain, _ = circuits()
    arrays = members(packed(mixed, domain))
    # Some kilobytes, that were 32 MB once unpacked.
    data = npz({**arrays, "0/inner.weights": np.zeros(2**22)})
    assert len(data) < 2**18
    refused(lambda: unpacked(data), DataError, "at most")
    few = npz({**arrays, "0/inner.is_sum": np.zeros(2**19, dtype=np.uint8)})
    refused(lambda: unpacked(few), DataError, "nodes and columns in")


def test_a_covariance_is_that_of_its_columns():
    """A scope of 20,000 columns takes some bytes, the square of their number gigabytes."""
    domain = domain_of((0, 0))
    leaf = random_elliptical(np.random.default_rng(0), (0, 1), 7.3)
    arrays = members(packed([Circuit(domain, leaf)], domain))
    wide = {"0/elliptical.scope": np.arange(9000), "0/elliptical.scope_sizes": np.array([9000])}
    refused(lambda: unpacked(npz({**arrays, **wide})), DataError, "no covariance of 9000 columns")


def test_the_scopes_of_all_nodes_together_are_limited(monkeypatch):
    mixed, domain, _ = circuits()
    data = packed(mixed, domain)
    monkeypatch.setattr("flwr_causal.core.circuits.storage.MOST_COLUMNS", 10)
    with pytest.raises(DataError, match="have more than 10 columns"):
        unpacked(data)


# -- arrays ----------------------------------------------------------------------------------------


SHAPES = [(10**9,), (2**62, 2**62), (-1,), (2**31, 0), (0, 10**9), (3,), (1, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_array_has_as_many_entries_as_its_header_states(shape):
    refused(lambda: array_of(stating(shape, entries=bytes(16))), ValueError)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.npy", stating(shape, entries=bytes(16)))
    refused(lambda: arrays_of(buffer.getvalue(), 2**40), ValueError, "states the shape")


@pytest.mark.parametrize("shape", [(0, 10**9), (2**31, 0), (0, 1_000_001)])
def test_an_array_without_entries_has_no_axis_of_any_size(shape):
    refused(lambda: array_of(stating(shape)), ValueError, "no entries")


@pytest.mark.parametrize("kind", ["|O", "<M8[s]", "|V8", "<U0", "|S1000000000", "<U500000000"])
def test_kinds_of_arrays_that_no_message_has(kind):
    refused(lambda: array_of(stating((1,), kind, bytes(8))), ValueError)


def test_whole_arrays_of_all_kinds_come_back():
    for array in (
        np.arange(3),
        np.zeros((0, 4)),
        np.array(2.5),
        np.array("a"),
        np.eye(3, order="F"),
    ):
        data = npz({"a": array}, compressed=False).tobytes()
        again = arrays_of(data, len(data))["a"]
        np.testing.assert_array_equal(again, array)
        assert again.shape == array.shape


def test_an_archive_that_states_less_than_it_unpacks_to():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.npy", stating((2000,), entries=bytes(8 * 2**22)))
    data = bytearray(buffer.getvalue())
    small = len(stating((2000,))) + 16_000
    place = data.rindex(b"PK\x01\x02") + 24
    data[place : place + 4] = struct.pack("<I", small)
    refused(lambda: arrays_of(bytes(data), 2**20), ValueError)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_kinds_of_compression_are_refused(method):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        file.writestr("a.npy", stating((2,), entries=bytes(16)))
    refused(lambda: arrays_of(buffer.getvalue(), 2**20), ValueError, "another way")


def test_a_name_twice_in_an_archive_is_refused():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("a.npy", stating((2,), entries=bytes(16)))
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("a.npy", stating((2,), entries=bytes(16)))
    refused(lambda: arrays_of(buffer.getvalue(), 2**20), ValueError, "twice")


def test_a_record_must_state_the_shape_of_its_array():
    array = Array(np.zeros((2, 3)))
    array.shape = (5, 5)
    with pytest.raises(ValueError, match="stated as"):
        records.unpack_arrays(ArrayRecord({"a": array}))


# -- texts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["[" * 10**5, "1e999", "NaN", "[-Infinity]", "9" * 10**5, "{"])
def test_texts_that_are_refused(text):
    refused(lambda: json_of(text), ValueError)


# -- a replay --------------------------------------------------------------------------------------


def requests():
    contents = [
        records.request("round", "moments", number, {"weights": np.eye(3), "h": 0.5})
        for number in (1, 2)
    ]
    return contents, replay.packed(contents)


def test_a_replay_comes_back():
    contents, sent = requests()
    again = replay.unpacked(sent["archive"], sent["requests"])
    for one, other in zip(contents, again, strict=True):
        assert records.config_of(one) == records.config_of(other)
        np.testing.assert_array_equal(records.arrays_of(other)["weights"], np.eye(3))


def test_an_archive_of_a_replay_is_not_compressed():
    _, sent = requests()
    bomb = npz({"0 weights": np.zeros(2**22)})
    refused(lambda: replay.unpacked(bomb, sent["requests"]), FederationError, "at most")


def test_each_number_of_a_replay():
    _, sent = requests()
    plain = json.loads(sent["requests"])
    for _, changed in changes(plain):
        tried(lambda c=changed: replay.unpacked(sent["archive"], json.dumps(c)), FederationError)
    for text in ("7", "null", '"xy"', "[1, 2]", "[{}]", "{}", "[" * 10**5, "[null, {}]"):
        refused(lambda text=text: replay.unpacked(sent["archive"], text), FederationError)
    for key in ("2 weights", "-1 weights", "x weights", "weights", "99999999999 weights"):
        archive = npz({key: np.zeros(2)}, compressed=False)
        refused(lambda a=archive: replay.unpacked(a, sent["requests"]), FederationError)


# -- reports, agreements, bundles ------------------------------------------------------------------


def report():
    table = pd.DataFrame({"a": [1.0, 2.0, 4.0], "b": ["x", "y", "x"], "c": [0, 1, 1]})
    parts = ("sums", "states", "relations")
    return describe(table, sums=True, states=True, relations=True).to_dict(), parts


def read(values, parts):
    door.reported(values, parts, 64)
    return TableReport.from_dict(values)


def test_each_number_of_a_report():
    values, parts = report()
    assert read(values, parts)
    counted = 0
    for path, changed in changes(values):
        tried(lambda c=changed: read(c, parts), CausalError)
        if path[0] in ("num-states", "rows", "copy-of") and path[-1] != -1:
            counted += 1
            allowed = path[0] == "rows" and path[-1] == 20_000_000
            if not allowed:
                refused(lambda c=changed: read(c, parts))
    assert counted > 20


def test_a_report_of_a_million_columns_or_states():
    values, parts = report()
    many = {
        key: value * 400_000 if isinstance(value, list) and len(value) == 3 else value
        for key, value in values.items()
    }
    with pytest.raises(door.RefusedError, match="at most 20000"):
        read(many, parts)
    with pytest.raises(door.RefusedError, match="max_states"):
        read({**values, "num-states": [0, 10**6, 0], "states": ["x"] * 10**6}, parts)
    assert MOST_COLUMNS == 20_000


CONTRACT = Contract(
    "x", (Exchange("a", "a", sends=(Sent("k", "k"),), returns=(Disclosure("s", "s", ("k",)),)),)
)


def head(trainings):
    return {bundle.TRAININGS: trainings, bundle.EXCHANGES: ["a"] * len(trainings)}


@pytest.mark.parametrize(
    "names",
    [
        ["replicate 20000000"],
        ["replicate 10001"],
        ["without 10001"],
        ["replicate -1"],
        ["replicate 01"],
        ["replicate 0"],
        ["replicate 1e3"],
        ["replicate " + "9" * 5000],
        ["x"],
        ["without 1 "],
        [""] * 2,
        ["replicate 1"] * 10**6,
    ],
)
def test_a_head_of_trainings_that_no_run_has(names):
    values = head(names)
    refused(lambda: bundle.exchange_of(CONTRACT, values))


def test_trainings_of_a_run_are_found():
    for name in ("", "replicate 1", "replicate 10000", "without 3"):
        assert bundle.TrainingName.of(name).name == name
    names = ["", "replicate 1", "without 2"]
    assert len(bundle.exchange_of(CONTRACT, head(names)).parts) == 3


@pytest.mark.parametrize("number", [20_000_000, -1, 2**63 - 1])
def test_a_size_that_the_server_states_is_limited(number):
    content = records.message_content(None, {"k": number})
    with pytest.raises(door.RefusedError, match=f"k={number}"):
        door.sizes_of(CONTRACT.exchanges[0], content, {})
    content = records.message_content(None, {"k": 7})
    assert door.sizes_of(CONTRACT.exchanges[0], content, {})["k"] == 7


@pytest.mark.parametrize(("sent", "fits"), [(2**14, True), (2**14 + 1, False)])
def test_a_party_makes_no_more_than_declared_sizes_allow(sent, fits):
    """The size follows from that of a sent array, or is stated as a number."""
    wide = Exchange(
        "wide",
        "",
        sends=(Sent("points", "", ("k",)), Sent("m", "")),
        returns=(
            Disclosure("sums", "", ("k", "m", 2)),
            Disclosure("own", "", ("n", "d"), rows="all"),
        ),
    )
    content = records.message_content(records.pack_arrays({"points": np.zeros(sent)}), {"m": 2**13})
    agreed = {"d": 2**20, "n": 2**20}  # rows are the party's own
    if fits:
        assert door.asked(wide, content, agreed)["k"] == sent
        return
    with pytest.raises(door.RefusedError, match=rf"{sent * 2**14} entries of 'sums'.*'wide'"):
        door.asked(wide, content, agreed)


def million_tables(of):
    """Sets of so many binary columns, a million of them."""
    members = np.tile(np.arange(of, dtype=np.uint16), 1_000_000)
    return Sets(np.full(1_000_000, of, dtype=np.uint16), members)


def test_a_million_tables_of_4096_cells_are_refused_before_they_are_made(monkeypatch):
    table = DiscreteTable(
        tuple(map(str, range(12))), (("0", "1"),) * 12, np.zeros((12, 3), dtype=np.uint8)
    )
    with pytest.raises(DataError, match=r"tables have 4.1e\+09 entries.*max_parents"):
        tabulate(table, million_tables(12))
    # With secure aggregation a large table has all of its cells, too.
    wide = Sets(np.array([40], dtype=np.uint16), np.arange(40, dtype=np.uint16))
    cards = np.full(40, 2, dtype=np.int64)
    table = DiscreteTable(
        tuple(map(str, range(40))), (("0", "1"),) * 40, np.zeros((40, 3), dtype=np.uint8)
    )
    counts = tabulate(table, wide)
    refused(lambda: counts.whole(wide, cards), DataError, r"tables have 1.1e\+12 entries")
    # The limit is of all tables together, and may be reached.
    monkeypatch.setattr(limits, "MOST_ENTRIES", 8)
    two = Sets(np.full(2, 2, dtype=np.uint16), np.array([0, 1, 2, 3], dtype=np.uint16))
    assert len(tabulate(table, two).whole(two, cards)) == 8
    three = Sets(np.full(3, 2, dtype=np.uint16), np.array([0, 1, 2, 3, 4, 5], dtype=np.uint16))
    with pytest.raises(DataError, match="have 12 entries"):
        tabulate(table, three)

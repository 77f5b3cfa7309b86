"""What leaves a party, seen on the wire over whole runs, against what is declared."""

import numpy as np
import pytest
from federations import SpyGrid, make_federation, spy
from flwr.app import ArrayRecord

from flwr_causal import wire
from flwr_causal.clients import MomentsClient, NotearsADMMClient
from flwr_causal.data.partition import split
from flwr_causal.methods import METHODS, build
from flwr_causal.strategies import run

D = 5
# No two of these numbers are alike, and none is a number of variables, candidates or folds.
ROWS = (37, 61, 143)
OPTIONS = [
    ("notears-admm", {"max_rounds": 8}),
    ("notears-admm", {"max_rounds": 8, "sparsity": "bic", "precision": "float32"}),
    ("notears-admm", {"max_rounds": 8, "sparsity": "held-out", "center": "party"}),
    ("notears-admm", {"schedule": "paper", "max_rounds": 5, "refit": True, "standardize": True}),
    ("moments", {}),
    ("moments", {"sparsity": "held-out", "standardize": True}),
]
# The answer to the schema question: names, types, counts, flags, and three sums a column.
SCHEMA = {
    "party": None,
    "partition-id": None,
    "rows": None,
    "dropped-rows": None,
    "has-sums": None,
    **dict.fromkeys(["names", "kinds", "missing", "infinite", "distinct-one", "copy-of"], D),
    **dict.fromkeys(["means", "remainders", "squares"], D),
}


def tables_of(rows=ROWS, d=D):
    pooled = make_federation(d=d, n=sum(rows), parties=1).tables[0]
    ends = np.cumsum(rows)
    return [
        pooled.iloc[end - size : end].reset_index(drop=True)
        for end, size in zip(ends, rows, strict=True)
    ]


def size_of(content):
    """Count the bytes of a message's content, without the package's own counting."""
    total = 0
    for record in content.values():
        for name, value in record.items():
            total += len(name)
            if isinstance(record, ArrayRecord):
                total += len(value.data)
            else:
                values = value if isinstance(value, list) else [value]
                total += sum(len(v) if isinstance(v, str) else 8 for v in values)
    return total


def setup_size(content):
    config = wire.config_of(content)
    setup = {k: v for k, v in config.items() if k.startswith("setup-")}
    return wire.values_bytes(setup)


@pytest.fixture(scope="module", params=OPTIONS, ids=str)
def watched(request):
    """A grid that saw a whole run, and the run's outcome."""
    method, options = request.param
    grid = spy(tables_of())
    return grid, run(build(method, options), grid), METHODS[method].client


def test_nothing_leaves_that_was_not_declared(watched):
    grid, outcome, client = watched
    phases = {m.metadata.group_id: wire.config_of(m.content)["phase"] for m in grid.sent[3:]}
    replies = grid.replies[3:]
    assert len(replies) == 3 * outcome.rounds
    for reply in replies:
        phase = phases[reply.metadata.group_id]
        declared = {item.name: item.shape for item in client.discloses if item.phase == phase}
        assert set(reply.content) <= {"arrays", "metrics"}
        arrays = wire.arrays_of(reply.content)
        assert set(arrays) | set(wire.numbers_of(reply.content)) <= set(declared)
        for name, array in arrays.items():
            assert len(array.shape) == len(declared[name])
            assert array.shape[-2:] == (D, D)
        assert set(reply.content["metrics"]) - set(declared) == {"num-examples"}


def test_no_array_has_a_row_for_a_row(watched):
    grid, *_ = watched
    for reply in grid.replies[3:]:
        for array in wire.arrays_of(reply.content).values():
            assert not set(array.shape) & {*ROWS, sum(ROWS)}


def test_the_schema_exchange_says_what_is_documented(watched):
    grid, *_ = watched
    for reply in grid.replies[:3]:
        assert not reply.content.array_records
        values = wire.config_of(reply.content)
        assert {k: len(v) if isinstance(v, list) else None for k, v in values.items()} == SCHEMA


def test_bytes_are_those_on_the_wire(watched):
    grid, outcome, _ = watched
    sent = sum(size_of(m.content) - setup_size(m.content) for m in grid.sent[3:])
    assert outcome.bytes_sent == sent
    assert outcome.bytes_received == sum(size_of(m.content) for m in grid.replies[3:])
    schema = [*grid.sent[:3], *grid.replies[:3]]
    setups = sum(setup_size(m.content) for m in grid.sent[3:])
    assert outcome.schema_bytes == sum(size_of(m.content) for m in schema) + setups
    for record in outcome.history:
        group = [m for m in grid.sent if m.metadata.group_id == str(record["round"])]
        sizes = [size_of(m.content) - setup_size(m.content) for m in group]
        assert record["bytes_sent"] == sum(sizes)


def test_the_setup_travels_once_to_each(watched):
    grid, *_ = watched
    carriers = [m.metadata.dst_node_id for m in grid.training_messages if setup_size(m.content)]
    assert sorted(carriers) == sorted(grid.get_node_ids())


@pytest.mark.parametrize("client", [NotearsADMMClient, MomentsClient])
def test_clients_document_their_disclosures(client):
    for item in client.discloses:
        assert f"``{item.name}``" in client.__doc__
        assert item.meaning
        assert item.phase in ("train", "fit")


def overheads(d, rows):
    """The sizes of all messages of an ADMM run that are not the d x d array, by direction."""
    grid = spy(tables_of(rows, d))
    run(build("notears-admm", {"max_rounds": 6}), grid)
    sizes = []
    for messages in (grid.training_messages, grid.replies[len(rows) :]):
        extra = set()
        for message in messages:
            (array,) = wire.arrays_of(message.content).values()
            assert array.shape == (1, d, d)
            extra.add(size_of(message.content) - setup_size(message.content) - 8 * d * d)
        sizes.append(sorted(extra))
    return sizes


def test_admm_sends_one_square_array_and_a_constant():
    small = overheads(10, (30, 40))
    assert small == overheads(40, (30, 40)) == overheads(10, (300, 400))
    assert max(map(max, small)) < 300


def test_admm_reveals_only_families_in_the_last_exchange():
    grid = spy(tables_of())
    graph = run(build("notears-admm", {"max_rounds": 8}), grid).graph
    family = graph.adjacency | np.eye(D, dtype=bool)
    together = np.einsum("ij,kj->ik", family.astype(int), family.astype(int)) > 0
    assert not together.all(), "the case must leave something to hide"
    for reply in grid.replies[-3:]:
        (sums,) = wire.arrays_of(reply.content).values()
        assert np.array_equal(sums[0] != 0, together)


def test_the_number_of_rows_is_the_weight_only_where_it_must_be():
    grid = spy(tables_of())
    run(build("notears-admm", {"max_rounds": 6}), grid)
    weights = [reply.content["metrics"]["num-examples"] for reply in grid.replies[3:]]
    assert weights == [1.0] * (len(weights) - 3) + [float(n) for n in ROWS]


def test_floats_of_half_the_size():
    sizes = {}
    for precision in ("float64", "float32"):
        grid = SpyGrid(spy(tables_of())._client_app, 3)
        sizes[precision] = run(
            build("notears-admm", {"max_rounds": 6, "precision": precision}), grid
        )
    narrow, wide = sizes["float32"], sizes["float64"]
    saved = 3 * 6 * 4 * D * D
    assert wide.bytes_received - narrow.bytes_received == saved
    assert wide.bytes_sent - narrow.bytes_sent == saved


def test_a_partition_of_any_kind_is_used_whole():
    table = make_federation(d=4, n=101, parties=1).tables[0]
    for kind in ("even", "uneven"):
        parties = split(table, 4, kind, seed=3)
        outcome = run(build("moments", {}), spy(parties))
        assert sum(p.num_rows for p in outcome.parties) == 101

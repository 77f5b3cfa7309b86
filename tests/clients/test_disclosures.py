"""What leaves a party, seen on the wire over whole runs, against what is declared."""

import numpy as np
import pandas as pd
import pytest
from federations import SpyGrid, make_federation, spy
from flwr.app import ArrayRecord
from server_states import states_of
from sweeps import sweep

from flwr_causal.app.methods import METHODS, build
from flwr_causal.core.consensus import admm
from flwr_causal.data.partition import split
from flwr_causal.protocol import fedges, records
from flwr_causal.protocol.contract import RESERVED
from flwr_causal.strategies import run

D = 5
# No two of these numbers are alike, and none is a number of variables, candidates or folds.
ROWS = (37, 61, 143)
OPTIONS = [
    ("notears-admm", {"max_rounds": 8}),
    ("notears-admm", {"max_rounds": 8, "sparsity": "bic", "precision": "float32"}),
    ("notears-admm", {"max_rounds": 8, "sparsity": "held-out", "center": "party"}),
    ("notears-admm", {"max_rounds": 6, "refit": True, "standardize": True}),
    ("moments", {}),
    ("moments", {"sparsity": "held-out", "standardize": True}),
    ("moments", {"model": "additive"}),
    ("moments", {"order": 1, "sparsity": "held-out"}),
    ("moments", {"order": 2, "instantaneous": False, "center": "series"}),
    ("lingam", {"standardize": True, "precision": "float32"}),
    ("lingam", {"order": 2}),
    ("fedcausal", {}),
    ("fedcausal", {"refine": "none", "max_rounds": 4, "precision": "float32"}),
    ("fedcausal", {"model": "linear", "max_rounds": 4}),
    ("fedcausal", {"local_graphs": True}),
    ("fedcausal", {"model": "mlp", "max_rounds": 2, "inner_steps": 3}),
    ("fedcausal", {"model": "mlp", "variant": "paper", "max_rounds": 2, "inner_steps": 3}),
    ("notears-admm", {"model": "mlp", "max_rounds": 6, "inner_steps": 3}),
    ("2dbn", {"order": 1, "max_rounds": 8}),
    ("2dbn", {"order": 2, "max_rounds": 8, "select_order": True}),
]
#: One of each kind of exchange.
OFTEN = [OPTIONS[k] for k in (2, 5, 6, 8, 9, 11, 13, 18)]
# The answer to the schema question: names, types, counts, flags, relations and three sums a column.
SCHEMA = {
    "party": None,
    "version": None,
    "contract": None,
    "partition-id": None,
    "rows": None,
    "dropped-rows": None,
    "has-sums": None,
    **dict.fromkeys(
        ["names", "kinds", "missing", "infinite", "stray", "distinct-one", "copy-of"], D
    ),
    **dict.fromkeys(["far", "texts"], D),
    **dict.fromkeys(["means", "remainders", "squares"], D),
}
RELATIONS = dict.fromkeys(["combination-of", "dominated", "apart", "skewed"], D)


# A method on categories: all modes, and columns that are cut into intervals.
CATEGORIES = [
    {"mode": "scores"},
    {"mode": "scores", "precision": "float32", "parameters": False},
    {"mode": "exact"},
    {"mode": "exact", "discretize": 3},
    {"mode": "fusion"},
    {"mode": "fusion", "start": "fuse", "parameters": True},
    {"mode": "fusion", "start": "overwrite", "keep": "last"},
]
STATES = {"x0": 2, "x1": 3, "x2": 4, "x3": 2, "x4": 3}


def tables_of(rows=ROWS, d=D):
    pooled = make_federation(d=d, n=sum(rows), parties=1).tables[0]
    ends = np.cumsum(rows)
    return [
        pooled.iloc[end - size : end].reset_index(drop=True)
        for end, size in zip(ends, rows, strict=True)
    ]


def category_tables(options, seed=0):
    """The parties' rows as categories; as they are, where they are to be cut into intervals."""
    numbers = tables_of()
    rng = np.random.default_rng(seed)
    # The order of the rows is nobody's business.
    numbers = [table.iloc[rng.permutation(len(table))] for table in numbers]
    if "discretize" in options:
        return numbers
    bounds = {
        name: np.quantile(pd.concat(numbers)[name], np.arange(1, card) / card)
        for name, card in STATES.items()
    }
    return [
        pd.DataFrame({name: np.searchsorted(bounds[name], table[name]) for name in STATES})
        for table in numbers
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
    config = records.config_of(content)
    setup = {k: v for k, v in config.items() if k.startswith("setup-")}
    return records.values_bytes(setup)


@pytest.fixture(scope="module", params=sweep(OPTIONS, kept=OFTEN), ids=str)
def watched(request):
    """A grid that saw a whole run, and the run's outcome."""
    method, options = request.param
    if options.get("model") == "mlp":
        pytest.importorskip("torch", reason="perceptrons need torch")
    grid = spy(tables_of())
    outcome = run(build(method, options), grid)
    columns = D * (1 + options.get("order", 0))
    sums = 1 + (5 * D if options.get("model") == "additive" else columns)
    return grid, outcome, METHODS[method].strategy.contract, {"d": D, "m": columns, "s": sums}


def numbers_of(content):
    """The plain numbers of a reply, without its weight."""
    return {k: v for k, v in content["metrics"].items() if k not in RESERVED}


def exchanges_of(grid):
    """The name of each exchange, by the group of its messages."""
    sent = grid.training_messages
    return {m.metadata.group_id: records.config_of(m.content)["exchange"] for m in sent}


def test_nothing_leaves_that_was_not_declared(watched):
    grid, outcome, contract, sizes = watched
    names, replies = exchanges_of(grid), grid.replies[3:]
    assert len(replies) == 3 * outcome.rounds
    for reply in replies:
        exchange = contract.find(names[reply.metadata.group_id])
        declared = {item.name: item.shape for item in exchange.returns}
        assert set(reply.content) <= {"arrays", "metrics"}
        arrays = records.arrays_of(reply.content)
        assert set(arrays) | set(numbers_of(reply.content)) == set(declared)
        for name, array in arrays.items():
            wanted = [sizes.get(size) for size in declared[name]]
            named = zip(wanted, array.shape, strict=True)
            assert all(size in (None, got) for size, got in named)


def test_no_party_is_sent_what_was_not_declared(watched):
    grid, _, contract, _ = watched
    for message in grid.training_messages:
        config = records.config_of(message.content)
        sends = contract.find(config["exchange"]).sends
        declared = {item.name for item in sends if not item.optional}
        plain = {k for k in config if not k.startswith("setup-")}
        arrays = set(records.arrays_of(message.content))
        assert arrays | plain == declared | {"exchange", "method", "round"}


def test_no_array_has_a_row_for_a_row(watched):
    grid, *_ = watched
    for reply in grid.replies[3:]:
        for array in records.arrays_of(reply.content).values():
            assert not set(array.shape) & {*ROWS, sum(ROWS)}


def test_the_schema_exchange_says_what_is_documented(watched):
    grid, _, contract, _ = watched
    declared = SCHEMA | (RELATIONS if "relations" in contract.reports else {})
    for reply in grid.replies[:3]:
        # Of the probe it is sent, a party returns what follows from the question.
        arrays = records.arrays_of(reply.content)
        assert list(arrays) == ["probe"]
        np.testing.assert_allclose(arrays["probe"], [2**0.5] * 2)
        values = records.config_of(reply.content)
        assert {k: len(v) if isinstance(v, list) else None for k, v in values.items()} == declared


def test_bytes_are_those_on_the_wire(watched):
    grid, outcome, *_ = watched
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


@pytest.fixture(scope="module", params=sweep(CATEGORIES, kept=CATEGORIES[:5:2]), ids=str)
def watched_categories(request):
    """A grid that saw a whole run on categories, and the run's outcome and options."""
    grid = spy(category_tables(request.param))
    return grid, run(build("fedges", request.param), grid), request.param


def test_of_categories_nothing_leaves_that_was_not_declared(watched_categories):
    grid, outcome, options = watched_categories
    names, replies = exchanges_of(grid), grid.replies[3:]
    assert len(replies) == 3 * outcome.rounds
    expected = {
        "scores": {"likelihoods"},
        "exact": {"counts"},
        "fusion": {"judged graph", "judge"} if "start" in options else {"graphs", "judge"},
    }[options["mode"]]
    expected = {"graph"} if options.get("keep") == "last" else expected
    expected |= {"cuts"} if "discretize" in options else set()
    fits = options.get("parameters", options["mode"] != "fusion")
    expected |= {"fit"} if fits else set()
    expected |= {"counts"} if fits and options["mode"] == "scores" else set()
    assert set(names.values()) == expected
    for reply in replies:
        exchange = fedges.CONTRACT.find(names[reply.metadata.group_id])
        declared = {item.name: item for item in exchange.returns}
        assert set(reply.content) <= {"arrays", "metrics"}
        arrays, numbers = records.arrays_of(reply.content), numbers_of(reply.content)
        # All that is declared leaves each time, and nothing else does.
        bound = {2: 2}
        assert set(arrays) == {name for name, item in declared.items() if item.shape}
        assert set(numbers) == {name for name, item in declared.items() if not item.shape}
        for name, array in arrays.items():
            shape = declared[name].shape
            assert len(shape) == array.ndim
            sizes = [pair for pair in zip(shape, array.shape, strict=True) if pair[0] != "*"]
            assert all(bound.setdefault(symbol, size) == size for symbol, size in sizes)


def test_of_categories_sizes_follow_the_question_not_the_rows(watched_categories):
    """Each array is as long as what was asked for says, whoever answers and however many rows."""
    grid, _, options = watched_categories
    asked = {}
    for message in grid.training_messages:
        key = (message.metadata.group_id, message.metadata.dst_node_id)
        asked[key] = records.arrays_of(message.content)
    for reply in grid.replies[3:]:
        question = asked[reply.metadata.group_id, reply.metadata.src_node_id]
        arrays = records.arrays_of(reply.content)
        if "gains" in arrays:
            assert arrays["gains"].shape == question["others"].shape
        if "scores" in arrays:
            assert arrays["scores"].shape == question["lengths"].shape
        if "thresholds" in question:
            assert arrays["counts"].shape == question["thresholds"].shape
        if "votes" in arrays:
            assert len(arrays["votes"]) == len(question["edges"])
            assert set(arrays["votes"].tolist()) <= {0, 1}
        if "dense" in arrays:
            assert arrays["dense"].dtype.kind == "u"
            members = np.split(question["members"], np.cumsum(question["sizes"])[:-1])
            cards = [3] * D if "discretize" in options else list(STATES.values())
            cells = [int(np.prod([cards[k] for k in own])) for own in members]
            assert len(arrays["dense"]) == sum(cells)
            assert len(arrays["cells"]) == 0
        for name in ("edges", "overwritten", "fused"):
            if name in arrays:
                assert len(arrays[name]) <= D * (D - 1) // 2


def test_of_categories_the_order_of_rows_does_not_show(watched_categories):
    grid, _, options = watched_categories
    other = spy(category_tables(options, seed=1))
    run(build("fedges", options), other)
    for one, two in zip(grid.replies, other.replies, strict=True):
        first, second = records.arrays_of(one.content), records.arrays_of(two.content)
        assert first.keys() == second.keys()
        for name, array in first.items():
            np.testing.assert_allclose(array, second[name], rtol=1e-6)


def test_of_categories_the_schema_exchange_names_states(watched_categories):
    grid, _, options = watched_categories
    for reply in grid.replies[:3]:
        # Of the probe it is sent, a party returns what follows from the question.
        arrays = records.arrays_of(reply.content)
        assert list(arrays) == ["probe"]
        np.testing.assert_allclose(arrays["probe"], [2**0.5] * 2)
        values = records.config_of(reply.content)
        sums = "discretize" in options
        moments = [values[name] for name in ("means", "remainders", "squares")]
        assert [any(numbers) for numbers in moments] == [sums] * 3
        assert values["has-sums"] == sums
        # Of columns that are to be cut no value is named, however few rows a party has.
        named = [] if sums else [str(k) for card in STATES.values() for k in range(card)]
        assert values.get("states", []) == named


def test_bytes_of_categories_are_those_on_the_wire(watched_categories):
    grid, outcome, _ = watched_categories
    sent = sum(size_of(m.content) - setup_size(m.content) for m in grid.sent[3:])
    assert outcome.bytes_sent == sent
    assert outcome.bytes_received == sum(size_of(m.content) for m in grid.replies[3:])
    schema = [*grid.sent[:3], *grid.replies[:3]]
    setups = sum(setup_size(m.content) for m in grid.sent[3:])
    assert outcome.schema_bytes == sum(size_of(m.content) for m in schema) + setups
    for record in outcome.history:
        group = [m for m in grid.sent if m.metadata.group_id == str(record["round"])]
        assert record["bytes_sent"] == sum(
            size_of(m.content) - setup_size(m.content) for m in group
        )
        back = [r for r in grid.replies if r.metadata.group_id == str(record["round"])]
        assert record["bytes_received"] == sum(size_of(r.content) for r in back)
    carriers = [m.metadata.dst_node_id for m in grid.training_messages if setup_size(m.content)]
    assert sorted(carriers) == sorted(grid.get_node_ids())


def test_states_are_told_to_methods_on_categories_only():
    for method, told in (("moments", False), ("notears-admm", False), ("fedges", True)):
        options = {"max_rounds": 6} if method == "notears-admm" else {}
        grid = spy(category_tables({}))
        run(build(method, options), grid)
        setup = records.config_of(grid.training_messages[0].content)
        assert ("setup-states" in setup) == told
        assert ("states" in records.config_of(grid.replies[0].content)) == told
        assert (len(setup["setup-mean"]) == 0) == told


def overheads(d, rows):
    """The sizes of all messages of an ADMM run that are not the d x d array, by direction."""
    grid = spy(tables_of(rows, d))
    run(build("notears-admm", {"max_rounds": 6}), grid)
    sizes = []
    for messages in (grid.training_messages, grid.replies[len(rows) :]):
        extra = set()
        for message in messages:
            (array,) = records.arrays_of(message.content).values()
            assert array.shape in ((1, d, d), (1, 1 + d, 1 + d))  # the last one is of [1, z]
            extra.add(size_of(message.content) - setup_size(message.content) - 8 * array.size)
        sizes.append(sorted(extra))
    return sizes


def test_admm_sends_one_square_array_and_a_constant():
    small = overheads(10, (30, 40))
    assert small == overheads(40, (30, 40)) == overheads(10, (300, 400))
    assert max(map(max, small)) < 300


def test_admm_reveals_only_families_in_the_last_exchange():
    grid = spy(tables_of())
    graph = run(build("notears-admm", {"max_rounds": 8, "search": False}), grid).graph
    family = graph.adjacency | np.eye(D, dtype=bool)
    together = np.einsum("ij,kj->ik", family.astype(int), family.astype(int)) > 0
    assert not together.all(), "the case must leave something to hide"
    for reply in grid.replies[-3:]:
        (sums,) = records.arrays_of(reply.content).values()
        assert np.array_equal(sums[0, 1:, 1:] != 0, together)


def test_before_a_search_admm_reveals_the_possible_families():
    grid = spy(tables_of())
    with states_of(admm) as states:
        outcome = run(build("notears-admm", {"max_rounds": 8}), grid)
    spread = np.sqrt(outcome.agreement.variance)
    effects = np.abs(states[-1].weights[0]) * spread[:, None] / spread
    near = (effects > 0.005) | (effects.T > 0.005) | np.eye(D, dtype=bool)
    together = np.einsum("ij,kj->ik", near.astype(int), near.astype(int)) > 0
    for reply in grid.replies[-3:]:
        (sums,) = records.arrays_of(reply.content).values()
        assert np.array_equal(sums[0, 1:, 1:] != 0, together)


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
    # Five rounds, and the sums of the rows [1, z].
    saved = 3 * 4 * (5 * D**2 + (1 + D) ** 2)
    assert wide.bytes_received - narrow.bytes_received == saved
    assert wide.bytes_sent - narrow.bytes_sent == saved


def test_a_partition_of_any_kind_is_used_whole():
    table = make_federation(d=4, n=101, parties=1).tables[0]
    for kind in ("even", "uneven"):
        parties = split(table, 4, kind, seed=3)
        outcome = run(build("moments", {}), spy(parties))
        assert sum(p.num_rows for p in outcome.parties) == 101

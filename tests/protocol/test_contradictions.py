"""Replies that contradict themselves, the party's own report or what it was sent."""

import numpy as np
import pandas as pd
import pytest
from federations import SpyGrid, app_of, make_federation
from flwr.app import Array, ArrayRecord

from flwr_causal.core.circuits.circuit import packed, unpacked
from flwr_causal.data.partition import split
from flwr_causal.errors import FederationError
from flwr_causal.protocol import records
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.strategies import FedCausal, FedGES, FedPC, Moments, NotearsADMM, run

TABLES = make_federation(d=4, n=120, parties=3).tables
STATES = [
    pd.DataFrame(np.random.default_rng(k).integers(0, 3, (40, 3)), columns=list("abc"))
    for k in range(3)
]


class Forging(SpyGrid):
    """Changes arrays of one party's replies by ``change(arrays)``, after they have left it."""

    def __init__(self, tables, change, exchange, party=1) -> None:
        super().__init__(app_of(tables), len(tables))
        self.change, self.exchange, self.node = change, exchange, party + 2

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        names = {
            m.metadata.dst_node_id: records.config_of(m.content).get("exchange") for m in messages
        }
        return [
            self.forged(reply) if names[reply.metadata.src_node_id] == self.exchange else reply
            for reply in super().send_and_receive(messages, timeout=timeout)
        ]

    def forged(self, reply):
        if reply.metadata.src_node_id != self.node:
            return reply
        arrays = {name: array.copy() for name, array in records.arrays_of(reply.content).items()}
        kinds = {name: array.dtype for name, array in arrays.items()}
        self.change(arrays)
        reply.content["arrays"] = ArrayRecord(
            {name: Array(array.astype(kinds[name])) for name, array in arrays.items()}
        )
        return reply


def scaled(factor):
    def change(arrays):
        arrays["moments"] *= factor

    return change


@pytest.mark.few(3)
@pytest.mark.parametrize("center", ["global", "party"])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_second_moments_agree_with_the_report(center, standardize, offset):
    tables = [table + offset * (1 + k) for k, table in enumerate(TABLES)] if offset else TABLES
    options = {"center": center, "standardize": standardize}
    clean = run(Moments(**options), Forging(tables, scaled(1.0), "sums"))
    assert clean.failures == ()

    def wrong(arrays):
        arrays["moments"][:, 1:, 1:] *= 1.01

    outcome = run(Moments(**options), Forging(tables, wrong, "sums"))
    assert [failure.party for failure in outcome.failures] == ["party 1"]
    assert "mean square of the column 'x0' is not the one" in outcome.failures[0].reason


@pytest.mark.parametrize("rows", [2, 20_000])
def test_a_column_that_one_party_holds_constant_is_not_refused(rows):
    """Its mean, summed row by row, is wrong by many roundings."""
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(rows, 3)) for _ in range(2)]
    tables[0][:, 1] = 0.1
    assert simulate("moments", tables, center="party").failures == []


def test_the_last_sums_of_admm_agree_with_the_report():
    method = NotearsADMM(max_rounds=8)

    def wrong(arrays):
        arrays["moments"][:, 1:, 1:] *= 1.01

    outcome = run(method, Forging(TABLES, wrong, "refit"))
    assert "mean square of the column" in outcome.failures[0].reason


def more(arrays):
    arrays["dense"][0] += 1


def fewer_cells(arrays):
    arrays["dense"] = arrays["dense"][:-1]


@pytest.mark.parametrize(
    ("change", "words"),
    [(more, "counts 41 rows, but .* reported 40"), (fewer_cells, "other sizes")],
)
@pytest.mark.parametrize("discretize", [None, 3])
def test_tables_count_the_rows_of_the_party(change, words, discretize):
    tables = STATES if discretize is None else [t.iloc[:40] + 0.5 for t in TABLES]
    options = {} if discretize is None else {"discretize": discretize}
    outcome = run(FedGES(mode="exact", **options), Forging(tables, change, "counts"))
    assert {failure.party for failure in outcome.failures} == {"party 1"}
    import re

    assert re.search(words, outcome.failures[0].reason)
    others = [tables[0], tables[2]]
    assert outcome.graph.equals(
        run(FedGES(mode="exact", **options), LocalGrid(app_of(others), 2)).graph
    )


@pytest.mark.parametrize("name", ["gains", "means"])
def test_a_gain_is_at_most_the_rows_times_the_logarithm_of_the_states(name):
    def change(arrays):
        # 40 rows of 3 states: at most 40 log 3 = 43.9.
        arrays[name][0] = 45.0

    outcome = run(FedGES(), Forging(STATES, change, "likelihoods"))
    assert {failure.party for failure in outcome.failures} == {"party 1"}
    assert f"'{name}' has the value 45" in outcome.failures[0].reason
    others = run(FedGES(), LocalGrid(app_of([STATES[0], STATES[2]]), 2))
    assert outcome.graph.equals(others.graph)


def test_large_tables_too():
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.integers(0, 70, (300, 2)), columns=["a", "b"])
    wide["b"] = (wide["a"] + rng.integers(0, 5, 300)) % 70

    def other(arrays):
        if len(arrays["values"]):
            arrays["values"][0] += 1

    def beyond(arrays):
        if len(arrays["cells"]):
            arrays["cells"][-1] = 70 * 70

    tables = split(wide, 3, seed=0)
    method = {"mode": "exact", "max_states": 80}
    for change, words in ((other, "rows, but the party reported 100"), (beyond, "does not have")):
        outcome = run(FedGES(**method), Forging(tables, change, "counts"))
        assert any(words in failure.reason for failure in outcome.failures), words


def test_counts_below_rising_thresholds_do_not_fall():
    def falling(arrays):
        arrays["counts"] = arrays["counts"][:, ::-1]

    outcome = run(FedGES(discretize=3), Forging(TABLES, falling, "cuts"))
    assert "fewer rows lie below a higher threshold" in outcome.failures[0].reason


def test_a_graph_with_a_cycle_is_no_dag():
    def cyclic(arrays):
        for name in ("overwritten", "fused"):
            arrays[name] = np.array([[0, 1], [1, 0]])

    outcome = run(FedGES(mode="fusion"), Forging(STATES, cyclic, "graphs"))
    assert "a graph with a cycle" in outcome.failures[0].reason


def test_a_partys_own_graph_has_no_cycle():
    def cyclic(arrays):
        arrays["own-graph"][:2, :2] = 1 - np.eye(2)

    method = FedCausal(max_rounds=5, local_graphs=True)
    outcome = run(method, Forging(TABLES, cyclic, "local graphs"))
    assert [failure.party for failure in outcome.failures] == ["party 1"]
    assert "'own-graph' are the edges of a graph with a cycle" in outcome.failures[0].reason


CLASSES = [
    table.assign(target=np.where(table["x0"] > table["x1"], "yes", "no")) for table in TABLES
]
IDS = [
    pd.DataFrame({"row_id": range(40), f"c{k}": np.random.default_rng(k).normal(size=40)})
    for k in range(3)
]
LABELLED = [table.assign(target=np.arange(40) % 2).astype({"target": str}) for table in IDS]
ONE_PASS = {"training": "one-pass", "minimum_count": 1}
CENTRAL = {"training": "one-pass", "queries": "central"}


def put(name, place, value):
    def change(arrays):
        arrays[name][place] = value

    return change


def plus(name, place, value=1):
    def change(arrays):
        arrays[name][place] += value

    return change


def half(arrays):
    arrays["circuits"] = arrays["circuits"][: len(arrays["circuits"]) // 2]


def one_circuit(arrays):
    circuits = unpacked(arrays["circuits"])
    arrays["circuits"] = packed(circuits[:1], circuits[0].domain)


def one_class(arrays):
    for name in arrays:
        arrays[name] = arrays[name][:1]


def two_scores(arrays):
    for name in ("linear", "nonlinear"):
        arrays[name] = np.repeat(arrays[name], 2, axis=2)


@pytest.mark.few(5)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tables", "options", "exchange", "change", "words"),
    [
        (CLASSES, {}, "class-conditional: scale", plus("counts", 0, 5), "its sums count 45 rows"),
        (CLASSES, {}, "class-conditional: scale", one_class, "'counts' has the size 1 for class"),
        (CLASSES, {}, "class-conditional: scale", plus("first", 0, 1e9), "than its rows and the"),
        (CLASSES, {}, "class-conditional: moments", plus("counts", (0, 0, 0), -5), "count 35 rows"),
        (CLASSES, {"learner": "trees"}, "trees: pairs", plus("counts", (0, 0), 9), "count 49 rows"),
        (CLASSES, {"learner": "trees"}, "trees: pairs", plus("counts", (0, 5)), "pairs of states"),
        (CLASSES, {"learner": "trees"}, "trees: trees", put("counts", 0, 41), "more rows than the"),
        (CLASSES, ONE_PASS, "local, weights by counts", plus("rows", 0, -3), "count 37 rows, but"),
        (CLASSES, ONE_PASS, "local, weights by counts", plus("sizes", 0), "that there are"),
        (LABELLED, ONE_PASS, "local, weights by classes", plus("classes", 0), "rows of each c"),
        (CLASSES, CENTRAL, "local, weights by counts, circuits sent", half, "cannot be read: the"),
        (IDS, CENTRAL, "local, weights by em, circuits sent", one_circuit, "holds 1 circuits, but"),
        (IDS, {}, "align", put("hashes", [0, 1], 7), "only 39 of the hashes of 40 ids differ"),
        (IDS, {}, "dependence", plus("counts", 0, -5), "count 35 rows, but 40 are common"),
        (IDS, {}, "dependence", two_scores, "of 1 classes and 2 scores, not of 1 and 1"),
    ],
)
def test_sums_and_clusters_of_circuits_are_of_the_partys_rows(
    tables, options, exchange, change, words
):
    forging = Forging(tables, lambda arrays: change(arrays), exchange)
    outcome = failed(FedPC(**options), forging)
    assert {failure.party for failure in outcome.failures} == {"party 1"}
    assert words in outcome.failures[0].reason


def failed(method, grid):
    """The outcome of a run, whether it completes or not."""
    try:
        return run(method, grid)
    except FederationError as error:
        return error.outcome

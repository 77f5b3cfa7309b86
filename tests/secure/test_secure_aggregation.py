"""secure_aggregation: the results of plain runs, and replies that say nothing of a party."""

import re
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from federations import ask, disturbed, make_federation, raising, setup_for, spy
from flwr.app import ConfigRecord, RecordDict
from lagged_systems import simulate_series

from flwr_causal.app.comparison import baselines
from flwr_causal.app.methods import OWN_METHODS, find
from flwr_causal.errors import CausalError, ConfigError, DataError, FederationError
from flwr_causal.protocol import records
from flwr_causal.secure import party as secure
from flwr_causal.simulations import simulate
from flwr_causal.simulations.relay import KilledError, Killing, Relay
from flwr_causal.strategies import Moments, NotearsADMM, run

FED = make_federation(d=5, n=240, parties=4, seed=1)
TABLES = FED.tables
SERIES = [
    simulate_series(seed, 90, np.triu(np.full((3, 3), 0.6), 1), 0.4 * np.eye(3))
    for seed in range(3)
]
TARGETS = [table.assign(by=np.where(np.arange(60) < 30, "", "x1")) for table in TABLES]

SHIFTED = [table + 10.0 * k for k, table in enumerate(TABLES)]


def make_categories():
    """Return four parties' tables of a -> b <- c, b -> d."""
    tables = []
    for seed, n in enumerate((90, 60, 120, 80)):
        rng = np.random.default_rng(seed)
        a, c = rng.integers(0, 2, (2, n))
        b = np.where(rng.random(n) < 0.9, a | c, 1 - (a | c))
        d = np.where(rng.random(n) < 0.9, b, 1 - b)
        tables.append(pd.DataFrame({"a": a, "b": b, "c": c, "d": d}).astype(str))
    return tables


CASES = {
    "moments": ("moments", TABLES, {}),
    "standardised": ("moments", TABLES, {"standardize": True, "solver": "dagma"}),
    "ges": ("moments", TABLES, {"solver": "ges"}),
    "bic": ("moments", TABLES, {"sparsity": "bic"}),
    "interventions": ("moments", TARGETS, {"intervention_column": "by"}),
    "series": ("moments", SERIES, {"order": 2, "select_order": True}),
    "own levels": ("moments", SHIFTED, {"center": "party"}),
    "levels of series": ("moments", SERIES, {"order": 1, "center": "series"}),
    "admm own levels": ("notears-admm", SHIFTED, {"max_rounds": 6, "center": "party"}),
    "replicates": ("moments", TABLES, {"replicates": 4}),
    "admm replicates": ("notears-admm", TABLES, {"max_rounds": 8, "replicates": 2}),
    "lingam": ("lingam", TABLES, {}),
    "lingam series": ("lingam", SERIES, {"order": 1}),
    "admm": ("notears-admm", TABLES, {"max_rounds": 6}),
    "admm interventions": (
        "notears-admm",
        TARGETS,
        {"max_rounds": 6, "intervention_column": "by"},
    ),
    "fedcausal": ("fedcausal", TABLES, {}),
    "fedcausal linear": ("fedcausal", TABLES, {"model": "linear", "max_rounds": 8}),
    "admm held-out": ("notears-admm", TABLES, {"max_rounds": 6, "sparsity": "held-out"}),
    "2dbn": ("2dbn", SERIES, {"max_rounds": 6}),
    "2dbn lags": ("2dbn", SERIES, {"max_rounds": 6, "order": 2, "select_order": True}),
    "additive": ("moments", TABLES, {"model": "additive"}),
}


#: Cases of which another one has the same exchanges; what the server does with sums is the same.
SLOW = (
    "ges",
    "bic",
    "lingam series",
    "admm own levels",
    "admm interventions",
    "fedcausal linear",
    "admm held-out",
)


@pytest.mark.few(5)
@pytest.mark.parametrize(
    "case", [pytest.param(k, marks=pytest.mark.slow if k in SLOW else ()) for k in CASES]
)
def test_the_result_is_that_of_plain_sums(case):
    method, tables, options = CASES[case]
    plain = simulate(method, tables, **options)
    masked = simulate(method, tables, secure_aggregation=True, **options)
    assert np.array_equal(plain.graph.adjacency, masked.graph.adjacency)
    atol = 1e-12 * np.abs(plain.graph.weights).max()
    np.testing.assert_allclose(masked.graph.weights, plain.graph.weights, rtol=0, atol=atol)
    np.testing.assert_allclose(masked.scores, plain.scores, rtol=0, atol=1e-11)
    if plain.graph.lagged is not None:
        np.testing.assert_allclose(masked.graph.lagged, plain.graph.lagged, rtol=0, atol=1e-12)
    if plain.graph.party_agreement is not None:
        np.testing.assert_array_equal(masked.graph.party_agreement, plain.graph.party_agreement)
    assert masked.rounds == plain.rounds
    assert masked.num_rows == plain.total_rows
    assert masked.failures == []


CATEGORIES = make_categories()
WITH_NUMBERS = [
    table.assign(z=rng.normal(size=len(table)) + (table["b"] == "1"))
    for table, rng in zip(CATEGORIES, np.random.default_rng(5).spawn(4), strict=True)
]
FEDGES = [
    ({}, CATEGORIES),
    ({"score": "bdeu"}, CATEGORIES),
    ({"mode": "exact", "replicates": 2}, CATEGORIES),
    ({"discretize": 3}, WITH_NUMBERS),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("options", "tables"), FEDGES, ids=range(len(FEDGES)))
def test_fedges_finds_the_graph_and_the_tables_of_plain_sums(options, tables):
    plain = simulate("fedges", tables, **options)
    masked = simulate("fedges", tables, secure_aggregation=True, **options)
    assert plain.graph.num_edges >= 2
    assert np.array_equal(plain.graph.adjacency, masked.graph.adjacency)
    np.testing.assert_array_equal(plain.graph.party_agreement, masked.graph.party_agreement)
    pd.testing.assert_frame_equal(plain.model.sample(50, 0), masked.model.sample(50, 0))
    assert masked.rounds == plain.rounds
    assert set(masked.parties.values()) == {0}


# Shares of 125 rows are added up in steps that make a little more of them than 125.
HUNDREDS = [
    table.assign(x0=np.where(table["x0"] > 0, "high", "low"))[:size]
    for table, size in zip(TABLES, (42, 42, 41), strict=False)
]

FEDPC = [
    ({}, TABLES),
    ({}, HUNDREDS),
    ({"target": "d"}, [table.assign(z=1.0 * (table["a"] > "0")) for table in WITH_NUMBERS]),
    ({"learner": "trees", "components": 2}, TABLES),
]


@pytest.mark.few(2)
@pytest.mark.parametrize(("options", "tables"), FEDPC, ids=range(len(FEDPC)))
def test_fedpc_finds_the_circuit_of_plain_sums(options, tables):
    plain = simulate("fedpc", tables, **options)
    masked = simulate("fedpc", tables, secure_aggregation=True, **options)
    expected = plain.model.log_likelihood(tables[0])
    np.testing.assert_allclose(masked.model.log_likelihood(tables[0]), expected, atol=1e-9)
    assert masked.rounds == plain.rounds
    assert set(masked.parties.values()) == {0}


def test_fedpc_over_different_columns_is_refused():
    tables = [TABLES[0].drop(columns="x1"), *TABLES[1:]]
    with pytest.raises(ConfigError, match="parties that hold the same columns"):
        simulate("fedpc", tables, secure_aggregation=True)


def test_what_is_by_party_is_absent():
    masked = simulate("moments", TABLES, secure_aggregation=True)
    assert masked.parties == {f"party {k}": 0 for k in range(4)}
    assert masked.influence == {}
    assert masked.total_rows == 240


def test_comparisons_with_the_truth_run_without_it():
    method = find("lingam")
    one, other = (
        baselines(method.strategy(**options), method.client, TABLES, FED.truth.names, FED.truth)
        for options in ({}, {"secure_aggregation": True, "min_parties": 4})
    )
    assert one == other
    assert one["pooled"]


def test_the_order_of_the_parties_changes_no_bit():
    one, other = (
        simulate("moments", tables, secure_aggregation=True) for tables in (TABLES, TABLES[::-1])
    )
    np.testing.assert_array_equal(one.graph.weights, other.graph.weights)


def transcript(tables, method=None, **options):
    """All replies of a run, in their order by exchange and party."""
    grid = spy(tables)
    run(method or Moments(secure_aggregation=True, **options), grid)
    return [reply.content for reply in grid.replies]


def test_replies_hold_nothing_but_names_flags_keys_and_masked_words():
    replies = transcript(TABLES, NotearsADMM(secure_aggregation=True, max_rounds=6))
    schema, rest = replies[:4], replies[4:]
    sums = [content for content in rest if "masked" in content["arrays"]]
    assert len(sums) == 4 * 7
    for content in rest:
        assert set(content) == {"arrays", "metrics"}
        assert set(content["metrics"]) == {"num-examples", "round"}
        assert content["metrics"]["num-examples"] == 1.0
        arrays = records.arrays_of(content)
        assert arrays.keys() == {"masked"} or arrays["keys"].shape == (4, 32)
    for content in schema:
        values = records.config_of(content)
        assert len(bytes.fromhex(values.pop("public-key"))) == 32
        assert (values["rows"], values["dropped-rows"], values["has-sums"]) == (0, 0, 0)
        assert set(values["missing"] + values["infinite"] + values["distinct-one"]) == {0}
        assert values["means"] == values["remainders"] == values["squares"] == []
        assert "dominated" not in values
        assert not any(isinstance(value, float) for value in values.values())
    lengths = set()
    for content in sums:
        (vector,) = records.arrays_of(content).values()
        assert vector.dtype == np.uint64
        lengths.add(vector.size)
        # No word is small, as those of the frame and of the sums' high digits are.
        assert (np.minimum(vector, -vector) > 2**30).all()
    # Behind a vector are the encrypted shares for three neighbours.
    assert lengths == {2 + 9 * 31 + 18, 2 + 25 + 18, 2 + 36 + 18}


def test_a_party_logs_what_the_server_cannot_find(caplog):
    """Its report has no numbers, from which the server would find multiples and far values."""
    given = [table.copy() for table in TABLES]
    names = given[0].columns
    for table in given:
        table[names[1]] = 2.0 * table[names[0]]
        table.loc[3, names[2]] = -9999.0
    grid = spy(given)
    found = run(Moments(secure_aggregation=True), grid)
    assert f"Column {names[1]!r} is a multiple of {names[0]!r}" in caplog.text
    assert f"far outside all others: {names[2]!r} (1 row at party 'party 0')" in caplog.text
    assert not any("far outside" in text for text in found.warnings)
    for reply in grid.replies[: len(given)]:
        assert set(records.config_of(reply.content)["far"]) == {0}


def test_two_runs_of_one_seed_have_different_transcripts_and_one_result():
    one, other = transcript(TABLES), transcript(TABLES)
    for content, again in zip(one[4:], other[4:], strict=True):
        (vector,), (second,) = (records.arrays_of(each).values() for each in (content, again))
        assert (vector.view(np.uint64) != second.view(np.uint64)).all()
    keys = {records.config_of(content)["public-key"] for content in one[:4] + other[:4]}
    assert len(keys) == 8


def test_a_lost_reply_is_sent_again_with_the_same_bytes():
    seen = []

    class Losing(Relay):
        """A grid that loses the replies of the first party the first time."""

        def __init__(self, grid):
            super().__init__(grid)
            self.lost = set()

        def after(self, messages, replies):
            number = records.config_of(messages[0].content).get("round", "schema")
            seen.append((number, {r.metadata.src_node_id: r.content for r in replies}))
            first = number not in self.lost
            self.lost.add(number)
            return replies[1:] if first else replies

    options = {"secure_aggregation": True, "max_rounds": 6, "quorum": 1.0}
    clean = simulate("notears-admm", TABLES, **options)
    run_ = simulate("notears-admm", TABLES, wrap_grid=Losing, **options)
    np.testing.assert_array_equal(run_.graph.weights, clean.graph.weights)
    assert run_.status == "completed"
    for (number, replies), (same, again) in zip(seen[::2], seen[1::2], strict=True):
        assert number == same
        assert len(again) == 1  # the others are not asked again
        if number != "schema":
            ((node, content),) = again.items()
            vectors = (records.arrays_of(each)["masked"] for each in (replies[node], content))
            np.testing.assert_array_equal(*vectors)


def test_where_all_must_reply_nobody_is_asked_for_a_smaller_sum():
    grid = disturbed(TABLES, raising(2, {2}, attempts=9))
    with pytest.raises(FederationError, match="no usable reply of party 2, and with secure_aggr"):
        run(NotearsADMM(secure_aggregation=True, max_rounds=6, quorum=1.0), grid)
    asked = [records.config_of(m.content)["round"] for m in grid.training_messages]
    assert asked == [0] * 4 + [1] * 4 + [2] * (4 + 3)


class Altering(Relay):
    """A grid that adds 2^60 to words of the replies of some parties in one exchange."""

    def __init__(self, grid, exchange, word, parties):
        super().__init__(grid)
        self.exchange, self.word, self.left = exchange, word, parties

    def after(self, messages, replies):
        for reply in replies:
            arrays = records.arrays_of(reply.content)
            if (
                "masked" in arrays
                and self.left
                and reply.content["metrics"]["round"] == self.exchange
            ):
                self.left -= 1
                vector = arrays["masked"].copy()
                vector[[self.word]] += np.uint64(2**60)
                reply.content["arrays"] = records.pack_arrays({"masked": vector})
        return replies


# Of the totals: the frame, the number of rows. Of the moments: the frame, a diagonal entry, one
# beside it, whose counterpart is then another number.
@pytest.mark.parametrize(("exchange", "word"), [(0, 0), (0, 7), (0, -1), (1, 0), (1, 7), (1, 2)])
@pytest.mark.parametrize("quorum", [0.5, 1.0])
def test_an_altered_reply_is_found(exchange, word, quorum):
    if quorum < 1 and word < 0:
        word = 2 + 9 * 31 - 1
    with pytest.raises(FederationError):
        simulate(
            "moments",
            TABLES,
            secure_aggregation=True,
            quorum=quorum,
            wrap_grid=lambda grid: Altering(grid, exchange, word, 1),
        )


def test_a_false_total_names_no_party():
    with pytest.raises(FederationError, match="Which party it comes from cannot be known"):
        simulate(
            "moments",
            TABLES,
            secure_aggregation=True,
            wrap_grid=lambda grid: Altering(grid, 1, 2, 4),
        )


def test_a_party_can_insist():
    configs = [{"partition-id": k, "num-partitions": 4} for k in range(4)]
    configs[2]["secure-aggregation"] = True
    grid = spy(TABLES, node_configs=configs)
    assert run(Moments(secure_aggregation=True), grid).status == "completed"
    grid = spy(TABLES, node_configs=configs)
    with pytest.raises(DataError, match="party 2: Its node config has secure-aggregation=true"):
        run(Moments(), grid)
    told = next(c for m in grid.replies if (c := records.config_of(m.content))["partition-id"] == 2)
    assert set(told) == {"error", "party", "version", "partition-id"}
    # Nor does it answer a later message of a run without it.
    reply = ask(grid, list(grid.get_node_ids())[2], {}, setup=setup_for(TABLES))
    assert "adds nothing up securely" in reply.error.reason


def test_a_report_with_numbers_is_refused(monkeypatch):
    monkeypatch.setattr(secure, "withheld", lambda report, handling, party: report)
    with pytest.raises(FederationError, match="it does not withhold its numbers"):
        simulate("moments", TABLES, secure_aggregation=True)


def state_after(token="a", number=3, vector=b"x"):
    state = RecordDict()
    secure.offer_key(state, running=False)
    setup = secure.Sums(token, 0, ("k1", "k2", "k3"), 3)
    state[secure.SECURE] = ConfigRecord(
        secure.answered(dict(state[secure.SECURE]), setup, number, vector)
    )
    return state, setup


def test_a_party_answers_an_exchange_again_with_the_same_vector_only():
    state, setup = state_after()
    record = dict(state[secure.SECURE])
    assert secure.answered(record, setup, 3, b"x") == record
    with pytest.raises(FederationError, match="would reveal their difference"):
        secure.answered(record, setup, 3, b"y")
    with pytest.raises(FederationError, match="came after that of exchange 3"):
        secure.answered(record, setup, 2, b"x")
    secure.answered(record, setup, 4, b"z")


def test_a_party_answers_no_earlier_agreement_and_no_other_keys():
    state, setup = state_after("first")
    second = setup._replace(token="second")
    record = secure.answered(dict(state[secure.SECURE]), second, 1, b"x")
    with pytest.raises(FederationError, match="earlier agreement"):
        secure.answered(record, setup, 9, b"x")
    for token in ("second", "third"):
        other = secure.Sums(token, 0, ("k1", "k2", "k4"), 3)
        with pytest.raises(FederationError, match="keys are not those"):
            secure.answered(record, other, 9, b"x")
    # The totals are asked for once a run: again, they could be those of others.
    with pytest.raises(FederationError, match="keys are not those"):
        secure.answered(record, setup._replace(token="third"), 0, b"x")


def test_a_key_is_kept_until_it_is_in_use_and_then_for_its_run_only():
    state, _ = state_after()
    own = secure.offer_key(state, running=True)
    assert secure.offer_key(state, running=True) == own
    new = secure.offer_key(state, running=False)
    assert new != own
    assert secure.offer_key(state, running=False) == new


def test_two_parties_are_refused_and_a_larger_minimum_is_kept():
    with pytest.raises(ConfigError, match="there are 2 parties; 'min_parties' asks for 3"):
        simulate("moments", TABLES[:2], secure_aggregation=True)
    with pytest.raises(ConfigError, match="'min_parties' asks for 5"):
        simulate("moments", TABLES, secure_aggregation=True, min_parties=5)
    with pytest.raises(ConfigError, match="'min_parties' is 2; it must be 3 or more"):
        simulate("moments", TABLES, secure_aggregation=True, min_parties=2)
    with pytest.raises(ConfigError, match="which is for secure_aggregation=True"):
        simulate("moments", TABLES, min_parties=4)


REFUSED = [
    ("moments", {"aggregation": "median"}, "'aggregation'"),
    ("moments", {"fraction_train": 0.5}, "'fraction_train'"),
    ("moments", {"leave_one_out": True}, "'leave_one_out'"),
    ("moments", {"changed_tables": "restart"}, "'changed_tables'"),
    ("2dbn", {"center": "phase"}, "'center'"),
    ("fedges", {"mode": "fusion"}, "'mode'"),
    ("fedges", {"mode": "scores", "start": "driven"}, "'start'"),
    ("fedcausal", {"local_graphs": True}, "'local_graphs'"),
    ("fedpc", {"training": "one-pass"}, "'training'"),
    ("fedpc", {"missing_values": "keep"}, "'missing_values'"),
]


@pytest.mark.parametrize(("method", "options", "named"), REFUSED)
def test_what_is_no_sum_is_refused_by_name_before_anything_is_sent(method, options, named):
    asked = []
    with pytest.raises(ConfigError, match=re.escape(named)):
        simulate(
            method,
            TABLES if method != "2dbn" else SERIES,
            secure_aggregation=True,
            wrap_grid=lambda grid: asked.append(grid) or grid,
            **options,
        )
    assert not asked


def test_every_method_either_has_it_or_says_why_not():
    has = set()
    for method in OWN_METHODS:
        with suppress(ConfigError):
            find(method).strategy(secure_aggregation=True)
            has.add(method)
    assert has == set(OWN_METHODS)


def test_rows_of_fewer_than_three_parties_are_not_summed_by_themselves():
    tables = [*TARGETS[:2], *(table.assign(by="") for table in TABLES[2:])]
    options = {"secure_aggregation": True, "intervention_column": "by"}
    with pytest.raises(DataError, match="intervention on x1 are at party 0, party 1 only"):
        simulate("moments", tables, **options)


def test_parties_check_themselves_what_the_server_cannot_see():
    holes = [TABLES[0], TABLES[1].assign(x2=np.nan), *TABLES[2:]]
    with pytest.raises(DataError, match=r"party 1.*column 'x2': 60 missing values"):
        simulate("moments", holes, secure_aggregation=True, missing_values="fail")
    short = [*TABLES[:3], TABLES[3].iloc[:1]]
    with pytest.raises(DataError, match=r"party 3.*the table has 1 row"):
        simulate("moments", short, secure_aggregation=True)


def test_columns_of_one_value_and_copies_are_found_as_without_it():
    same = [table.assign(c=1e-7) for table in TABLES]
    with pytest.raises(DataError, match="column 'c': constant, one value in all rows"):
        simulate("moments", same, secure_aggregation=True, constant_columns="fail")
    dropped = simulate("moments", same, secure_aggregation=True)
    assert dropped.config["assumed"] == {"constant_columns": "drop"}
    assert dropped.graph.names == tuple(TABLES[0].columns)
    by_party = [table.assign(c=float(k)) for k, table in enumerate(TABLES)]
    assert "c" in simulate("moments", by_party, secure_aggregation=True).graph.names
    with pytest.raises(DataError, match="'c' does not vary within any party"):
        simulate("moments", by_party, secure_aggregation=True, center="party")
    copied = [table.assign(c=table["x0"]) for table in TABLES]
    with pytest.raises(DataError, match="'c': the same values as column 'x0'"):
        simulate("moments", copied, secure_aggregation=True)


def test_units_of_any_size_and_large_means_cost_no_digits():
    factors = np.array([1e-9, 1.0, 1e8, 1e-3, 1e5])
    tables = [table * factors + 1e3 * factors for table in TABLES]
    options = {"standardize": True, "solver": "order"}
    plain = simulate("moments", tables, **options)
    masked = simulate("moments", tables, secure_aggregation=True, **options)
    np.testing.assert_allclose(masked.graph.weights, plain.graph.weights, rtol=0, atol=1e-10)


def test_rows_with_missing_values_are_dropped_as_without_it():
    rng = np.random.default_rng(0)
    holes = [
        table.mask(pd.DataFrame(rng.random(table.shape) < 0.05, table.index, table.columns))
        for table in TABLES
    ]
    plain = simulate("moments", holes, missing_values="drop")
    masked = simulate("moments", holes, missing_values="drop", secure_aggregation=True)
    np.testing.assert_allclose(masked.graph.weights, plain.graph.weights, rtol=0, atol=1e-12)
    assert masked.num_rows == plain.total_rows < 240


def test_a_run_goes_on_after_an_interruption(tmp_path):
    options = {"secure_aggregation": True, "max_rounds": 6, "output_dir": tmp_path}
    with pytest.raises(KilledError):
        simulate("notears-admm", TABLES, wrap_grid=lambda grid: Killing(grid, 3), **options)
    resumed = simulate("notears-admm", TABLES, resume=True, **options)
    clean = simulate("notears-admm", TABLES, **{**options, "output_dir": None})
    np.testing.assert_array_equal(resumed.graph.weights, clean.graph.weights)
    assert resumed.num_rows == 240


def test_a_node_that_lost_its_key_takes_no_part_any_more():
    def forgetting(partition, config, context):
        if partition == 1 and config["round"] == 2:
            context.state.clear()

    options = {"secure_aggregation": True, "max_rounds": 6}
    with pytest.raises(CausalError, match="has lost its key"):
        run(NotearsADMM(quorum=1.0, **options), disturbed(TABLES, forgetting))
    found = run(NotearsADMM(**options), disturbed(TABLES, forgetting))
    assert [record["parties"] for record in found.history] == [4, 3, 3, 3, 3, 3]
    assert {failure.party for failure in found.failures} == {"party 1"}

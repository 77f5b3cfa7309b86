"""The loop: its records, its end, its going on, and its errors."""

import numpy as np
import pytest
from federations import SpyGrid, app_of, disturbed, make_federation, spy
from flwr.serverapp.strategy import FedAvg
from server_states import states_of

from flwr_causal.app.methods import build
from flwr_causal.core.consensus import admm as admm_core
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol import records
from flwr_causal.runtime.algorithm import Ask, Result
from flwr_causal.sources.sums import SUMS
from flwr_causal.strategies import CausalStrategy, Moments, NotearsADMM, run

FED = make_federation(d=5, n=240, parties=3)
TABLES = FED.tables
RECORD = {"round", "exchange", "parties", "seconds", "bytes_sent", "bytes_received"}
DIAGNOSTICS = {"h", "consensus", "changed", "num_edges"}


def admm(**options):
    return NotearsADMM(**{"max_rounds": 12, **options})


def test_the_history_has_a_record_for_each_round():
    seen = []
    outcome = run(admm(), spy(TABLES), on_round=lambda record: seen.append(dict(record)))
    assert seen == outcome.history
    assert [r["round"] for r in outcome.history] == list(range(1, 13))
    assert [r["exchange"] for r in outcome.history] == ["round"] * 11 + ["refit"]
    for record in outcome.history:
        assert set(record) >= RECORD
        assert record["exchange"] == "refit" or set(record) >= DIAGNOSTICS
        assert record["seconds"] > 0
        assert record["bytes_sent"] == 3 * record["party_bytes_sent"]
        assert record["bytes_received"] == 3 * record["party_bytes_received"]
        assert list(record["party_seconds"]) == ["party 0", "party 1", "party 2"]
        assert 0 <= max(record["party_seconds"].values()) <= record["seconds"]
    assert outcome.rounds == 12
    assert outcome.bytes_sent == sum(r["bytes_sent"] for r in outcome.history)
    assert outcome.seconds >= sum(r["seconds"] for r in outcome.history)
    assert [(p.name, p.num_rows, p.partition_id) for p in outcome.parties] == [
        ("party 0", 80, 0),
        ("party 1", 80, 1),
        ("party 2", 80, 2),
    ]


def test_the_end_is_given_a_reason():
    assert "11 rounds are done" in run(admm(), spy(TABLES)).stop_reason
    assert "one exchange" in run(Moments(), spy(TABLES)).stop_reason


def test_a_strategy_is_as_good_as_new_after_a_run():
    method = admm()
    first = run(method, spy(TABLES))
    assert method.state is None
    assert method._federation is None
    assert run(method, spy(TABLES)).graph.equals(first.graph)


def test_several_runs_over_the_same_nodes():
    """As in a user's ServerApp that compares methods: one Flower run, one set of contexts."""
    grid = spy(TABLES)
    for method in (admm(), Moments(), admm(standardize=True), admm()):
        fresh = run(method, spy(TABLES))
        again = run(method, grid)
        assert again.graph.equals(fresh.graph), method
        assert again.failures == ()
        assert again.bytes_sent == fresh.bytes_sent


def test_a_run_goes_on_from_a_saved_state():
    def broken(partition, config, context):
        if config["round"] >= 15:
            raise RuntimeError("power cut")

    method = admm(max_rounds=20)
    with pytest.raises(FederationError) as caught:
        run(method, disturbed(TABLES, broken))
    saved = caught.value.outcome.state
    with states_of(admm_core) as states:
        outcome = run(method, spy(TABLES), state=saved)
    assert outcome.rounds == 20 - 14
    assert states[-1].round == 19
    assert np.array_equal(outcome.graph.adjacency, FED.weights != 0)


def test_a_run_is_over_once_nothing_is_asked():
    asked = []
    method = admm()
    run(method, spy(TABLES), on_round=lambda record: asked.append(bool(method.state.asked)))
    assert asked == [True] * 11 + [False]


def test_further_values_reach_the_clients_without_hiding_the_methods_own():
    grid = spy(TABLES)
    run(admm(), grid, config={"site": "A", "round": 99, "exchange": "?", "penalty": -1.0})
    for index, message in enumerate(grid.training_messages):
        values = records.config_of(message.content)
        assert values["site"] == "A"
        assert values["round"] == index // 3 + 1
        assert values["exchange"] in ("round", "refit")
        assert values["exchange"] == "refit" or values["penalty"] > 0


def test_messages_have_a_deadline_and_their_round():
    grid = spy(TABLES)
    run(admm(round_timeout=77.0), grid)
    for message in grid.sent:
        assert message.metadata.ttl == 77.0
    assert [m.metadata.group_id for m in grid.training_messages[:6]] == ["1"] * 3 + ["2"] * 3


def test_a_wrapper_must_stand_around_the_method():
    grid = spy(TABLES)
    with pytest.raises(ConfigError, match="does not wrap the method"):
        run(admm(), grid, strategy=FedAvg())
    assert not grid.sent


def test_wrong_knowledge_ends_the_run_before_training():
    from flwr_causal.core.graphs.knowledge import Knowledge

    grid = spy(TABLES)
    with pytest.raises(ConfigError, match="nowhere") as caught:
        run(admm(knowledge=Knowledge(forbidden=(("nowhere", "x0"),))), grid)
    assert not grid.training_messages
    assert caught.value.outcome.rounds == 0


def test_errors_keep_what_was_done_also_without_a_graph():
    with pytest.raises(DataError) as caught:
        run(admm(), spy([TABLES[0], TABLES[1].iloc[:1]]))
    outcome = caught.value.outcome
    assert outcome.graph is None
    assert outcome.rounds == outcome.bytes_sent == 0
    assert outcome.seconds > 0


# The answer does not depend on how the federation is told.


@pytest.mark.parametrize("method", ["notears-admm", "moments"])
def test_the_order_of_the_parties_changes_only_rounding(method):
    options = {"max_rounds": 12} if method == "notears-admm" else {}
    one = run(build(method, options), spy(TABLES))
    other = run(build(method, options), spy(TABLES[::-1]))
    assert np.array_equal(one.graph.adjacency, other.graph.adjacency)
    np.testing.assert_allclose(one.graph.weights, other.graph.weights, atol=1e-6)


@pytest.mark.parametrize("method", ["notears-admm", "moments"])
def test_columns_are_matched_by_name(method):
    options = {"max_rounds": 12} if method == "notears-admm" else {}
    permuted = [TABLES[0], TABLES[1][["x3", "x0", "x4", "x2", "x1"]], TABLES[2].iloc[:, ::-1]]
    one = run(build(method, options), spy(TABLES))
    other = run(build(method, options), spy(permuted))
    assert other.graph.names == ("x0", "x1", "x2", "x3", "x4")
    assert np.array_equal(one.graph.adjacency, other.graph.adjacency)
    np.testing.assert_allclose(one.graph.weights, other.graph.weights, atol=1e-9)


@pytest.mark.parametrize("method", ["notears-admm", "moments"])
def test_the_order_of_the_columns_changes_only_rounding(method):
    options = {"max_rounds": 12} if method == "notears-admm" else {}
    names = ["x3", "x0", "x4", "x2", "x1"]
    order = [TABLES[0].columns.get_loc(name) for name in names]
    one = run(build(method, options), spy(TABLES)).graph
    other = run(build(method, options), spy([table[names] for table in TABLES])).graph
    assert other.names == tuple(names)
    assert np.array_equal(one.adjacency[np.ix_(order, order)], other.adjacency)
    np.testing.assert_allclose(one.weights[np.ix_(order, order)], other.weights, atol=1e-4)


def test_the_engine_is_any_grid():
    """Nothing but the public methods of Flower's Grid is used."""

    class Stripped(SpyGrid):
        def context(self, node_id):
            raise AssertionError("the strategies must not look into nodes")

        def create_message(self, *args, **kwargs):
            raise AssertionError("deprecated in Flower")

    assert run(admm(), Stripped(app_of(TABLES), 3)).rounds == 12


class Endless(Moments):
    """A method whose end never comes, as a mistake in ``train`` would have it."""

    def validate(self):
        """Take any number of rounds."""

    def train(self, agreement, replicate=0):
        graph = CausalGraph(agreement.names, np.zeros((len(agreement.names),) * 2))
        while True:
            yield Ask(SUMS, so_far=lambda: Result(graph))


@pytest.mark.parametrize("beyond", [0, 3])
def test_a_method_that_never_finishes_ends_after_its_exchanges(beyond, monkeypatch):
    monkeypatch.setattr(Endless, "exchanges_beyond", beyond)
    with pytest.raises(FederationError, match=r"'moments'.*max_rounds=2.*train\(\)") as caught:
        run(Endless(max_rounds=2), spy(TABLES))
    assert caught.value.outcome.rounds == 2 + beyond
    assert caught.value.outcome.graph is not None


def test_a_method_that_states_no_number_of_exchanges_ends_all_the_same(monkeypatch):
    monkeypatch.setattr("flwr_causal.runtime.method.UNSTATED", 7)
    monkeypatch.setattr(Endless, "exchanges_beyond", CausalStrategy.exchanges_beyond)
    with pytest.raises(FederationError, match="after 8 exchanges"):
        run(Endless(), spy(TABLES))


def test_replicates_of_a_method_that_never_finishes_end_too(monkeypatch):
    monkeypatch.setattr(Endless, "exchanges_beyond", 0)
    with pytest.raises(FederationError, match="has not finished"):
        run(Endless(max_rounds=3, replicates=2), spy(TABLES))

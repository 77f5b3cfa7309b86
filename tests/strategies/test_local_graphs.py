"""FedCausal with ``local_graphs``: one more exchange that tells where parties differ."""

import numpy as np
import pandas as pd
import pytest
from federations import adjacency_of, disturbed, once, raising, spy
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping
from mixed_parties import CHAIN, differing_parties
from server_states import states_of

from flwr_causal import simulate
from flwr_causal.clients import FedCausalClient
from flwr_causal.core.fedcausal import evidence_search
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.fedcausal import LOCAL
from flwr_causal.strategies import run
from flwr_causal.strategies.fedcausal import FedCausal

PARTIES = differing_parties(missing=1)
NAMES = tuple(PARTIES[0].columns)
WRONG = ("x3", "x2")
ARRAYS = {"own-graph", "support", "own-shares"}


def method_of(parties, options):
    return FedCausal(min_available_nodes=len(parties), **{"local_graphs": True, **options})


@once
def undisturbed(parties, **options):
    return run(method_of(parties, options), spy(parties))


def found(parties=PARTIES, grid=None, **options):
    if grid is None:
        return undisturbed(parties, **options)
    return run(method_of(parties, options), grid)


def arrows(graph):
    return sorted(edge[:2] for edge in graph.edges())


@pytest.fixture(scope="module")
def outcome():
    return found()


def test_the_edge_that_one_party_lacks(outcome):
    assert arrows(outcome.graph) == CHAIN
    table = outcome.heterogeneity.edges
    assert len(table) == 5 * 4
    against = table[table["support"] < 0]
    (row,) = against.to_dict("records")
    assert (row["party"], row["cause"], row["effect"]) == ("party 1", *WRONG)
    assert row["own"] == "absent"
    # -23, where all others have 29 or more, when measured
    assert row["support"] < -15.0
    assert row["strength"] < 0.1
    rest = table.drop(against.index)
    assert set(rest["own"]) == {"same"}
    assert rest["support"].min() > 20.0
    graphs = outcome.heterogeneity.graphs
    assert list(graphs) == [f"party {k}" for k in range(5)]
    for name, graph in graphs.items():
        assert arrows(graph) == [e for e in CHAIN if name != "party 1" or e != WRONG]
        assert graph.names == NAMES
    weights = table.pivot_table("strength", ["cause", "effect"], "party")
    for (cause, effect), row in weights.iterrows():
        i, j = NAMES.index(cause), NAMES.index(effect)
        for name, graph in graphs.items():
            assert graph.adjacency[i, j] * row[name] == graph.weights[i, j]


def test_an_edge_of_one_party_alone():
    outcome = found(differing_parties(extra=3))
    assert arrows(outcome.graph) == CHAIN
    table = outcome.heterogeneity.edges
    (row,) = table[(table["own"] != "same") & (table["disagreement"] > 3)].to_dict("records")
    assert (row["party"], row["cause"], row["effect"]) == ("party 3", "x0", "x4")
    assert (row["own"], row["common"]) == ("additional", False)
    # 9 when measured
    assert row["support"] == row["disagreement"] > 5.0
    assert arrows(outcome.heterogeneity.graphs["party 3"]) == sorted([*CHAIN, ("x0", "x4")])


def test_an_own_graph_is_that_of_the_method_on_the_party_alone(outcome):
    for table, own in zip(PARTIES, outcome.heterogeneity.graphs.values(), strict=True):
        alone = simulate("fedcausal", [table]).graph
        assert np.array_equal(alone.adjacency, own.adjacency)
        np.testing.assert_allclose(own.weights, alone.weights, atol=1e-9)


@pytest.mark.few(1)
@pytest.mark.parametrize("options", [{}, {"noise": "equal", "standardize": True}], ids=str)
def test_support_sums_to_what_the_search_found(options):
    grid = spy(PARTIES)
    edges = found(grid=grid, **options).graph.adjacency
    with states_of(evidence_search) as states:
        found(grid=spy(PARTIES), local_graphs=False, **options)
    best = next(one for one in reversed(states) if np.array_equal(one.graph, edges))
    total = sum(records.arrays_of(reply.content)["support"] for reply in grid.replies[-5:])
    np.testing.assert_allclose(total[edges], evidence_search.support(best)[edges], atol=1e-6)


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"refine": "none"}, {"model": "linear"}, {"model": "linear", "refine": "evidence"}],
    ids=str,
)
def test_one_more_exchange_and_the_same_common_graph(options):
    without, with_them = found(local_graphs=False, **options), found(**options)
    assert with_them.rounds == without.rounds + 1
    assert [r["exchange"] for r in with_them.history][-1] == "local graphs"
    assert with_them.graph.equals(without.graph)
    assert with_them.stop_reason == without.stop_reason
    assert without.heterogeneity is None
    table, graph = with_them.heterogeneity.edges, without.graph
    listed = table[(table["party"] == "party 2") & table["common"]]
    assert sorted(zip(listed["cause"], listed["effect"], strict=True)) == arrows(graph)
    own = with_them.heterogeneity.graphs["party 1"]
    assert own.is_acyclic()
    assert not own.adjacency[NAMES.index("x3"), NAMES.index("x2")]


def test_by_flowers_own_start(outcome):
    started = FedCausal(local_graphs=True, min_available_nodes=5).start(grid=spy(PARTIES))
    weights = records.unpack_arrays(started.arrays)["weights"]
    np.testing.assert_array_equal(weights, outcome.graph.weights)
    mine = started.outcome.heterogeneity.edges
    pd.testing.assert_frame_equal(mine, outcome.heterogeneity.edges)


@pytest.mark.slow
def test_a_saved_state_goes_on_with_the_last_exchange(outcome):
    def failing(partition, config, context):
        if config["exchange"] == "local graphs":
            raise RuntimeError("power cut")

    with pytest.raises(FederationError) as caught:
        found(grid=disturbed(PARTIES, failing))
    before = caught.value.outcome.state
    method = FedCausal(local_graphs=True, min_available_nodes=5)
    again = run(method, spy(PARTIES), state=before)
    assert again.rounds == 1
    pd.testing.assert_frame_equal(again.heterogeneity.edges, outcome.heterogeneity.edges)


@pytest.mark.slow
def test_the_exchange_is_reserved():
    assert FedCausal(local_graphs=True).options.max_rounds == FedCausal().options.max_rounds + 1
    short, reserved = found(local_graphs=False, max_rounds=4), found(max_rounds=5)
    assert (short.rounds, reserved.rounds) == (4, 5)
    assert reserved.graph.equals(short.graph)
    assert found(max_rounds=5, refine="none").rounds == 5


@pytest.mark.slow
def test_after_perceptrons():
    pytest.importorskip("torch")
    outcome = found(model="mlp", max_rounds=4, inner_steps=10)
    assert [record["exchange"] for record in outcome.history] == ["norms"] * 3 + ["local graphs"]
    assert set(outcome.heterogeneity.graphs) == {f"party {k}" for k in range(5)}


def test_the_order_of_parties_does_not_matter(outcome):
    other = found(PARTIES[::-1])
    for k in range(5):
        one, same = f"party {k}", f"party {4 - k}"
        mine, theirs = outcome.heterogeneity.graphs[one], other.heterogeneity.graphs[same]
        np.testing.assert_array_equal(mine.weights, theirs.weights)
        tables = [
            run.heterogeneity.edges.query("party == @name").drop(columns="party")
            for run, name in ((outcome, one), (other, same))
        ]
        pd.testing.assert_frame_equal(*(table.reset_index(drop=True) for table in tables))


@pytest.mark.slow
def test_names_do_not_matter(outcome):
    order = [NAMES[k] for k in np.random.default_rng(0).permutation(5)]
    other = found([table[order] for table in PARTIES])
    for name, graph in other.heterogeneity.graphs.items():
        same = outcome.heterogeneity.graphs[name]
        assert np.array_equal(adjacency_of(graph, NAMES), same.adjacency)


def test_knowledge_is_honoured():
    graphs = found(knowledge=Knowledge(required=[WRONG])).heterogeneity.graphs
    assert all(WRONG in arrows(graph) for graph in graphs.values())
    table = found(knowledge=Knowledge(required=[WRONG])).heterogeneity.edges
    (row,) = table[table["support"] < 0].to_dict("records")
    assert (row["party"], row["own"]) == ("party 1", "same")
    tiers = Knowledge(tiers=[["x2", "x3"], ["x1"], ["x0", "x4"]])
    for graph in found(knowledge=tiers).heterogeneity.graphs.values():
        assert ("x0", "x1") not in arrows(graph)
        assert ("x1", "x2") not in arrows(graph)


@pytest.mark.slow
def test_options_of_the_search_reach_the_parties():
    """After a model without a search the noise and the candidates are those of the local one."""
    options = {"refine": "none", "noise": "equal", "candidates": 2}
    grid = spy(PARTIES)
    equal, own = found(grid=grid, **options), found(refine="none")
    assert grid.of_exchange("local graphs")
    for message in grid.of_exchange("local graphs"):
        assert records.config_of(message.content)["candidates"] == 2
    one, other = (run.heterogeneity.edges["support"].to_numpy() for run in (equal, own))
    assert len(one) != len(other) or not np.allclose(one, other)


# Failures.


def test_a_party_that_fails_in_the_last_exchange_is_left_out(outcome):
    last = outcome.rounds
    failed = found(grid=disturbed(PARTIES, raising(2, {last}, attempts=2)))
    assert failed.graph.equals(outcome.graph)
    assert [(f.server_round, f.party) for f in failed.failures] == [(last, "party 2")]
    names = [f"party {k}" for k in (0, 1, 3, 4)]
    assert list(failed.heterogeneity.graphs) == names
    assert failed.heterogeneity.edges["party"].unique().tolist() == names


def test_a_party_that_was_restarted_answers_at_the_second_attempt(outcome):
    def forgets(partition, config, context):
        if partition == 2 and config["exchange"] == "local graphs":
            context.state.clear()

    again = found(grid=disturbed(PARTIES, forgets))
    assert not again.failures
    pd.testing.assert_frame_equal(again.heterogeneity.edges, outcome.heterogeneity.edges)


def test_the_graph_stands_where_the_last_exchange_fails(outcome):
    grid = disturbed(PARTIES, raising(2, {outcome.rounds}, attempts=2))
    with pytest.raises(FederationError, match="quorum") as raised:
        found(grid=grid, quorum=1.0)
    assert raised.value.outcome.graph.equals(outcome.graph)
    assert raised.value.outcome.heterogeneity is None


# What leaves a party, and what is refused.


def test_what_leaves_a_party():
    grid = spy(PARTIES)
    outcome = found(grid=grid)
    groups = {m.metadata.group_id for m in grid.of_exchange("local graphs")}
    assert groups == {str(outcome.rounds)}
    replies = [r for r in grid.replies if r.metadata.group_id in groups]
    assert len(replies) == len(grid.of_exchange("local graphs")) == 5
    for reply in replies:
        arrays = records.arrays_of(reply.content)
        assert {name: array.shape for name, array in arrays.items()} == dict.fromkeys(
            ARRAYS, (5, 5)
        )
        assert set(reply.content["metrics"]) == {"num-examples", "round"}
    for message in grid.of_exchange("local graphs"):
        sent = records.arrays_of(message.content)
        assert {name: array.dtype.name for name, array in sent.items()} == {
            "graph": "uint8",
            "start": "uint8",
        }
    declared = {item.name for item in LOCAL.returns}
    assert declared == ARRAYS
    # Without the option nothing of this is asked.
    plain = spy(PARTIES)
    found(grid=plain, local_graphs=False)
    assert not plain.of_exchange("local graphs")


def test_what_is_not_declared_is_refused(outcome):
    class Telling(FedCausalClient):
        def fit(self, parameters, config):
            arrays, weight, _ = super().fit(parameters, config)
            return arrays, weight, {"rows": 1.0} if config["exchange"] == "local graphs" else {}

    class Wide(FedCausalClient):
        def local_graph(self, asked):
            reply = super().local_graph(asked)
            return {**reply, "support": np.vstack([reply["support"]] * 2)}

    for client, name in ((Telling, "rows"), (Wide, "support")):
        grid = spy(PARTIES, client)
        with pytest.raises(FederationError, match="quorum") as raised:
            found(grid=grid)
        errors = [reply.error.reason for reply in grid.replies if reply.has_error()]
        # Each party is asked twice.
        assert len(errors) == 10
        assert all(f"'{name}'" in text and "The reply was not sent" in text for text in errors)
        assert raised.value.outcome.graph.equals(outcome.graph)


@pytest.mark.parametrize(
    ("refine", "words"),
    [("none", "'local graphs' of FedCausal is not averaged"), ("evidence", "'evidence' of FedCau")],
)
def test_privacy_wrappers_are_refused_before_the_first_exchange(refine, words):
    method = FedCausal(local_graphs=True, refine=refine, min_available_nodes=5)
    grid = spy(PARTIES)
    wrapper = DifferentialPrivacyServerSideFixedClipping(method, 1.0, 1.0, 5)
    with pytest.raises(ConfigError, match=rf"FixedClipping.*{words}.*without the wrapper"):
        run(method, grid, strategy=wrapper)
    assert not grid.training_messages


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fraction_train": 0.5}, "it must be 1 with local_graphs=True"),
        ({"max_rounds": 4}, "'max_rounds' is 4; it must be 5 or more"),
        ({"max_rounds": 3, "refine": "none"}, "'max_rounds' is 3; it must be 4 or more"),
        ({"local_graphs": "yes"}, "true or false"),
        (
            {"local_graphs": False, "refine": "none", "noise": "equal"},
            "for refine='evidence' or local_graphs=True",
        ),
    ],
    ids=str,
)
def test_impossible_options(options, words):
    with pytest.raises(ConfigError, match=words):
        FedCausal(**{"local_graphs": True, **options})

"""The bases carry methods that do not average: a toy in which graphs and counts go round.

Each party is sent its neighbour's graph and returns the union with its own; once no graph changes,
all are asked for the counts of the text column's values; afterwards the nodes answer queries. The
data are mixed, one column is constant at one party, and nothing is centred: no sums are exchanged.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from federations import SpyGrid, app_of, disturbed, spy
from flwr.app import Message
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

from flwr_causal.clients import CausalClient, Disclosure
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.check.policy import Policy
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.simulations import simulate
from flwr_causal.strategies import ExchangeStrategy, Reply, Request, run

VALUES = ["high", "low", "none"]


class RingClient(CausalClient):
    """Adds its own edges to a graph; counts; answers queries."""

    sums = False
    discloses = (
        Disclosure("edges", "the graph sent, with the party's own edges", ("d", "d")),
        Disclosure("added", "how many edges are its own"),
        Disclosure("counts", "rows with each value", ("values",), phase="count"),
        Disclosure("shares", "rows of a value, relative", ("*",), phase="query"),
    )

    @property
    def dimensions(self):
        return {**super().dimensions, "values": len(VALUES)}

    def counts(self):
        column = self.source.read()["level"]
        return np.array([(column == value).sum() for value in VALUES])

    def fit(self, parameters, config):
        if config["exchange"] == "count":
            return [self.counts()], 1, {}
        (edges,) = parameters
        own = np.zeros_like(edges)
        # "Party k finds the edge k -> k + 1": enough to follow the graphs on their way.
        own[config["position"], config["position"] + 1] = 1
        both = np.maximum(edges, own)
        return [both], 1, {"added": int((both != edges).sum())}

    def answer(self, parameters, config):
        counts = self.counts()
        return [counts[[VALUES.index(v) for v in config["asked"]]] / counts.sum()], 1, {}


@dataclass(frozen=True)
class RingState:
    """The latest graph of each party, and what is known of this round and in the end."""

    names: tuple[str, ...]
    graphs: dict[str, np.ndarray]
    order: tuple[str, ...] = ()
    added: int | None = None
    counts: np.ndarray | None = None
    shares: dict[str, float] | None = None


@dataclass(kw_only=True, eq=False)
class Ring(ExchangeStrategy[RingState]):
    """Sends each party its neighbour's graph until none grows."""

    method: ClassVar[str] = "ring"
    max_rounds: int = 20

    @property
    def policy(self):
        return Policy(text_columns="keep", constant_columns="keep", missing_values="drop")

    def init(self, agreement):
        d = len(agreement.names)
        return RingState(agreement.names, dict.fromkeys(agreement.rows, np.zeros((d, d), int)))

    def instructions(self, state):
        return {"phase": "count" if state.added == 0 else "train"}

    def requests(self, state, parties):
        names = list(state.graphs)
        positions = [names.index(party.name) for party in parties]
        return [
            Request(
                {"edges": state.graphs[names[position - 1]]},
                {"position": position, "neighbour": names[position - 1]},
            )
            for position in positions
        ]

    def fold(self, state, reply):
        assert isinstance(reply, Reply)
        order = (*state.order, reply.party.name)
        if "counts" in reply.arrays:
            before = 0 if state.counts is None else state.counts
            return replace(state, order=order, counts=before + reply.arrays["counts"])
        graphs = {**state.graphs, reply.party.name: reply.arrays["edges"]}
        added = reply.numbers["added"] + (state.added if state.order else 0)
        return replace(state, order=order, graphs=graphs, added=added)

    def close_round(self, state):
        return replace(state, order=()), {"added": state.added, "order": ",".join(state.order)}

    def finished(self, state):
        return None if state.counts is None else "the ring is closed"

    def graph(self, state):
        first = next(iter(state.graphs.values()))
        return CausalGraph(state.names, first.astype(float))

    def model(self, state):
        return None if state.counts is None else dict(zip(VALUES, state.counts, strict=True))


def make_tables(num_parties=4, rows=12):
    rng = np.random.default_rng(0)
    tables = []
    for index in range(num_parties):
        frame = pd.DataFrame(rng.normal(size=(rows + index, 5)), columns=list("abcde"))
        frame["level"] = rng.choice(VALUES, len(frame))
        tables.append(frame)
    tables[1]["c"] = 3.0
    tables[2].loc[0, "a"] = np.nan
    return tables


TABLES = make_tables()


def test_the_graphs_go_round_and_the_counts_are_summed():
    grid = spy(TABLES, RingClient)
    outcome = run(Ring(), grid)
    names = (*"abcde", "level")
    assert outcome.graph.names == names
    assert {(c, e) for c, e, _ in outcome.graph.edges()} == set(zip("abcd", "bcde", strict=True))
    expected = {v: sum((t["level"] == v).sum() for t in TABLES) for v in VALUES}
    assert outcome.model == expected
    assert outcome.stop_reason == "the ring is closed"
    # An edge needs as many rounds as there are parties to come round; then one shows no change.
    assert [r["exchange"] for r in outcome.history] == ["train"] * 5 + ["count"]
    assert [r["added"] for r in outcome.history] == [4, 4, 4, 4, 0, 0]
    assert np.isnan(outcome.agreement.mean).all()


def test_every_party_is_sent_its_own():
    grid = spy(TABLES, RingClient)
    run(Ring(), grid)
    for message in grid.training_messages:
        values = records.config_of(message.content)
        index = message.metadata.dst_node_id - 2
        assert values["position"] == index
        assert values["neighbour"] == f"party {(index - 1) % 4}"
    second = [records.arrays_of(m.content)["edges"] for m in grid.training_messages[4:8]]
    assert [np.argwhere(edges).tolist() for edges in second] == [
        [[3, 4]],
        [[0, 1]],
        [[1, 2]],
        [[2, 3]],
    ]


def test_replies_are_folded_in_the_parties_order():
    class Backwards(SpyGrid):
        def pull_messages(self, message_ids):
            return super().pull_messages(message_ids)[::-1]

    outcome = run(Ring(), Backwards(app_of(TABLES, RingClient), 4))
    order = "party 0,party 1,party 2,party 3"
    assert {record["order"] for record in outcome.history} == {order}


def test_a_party_that_fails_is_not_folded():
    def fault(partition, config, context):
        if partition == 2 and config["exchange"] == "count":
            raise RuntimeError("gone")

    outcome = run(Ring(), disturbed(TABLES, fault, RingClient))
    assert outcome.history[-1]["order"] == "party 0,party 1,party 3"
    assert sum(outcome.model.values()) == sum(len(t) for i, t in enumerate(TABLES) if i != 2)
    (failure,) = outcome.failures
    assert (failure.party, failure.server_round) == ("party 2", 6)


def test_the_nodes_answer_queries_after_the_run():
    grid = spy(TABLES, RingClient)
    run(Ring(), grid)
    for node_id, table in zip(grid.get_node_ids(), TABLES, strict=True):
        query = Message(
            records.instruction(None, {"phase": "query", "asked": ["none", "high"]}),
            dst_node_id=node_id,
            message_type="query",
            ttl=60.0,
        )
        (reply,) = grid.send_and_receive([query])
        shares = records.arrays_of(reply.content)["shares"]
        expected = [(table["level"] == value).mean() for value in ("none", "high")]
        np.testing.assert_allclose(shares, expected)


@dataclass(kw_only=True, eq=False)
class AskingRing(Ring):
    """Asks the nodes for shares in a last round of queries."""

    def instructions(self, state):
        asked = state.counts is not None
        return {"phase": "query", "asked": ["low"]} if asked else super().instructions(state)

    def message_type(self, state):
        return "train" if state.counts is None else "query"

    def fold(self, state, reply):
        if "shares" not in reply.arrays:
            return super().fold(state, reply)
        shares = {**(state.shares or {}), reply.party.name: float(reply.arrays["shares"][0])}
        return replace(state, shares=shares)

    def finished(self, state):
        return None if state.shares is None else "all have answered"


def test_a_round_may_ask_queries():
    outcome = run(AskingRing(), spy(TABLES, RingClient))
    assert outcome.history[-1]["exchange"] == "query"
    assert outcome.state.shares == {
        f"party {index}": pytest.approx((table["level"] == "low").mean())
        for index, table in enumerate(TABLES)
    }


def test_only_what_is_declared_leaves_here_too():
    class Leaky(RingClient):
        discloses = RingClient.discloses[:2]

    with pytest.raises(FederationError, match="Round 6"):
        run(Ring(), spy(TABLES, Leaky))


def test_bytes_are_counted_for_each_request():
    grid = spy(TABLES, RingClient)
    outcome = run(Ring(), grid)
    sizes = [records.num_bytes(m.content) for m in grid.training_messages[4:8]]
    assert outcome.history[1]["bytes_sent"] == sum(sizes)


def test_privacy_wrappers_are_refused_before_training():
    method, grid = Ring(), spy(TABLES, RingClient)
    wrapper = DifferentialPrivacyServerSideFixedClipping(method, 1.0, 1.0, 4)
    with pytest.raises(ConfigError, match=r"FixedClipping.*Ring.*without the wrapper"):
        run(method, grid, strategy=wrapper)
    assert not grid.training_messages
    with pytest.raises(FederationError, match="does not average"):
        method.server_step(None, {}, 1)


def test_flowers_way_in_and_simulate():
    started = Ring().start(grid=spy(TABLES, RingClient))
    assert started.outcome.model == simulate(Ring(), TABLES, client=RingClient).model
    assert started.outcome.graph.num_edges == 4


def test_sampling_asks_some_parties_only():
    grid = spy(TABLES, RingClient)
    state = RingState((*"abcde", "level"), {f"party {i}": np.zeros((6, 6), int) for i in range(4)})
    outcome: Any = run(Ring(fraction_train=0.5, seed=2), grid, state=state)
    assert {record["parties"] for record in outcome.history} == {2}

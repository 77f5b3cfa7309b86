"""The bases carry methods that do not average: a toy in which graphs and counts go round.

Each party is sent its neighbour's graph and returns the union with its own; once no graph changes,
all are asked for the counts of the text column's values; afterwards the nodes answer queries. The
data are mixed, one column is constant at one party, and nothing is centred: no sums are exchanged.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from federations import SpyGrid, app_of, disturbed, spy
from flwr.app import Message
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping

from flwr_causal.clients import CausalClient, answers
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.data.check.handling import Handling
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import Contract, Disclosure, Exchange, Sent, records
from flwr_causal.simulations import simulate
from flwr_causal.strategies import Ask, CausalOptions, CausalStrategy, Note, Result, run

VALUES = ["high", "low", "none"]


GROW = Exchange(
    "grow",
    "",
    sends=(
        Sent("edges", "the neighbour's graph", ("d", "d")),
        Sent("position", "of the party in the ring"),
        Sent("neighbour", "its name"),
    ),
    returns=(
        Disclosure("edges", "the graph sent, with the party's own edges", ("d", "d"), "mark"),
        Disclosure("added", "how many edges are its own", (), "count"),
    ),
)
COUNT = Exchange(
    "count", "", returns=(Disclosure("counts", "rows with each value", ("v",), "count", "sum"),)
)
ASK = Exchange(
    "ask",
    "",
    sends=(Sent("asked", "values"),),
    returns=(Disclosure("shares", "rows of a value, relative", ("*",), "probability"),),
    query=True,
)
RING = Contract("ring", (GROW, COUNT, ASK), lambda setup: {"v": len(VALUES)}, reports=())


class RingClient(CausalClient):
    """Adds its own edges to a graph; counts; answers queries."""

    contract = RING

    def values(self):
        column = self.source.read()["level"]
        return np.array([(column == value).sum() for value in VALUES])

    def count_rows(self):
        return int(self.source.read().notna().all(axis=1).sum())

    @answers(COUNT)
    def count(self, asked):
        return {"counts": self.values()}

    @answers(GROW)
    def grow(self, asked):
        edges = asked["edges"]
        own = np.zeros_like(edges)
        # "Party k finds the edge k -> k + 1": enough to follow the graphs on their way.
        own[asked["position"], asked["position"] + 1] = 1
        both = np.maximum(edges, own)
        return {"edges": both, "added": np.array((both != edges).sum())}

    @answers(ASK)
    def share(self, asked):
        counts = self.values()
        return {"shares": counts[[VALUES.index(v) for v in asked["asked"]]] / counts.sum()}


@dataclass(frozen=True, kw_only=True)
class RingOptions(CausalOptions):
    max_rounds: int = 20


class Ring(CausalStrategy):
    """Sends each party its neighbour's graph until none grows."""

    contract: ClassVar[Contract] = RING
    options_type = RingOptions

    @property
    def handling(self):
        return Handling(text_columns="keep", constant_columns="keep", missing_values="drop")

    def train(self, agreement, replicate=0):
        d, names = len(agreement.names), list(agreement.rows)
        graphs, added = dict.fromkeys(names, np.zeros((d, d), int)), None
        while added != 0:
            own = {
                name: {
                    "edges": graphs[names[position - 1]],
                    "position": position,
                    "neighbour": names[position - 1],
                }
                for position, name in enumerate(names)
            }
            so_far = partial(Result, self.drawn(agreement, graphs))
            replies = yield Ask(GROW, own=own, so_far=so_far)
            added = sum(int(one) for one in replies.list("added"))
            graphs = {**graphs, **replies.of("edges")}
            yield Note({"added": added, "order": ",".join(replies.parties)})
        graph = self.drawn(agreement, graphs)
        replies = yield Ask(COUNT, so_far=partial(Result, graph))
        yield Note({"added": 0, "order": ",".join(replies.parties)})
        counts = dict(zip(VALUES, replies["counts"], strict=True))
        return Result(graph, model=counts, reason="the ring is closed")

    def drawn(self, agreement, graphs):
        return CausalGraph(agreement.names, next(iter(graphs.values())).astype(float))


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
    assert [r["exchange"] for r in outcome.history] == ["grow"] * 5 + ["count"]
    assert [r["added"] for r in outcome.history] == [4, 4, 4, 4, 0, 0]
    assert np.isnan(outcome.agreement.mean).all()


def test_every_party_is_sent_its_own():
    grid = spy(TABLES, RingClient)
    run(Ring(), grid)
    for message in grid.of_exchange("grow"):
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


def test_replies_come_in_the_parties_order():
    class Backwards(SpyGrid):
        def pull_messages(self, message_ids):
            return super().pull_messages(message_ids)[::-1]

    outcome = run(Ring(), Backwards(app_of(TABLES, RingClient), 4))
    order = "party 0,party 1,party 2,party 3"
    assert {record["order"] for record in outcome.history} == {order}


def test_a_party_that_fails_is_not_counted():
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
            records.request("ask", "ring", 7, {"asked": ["none", "high"]}),
            dst_node_id=node_id,
            message_type="query",
            ttl=60.0,
        )
        (reply,) = grid.send_and_receive([query])
        shares = records.arrays_of(reply.content)["shares"]
        expected = [(table["level"] == value).mean() for value in ("none", "high")]
        np.testing.assert_allclose(shares, expected)


class AskingRing(Ring):
    """Asks the nodes for shares in a last round of queries."""

    def train(self, agreement, replicate=0):
        result = yield from super().train(agreement)
        replies = yield Ask(ASK, {"asked": ["low"]})
        shares = {party: float(own[0]) for party, own in replies.of("shares").items()}
        return replace(result, model=shares, reason="all have answered")


def test_an_exchange_may_be_a_query():
    outcome = run(AskingRing(), spy(TABLES, RingClient))
    assert outcome.history[-1]["exchange"] == "ask"
    assert outcome.model == {
        f"party {index}": pytest.approx((table["level"] == "low").mean())
        for index, table in enumerate(TABLES)
    }


def test_only_what_is_declared_leaves_here_too():
    class Leaky(RingClient):
        @answers(COUNT)
        def count(self, asked):
            return {**super().count(asked), "rows": self.source.read()["a"].to_numpy()}

    grid = spy(TABLES, Leaky)
    with pytest.raises(FederationError, match=r"Exchange 6.*'rows' may not leave"):
        run(Ring(), grid)
    assert not any("rows" in records.arrays_of(r.content) for r in grid.replies if r.has_content())


def test_bytes_are_counted_for_each_request():
    grid = spy(TABLES, RingClient)
    outcome = run(Ring(), grid)
    sizes = [records.num_bytes(m.content) for m in grid.training_messages[4:8]]
    assert outcome.history[1]["bytes_sent"] == sum(sizes)


def test_privacy_wrappers_are_refused_before_training():
    method, grid = Ring(), spy(TABLES, RingClient)
    wrapper = DifferentialPrivacyServerSideFixedClipping(method, 1.0, 1.0, 4)
    with pytest.raises(
        ConfigError, match=r"FixedClipping.*'grow' of Ring is not averaged.*without the wrapper"
    ):
        run(method, grid, strategy=wrapper)
    assert not grid.training_messages


def test_flowers_way_in_and_simulate():
    started = Ring().start(grid=spy(TABLES, RingClient))
    assert started.outcome.model == simulate(Ring(), TABLES, client=RingClient).model
    assert started.outcome.graph.num_edges == 4


def test_sampling_asks_some_parties_only():
    grid = spy(TABLES, RingClient)
    outcome: Any = run(Ring(fraction_train=0.5, seed=2), grid)
    assert {record["parties"] for record in outcome.history} == {2}


# Requests.


def test_a_request_says_only_what_is_declared():
    with pytest.raises(ConfigError, match=r"'count' does not declare 'edges'.*nothing.*Sent"):
        Ask(COUNT, {"edges": np.eye(2)})
    with pytest.raises(ConfigError, match=r"'grow' does not declare 'rows'"):
        Ask(GROW, own={"party 1": {"rows": 3}})


def test_what_a_party_alone_is_sent_goes_before_what_all_are_sent():
    request = Ask(GROW, {"position": 0, "neighbour": "x"}, {"a": {"position": 1}}, {"a", "b"})
    assert request.values_for("a") == {"position": 1, "neighbour": "x"}
    assert request.values_for("b") == {"position": 0, "neighbour": "x"}
    assert [request.asks(name) for name in "abc"] == [True, True, False]
    assert Ask(GROW).asks("c")


@dataclass(frozen=True, kw_only=True)
class SomeOptions(RingOptions):
    chosen: str = "party 1,party 3"


class Some(Ring):
    """Asks some parties for counts, once."""

    options_type = SomeOptions

    def train(self, agreement, replicate=0):
        replies = yield Ask(COUNT, parties=self.options.chosen.split(","))
        yield Note({"order": ",".join(replies.parties)})
        counts = dict(zip(VALUES, replies["counts"], strict=True))
        return Result(model=counts, reason="counted")


@pytest.mark.parametrize("asked", [[1, 3], [2]])
def test_only_the_parties_of_a_request_are_asked(asked):
    """However few, all of them may reply: the quorum is no reason to fail."""
    grid = spy(TABLES, RingClient)
    names = [f"party {k}" for k in asked]
    outcome = run(Some(chosen=",".join(names)), grid)
    assert [m.metadata.dst_node_id - 2 for m in grid.training_messages] == asked
    assert outcome.history[0]["order"] == ",".join(names)
    assert sum(outcome.model.values()) == sum(len(TABLES[k]) for k in asked)
    assert not outcome.failures


def test_the_quorum_of_a_request_for_some_parties():
    def fault(partition, config, context):
        if partition == 3:
            raise RuntimeError("gone")

    with pytest.raises(FederationError, match=r"only 1 parties replied.*asks for 2"):
        run(Some(), disturbed(TABLES, fault, RingClient))


# Replies that the contract does not allow.


class Forging(SpyGrid):
    """Puts other counts into the replies of one node, as often as it is told, or doubles them."""

    def __init__(self, times, doubled=False):
        super().__init__(app_of(TABLES, RingClient), 4)
        self.times, self.doubled, self.forged = times, doubled, 0

    def pull_messages(self, message_ids):
        replies = super().pull_messages(message_ids)
        found = []
        for reply in replies:
            found.append(reply)
            if reply.metadata.src_node_id != 4 or "counts" not in records.arrays_of(reply.content):
                continue
            if self.doubled:
                found.append(reply)
            if self.forged < self.times:
                self.forged += 1
                wrong = records.pack_arrays({"counts": np.array([1, 2, 10**6])})
                reply.content["arrays"] = wrong
        return found


def test_a_refused_reply_is_asked_for_once_more():
    grid = Forging(times=1)
    outcome = run(Ring(), grid)
    assert not outcome.failures
    assert sum(outcome.model.values()) == sum(map(len, TABLES))
    counted = grid.of_exchange("count")
    assert sorted(m.metadata.dst_node_id for m in counted) == [2, 3, 4, 4, 5]
    # A node that has the agreement is not sent it again: one that lost it says so, and then is.
    assert "setup-names" not in records.config_of(counted[-1].content)


def test_a_party_whose_reply_is_refused_twice_is_left_out():
    outcome = run(Ring(), Forging(times=9))
    (failure,) = outcome.failures
    assert (failure.party, failure.server_round) == ("party 2", 6)
    rows = len(TABLES[2]) - 1  # one has a missing value
    assert f"reply was refused: 'counts' is 1e+06, but it is declared as count, at most {rows}" in (
        failure.reason
    )
    assert outcome.history[-1]["parties"] == 3
    assert sum(outcome.model.values()) == sum(len(t) for k, t in enumerate(TABLES) if k != 2)


def test_a_reply_that_comes_twice_counts_once():
    grid = Forging(times=0, doubled=True)
    outcome = run(Ring(), grid)
    assert outcome.history == [
        {**record, **{key: own[key] for key in ("seconds", "party_seconds")}}
        for record, own in zip(
            run(Ring(), spy(TABLES, RingClient)).history, outcome.history, strict=True
        )
    ]
    assert sum(outcome.model.values()) == sum(map(len, TABLES))

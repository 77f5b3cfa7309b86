"""Nodes restarted in mid-run come back by name, and the result is the undisturbed one."""

import numpy as np
import pytest
from category_federations import make_tables
from federations import SpyGrid, make_federation
from flwr.app import Context, Error, Message, RecordDict

from flwr_causal.app.methods import CLIENTS
from flwr_causal.clients import Source, client_app
from flwr_causal.compat import NODE_UNAVAILABLE
from flwr_causal.protocol import records
from flwr_causal.runtime import loop
from flwr_causal.strategies import FedGES, Moments, NotearsADMM, run

TABLES = make_federation(d=4, n=160, parties=3).tables
STATES = make_tables(d=5, n=300, parties=3, seed=4)[0]
NAMES = ("bern", "oslo", "rome")
ROUNDS = 8


class Machines(SpyGrid):
    """Real nodes with names; one is killed before an exchange and started again.

    Parameters
    ----------
    tables : list of DataFrame
    at : int
        The exchange before which the node of "oslo" is killed.
    back : int, default at
        Its new node is connected after the first attempt of this exchange.
    same_id : bool
        Whether it comes back under its id, as with node authentication, and at once.
    name, table
        What it comes back with.
    """

    def __init__(self, tables, at, back=None, same_id=False, name="oslo", table=None):
        self.tables = dict(zip(NAMES, tables, strict=True))
        self.names = dict(zip((2, 3, 4), NAMES, strict=True))
        app = client_app(CLIENTS, self.source)
        configs = [{"name": name, "data-path": "/a.csv"} for name in NAMES]
        super().__init__(app, 3, node_configs=configs)
        self.at, self.back = at, at if back is None else back
        self.same_id, self.name = same_id, name
        self.table = self.tables["oslo"] if table is None else table
        self.looks, self.killed, self.started = 0, None, False

    def source(self, context):
        name = str(context.node_config["name"])
        return Source(name, lambda: self.tables[name])

    def get_node_ids(self):
        self.looks += 1
        return super().get_node_ids()

    def start(self):
        self.tables[self.name] = self.table
        node_id = 3 if self.same_id else 77
        self._contexts[node_id] = Context(
            run_id=self.killed.run_id,
            node_id=node_id,
            node_config={"name": self.name, "data-path": "/a.csv"},
            state=RecordDict(),
            run_config={},
        )
        self.started = True

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        group = messages[0].metadata.group_id
        number = int(group) if group.isdigit() else 0
        if self.killed is None and number == self.at:
            self.killed = self._contexts.pop(3)
            if self.same_id:
                self.start()
        present = [m for m in messages if m.metadata.dst_node_id in self._contexts]
        replies = super().send_and_receive(present, timeout=timeout)
        if self.killed is not None and not self.started and number >= self.back:
            self.start()
        return replies + [
            Message(Error(NODE_UNAVAILABLE, "Node unavailable"), reply_to=self.numbered(m))
            for m in messages
            if m not in present
        ]

    @staticmethod
    def numbered(message):
        message.metadata.__dict__["_message_id"] = "lost"
        return message


def admm(**options):
    return NotearsADMM(max_rounds=ROUNDS, **options)


def same(one, two):
    assert np.array_equal(one.graph.weights, two.graph.weights)
    assert np.array_equal(one.scores, two.scores)


METHODS = {
    "admm": (lambda: admm(), TABLES),
    "admm float32": (lambda: admm(precision="float32"), TABLES),
    "moments": (lambda: Moments(), TABLES),
    "ges exact": (lambda: FedGES(mode="exact"), STATES),
    "ges fusion": (lambda: FedGES(mode="fusion"), STATES),
}


@pytest.mark.parametrize("same_id", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_a_node_restarted_in_an_exchange_changes_nothing(name, same_id):
    method, tables = METHODS[name]
    whole = run(method(), Machines(tables, at=10**6))
    for at in sorted({1, (whole.rounds + 1) // 2, whole.rounds}):
        grid = Machines(tables, at, same_id=same_id)
        outcome = run(method(), grid)
        same(outcome, whole)
        assert outcome.failures == ()
        assert [record["parties"] for record in outcome.history] == [3] * whole.rounds
        assert [party.name for party in outcome.parties] == list(NAMES)
        assert outcome.parties[1].node_id == (3 if same_id else 77)
        assert outcome.rounds == whole.rounds


@pytest.mark.parametrize(
    ("back", "missed", "parties"),
    [
        (4, [3], [3, 3, 2, 3, 3, 3, 3, 3]),
        (5, [3, 4], [3, 3, 2, 2, 3, 3, 3, 3]),
        # It is not asked any more when it comes back.
        (6, [3, 4, 5], [3, 3, 2, 2, 2, 2, 3, 3]),
    ],
)
def test_a_node_that_comes_later_takes_part_from_then_on(back, missed, parties):
    grid = Machines(TABLES, at=3, back=back)
    outcome = run(admm(), grid)
    assert [(f.server_round, f.party) for f in outcome.failures] == [(k, "oslo") for k in missed]
    assert [record["parties"] for record in outcome.history] == parties
    (replay,) = grid.of_exchange("replay")
    requests = records.config_of(replay.content)["requests"]
    assert requests.count('"round"') == 4  # the exchange's name and its number, twice


def test_a_clean_run_looks_for_nodes_before_the_training_only():
    grid = Machines(TABLES, at=10**6)
    run(admm(), grid)
    assert grid.looks == 1
    assert not grid.of_exchange("replay")


def test_another_node_takes_no_part(caplog):
    grid = Machines(TABLES, at=3, name="paris")
    outcome = run(admm(), grid)
    assert [failure.party for failure in outcome.failures] == ["oslo"] * 3
    assert [party.name for party in outcome.parties] == list(NAMES)
    assert caplog.text.count("paris (node 77) has come later and takes no part") == 1
    asked = {m.metadata.dst_node_id for m in grid.training_messages}
    assert 77 not in asked


@pytest.mark.parametrize("table", [TABLES[1] + 0.5, TABLES[1].assign(x0=np.nan)])
def test_a_node_that_comes_back_with_another_table_is_refused(table):
    grid = Machines(TABLES, at=3, table=table)
    outcome = run(admm(), grid)
    assert "oslo is back, but" in outcome.failures[0].reason
    assert [record["parties"] for record in outcome.history] == [3, 3] + [2] * (ROUNDS - 2)


def test_without_the_earlier_requests_it_goes_on_without_its_memory(monkeypatch):
    monkeypatch.setattr(loop, "MOST_REMEMBERED", 100)
    grid = Machines(TABLES, at=5)
    outcome = run(admm(), grid)
    assert not grid.of_exchange("replay")
    assert [record["parties"] for record in outcome.history] == [3] * ROUNDS
    whole = run(admm(), Machines(TABLES, at=10**6))
    assert np.array_equal(outcome.graph.adjacency, whole.graph.adjacency)
    assert not np.array_equal(outcome.scores, whole.scores)

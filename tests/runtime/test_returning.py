"""Nodes restarted in mid-run come back by name, and the result is the undisturbed one."""

import numpy as np
import pytest
from category_federations import make_tables
from federations import SpyGrid, make_federation
from flwr.app import Context, Error, Message, RecordDict

from flwr_causal.app.methods import CLIENTS
from flwr_causal.clients import Source, client_app
from flwr_causal.compat import NODE_UNAVAILABLE
from flwr_causal.errors import FederationError
from flwr_causal.protocol import records
from flwr_causal.runtime import loop, returning
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
        Whether it comes back under its id, as with node authentication; at once without ``back``.
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
        self.at_once = same_id and back is None
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
            if self.at_once:
                self.start()
        present = [m for m in messages if m.metadata.dst_node_id in self._contexts]
        replies = super().send_and_receive(present, timeout=timeout)
        if self.killed is not None and not self.started and number >= self.back:
            self.start()
        return replies + [self.unavailable(m) for m in messages if m not in present]

    @staticmethod
    def unavailable(message):
        """Answer for a node as the SuperLink does."""
        message.metadata.__dict__["_message_id"] = "lost"
        reply = Message(Error(NODE_UNAVAILABLE, "Node unavailable"), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = 1
        return reply


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


#: How a node comes back: under its own id, at once.
WAYS = ((False, False), (True, True), (True, False))


@pytest.mark.few(2)
@pytest.mark.parametrize("name", METHODS)
def test_a_node_restarted_in_an_exchange_changes_nothing(name):
    """In the first exchange, in the midst and in the last one; the next method in another way."""
    method, tables = METHODS[name]
    whole = run(method(), Machines(tables, at=10**6))
    for place, at in enumerate((1, (whole.rounds + 1) // 2, whole.rounds)):
        same_id, at_once = WAYS[(place + list(METHODS).index(name)) % 3]
        grid = Machines(tables, at, back=None if at_once else at, same_id=same_id)
        outcome = run(method(), grid)
        same(outcome, whole)
        assert outcome.failures == ()
        assert [record["parties"] for record in outcome.history] == [3] * whole.rounds
        assert [party.name for party in outcome.parties] == list(NAMES)
        assert outcome.parties[1].node_id == (3 if same_id else 77)
        assert outcome.rounds == whole.rounds


@pytest.mark.few(2)
@pytest.mark.parametrize("same_id", [False, True])
@pytest.mark.parametrize(
    ("back", "missed", "parties"),
    [
        (4, [3], [3, 3, 2, 3, 3, 3, 3, 3]),
        (5, [3, 4], [3, 3, 2, 2, 3, 3, 3, 3]),
        # It is not asked any more when it comes back.
        (6, [3, 4, 5], [3, 3, 2, 2, 2, 2, 3, 3]),
    ],
)
def test_a_node_that_comes_later_takes_part_from_then_on(back, missed, parties, same_id):
    grid = Machines(TABLES, at=3, back=back, same_id=same_id)
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
    outcome = run(admm(search=False), grid)
    assert not grid.of_exchange("replay")
    assert [record["parties"] for record in outcome.history] == [3] * ROUNDS
    whole = run(admm(search=False), Machines(TABLES, at=10**6))
    assert np.array_equal(outcome.graph.adjacency, whole.graph.adjacency)
    assert not np.array_equal(outcome.scores, whole.scores)


class Editing(Machines):
    """The tables of some parties are replaced before some exchanges, the keys of ``edits``."""

    def __init__(self, tables, edits):
        super().__init__(tables, at=10**6)
        self.edits = edits

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        group = messages[0].metadata.group_id
        self.tables |= self.edits.pop(int(group), {}) if group.isdigit() else {}
        return super().send_and_receive(messages, timeout=timeout)


NEW = {"oslo": TABLES[1] + 0.5}


def test_a_table_that_changes_is_its_partys_failure_until_it_is_restored():
    outcome = run(admm(), Editing(TABLES, {3: NEW, 5: {"oslo": TABLES[1].copy()}}))
    assert [(f.server_round, f.party) for f in outcome.failures] == [(3, "oslo"), (4, "oslo")]
    assert all("the table has changed" in failure.reason for failure in outcome.failures)
    assert [record["parties"] for record in outcome.history] == [3, 3, 2, 2, 3, 3, 3, 3]
    assert outcome.answered == {"bern": 8, "oslo": 6, "rome": 8}


def test_the_training_starts_again_with_the_new_table():
    method = admm(changed_tables="restart")
    outcome = run(method, Editing(TABLES, {3: NEW}))
    tables = dict(zip(NAMES, TABLES, strict=True)) | NEW
    expected = run(admm(), Machines(list(tables.values()), at=10**6))
    same(outcome, expected)
    assert outcome.rounds == expected.rounds + 3
    assert [k for k, r in enumerate(outcome.history, 1) if "started_again" in r] == [3]
    assert outcome.answered == dict.fromkeys(NAMES, expected.rounds)
    assert [(f.server_round, f.party) for f in outcome.failures] == [(3, "oslo")]
    assert "after exchange 3: the table of oslo has changed" in outcome.warnings[-1]


def test_a_node_that_comes_back_with_another_table_starts_the_training_again():
    grid = Machines(TABLES, at=3, table=NEW["oslo"])
    outcome = run(admm(changed_tables="restart"), grid)
    tables = dict(zip(NAMES, TABLES, strict=True)) | NEW
    same(outcome, run(admm(), Machines(list(tables.values()), at=10**6)))


def test_all_tables_may_change_at_once():
    new = {name: table + 0.5 for name, table in zip(NAMES, TABLES, strict=True)}
    outcome = run(admm(changed_tables="restart"), Editing(TABLES, {2: new}))
    same(outcome, run(admm(), Machines(list(new.values()), at=10**6)))
    with pytest.raises(FederationError, match="'quorum' asks for 2"):
        run(admm(), Editing(TABLES, {2: new}))


def test_tables_that_keep_changing_end_the_run():
    edits = {k: {"oslo": TABLES[1] + k} for k in range(2, 30)}
    with pytest.raises(FederationError, match=r"table of oslo has changed.*started again 3 times"):
        run(admm(changed_tables="restart"), Editing(TABLES, edits))


class Stopping(Editing):
    """The run is interrupted in exchange 7."""

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if messages[0].metadata.group_id == "7":
            raise KeyboardInterrupt
        return super().send_and_receive(messages, timeout=timeout)


def interrupted(tmp_path):
    kept = {"output_dir": str(tmp_path)}
    with pytest.raises(KeyboardInterrupt):
        run(admm(**kept), Stopping(TABLES, {}))
    grid = Machines(TABLES, at=10**6)
    grid.killed = grid._contexts.pop(3)
    return admm(**kept, resume=True), grid


@pytest.mark.parametrize(("back", "missed"), [(7, []), (8, [7])])
def test_a_party_without_a_node_is_found_after_the_run_was_resumed(tmp_path, back, missed):
    method, grid = interrupted(tmp_path)
    grid.back = back
    outcome = run(method, grid)
    assert [(f.server_round, f.party) for f in outcome.failures] == [(k, "oslo") for k in missed]
    assert [record["parties"] for record in outcome.history][-2:] == ([2, 3] if missed else [3, 3])
    assert "resumed after exchange 6 without oslo" in outcome.warnings[-1]
    if not missed:
        same(outcome, run(admm(), Machines(TABLES, at=10**6)))


def test_a_run_on_real_nodes_waits_for_its_parties_when_it_is_resumed(tmp_path, monkeypatch):
    method, grid = interrupted(tmp_path / "late")

    def look():
        grid.looks += 1
        if grid.looks == 3:
            grid.start()
        return sorted(grid._contexts)

    grid.get_node_ids = look
    monkeypatch.setattr(returning, "POLL_SECONDS", 0.01)
    outcome = run(method, grid, settle=0.1)
    same(outcome, run(admm(), Machines(TABLES, at=10**6)))
    assert (outcome.failures, outcome.warnings) == ((), [])

    monkeypatch.setattr(returning, "PATIENCE", 0.05)
    method, grid = interrupted(tmp_path / "never")
    outcome = run(method, grid, settle=0.1)
    assert grid.looks > 3
    assert [failure.party for failure in outcome.failures] == ["oslo", "oslo"]


def test_a_run_that_started_again_with_other_tables_is_resumed(tmp_path):
    tables = list((dict(zip(NAMES, TABLES, strict=True)) | NEW).values())
    whole = run(admm(changed_tables="restart"), Editing(TABLES, {3: NEW}))
    kept = {"changed_tables": "restart", "output_dir": str(tmp_path)}
    with pytest.raises(KeyboardInterrupt):
        run(admm(**kept), Stopping(TABLES, {3: NEW}))
    outcome = run(admm(**kept, resume=True), Machines(tables, at=10**6))
    same(outcome, whole)
    times = {"seconds": 0, "party_seconds": {}}
    plain = [{**record, **times} for record in outcome.history]
    assert plain == [{**record, **times} for record in whole.history]
    assert outcome.failures == whole.failures
    assert outcome.answered == whole.answered

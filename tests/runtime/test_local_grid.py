"""A Flower grid in one process behaves as Flower's own."""

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from flwr_causal.clients import MomentsClient
from flwr_causal.compat import CLIENT_RAISED
from flwr_causal.errors import FederationError
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.strategies import Moments


def make_app(seen=None):
    app = ClientApp()

    @app.train()
    def train(message, context):
        if message.content["config"].get("fail"):
            raise ValueError("no")
        calls = context.state.get("calls", ConfigRecord({"n": 0}))["n"] + 1
        context.state["calls"] = ConfigRecord({"n": calls})
        if seen is not None:
            seen.append((context.run_id, context.node_id, dict(context.node_config)))
        return Message(
            RecordDict({"config": ConfigRecord({"n": calls, "x": context.run_config.get("x", 0)})}),
            reply_to=message,
        )

    return app


def question(node_id, **values):
    content = RecordDict({"config": ConfigRecord(values)})
    return Message(content, dst_node_id=node_id, message_type="train", ttl=60.0, group_id="7")


def test_it_is_a_grid_with_nodes_that_know_their_partition():
    seen = []
    grid = LocalGrid(make_app(seen), 3, run_config={"x": 5})
    assert isinstance(grid, Grid)
    ids = list(grid.get_node_ids())
    assert len(set(ids)) == 3
    replies = list(grid.send_and_receive([question(i) for i in ids]))
    assert [config for *_, config in seen] == [
        {"partition-id": i, "num-partitions": 3} for i in range(3)
    ]
    assert {run_id for run_id, *_ in seen} == {grid.run.run_id}
    assert [reply.content["config"]["x"] for reply in replies] == [5, 5, 5]
    for reply, node_id in zip(replies, ids, strict=True):
        assert reply.metadata.src_node_id == node_id
        assert reply.metadata.group_id == "7"
        assert reply.metadata.reply_to_message_id


def test_state_lasts_for_the_run_and_is_each_nodes_own():
    grid = LocalGrid(make_app(), 2)
    one, two = grid.get_node_ids()
    counts = []
    for node_id in (one, one, two, one):
        (reply,) = grid.send_and_receive([question(node_id)])
        counts.append(reply.content["config"]["n"])
    assert counts == [1, 2, 1, 3]
    assert LocalGrid(make_app(), 2).run.run_id != grid.run.run_id


def test_node_configs_replace_partitions():
    seen = []
    configs = [{"data-path": "/a.csv", "name": "a"}, {"data-path": "/b.csv"}]
    grid = LocalGrid(make_app(seen), 2, node_configs=configs)
    list(grid.send_and_receive([question(i) for i in grid.get_node_ids()]))
    assert [config for *_, config in seen] == configs


def test_an_error_becomes_an_error_reply():
    grid = LocalGrid(make_app(), 1)
    (node_id,) = grid.get_node_ids()
    (reply,) = grid.send_and_receive([question(node_id, fail=True)])
    assert reply.has_error()
    assert reply.error.code == CLIENT_RAISED
    assert reply.error.reason.startswith("ValueError") or "no" in reply.error.reason
    (reply,) = grid.send_and_receive([question(node_id)])
    assert reply.content["config"]["n"] == 1


def test_messages_can_be_pushed_and_pulled_once():
    grid = LocalGrid(make_app(), 2)
    ids = list(grid.push_messages([question(i) for i in grid.get_node_ids()]))
    second = list(grid.pull_messages(ids[1:]))
    assert [reply.metadata.src_node_id for reply in second] == [3]
    assert len(list(grid.pull_messages(ids))) == 1
    assert list(grid.pull_messages(ids)) == []


def test_it_serves_a_server_app():
    totals = []
    server = ServerApp()

    @server.main()
    def main(grid, context):
        replies = grid.send_and_receive([question(i) for i in grid.get_node_ids()])
        totals.append(sum(reply.content["config"]["n"] for reply in replies))

    server(LocalGrid(make_app(), 4), Context(1, 1, {}, RecordDict(), {}))
    assert totals == [4]


def test_unknown_nodes_are_an_error():
    with pytest.raises(KeyError):
        LocalGrid(make_app(), 1).context(99)


def test_the_traceback_of_a_client_is_logged_and_chained(federation, caplog):
    class Broken(MomentsClient):
        def fit(self, parameters, config):
            return 1 / 0

    with pytest.raises(FederationError) as caught:
        simulate(Moments(), federation.tables, client=Broken)
    assert isinstance(caught.value.__cause__.__cause__, ZeroDivisionError)
    # Once: not of each party, nor when it is asked again.
    (logged,) = [one for one in caplog.records if one.exc_info]
    assert "party 0 raised an exception" in logged.getMessage()
    assert caplog.text.count("return 1 / 0") == 1


def test_each_place_that_raises_is_logged(caplog):
    app = ClientApp()

    @app.train()
    def train(message, context):
        if context.node_config["partition-id"] == 1:
            raise ValueError("here")
        raise ValueError("there")

    for _ in range(2):
        grid = LocalGrid(app, 4)
        list(grid.send_and_receive([question(i) for i in grid.get_node_ids()]))
    logged = [one.getMessage() for one in caplog.records if one.exc_info]
    assert logged == [f"The ClientApp of party {k} raised an exception" for k in (0, 1)] * 2

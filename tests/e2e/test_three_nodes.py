"""The app of examples/three-nodes on a SuperLink and three SuperNodes, each its own process."""

import json

import numpy as np
import pandas as pd
import pytest
from processes import APP, Deployment, wait_for

from flwr_causal.data.synthetic.series import federated_dynamic
from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate
from flwr_causal.simulations.relay import Relay

pytestmark = pytest.mark.e2e


def compact_line(output: str) -> dict:
    """The line of a log that is meant for programs."""
    (line,) = [line for line in output.splitlines() if '{"flwr-causal":' in line]
    return json.loads(line[line.index("{") :])["flwr-causal"]


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["subprocess", "process"])
def test_three_nodes_find_the_graph_of_a_local_run(flower, tables, tmp_path, isolation):
    deployment = Deployment(flower, isolation=isolation)
    for name, table in tables.items():
        deployment.add_node(name, table)
    results = tmp_path / "results"
    truth = tables["north"].parent / "true.csv"

    output = flower.run(APP, "clinic", f"output-dir='{results}' truth='{truth}'")

    assert flower.statuses("clinic") == ["finished:completed"], output
    expected = simulate("moments", list(tables.values()))
    found = Run.load(results)
    assert found.graph.names == expected.graph.names
    np.testing.assert_array_equal(found.graph.adjacency, expected.graph.adjacency)
    np.testing.assert_allclose(found.graph.weights, expected.graph.weights, rtol=0, atol=1e-10)
    sizes = {name: len(table.read_text().splitlines()) - 1 for name, table in tables.items()}
    assert found.parties == sizes
    assert list(json.loads((results / "run.json").read_text())["parties"]) == list(tables)
    assert found.failures == []
    assert found.metrics["shd"] == compact_line(output)["shd"] < expected.graph.num_edges
    assert compact_line(output)["status"] == "completed"
    starts = {"subprocess": tables, "process": [f"{name}-superexec" for name in tables]}
    for log in starts[isolation]:
        assert "Start `flwr-clientapp` process" in flower.log(log)
    deployment.stop()


class Without(Relay):
    """A local grid in which one party misses the first exchange after the totals."""

    def __init__(self, grid, place):
        super().__init__(grid)
        self.node_id = 2 + place

    def before(self, messages):
        return [
            message
            for message in messages
            if message.metadata.group_id != "1" or message.metadata.dst_node_id != self.node_id
        ]


@pytest.mark.slow
# A node that is killed is given up after a minute, one that is stopped takes leave.
@pytest.mark.parametrize("killed", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_four_nodes_add_up_securely_and_one_is_lost(flower, tables, tmp_path, killed):
    """The keys stay in the nodes' states; the others help to unmask the sum that one misses."""
    rows = pd.read_csv(tables["north"])
    half = len(rows) // 2
    four = {**tables, "north": tmp_path / "north.csv", "west": tmp_path / "west.csv"}
    rows[:half].to_csv(four["north"], index=False)
    rows[half:].to_csv(four["west"], index=False)
    deployment, results = Deployment(flower), tmp_path / "results"
    insists = {"secure-aggregation": "true"}
    pids = {name: deployment.add_node(name, table, **insists) for name, table in four.items()}
    options = "method='moments' secure-aggregation=true min-available-nodes=4"
    command = ("flwr", "run", APP, "clinic", "--stream", "-c")

    flower.start("run", *command, f"{options} output-dir='{results}'")
    agreement = results / "exchanges" / "agreement.json"
    wait_for(agreement.is_file, 200, "the totals of all four are known")
    if killed:
        deployment.kill_node("west")
    else:
        deployment.stop_node("west", pids["west"])

    wait_for(lambda: '{"flwr-causal":' in flower.log("run"), 300, "the run has ended")
    assert flower.statuses("clinic") == ["finished:completed"], flower.log("run")
    expected = simulate(
        "moments",
        list(four.values()),
        secure_aggregation=True,
        wrap_grid=lambda grid: Without(grid, list(four).index("west")),
    )
    found = Run.load(results)
    assert [record["parties"] for record in found.history] == [3]
    assert [failure["party"] for failure in found.failures] == ["west"]
    assert any("Some secure sums lack west" in text for text in found.warnings)
    np.testing.assert_array_equal(found.graph.adjacency, expected.graph.adjacency)
    np.testing.assert_allclose(found.graph.weights, expected.graph.weights, rtol=0, atol=1e-10)
    assert found.parties == dict.fromkeys(four, 0)
    assert found.total_rows == expected.total_rows


@pytest.mark.nightly
def test_three_nodes_agree_on_categories(flower, tables, tmp_path):
    """Numbers are cut alike by three processes that never see each other's rows."""
    deployment = Deployment(flower)
    for name, table in tables.items():
        deployment.add_node(name, table)
    results = tmp_path / "results"
    options = "fedges.mode='exact' fedges.discretize=3 fedges.score='bdeu'"

    output = flower.run(APP, "clinic", f"method='fedges' {options} output-dir='{results}'")

    assert flower.statuses("clinic") == ["finished:completed"], output
    expected = simulate("fedges", list(tables.values()), mode="exact", discretize=3, score="bdeu")
    found = Run.load(results)
    assert found.graph.names == expected.graph.names
    np.testing.assert_array_equal(found.graph.adjacency, expected.graph.adjacency)
    np.testing.assert_array_equal(found.graph.party_agreement, expected.graph.party_agreement)
    assert found.model.states == expected.model.states
    for one, two in zip(found.model.tables, expected.model.tables, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-12)
    # What travelled is the same too.
    assert (found.rounds, found.bytes_received) == (expected.rounds, expected.bytes_received)


@pytest.mark.nightly
def test_three_nodes_agree_on_time_series(flower, tmp_path):
    """Several series a table, told apart by a column and ordered by another one."""
    parties, truth = federated_dynamic(4, 400, 3, series_per_party=2, seed=4)
    deployment, files = Deployment(flower), []
    for name, party in zip("abc", parties, strict=True):
        files.append(tmp_path / f"{name}.csv")
        tagged = [one.assign(id=f"{name}{k}", day=range(len(one))) for k, one in enumerate(party)]
        pd.concat(tagged).sort_values(["day", "id"]).to_csv(files[-1], index=False)
        deployment.add_node(name, files[-1])
    options = "moments.order=2 moments.select-order=true moments.instantaneous='auto'"
    columns = "moments.series-column='id' moments.time-column='day'"

    config = f"method='moments' {options} {columns} output-dir='{tmp_path / 'results'}'"
    output = flower.run(APP, "clinic", config)

    assert flower.statuses("clinic") == ["finished:completed"], output
    expected = simulate(
        "moments",
        files,
        order=2,
        select_order=True,
        instantaneous="auto",
        series_column="id",
        time_column="day",
    )
    found = Run.load(tmp_path / "results")
    assert found.graph.names == truth.names
    np.testing.assert_allclose(found.graph.weights, expected.graph.weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.graph.lagged, expected.graph.lagged, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=0, atol=1e-12)

"""Nodes, tables and the SuperLink itself fail in the middle of a run on real nodes."""

import json
import time

import numpy as np
import pandas as pd
import pytest
from processes import APP, Deployment, wait_for

from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
ROUNDS = 6


@pytest.fixture
def own_tables(tables, tmp_path):
    """Copies of the tables that a test may change."""
    copies = {name: tmp_path / f"{name}-own.csv" for name in tables}
    for name, copy in copies.items():
        copy.write_bytes(tables[name].read_bytes())
    return copies


def start_run(deployment, results, name="run", more=""):
    """Start a run in the background."""
    config = f"method='notears-admm' max-rounds={ROUNDS} round-timeout=300.0 output-dir='{results}'"
    deployment.flower.start(
        name, "flwr", "run", APP, "clinic", "--stream", "-c", f"{config} {more}"
    )


def wait_for_exchange(results, number):
    history = results / "history.jsonl"
    wait_for(
        lambda: history.is_file() and len(history.read_text().splitlines()) >= number,
        400,
        f"exchange {number} is done",
    )


def finished(deployment, results, name="run"):
    """Wait until a run has ended, and return it."""
    flower = deployment.flower
    wait_for(lambda: '{"flwr-causal":' in flower.log(name), 600, "the run has ended")
    run = Run.load(results)
    assert run.status == "completed", flower.log(name)
    return run


def same_graph(run, expected):
    assert run.graph.names == expected.graph.names
    np.testing.assert_array_equal(run.graph.adjacency, expected.graph.adjacency)
    np.testing.assert_allclose(run.graph.weights, expected.graph.weights, rtol=0, atol=1e-9)


def undisturbed(tables):
    return simulate("notears-admm", list(tables.values()), max_rounds=ROUNDS)


def test_a_node_that_is_killed_and_started_again_changes_nothing(flower, tables, tmp_path):
    deployment = Deployment(flower)
    for name, table in tables.items():
        deployment.add_node(name, table)
    results = tmp_path / "results"
    start_run(deployment, results)
    wait_for_exchange(results, 2)

    deployment.kill_node("south")
    deployment.add_node("south", tables["south"])

    run = finished(deployment, results)
    assert run.failures == []
    assert [record["parties"] for record in run.history] == [3] * run.rounds
    assert "south is back" in flower.log("run")
    same_graph(run, undisturbed(tables))


def test_a_table_that_is_replaced_is_its_partys_failure(flower, own_tables, tmp_path):
    deployment = Deployment(flower)
    for name, table in own_tables.items():
        deployment.add_node(name, table)
    results = tmp_path / "results"
    start_run(deployment, results)
    wait_for_exchange(results, 2)

    table = pd.read_csv(own_tables["south"])
    part = own_tables["south"].with_suffix(".part")
    (table + 1.0).to_csv(part, index=False)
    part.replace(own_tables["south"])

    run = finished(deployment, results)
    assert {failure["party"] for failure in run.failures} == {"south"}
    assert all("the table has changed since" in failure["reason"] for failure in run.failures)
    assert run.history[-1]["parties"] == 2


@pytest.mark.parametrize("nodes_too", [False, True])
def test_a_run_goes_on_after_its_superlink_was_killed(flower, tables, tmp_path, nodes_too):
    deployment = Deployment(flower)
    for name, table in tables.items():
        deployment.add_node(name, table)
    results = tmp_path / "results"
    start_run(deployment, results)
    wait_for_exchange(results, 2)

    deployment.kill_node("superlink")
    assert json.loads((results / "run.json").read_text())["status"] == "running"
    before = Run.load(results)
    assert before.rounds >= 2
    if nodes_too:
        for name in tables:
            deployment.kill_node(name)
    deployment.start_superlink()
    if nodes_too:
        # For a minute the SuperLink takes the nodes that were killed for connected.
        time.sleep(70.0)
        for name, table in tables.items():
            deployment.add_node(name, table)
    start_run(deployment, results, "again", "resume=true min-available-nodes=3")

    run = finished(deployment, results, "again")
    assert run.history[: before.rounds] == before.history
    assert run.failures == []
    same_graph(run, undisturbed(tables))

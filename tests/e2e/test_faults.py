"""Nodes, tables, the ServerApp and the SuperLink fail in the middle of a run on real nodes."""

import json
import os
import shutil
import signal
import subprocess
import time

import numpy as np
import pandas as pd
import pytest
from processes import APP, Deployment, flower_programs, wait_for

from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
ROUNDS = 6
# A quick mode of every method: its run config, and the same as options of ``simulate``.
CASES = {
    "notears-admm": (f"max-rounds={ROUNDS}", {"max_rounds": ROUNDS}),
    "2dbn": (f"max-rounds={ROUNDS}", {"max_rounds": ROUNDS}),
    "moments": ("", {}),
    "fedcausal": (
        "max-rounds=3 fedcausal.model='linear'",
        {"max_rounds": 3, "model": "linear"},
    ),
    "fedges": (
        "fedges.mode='exact' fedges.discretize=3",
        {"mode": "exact", "discretize": 3},
    ),
    "fedpc": ("", {}),
}


@pytest.fixture
def own_tables(tables, tmp_path):
    """Copies of the tables that a test may change."""
    copies = {name: tmp_path / f"{name}-own.csv" for name in tables}
    for name, copy in copies.items():
        copy.write_bytes(tables[name].read_bytes())
    return copies


@pytest.fixture(scope="module")
def clinic(tables, tmp_path_factory):
    """A SuperLink with three nodes, for the tests in which these stay alive."""
    with flower_programs(tmp_path_factory.mktemp("clinic")) as programs:
        yield deployed(programs, tables)


def deployed(flower, tables):
    """A SuperLink, and a node for each table."""
    deployment = Deployment(flower)
    for name, table in tables.items():
        deployment.add_node(name, table)
    return deployment


def start_run(deployment, results, name="run", more="", method="notears-admm", round_timeout=300.0):
    """Start a run in the background."""
    given = f"method='{method}' {CASES[method][0]} output-dir='{results}'"
    config = f"{given} round-timeout={round_timeout} {more}"
    deployment.flower.start(name, "flwr", "run", APP, "clinic", "--stream", "-c", config)


def wait_for_exchange(results, number):
    history = results / "history.jsonl"
    wait_for(
        lambda: history.is_file() and len(history.read_text().splitlines()) >= number,
        400,
        f"exchange {number} is done",
    )


def wait_for_agreement(results):
    wait_for((results / "exchanges" / "agreement.json").is_file, 400, "the parties agree")


def finished(deployment, results, name="run"):
    """Wait until a run has ended, and return it."""
    flower = deployment.flower
    wait_for(lambda: '{"flwr-causal":' in flower.log(name), 600, "the run has ended")
    run = Run.load(results)
    assert run.status == "completed", flower.log(name)
    return run


def same_result(run, expected, tables):
    if expected.graph is None:
        rows = pd.concat([pd.read_csv(table) for table in tables.values()])
        one, two = run.model.log_likelihood(rows), expected.model.log_likelihood(rows)
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)
        return
    assert run.graph.names == expected.graph.names
    np.testing.assert_array_equal(run.graph.adjacency, expected.graph.adjacency)
    np.testing.assert_allclose(run.graph.weights, expected.graph.weights, rtol=0, atol=1e-9)
    if expected.graph.lagged is not None:
        np.testing.assert_allclose(run.graph.lagged, expected.graph.lagged, rtol=0, atol=1e-9)


def undisturbed(tables, method="notears-admm"):
    return simulate(method, list(tables.values()), **CASES[method][1])


def resumed_as_undisturbed(deployment, results, tables, name, method):
    """Resume an interrupted run, and compare its result with that of an undisturbed one."""
    before = Run.load(results)
    start_run(deployment, results, name, "resume=true", method)
    run = finished(deployment, results, name)
    assert run.history[: before.rounds] == before.history
    assert run.failures == []
    same_result(run, undisturbed(tables, method), tables)


def test_a_node_that_is_killed_and_started_again_changes_nothing(flower, tables, tmp_path):
    deployment, results = deployed(flower, tables), tmp_path / "results"
    start_run(deployment, results)
    wait_for_exchange(results, 2)

    deployment.kill_node("south")
    deployment.add_node("south", tables["south"])

    run = finished(deployment, results)
    assert run.failures == []
    assert [record["parties"] for record in run.history] == [3] * run.rounds
    assert "south is back" in flower.log("run")
    same_result(run, undisturbed(tables), tables)


def test_a_table_that_is_replaced_is_its_partys_failure(flower, own_tables, tmp_path):
    deployment, results = deployed(flower, own_tables), tmp_path / "results"
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


@pytest.mark.parametrize(("method", "nodes_too"), [("notears-admm", False), ("2dbn", True)])
def test_a_run_goes_on_after_its_superlink_was_killed(flower, tables, tmp_path, method, nodes_too):
    deployment, results = deployed(flower, tables), tmp_path / "results"
    start_run(deployment, results, method=method)
    wait_for_exchange(results, 2)

    deployment.kill_node("superlink")
    assert json.loads((results / "run.json").read_text())["status"] == "running"
    if nodes_too:
        for name in tables:
            deployment.kill_node(name)
    deployment.start_superlink()
    if nodes_too:
        # For a minute the SuperLink takes the nodes that were killed for connected.
        time.sleep(70.0)
        for name, table in tables.items():
            deployment.add_node(name, table)
    resumed_as_undisturbed(deployment, results, tables, "again", method)


# FedCausal and 2DBN are resumed after other faults.
@pytest.mark.parametrize("method", ["moments", "fedges", "fedpc"])
def test_a_run_goes_on_after_its_serverapp_was_killed(clinic, tables, tmp_path, method):
    results = tmp_path / "results"
    start_run(clinic, results, method, method=method)
    if method == "moments":  # killed in its only exchange
        wait_for_agreement(results)
    else:
        wait_for_exchange(results, 2)

    (pid,) = clinic.server_apps()
    os.kill(pid, signal.SIGKILL)

    wait_for(lambda: not clinic.server_apps(), 30, "the ServerApp has ended")
    assert Run.load(results).status == "running"
    resumed_as_undisturbed(clinic, results, tables, f"{method}-again", method)


def test_a_run_that_was_stopped_goes_on(clinic, tables, tmp_path):
    results = tmp_path / "results"
    start_run(clinic, results, "stopped", method="fedcausal")
    wait_for_exchange(results, 1)
    runs = json.loads(clinic.flower.call("flwr", "list", "clinic", "--format", "json"))["runs"]

    clinic.flower.call("flwr", "stop", runs[0]["run-id"], "clinic")

    wait_for(lambda: not clinic.server_apps(), 120, "the ServerApp has ended")
    assert Run.load(results).status in ("running", "stopped")
    resumed_as_undisturbed(clinic, results, tables, "stopped-again", "fedcausal")


def refused(deployment, results, name):
    """Start a run that ends before the first message is sent; return its log."""
    start_run(deployment, results, name, method="moments")
    wait_for(lambda: '{"flwr-causal":' in deployment.flower.log(name), 120, "the run has ended")
    wait_for(lambda: not deployment.server_apps(), 30, "the ServerApp has ended")
    assert deployment.flower.statuses("clinic")[0].startswith("finished:failed")
    output = deployment.flower.log(name)
    assert "parties agree" not in output
    return output


def test_a_directory_that_cannot_be_made_is_refused(clinic, tmp_path):
    (tmp_path / "file").write_text("not a directory")
    output = refused(clinic, tmp_path / "file" / "results", "unwritable")
    assert "file/results' cannot be written (Not a directory): give another one" in output


@pytest.fixture
def full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    try:
        (disk / "filling").write_bytes(bytes(2**16))
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_refused(clinic, full_disk):
    output = refused(clinic, full_disk / "results", "full")
    assert "disk/results' cannot be written (No space left on device): give another one" in output


def test_a_frozen_node_is_left_out(clinic, tmp_path):
    results = tmp_path / "results"
    start_run(clinic, results, "frozen", method="moments", round_timeout=35.0)
    wait_for_agreement(results)

    clinic.signal_node("south", signal.SIGSTOP)
    try:
        run = finished(clinic, results, "frozen")
    finally:
        clinic.signal_node("south", signal.SIGCONT)
    assert [failure["party"] for failure in run.failures] == ["south"]
    assert [record["parties"] for record in run.history] == [2]
    assert run.graph.num_edges > 0

"""Nodes, tables, the ServerApp and the SuperLink fail in the middle of a run on real nodes."""

import json
import os
import shutil
import signal
import subprocess

import numpy as np
import pandas as pd
import pytest
from processes import APP, EXAMPLE, Deployment, flower_programs, wait_for

from flwr_causal.reports.run import Run
from flwr_causal.simulations import simulate
from flwr_causal.simulations.relay import Relay

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(1800)]
# The example's app waits for three nodes.
TWO = "min-available-nodes=2"
# Modes of the methods: a method and its options.
CASES = {
    "admm": ("notears-admm", {"max_rounds": 6}),
    "admm long": ("notears-admm", {"max_rounds": 12}),
    "2dbn": ("2dbn", {"max_rounds": 6}),
    "moments": ("moments", {}),
    "fedcausal linear": ("fedcausal", {"model": "linear", "max_rounds": 3}),
    "pc": ("fedpc", {}),
    "pc one pass": ("fedpc", {"training": "one-pass", "queries": "central"}),
}


@pytest.fixture
def own_tables(tables, tmp_path):
    """Copies of the tables that a test may change."""
    copies = {name: tmp_path / f"{name}-own.csv" for name in tables}
    for name, copy in copies.items():
        copy.write_bytes(tables[name].read_bytes())
    return copies


@pytest.fixture(scope="module")
def two(tables):
    """The tables of the clinic's nodes."""
    return {name: tables[name] for name in ("north", "south")}


@pytest.fixture(scope="module")
def clinic(two, tmp_path_factory):
    """A SuperLink with two nodes, for the tests in which these stay alive."""
    with flower_programs(tmp_path_factory.mktemp("clinic")) as programs:
        yield deployed(programs, two)


def deployed(flower, tables):
    """A SuperLink, and a node for each table."""
    deployment = Deployment(flower)
    for name, table in tables.items():
        deployment.add_node(name, table)
    return deployment


def start_run(deployment, results, name="run", more="", mode="admm", round_timeout=300.0):
    """Start a run in the background."""
    method, options = CASES[mode]
    own = {key if key == "max_rounds" else f"{method}.{key}": options[key] for key in options}
    given = {"method": method, "output_dir": str(results), "round_timeout": round_timeout, **own}
    config = " ".join(f"{key.replace('_', '-')}={value!r}" for key, value in given.items())
    command = ("flwr", "run", APP, "clinic", "--stream", "-c", f"{config} {more}")
    deployment.flower.start(name, *command)


def history_of(results):
    """The records of the exchanges of a run in progress."""
    history = results / "history.jsonl"
    text = history.read_text() if history.is_file() else ""
    # The last line may be in progress.
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def wait_for_exchange(results, number):
    wait_for(lambda: len(history_of(results)) >= number, 200, f"exchange {number} is done")


def wait_for_agreement(results):
    wait_for((results / "exchanges" / "agreement.json").is_file, 200, "the parties agree")


def finished(deployment, results, name="run"):
    """Wait until a run has ended, and return it."""
    flower = deployment.flower
    wait_for(lambda: '{"flwr-causal":' in flower.log(name), 300, "the run has ended")
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


def undisturbed(tables, mode="admm"):
    method, options = CASES[mode]
    return simulate(method, list(tables.values()), **options)


def resumed_as_undisturbed(deployment, results, tables, name, mode):
    """Resume an interrupted run, and compare its result with that of an undisturbed one."""
    before = Run.load(results)
    start_run(deployment, results, name, "resume=true", mode)
    run = finished(deployment, results, name)
    assert run.history[: before.rounds] == before.history
    assert run.failures == []
    same_result(run, undisturbed(tables, mode), tables)


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


class Missing(Relay):
    """A local grid in which parties miss some exchanges."""

    def __init__(self, grid, failures, names):
        super().__init__(grid)
        self.missed = {(str(one["round"]), 2 + names.index(one["party"])) for one in failures}

    def before(self, messages):
        return [
            message
            for message in messages
            if (message.metadata.group_id, message.metadata.dst_node_id) not in self.missed
        ]


@pytest.mark.skipif(
    shutil.which("openssl") is None or shutil.which("ssh-keygen") is None,
    reason="the example's scripts call openssl and ssh-keygen",
)
def test_restarted_nodes_under_tls_and_node_authentication(flower, tables, tmp_path):
    """One comes back under its key, with its id; one has a new key, and with it a new id."""
    certificates, keys, results = (tmp_path / name for name in ("certificates", "keys", "results"))
    for script, directory, *names in (
        ("make_certificates.sh", certificates, "127.0.0.1"),
        ("make_keys.sh", keys, *tables, "stranger", "new"),
    ):
        command = ["sh", EXAMPLE / script, directory, *names]
        subprocess.run([str(part) for part in command], check=True, capture_output=True)
    deployment, processes = Deployment(flower, certificates), {}
    deployment.add_node("stranger", tables["north"], keys / "stranger")
    wait_for(lambda: "Exit Code: 305" in flower.log("stranger"), 60, "the stranger is turned away")
    ids = {}
    for name, table in tables.items():
        ids[name] = deployment.register(keys / name)
        processes[name] = deployment.add_node(name, table, keys / name)
    start_run(deployment, results, mode="admm long")
    wait_for_exchange(results, 2)

    deployment.stop_node("south", processes["south"])
    before = len(history_of(results))
    deployment.add_node("south", tables["south"], keys / "south")
    # The exchange in progress may have had its reply. The log arrives late, the history does not.
    later = slice(before + 1, None)
    wait_for(
        lambda: any(record["parties"] == 3 for record in history_of(results)[later]),
        200,
        "south is back",
    )

    deployment.kill_node("north")
    flower.call("flwr", "supernode", "unregister", ids["north"], "clinic")
    ids["new"] = deployment.register(keys / "new")
    deployment.add_node("north", tables["north"], keys / "new")
    assert ids["new"] != ids["north"]

    run = finished(deployment, results)
    for back in (f"south is back (node {ids['south']})", f"north is back (node {ids['new']})"):
        assert back in flower.log("run")
    assert {failure["party"] for failure in run.failures} <= {"north", "south"}
    assert [record["parties"] for record in run.history][-1] == 3
    # Each gets its memory back: the result is that of parties that were away, and forgot nothing.
    method, options = CASES["admm long"]
    expected = simulate(
        method,
        list(tables.values()),
        wrap_grid=lambda grid: Missing(grid, run.failures, list(tables)),
        **options,
    )
    assert [one["parties"] for one in expected.history] == [one["parties"] for one in run.history]
    same_result(run, expected, tables)


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


def test_a_run_goes_on_after_its_superlink_and_all_nodes_were_killed(flower, tables, tmp_path):
    deployment, results = deployed(flower, tables), tmp_path / "results"
    start_run(deployment, results, mode="2dbn")
    wait_for_exchange(results, 2)

    for name in ("superlink", *tables):
        deployment.kill_node(name)
    assert json.loads((results / "run.json").read_text())["status"] == "running"
    deployment.start_superlink()
    for name, table in tables.items():
        deployment.add_node(name, table)
    # The SuperLink takes the nodes that were killed for connected: the run waits for the others.
    resumed_as_undisturbed(deployment, results, tables, "again", "2dbn")


# Other modes are resumed by tests/runtime/test_resume.py on the local engine.
@pytest.mark.parametrize(("mode", "after"), [("pc", 2), ("pc one pass", 0)])
def test_a_run_goes_on_after_its_serverapp_was_killed(clinic, two, tmp_path, mode, after):
    results, name = tmp_path / "results", mode.replace(" ", "-")
    start_run(clinic, results, name, TWO, mode)
    if after:
        wait_for_exchange(results, after)
    else:
        wait_for_agreement(results)

    (pid,) = clinic.server_apps()
    os.kill(pid, signal.SIGKILL)

    wait_for(lambda: not clinic.server_apps(), 120, "the ServerApp has ended")
    assert Run.load(results).status == "running"
    resumed_as_undisturbed(clinic, results, two, f"{name}-again", mode)


def test_a_run_that_was_stopped_goes_on(clinic, two, tmp_path):
    results = tmp_path / "results"
    start_run(clinic, results, "stopped", TWO, "fedcausal linear")
    wait_for_exchange(results, 1)
    runs = json.loads(clinic.flower.call("flwr", "list", "clinic", "--format", "json"))["runs"]

    clinic.flower.call("flwr", "stop", runs[0]["run-id"], "clinic")

    wait_for(lambda: not clinic.server_apps(), 120, "the ServerApp has ended")
    assert Run.load(results).status == "stopped"
    resumed_as_undisturbed(clinic, results, two, "stopped-again", "fedcausal linear")


def refused(deployment, results, name):
    """Start a run that ends before the first message is sent; return its log."""
    start_run(deployment, results, name, mode="moments")
    wait_for(lambda: '{"flwr-causal":' in deployment.flower.log(name), 120, "the run has ended")
    wait_for(lambda: not deployment.server_apps(), 120, "the ServerApp has ended")
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
    start_run(clinic, results, "frozen", TWO, "moments", round_timeout=35.0)
    wait_for_agreement(results)

    clinic.signal_node("south", signal.SIGSTOP)
    try:
        run = finished(clinic, results, "frozen")
    finally:
        clinic.signal_node("south", signal.SIGCONT)
    assert [failure["party"] for failure in run.failures] == ["south"]
    # The exchange without it, and that of the new start without it.
    assert [record["parties"] for record in run.history] == [1, 1]
    assert run.graph.num_edges > 0

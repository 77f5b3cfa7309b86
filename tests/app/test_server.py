"""The job of ``flwr run``: from the run config to the results, without Flower's processes."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from federations import SpyGrid, make_federation
from flwr.app import Context, RecordDict
from flwr.supercore.exit.exit_handler import trigger_exit_handlers

from flwr_causal.app.job import execute
from flwr_causal.app.server import server_app
from flwr_causal.client_app import app as nodes
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import CausalError, ConfigError, DataError, FederationError
from flwr_causal.reports.run import Run
from flwr_causal.runtime.checkpoint import mark_stopped
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import Moments, NotearsADMM

SMALL = {"variables": 5, "rows": 150, "seed": 1, "max-rounds": 10}


@pytest.fixture
def job(caplog):
    """Run the app over nodes; return the grid and what the last line of the log says."""

    def start(config, num_nodes=3, node_configs=None):
        grid = SpyGrid(nodes, num_nodes, run_config=config, node_configs=node_configs)
        start.grid = grid
        caplog.set_level("INFO", logger="flwr")
        server_app()(grid, Context(grid.run.run_id, 1, {}, RecordDict(), dict(config)))
        return grid

    start.lines = lambda: [record.getMessage() for record in caplog.records]
    start.result = lambda: json.loads(start.lines()[-1])["flwr-causal"]
    return start


def files_of(directory):
    return {path.name for path in directory.iterdir()}


def test_a_run_whose_process_is_ended_is_stopped(job, tmp_path, monkeypatch):
    """Flower ends it by its exit handlers, and soon after by force."""
    seen = []

    def ended(self, messages, *, timeout=None):
        messages = list(messages)
        if messages[0].metadata.group_id == "3":
            trigger_exit_handlers(run_before_force_exit=True)
            seen.append(json.loads((tmp_path / "run.json").read_text()))
        return LocalGrid.send_and_receive(self, messages, timeout=timeout)

    monkeypatch.setattr(SpyGrid, "send_and_receive", ended, raising=False)
    job({**SMALL, "method": "notears-admm", "output-dir": str(tmp_path)})
    (content,) = seen
    assert (content["status"], content["rounds"]) == ("stopped", 2)
    # A run that has ended stays as it is.
    assert Run.load(tmp_path).status == "completed"
    mark_stopped(tmp_path)
    assert Run.load(tmp_path).status == "completed"


def test_warnings_name_options_by_their_keys_as_they_are_logged(job, tmp_path):
    rng = np.random.default_rng(0)
    for k in range(3):
        frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"]).assign(c="x")
        frame.to_csv(tmp_path / f"{k}.csv", index=False)
    configs = [{"data-path": str(tmp_path / f"{k}.csv")} for k in range(3)]
    job({"method": "fedges", "fedges.discretize": 3}, node_configs=configs)
    told = [line for line in job.lines() if "one state only" in line]
    assert told
    assert all("constant-columns='fail'" in line for line in told)


def test_no_exchange_is_numbered_beyond_the_most(job, tmp_path):
    """With missing values the number of exchanges is not known before; replicates add some."""
    rng = np.random.default_rng(0)
    config = {"method": "moments", "min-available-nodes": 2}
    for k in range(2):
        frame = pd.DataFrame(rng.normal(size=(90, 2)) @ [[1, 1], [0, 1]], columns=["a", "b"])
        frame.loc[k : 20 + k, "b"] = np.nan
        frame.to_csv(tmp_path / f"{k}.csv", index=False)
    configs = [{"data-path": str(tmp_path / f"{k}.csv")} for k in range(2)]
    for further in ({"moments.missing-values": "em"}, {"missing-values": "drop", "replicates": 2}):
        job({**config, **further}, num_nodes=2, node_configs=configs)
        found = re.findall(r"Exchange (\d+) (?:of at most (\d+) )?\(", "\n".join(job.lines()))
        assert len(found) > 1
        assert all(not most or int(number) <= int(most) for number, most in found)


def test_the_main_job(job, tmp_path):
    job({**SMALL, "output-dir": str(tmp_path / "out")})
    result = job.result()
    assert result["status"] == "completed"
    assert result["rounds"] == 10
    assert {"shd", "tpr", "fdr", "edges", "seconds", "stop_reason"} <= set(result)
    assert {"bytes_sent", "bytes_received"} <= set(result)
    text = "\n".join(job.lines())
    for words in ("together, federated", "all rows pooled", "each party alone", "Bytes to each"):
        assert words in text
    assert "Exchange 10 of at most 10 (" in text
    assert "num-supernodes" not in text
    run = Run.load(tmp_path / "out")
    assert run.metrics["shd"] == result["shd"]
    assert set(run.metrics["pooled"]) == set(run.metrics["alone"]) == {"shd", "tpr", "fdr"}
    assert run.config["variables"] == 5
    assert run.config["method"] == "notears-admm"
    assert files_of(tmp_path / "out") >= {
        "graph.json",
        "graph.graphml",
        "graph.dot",
        "edges.csv",
        "history.jsonl",
        "run.json",
        "scores.csv",
        "model.json",
    }
    assert len((tmp_path / "out" / "history.jsonl").read_text().splitlines()) == 10


def test_federation_beats_being_alone(job, tmp_path):
    config = {"variables": 5, "rows": 60, "seed": 3, "method": "moments"}
    job({**config, "output-dir": str(tmp_path)}, num_nodes=6)
    metrics = Run.load(tmp_path).metrics
    assert metrics["shd"] < metrics["alone"]["shd"]


def test_flowers_two_nodes_are_told_how_to_be_more(job):
    job({**SMALL, "method": "moments", "max-rounds": "", "compare": False}, num_nodes=2)
    assert any('--federation-config "num-supernodes=10"' in line for line in job.lines())
    assert not any("each party alone" in line for line in job.lines())


@pytest.fixture
def study(tmp_path):
    """A table with a few missing values, and a file with its true edges."""
    federation = make_federation(d=5, n=300, parties=1)
    table = federation.tables[0].copy()
    table.iloc[::50, 2] = np.nan
    table.to_csv(tmp_path / "study.csv", index=False)
    edges = [(c, e) for c, e, _ in federation.truth.edges()]
    pd.DataFrame(edges, columns=["source", "target"]).to_csv(tmp_path / "truth.csv", index=False)
    return {
        "data": str(tmp_path / "study.csv"),
        "truth": str(tmp_path / "truth.csv"),
        "missing-values": "drop",
        "output-dir": str(tmp_path / "out"),
        "method": "moments",
    }


@pytest.mark.parametrize("standardize", [False, True])
def test_a_table_with_a_known_truth(job, study, tmp_path, standardize):
    job({**study, "standardize": standardize})
    assert job.result()["status"] == "completed"
    run = Run.load(tmp_path / "out")
    assert sum(run.parties.values()) == 294
    assert run.metrics["pooled"]["shd"] >= 0
    assert standardize or run.metrics["shd"] == 0
    assert run.config["standardize"] is standardize


def test_errors_of_the_data_name_the_keys_of_the_run_config(job, study):
    study["missing-values"] = "fail"
    with pytest.raises(DataError, match=r"missing value.* missing-values='drop'"):
        job(study)
    assert "missing_values" not in job.result()["error"]


def test_what_is_assumed_names_the_keys_of_the_run_config(job, study, tmp_path):
    del study["missing-values"]
    job(study)
    run = Run.load(tmp_path / "out")
    assert any("Assumed missing-values='em'" in one for one in run.warnings)
    # Of rows with gaps the graphs to compare with are the method's own.
    assert run.metrics["pooled"]["shd"] <= 2


def test_a_truth_that_is_not_there_is_found_before_training(job, study):
    with pytest.raises(ConfigError, match=r"no file '/nowhere\.csv'.*'truth'"):
        job({**study, "truth": "/nowhere.csv"})
    assert not job.grid.sent
    assert job.result()["status"] == "failed"


def test_a_truth_that_does_not_fit_does_not_cost_the_run(job, study, tmp_path):
    (tmp_path / "truth.csv").write_text("source,target\nx0,age\n")
    with pytest.raises(DataError, match="age"):
        job(study)
    assert job.result() == {"status": "failed", "error": Run.load(tmp_path / "out").error}
    assert Run.load(tmp_path / "out").graph.num_edges > 0


def test_real_nodes_with_their_own_files(job, tmp_path):
    federation = make_federation()
    configs = []
    for index, table in enumerate(federation.tables):
        path = tmp_path / f"{index}.csv"
        table.to_csv(path, index=False)
        configs.append({"data-path": str(path), "name": f"clinic-{index}"})
    federation.truth.save(tmp_path / "truth.json")
    config = {"method": "moments", "output-dir": str(tmp_path / "out")}
    job(config, node_configs=configs)
    run = Run.load(tmp_path / "out")
    assert list(run.parties) == ["clinic-0", "clinic-1", "clinic-2"]
    assert run.metrics == {}
    assert run.config["simulated"] is False
    assert "shd" not in job.result()
    job({**config, "truth": str(tmp_path / "truth.json")}, node_configs=configs)
    run = Run.load(tmp_path / "out")
    assert run.metrics["shd"] == 0
    assert "alone" not in run.metrics


def test_a_failed_run_says_so_and_keeps_what_it_has(job, tmp_path):
    configs = [{"data-path": "/nowhere.csv", "name": "oslo"}, {"name": "bern"}]
    with pytest.raises(DataError, match="oslo"):
        job({"output-dir": str(tmp_path / "out")}, 2, configs)
    result = job.result()
    assert result["status"] == "failed"
    assert "oslo" in result["error"]
    assert "bern" in result["error"]
    assert json.loads((tmp_path / "out" / "run.json").read_text())["status"] == "failed"


def test_wrong_configs_fail_before_anything_is_sent(job):
    for config, word in (
        ({"rows": "many"}, "'rows'"),
        ({"threshhold": 1.0}, "Did you mean 'threshold'"),
    ):
        with pytest.raises(ConfigError, match=word):
            job(config)
        assert not job.grid.sent
        assert job.result()["status"] == "failed"


# The job from Python.


def test_execute_returns_a_run(federation):
    from federations import spy

    seen = []
    run = execute(Moments(), spy(federation.tables), config={"study": "A"}, on_round=seen.append)
    assert isinstance(run, Run)
    assert isinstance(run.graph, CausalGraph)
    assert run.config["study"] == "A"
    assert run.config["simulated"] is True
    assert seen == run.history


def test_execute_hands_over_what_was_done(federation):
    from federations import disturbed

    def fault(partition, config, context):
        if config["round"] == 3:
            raise OSError("power cut")

    with pytest.raises(FederationError) as caught:
        execute(NotearsADMM(max_rounds=8), disturbed(federation.tables, fault))
    assert isinstance(caught.value, CausalError)
    assert caught.value.outcome.rounds == 2
    assert {failure["party"] for failure in caught.value.outcome.failures} == {
        "party 0",
        "party 1",
        "party 2",
    }


def test_different_columns_with_a_known_truth_are_compared_with_the_joined_rows(job, tmp_path):
    """A party alone has some of the columns only, and its graph no metrics of the whole."""
    federation = make_federation(d=5, n=400, parties=1)
    table, names = federation.tables[0].copy(), federation.truth.names
    table["patient"] = np.arange(len(table))
    data = tmp_path / "data"
    data.mkdir()
    table[["patient", *names[:2]]].to_csv(data / "a.csv", index=False)
    table[["patient", *names[2:]]][::-1].to_csv(data / "b.csv", index=False)
    edges = [(c, e) for c, e, _ in federation.truth.edges()]
    pd.DataFrame(edges, columns=["source", "target"]).to_csv(tmp_path / "truth.csv", index=False)
    config = {"data": str(data), "truth": str(tmp_path / "truth.csv"), "row-id": "patient"}
    job({**config, "method": "moments", "output-dir": str(tmp_path / "out")}, num_nodes=2)
    metrics = Run.load(tmp_path / "out").metrics
    assert metrics["pooled"]["shd"] == metrics["shd"]
    assert metrics["alone"] == {}


def test_the_log_says_first_and_last_who_is_missing(job, monkeypatch):
    send = LocalGrid.send_and_receive

    def lossy(self, messages, *, timeout=None):
        messages = [
            one
            for one in messages
            if one.metadata.message_type != "train" or one.metadata.dst_node_id != 3
        ]
        return send(self, messages, timeout=timeout)

    monkeypatch.setattr(SpyGrid, "send_and_receive", lossy, raising=False)
    job({"variables": 4, "rows": 150, "seed": 1, "method": "moments"})
    assert job.result()["status"] == "completed"
    assert job.result()["lost"] == {"party 1": 50}
    assert any(
        line.startswith("moments, completed without party 1 (50 of 150 rows): ")
        for line in job.lines()
    )

"""FedCausal by ``simulate`` and by the app: what a user types, and what comes out."""

import json

import pytest
from federations import SpyGrid
from flwr.app import Context, RecordDict

from flwr_causal import simulate
from flwr_causal.app import server
from flwr_causal.app.methods import CLIENTS
from flwr_causal.app.sources import source_of
from flwr_causal.clients import client_app
from flwr_causal.data.synthetic.nonlinear import federated_nonlinear
from flwr_causal.reports.run import Run

PARTIES, TRUTH = federated_nonlinear(6, 600, 4, seed=2)


def test_a_run():
    run = simulate("fedcausal", PARTIES, truth=TRUTH)
    assert run.metrics["shd"] == 0
    assert run.graph.kind == "dag"
    assert run.scores.shape == (6, 6)
    assert {record["exchange"] for record in run.history} == {"group", "evidence"}
    # Masks of two searches, and the tables that come back.
    assert run.bytes_sent < 4 * run.rounds * 3000
    assert run.config["model"] == "group"


def test_a_single_party():
    rows, truth = federated_nonlinear(6, 500, 1, seed=3)
    assert simulate("fedcausal", rows, truth=truth).metrics["shd"] <= 1


@pytest.fixture
def job(caplog):
    """A ServerApp run on nodes that make their own data, as `flwr run` has it."""
    nodes = client_app(CLIENTS, source_of)

    def start(num_nodes=4, **config):
        config = {"method": "fedcausal", **{k.replace("_", "-"): v for k, v in config.items()}}
        grid = SpyGrid(nodes, num_nodes, run_config=config)
        caplog.set_level("INFO", logger="flwr")
        server.server_app()(grid, Context(grid.run.run_id, 1, {}, RecordDict(), dict(config)))
        return json.loads(caplog.records[-1].getMessage())["flwr-causal"]

    return start


@pytest.mark.slow
def test_the_app_on_synthetic_parties(job, tmp_path):
    result = job(variables=6, rows=800, seed=1, output_dir=str(tmp_path))
    assert result["status"] == "completed"
    assert result["shd"] <= 1
    run = Run.load(tmp_path)
    assert list(run.parties.values()) == [200] * 4
    assert run.graph.num_edges > 0
    assert {"pooled", "alone"} <= set(run.metrics)


@pytest.mark.slow
def test_the_app_asks_for_local_graphs(job, tmp_path, caplog):
    options = {"fedcausal.local-graphs": True, "output_dir": str(tmp_path)}
    result = job(variables=5, rows=600, seed=1, **options)
    assert result["status"] == "completed"
    run = Run.load(tmp_path)
    assert run.history[-1]["exchange"] == "local graphs"
    assert list(run.local_graphs) == list(run.parties)
    assert set(run.heterogeneity["party"]) == set(run.parties)
    assert run.config["local_graphs"] is True
    text = "\n".join(record.getMessage() for record in caplog.records)
    for party in run.parties:
        assert f"{party} supports" in text


def test_the_app_on_the_papers_model(job):
    result = job(variables=5, rows=400, **{"fedcausal.model": "linear", "fedcausal.refine": "none"})
    assert result["status"] == "completed"
    assert result["rounds"] <= 16

"""``simulate(engine="ray")`` runs the same apps on Flower's Ray engine, with the same result."""

import gc
import json

import numpy as np
import pytest
from federations import make_federation

from benchmarks.reproduce import reproduce
from flwr_causal.data.partition import hold_out, split_columns
from flwr_causal.data.read.example_tables import breast_cancer
from flwr_causal.errors import ConfigError, DataError
from flwr_causal.simulations import simulate

pytestmark = [
    pytest.mark.ray,
    # Ray announces a change of its GPU handling, and leaves sockets and files to its end.
    pytest.mark.filterwarnings("ignore::FutureWarning:ray", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _tidied():
    """Let what Ray leaves open be found here, where it is expected, and not in a later test."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def cluster():
    """A Ray of two nodes that runs already: to start one for each run takes longer than the run."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False}
    with pytest.MonkeyPatch.context() as patch:
        running = Cluster(initialize_head=True, head_node_args=head)
        running.add_node(num_cpus=1)
        patch.setenv("RAY_ADDRESS", running.address)
        yield
        running.shutdown()


def test_both_engines_give_the_same_run():
    federation = make_federation()
    local, ray = (
        simulate(
            "notears-admm",
            federation.tables,
            engine=engine,
            seed=3,
            truth=federation.truth,
            max_rounds=8,
        )
        for engine in ("local", "ray")
    )
    assert local.graph.num_edges > 0
    np.testing.assert_array_equal(local.graph.weights, ray.graph.weights)
    np.testing.assert_array_equal(local.scores, ray.scores)
    assert local.metrics == ray.metrics
    assert (local.rounds, local.bytes_sent, local.bytes_received) == (
        ray.rounds,
        ray.bytes_sent,
        ray.bytes_received,
    )


@pytest.mark.nightly
@pytest.mark.usefixtures("cluster")
def test_both_engines_give_the_same_run_on_categories():
    federation = make_federation()
    options = {"mode": "exact", "discretize": 3, "truth": federation.truth}
    local, ray = (
        simulate("fedges", federation.tables, engine=engine, **options)
        for engine in ("local", "ray")
    )
    assert local.graph.num_edges > 0
    assert local.graph.equals(ray.graph)
    assert local.metrics == ray.metrics
    assert local.stop_reason == ray.stop_reason
    assert (local.rounds, local.bytes_sent, local.bytes_received) == (
        ray.rounds,
        ray.bytes_sent,
        ray.bytes_received,
    )
    for one, two in zip(local.model.tables, ray.model.tables, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.nightly
@pytest.mark.usefixtures("cluster")
def test_a_problem_with_the_data_comes_back_as_data_error():
    tables = make_federation().tables
    tables[1] = tables[1].assign(x0=np.inf)
    with pytest.raises(DataError, match="party 1"):
        simulate("moments", tables, engine="ray")


@pytest.mark.nightly
@pytest.mark.usefixtures("cluster")
def test_circuits_are_the_same_on_both_engines():
    columns = ["mean radius", "mean texture", "area error", "worst concavity", "target"]
    dealt = split_columns(breast_cancer()[columns], 2, "vertical", target="target", seed=1)
    tables, test = hold_out(dealt, 0.2)
    one_pass = {"training": "one-pass"}
    local = simulate("fedpc", tables, **one_pass)
    ray = simulate("fedpc", tables, engine="ray", queries="central", **one_pass)
    for ask in ("log_likelihood", "predict_proba"):
        here, there = (getattr(run.model, ask)(test) for run in (local, ray))
        np.testing.assert_allclose(here, there, rtol=1e-10, atol=1e-10)
    kept = simulate("fedpc", tables, engine="ray", queries="federated", **one_pass)
    assert kept.history[-1]["circuits"] == local.history[-1]["circuits"]
    # The parties have gone with the run: this is said at once, and nobody waits for them.
    with pytest.raises(ConfigError, match="the run is over"):
        kept.model.log_likelihood(test)


SCENARIO = """
title = "on a cluster"
metrics = ["shd", "exchanges"]
[data]
name = "linear"
num_rows = 120
num_variables = 5
[split]
num_parties = 6
[lines]
moments = { method = "moments" }
"""


@pytest.mark.nightly
@pytest.mark.usefixtures("cluster")
def test_a_scenario_runs_on_a_ray_cluster_that_exists(tmp_path):
    (tmp_path / "one.toml").write_text(SCENARIO)
    found = {}
    for engine in ("ray", "local"):
        folder = tmp_path / engine
        options = {"runs": 1, "methods": ["moments"], "progress": False}
        report = reproduce(str(tmp_path / "one.toml"), engine=engine, output_dir=folder, **options)
        assert report.failed == 0
        (cell,) = (folder / "cells").glob("*.json")
        found[engine] = json.loads(cell.read_text())["metrics"]
    del found["ray"]["cpu_seconds"], found["local"]["cpu_seconds"]
    assert found["ray"] == found["local"]

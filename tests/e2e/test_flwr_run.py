"""``flwr run`` in the repository: Flower's simulation, and how a failed run looks."""

import pytest
from processes import REPOSITORY

from flwr_causal.data.read.example_tables import breast_cancer
from flwr_causal.reports.run import Run

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

THREE_NODES = ("--federation-config", "num-supernodes=3")


def test_simulation_and_failed_runs(flower, tmp_path):
    # One test, because all runs share the SuperLink that the first call starts.
    results = tmp_path / "results"
    output = flower.run(
        REPOSITORY, "", f"variables=5 rows=240 max-rounds=6 output-dir='{results}'", *THREE_NODES
    )
    assert flower.statuses()[0] == "finished:completed", output
    run = Run.load(results)
    assert run.rounds <= 6
    assert list(run.parties.values()) == [80, 80, 80]
    assert {"shd", "pooled", "alone"} <= set(run.metrics)
    assert '{"flwr-causal": {"status": "completed"' in output
    assert (results / "graph.json").exists()

    networks = tmp_path / "networks"
    config = f"method='fedges' variables=6 rows=600 output-dir='{networks}'"
    output = flower.run(REPOSITORY, "", config, *THREE_NODES)
    assert flower.statuses(at_least=2)[0] == "finished:completed", output
    run = Run.load(networks)
    assert list(run.parties.values()) == [200, 200, 200]
    assert {"bdeu", "smhd", "cpdag_shd", "pooled", "alone"} <= set(run.metrics)
    assert run.model.names == run.graph.names
    assert (networks / "model.bif").exists()
    assert "SMHD" in output

    series = tmp_path / "series"
    config = f"method='2dbn' 2dbn.order=2 variables=5 rows=300 output-dir='{series}'"
    output = flower.run(REPOSITORY, "", config, *THREE_NODES)
    assert flower.statuses(at_least=3)[0] == "finished:completed", output
    run = Run.load(series)
    assert run.graph.lagged.shape == run.model.lagged.shape == (2, 5, 5)
    assert run.metrics["lagged_shd"] <= 6
    assert (series / "graph.json").exists()

    circuits, rows = tmp_path / "circuits", tmp_path / "rows.csv"
    breast_cancer().head(8).to_csv(rows, index=False)
    config = f"method='fedpc' setting='vertical' query='{rows}' output-dir='{circuits}'"
    output = flower.run(REPOSITORY, "", config, *THREE_NODES)
    assert flower.statuses(at_least=4)[0] == "finished:completed", output
    run = Run.load(circuits)
    assert {"log_likelihood", "accuracy", "macro_f1", "auroc", "pooled", "alone"} <= set(
        run.metrics
    )
    # The circuits are with the parties, which were asked about the rows before they were gone.
    assert set(run.answers["predicted"]) <= {"benign", "malignant"}
    assert run.answers["log_likelihood"].notna().sum() == len(run.answers) == 8
    assert "the rows of the query" in output

    missing = tmp_path / "no-such-table.csv"
    failures = {
        "threshold='abc'": "'threshold' is 'abc'",
        "method='nonsense'": "There is no method 'nonsense'",
        "method='fedges' fedges.fusion=1.5": "(0, 1]",
        "method='fedges' options='fedges.max-egdes=3'": "Did you mean 'fedges.max-edges'?",
        "method='moments' fedges.mode='exact'": "is an option of the method 'fedges', but",
        f"data='{missing}'": str(missing),
        "method='fedpc' query='rows.csv'": "'rows.csv' is a relative path",
    }
    for number, (config, message) in enumerate(failures.items(), start=5):
        output = flower.run(REPOSITORY, "", config, *THREE_NODES)
        assert flower.statuses(at_least=number)[0].startswith("finished:failed"), output
        assert message in output, output
        assert '{"flwr-causal": {"status": "failed"' in output

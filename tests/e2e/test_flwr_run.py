"""``flwr run`` in the repository: Flower's simulation, and how a failed run looks."""

import json

import pytest
from processes import REPOSITORY

from flwr_causal.data.read.example_tables import breast_cancer
from flwr_causal.reports.run import Run

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(1800)]

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

    circuits, rows = tmp_path / "circuits", tmp_path / "rows.csv"
    breast_cancer().head(8).to_csv(rows, index=False)
    config = "method='fedpc' fedpc.training='one-pass' setting='vertical'"
    config += f" query='{rows}' output-dir='{circuits}'"
    output = flower.run(REPOSITORY, "", config, *THREE_NODES)
    assert flower.statuses(at_least=2)[0] == "finished:completed", output
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
        "method='fedges' options='fedges.max-egdes=3'": "Did you mean 'fedges.max-edges'?",
        f"data='{missing}'": str(missing),
    }
    for number, (config, message) in enumerate(failures.items(), start=3):
        output = flower.run(REPOSITORY, "", config, *THREE_NODES)
        assert flower.statuses(at_least=number)[0].startswith("finished:failed"), output
        assert message in output, output
        assert '{"flwr-causal": {"status": "failed"' in output


def test_a_dry_run_says_whether_a_run_could_begin(flower, tmp_path):
    results = tmp_path / "results"
    command = ["flwr-causal", "check", "--nodes", "--app", REPOSITORY, "--json"]
    given = ["-o", "variables=5", "-o", "rows=60", "-o", f"output-dir={results}"]
    output = flower.call(*command, *given)
    found = json.loads(output[output.index("{") : output.rindex("}") + 1])
    assert found["status"] == "could begin"
    assert found["parties"] == {"party 0": 30, "party 1": 30}
    assert found["exchanges_at_most"] == 40
    assert not results.exists()
    output = flower.call(*command, "-o", "data=/no/such/table.csv")
    assert '"status": "failed"' in output
    assert "/no/such/table.csv" in output

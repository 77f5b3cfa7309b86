"""FedPC on real nodes: rows aligned under a shared secret, circuits kept, and asked again."""

import numpy as np
import pandas as pd
import pytest
from processes import APP, Deployment

from flwr_causal import simulate
from flwr_causal.app.comparison import answers
from flwr_causal.data.partition import hold_out, split_columns
from flwr_causal.data.read.example_tables import breast_cancer
from flwr_causal.reports.run import Run

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# Parties are ordered by name: these come in the order of their tables, as in a local run.
NAMES = ("party 0", "party 1", "party 2")


def test_columns_of_three_nodes(flower, tmp_path):
    # One test, because a SuperLink and its nodes take longer to start than a run.
    columns = [name for name in breast_cancer().columns if not name.startswith("worst")]
    dealt = split_columns(breast_cancer()[columns], 3, "vertical", target="target", seed=0)
    tables, test = hold_out(dealt, 0.1)
    rows = tmp_path / "rows.csv"
    test.drop(columns="target").to_csv(rows, index=False)
    deployment, processes = Deployment(flower), {}

    def add_node(name, secret):
        table = tmp_path / f"{name}.csv"
        circuits = tmp_path / f"{name}.npz"
        config = {"row-secret": secret, "model-path": circuits}
        processes[name] = deployment.add_node(name, table, **config)

    for name, table in zip(NAMES, tables, strict=True):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        add_node(name, "blue heron")
    common = f"method='fedpc' min-available-nodes=3 round-timeout=300.0 query='{rows}'"

    output = flower.run(APP, "clinic", f"{common} output-dir='{tmp_path / 'first'}'")
    assert flower.statuses("clinic") == ["finished:completed"], output
    local = simulate("fedpc", tables)
    first = Run.load(tmp_path / "first")
    assert list(first.parties) == list(NAMES)
    assert [record["exchange"] for record in first.history] == [
        "align",
        "dependence",
        "local, weights by aligned",
    ]
    assert (first.rounds, first.bytes_received) == (local.rounds, local.bytes_received)
    expected = answers(local.model, test.drop(columns="target"))
    assert list(first.answers.columns) == list(expected.columns)
    assert first.answers["row_id"].tolist() == expected["row_id"].tolist()
    assert first.answers["predicted"].tolist() == expected["predicted"].tolist()
    numbers = ["log_likelihood", "p(benign)", "p(malignant)"]
    np.testing.assert_allclose(first.answers[numbers], expected[numbers], rtol=1e-8, atol=1e-8)

    config = f"{common} fedpc.trained='{tmp_path / 'first'}' output-dir='{tmp_path / 'second'}'"
    output = flower.run(APP, "clinic", config)
    assert flower.statuses("clinic", at_least=2)[0] == "finished:completed", output
    second = Run.load(tmp_path / "second")
    assert [record["exchange"] for record in second.history] == ["recall"]
    pd.testing.assert_frame_equal(second.answers, first.answers, rtol=1e-12, atol=0)

    deployment.stop_node(NAMES[2], processes[NAMES[2]])
    add_node(NAMES[2], "grey heron")
    output = flower.run(APP, "clinic", f"{common} output-dir='{tmp_path / 'third'}'")
    assert flower.statuses("clinic", at_least=3)[0].startswith("finished:failed"), output
    assert "no row in common" in output
    assert "row-secret" in Run.load(tmp_path / "third").error

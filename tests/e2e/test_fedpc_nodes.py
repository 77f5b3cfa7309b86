"""FedPC on real nodes with different columns: states, numbers, and circuits that are kept."""

import numpy as np
import pandas as pd
import pytest
from processes import APP, Deployment

from flwr_causal import simulate
from flwr_causal.app.comparison import answers
from flwr_causal.data.partition import hold_out, split_columns
from flwr_causal.data.read.example_tables import breast_cancer
from flwr_causal.reports.run import Run

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(1800)]

# Parties are ordered by name: these come in the order of their tables, as in a local run.
NAMES = ("party 0", "party 1", "party 2")


def test_columns_of_three_nodes(flower, tmp_path):
    # One test, because a SuperLink and its nodes take longer to start than a run.
    columns = [name for name in breast_cancer().columns if not name.startswith("worst")]
    table = breast_cancer()[columns]
    # Three states each: columns of categories need no exchanges of cut points.
    for name in table.columns.drop("target"):
        table[name] = pd.qcut(table[name], 3, labels=["low", "middle", "high"]).astype(str)
    dealt = split_columns(table, 3, "vertical", target="target", seed=0)
    tables, test = hold_out(dealt, 0.1)
    rows = tmp_path / "rows.csv"
    test.drop(columns="target").to_csv(rows, index=False)
    deployment, processes = Deployment(flower), {}

    def add_node(name, secret):
        table = tmp_path / f"{name}.csv"
        circuits = tmp_path / f"{name}.npz"
        config = {"row-secret": 5 * secret + "0123", "model-path": circuits}
        processes[name] = deployment.add_node(name, table, **config)

    for name, table in zip(NAMES, tables, strict=True):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        add_node(name, "blue heron")
    common = f"method='fedpc' min-available-nodes=3 round-timeout=300.0 query='{rows}'"

    def expect(found, local, test=test):
        """The run on nodes is the local one, and so are its answers."""
        assert list(found.parties) == list(NAMES)
        assert (found.rounds, found.bytes_received) == (local.rounds, local.bytes_received)
        expected = answers(local.model, test.drop(columns="target"))
        assert list(found.answers.columns) == list(expected.columns)
        assert found.answers["row_id"].tolist() == expected["row_id"].tolist()
        assert found.answers["predicted"].tolist() == expected["predicted"].tolist()
        numbers = ["log_likelihood", "p(benign)", "p(malignant)"]
        np.testing.assert_allclose(found.answers[numbers], expected[numbers], rtol=1e-8, atol=1e-8)

    output = flower.run(APP, "clinic", f"{common} output-dir='{tmp_path / 'counts'}'")
    assert flower.statuses("clinic") == ["finished:completed"], output
    counted = Run.load(tmp_path / "counts")
    assert "by counts of triples, chosen because" in counted.stop_reason
    exchanges = [record["exchange"] for record in counted.history]
    assert exchanges == ["align", "masked tables", "products"]
    expect(counted, simulate("fedpc", tables))

    one_pass = f"{common} fedpc.training='one-pass'"
    output = flower.run(APP, "clinic", f"{one_pass} output-dir='{tmp_path / 'first'}'")
    assert flower.statuses("clinic", at_least=2)[0] == "finished:completed", output
    first = Run.load(tmp_path / "first")
    exchanges = [record["exchange"] for record in first.history]
    assert exchanges == ["align", "local, weights by em"]
    expect(first, simulate("fedpc", tables, training="one-pass"))

    config = f"{common} fedpc.trained='{tmp_path / 'first'}' output-dir='{tmp_path / 'second'}'"
    output = flower.run(APP, "clinic", config)
    assert flower.statuses("clinic", at_least=3)[0] == "finished:completed", output
    second = Run.load(tmp_path / "second")
    assert [record["exchange"] for record in second.history] == ["recall"]
    pd.testing.assert_frame_equal(second.answers, first.answers, rtol=1e-12, atol=0)

    # The same patients with numbers: a class that one node knows, and products of numbers.
    numbers, asked = hold_out(
        split_columns(breast_cancer()[columns], 3, "vertical", target="target", seed=0), 0.1
    )
    for name, table in zip(NAMES, numbers, strict=True):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    asked.drop(columns="target").to_csv(rows, index=False)
    output = flower.run(APP, "clinic", f"{common} output-dir='{tmp_path / 'numbers'}'")
    assert flower.statuses("clinic", at_least=4)[0] == "finished:completed", output
    multiplied = Run.load(tmp_path / "numbers")
    exchanges = [record["exchange"] for record in multiplied.history]
    assert exchanges[-3:] == ["align", "masked tables", "products"]
    assert len(exchanges) == 7
    expect(multiplied, simulate("fedpc", numbers), asked)

    deployment.stop_node(NAMES[2], processes[NAMES[2]])
    add_node(NAMES[2], "grey heron")
    output = flower.run(APP, "clinic", f"{common} output-dir='{tmp_path / 'third'}'")
    assert flower.statuses("clinic", at_least=5)[0].startswith("finished:failed"), output
    assert "have no row in common" in output
    assert "row-secret" in Run.load(tmp_path / "third").error

"""Real nodes that hold different columns of the same rows: three exchanges."""

import numpy as np
import pandas as pd
import pytest
from processes import APP, Deployment

from flwr_causal import simulate
from flwr_causal.reports.run import Run

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]

NAMES = ("hospital", "insurer", "laboratory")


def patients():
    """The joined rows of the three tables."""
    rng = np.random.default_rng(0)
    age = rng.normal(60, 8, 400)
    value = 0.3 * age + rng.normal(0, 2, 400)
    days = 0.5 * value + rng.normal(0, 2, 400)
    cost = 2 * days + 0.5 * value + rng.normal(0, 2, 400)
    return pd.DataFrame({"age": age, "days": days, "cost": cost, "value": value})


def run_on_nodes(flower, directory, joined, config, *, shuffled=True):
    """Run on three nodes with other columns each; return the run and the nodes' files."""
    table = joined.assign(patient=[f"p{k}" for k in range(len(joined))])
    tables = [table[["patient", *own]] for own in (("age", "days"), ("cost",), ("value",))]
    secret = directory / "rows.txt"
    secret.write_text("e3b0c44298fc1c149afbf4c8996fb924\n")
    deployment, files = Deployment(flower), []
    for place, (name, own) in enumerate(zip(NAMES, tables, strict=True)):
        files.append(directory / f"{name}.csv")
        own = own.sample(frac=1, random_state=place) if shuffled else own
        own.to_csv(files[-1], index=False)
        deployment.add_node(name, files[-1], **{"row-secret-file": secret})
    config += (
        f" row-id='patient' min-available-nodes=3 round-timeout=300.0 "
        f"output-dir='{directory / 'run'}'"
    )
    output = flower.run(APP, "clinic", config)
    assert flower.statuses("clinic") == ["finished:completed"], output
    for file in (directory / "run").rglob("*"):
        assert file.suffix != ".npz"  # neither hashes nor masked tables are left
    return Run.load(directory / "run"), files


@pytest.mark.parametrize("order", [0, 2])
def test_three_nodes_with_different_columns_find_the_graph_of_the_joined_table(
    flower, tmp_path, order
):
    """Of rows, and of time series with lags whose number is chosen."""
    joined = patients()
    config = (
        f"method='moments' replicates=3 moments.order={order} "
        f"moments.select-order={str(order > 0).lower()}"
    )
    found, files = run_on_nodes(flower, tmp_path, joined, config, shuffled=not order)
    exchanges = [record["exchange"] for record in found.history]
    assert exchanges == ["align", "masked tables", "products"]
    names = list(found.graph.names)
    # The number of lags is chosen among rows with two of them.
    used = joined[names][order - 1 if order else 0 :]
    pooled, local = (
        simulate("moments", [used], order=min(order, 1)),
        simulate("moments", files, row_id="patient", order=order, select_order=order > 0),
    )
    assert (found.graph.adjacency == pooled.graph.adjacency).all()
    for other in (pooled, local):
        assert found.graph.weights == pytest.approx(other.graph.weights, abs=1e-6)
        if order:
            assert found.graph.lagged == pytest.approx(other.graph.lagged, abs=1e-6)
    assert found.graph.confidence.max() == 1


def test_three_nodes_with_different_columns_find_the_class_of_the_joined_categories(
    flower, tmp_path
):
    joined = patients().apply(lambda own: pd.qcut(own, 3, labels=["low", "middle", "high"]))
    config = "method='fedges' fedges.mode='exact' fedges.max-parents=1"
    found, _ = run_on_nodes(flower, tmp_path, joined, config)
    exchanges = [record["exchange"] for record in found.history]
    assert exchanges == ["align", "masked tables", "products"]
    rows = joined[list(found.graph.names)].astype(str)
    pooled = simulate("fedges", [rows], mode="exact", max_parents=1)
    np.testing.assert_array_equal(found.graph.adjacency, pooled.graph.adjacency)
    assert found.graph.num_edges == 3
    expected = pooled.model.log_likelihood(rows)
    np.testing.assert_allclose(found.model.log_likelihood(rows), expected, rtol=1e-12)

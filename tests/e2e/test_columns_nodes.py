"""Moments on real nodes that hold different columns of the same rows: three exchanges."""

import numpy as np
import pandas as pd
import pytest
from processes import APP, Deployment

from flwr_causal import simulate
from flwr_causal.reports.run import Run

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.release]

NAMES = ("hospital", "insurer", "laboratory")


@pytest.mark.parametrize("order", [0, 2])
def test_three_nodes_with_different_columns_find_the_graph_of_the_joined_table(
    flower, tmp_path, order
):
    """Of rows, and of time series with lags whose number is chosen."""
    rng = np.random.default_rng(0)
    age = rng.normal(60, 8, 400)
    value = 0.3 * age + rng.normal(0, 2, 400)
    days = 0.5 * value + rng.normal(0, 2, 400)
    cost = 2 * days + 0.5 * value + rng.normal(0, 2, 400)
    joined = pd.DataFrame({"age": age, "days": days, "cost": cost, "value": value})
    table = joined.assign(patient=[f"p{k}" for k in range(400)])
    tables = [table[["patient", *own]] for own in (("age", "days"), ("cost",), ("value",))]
    secret = tmp_path / "rows.txt"
    secret.write_text("blue heron\n")
    deployment, files = Deployment(flower), []
    for place, (name, own) in enumerate(zip(NAMES, tables, strict=True)):
        files.append(tmp_path / f"{name}.csv")
        own = own if order else own.sample(frac=1, random_state=place)
        own.to_csv(files[-1], index=False)
        deployment.add_node(name, files[-1], **{"row-secret-file": secret})
    config = (
        "method='moments' row-id='patient' replicates=3 min-available-nodes=3 "
        f"round-timeout=300.0 output-dir='{tmp_path / 'run'}' moments.order={order} "
        f"moments.select-order={str(order > 0).lower()}"
    )
    output = flower.run(APP, "clinic", config)
    assert flower.statuses("clinic") == ["finished:completed"], output
    found = Run.load(tmp_path / "run")
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
    for file in (tmp_path / "run").rglob("*"):
        assert file.suffix != ".npz"  # neither hashes nor masked tables are left

"""Real nodes read their files as a simulation does: columns first, then rows; codes and states."""

import numpy as np
import pandas as pd
import pytest
from processes import APP, Deployment

from flwr_causal import simulate
from flwr_causal.reports.run import Run

pytestmark = [pytest.mark.e2e, pytest.mark.nightly]


def test_gaps_of_unused_columns_cost_no_rows_and_codes_keep_their_spelling(flower, tmp_path):
    rng = np.random.default_rng(0)
    deployment, files = Deployment(flower), []
    for name in ("north", "south"):
        dose = rng.integers(0, 2, 200)
        code = np.where(dose == 0, "007", np.where(rng.random(200) < 0.5, "7", "12"))
        frame = pd.DataFrame({"dose": dose, "code": code, "drink": np.where(dose, "None", "Low")})
        if name == "north":
            frame["extra"] = np.where(np.arange(200) % 5, None, "seen")
        files.append(tmp_path / f"{name}.csv")
        frame.to_csv(files[-1], index=False)
        deployment.add_node(name, files[-1])
    flower.run(
        APP,
        "clinic",
        "method='fedges' min-available-nodes=2 round-timeout=300.0 unshared-columns='drop' "
        f"missing-values='drop' fedges.categories='code' output-dir='{tmp_path / 'run'}'",
    )
    assert flower.statuses("clinic") == ["finished:completed"]
    found = Run.load(tmp_path / "run")
    options = {"unshared_columns": "drop", "missing_values": "drop", "categories": "code"}
    local = simulate("fedges", files, **options)
    assert found.total_rows == local.total_rows == 400
    assert found.model.states == local.model.states
    assert {"007", "7", "12"} in map(set, found.model.states)
    assert {"None", "Low"} in map(set, found.model.states)
    assert found.graph.equals(local.graph)

"""Apps of Flower users' own under ``flwr run``: mods, wrappers, warm starts, bundles, refusals."""

import hashlib
import json
import re
import shutil
from textwrap import dedent
from zipfile import ZipFile

import blocks
import pytest
from entry_point_packages import declare
from processes import REPOSITORY, Deployment
from typer.testing import CliRunner

from flwr_causal.command_line import app as command_line
from flwr_causal.reports.run import Run

pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(1800)]

PROJECT = """
[project]
name = "{name}"
version = "0.1.0"

[tool.flwr.app]
publisher = "me"

[tool.flwr.app.components]
serverapp = "{name}.app:server_app"
clientapp = "{name}.app:app"
"""

# What all of the apps begin with.
HEAD = """
import numpy as np
import pandas as pd
from flwr.app import Array, ArrayRecord, Context
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)

from flwr_causal.clients import NotearsADMMClient, Source, client_app
from flwr_causal.strategies import NotearsADMM, run


def table(context: Context) -> Source:
    number = int(context.node_config["partition-id"])
    rng = np.random.default_rng(number)
    dose = rng.normal(size=200)
    rows = pd.DataFrame({"dose": dose, "pressure": 1.5 * dose + rng.normal(size=200)})
    return Source(f"clinic {number}", lambda: rows)


def around(*mods):
    inner, outer = client_app(NotearsADMMClient, table), ClientApp(mods=list(mods))
    outer.train()(inner)
    outer.query()(inner)
    outer.query("schema")(inner)
    return outer


def edges(graph):
    return [(cause, effect) for cause, effect, _ in graph.edges()]


def started(wrapper, method, grid):
    rounds = method.max_rounds
    result = wrapper.start(grid=grid, initial_arrays=ArrayRecord(), num_rounds=rounds)
    assert (result.arrays["weights"].numpy() == method.outcome.graph.weights).all()
    print("FOUND", type(wrapper).__name__, method.outcome.rounds, edges(method.outcome.graph))


server_app = ServerApp()
method = NotearsADMM(max_rounds=6, refit=False)
"""

MODS = """
app = around(fixedclipping_mod)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    wrapper = DifferentialPrivacyClientSideFixedClipping(method, 1e-6, 5.0, 2)
    started(wrapper, method, grid)
    outcome = run(method, grid, strategy=wrapper)
    print("FOUND run", outcome.rounds, edges(outcome.graph))
"""

ADAPTIVE = """
app = client_app(NotearsADMMClient, table, mods=[adaptiveclipping_mod])


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    started(
        DifferentialPrivacyClientSideAdaptiveClipping(method, 1e-6, 2, initial_clipping_norm=5.0),
        method,
        grid,
    )
"""

PLAIN = """
app = client_app(NotearsADMMClient, table)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    known = ArrayRecord({"weights": Array(np.array([[0.0, 1.5], [0.0, 0.0]]))})
    warm = method.start(grid=grid, initial_arrays=known).outcome
    print("FOUND warm", edges(warm.graph))
    started(DifferentialPrivacyServerSideFixedClipping(method, 1e-6, 5.0, 2), method, grid)
    started(
        DifferentialPrivacyServerSideAdaptiveClipping(method, 1e-6, 2, initial_clipping_norm=5.0),
        method,
        grid,
    )
    FedAvg(fraction_evaluate=0.0).start(grid=grid, initial_arrays=known, num_rounds=1)
"""

OF_CLIENT_FN = """
app = ClientApp(client_fn=lambda context: NotearsADMMClient(table(context), context).to_client())


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    method.start(grid=grid)
"""


def written(directory, name, text):
    """Write the app of a user's own, and return its directory."""
    (directory / name / name).mkdir(parents=True)
    (directory / name / name / "__init__.py").touch()
    (directory / name / name / "app.py").write_text(HEAD + text)
    (directory / name / "pyproject.toml").write_text(dedent(PROJECT.format(name=name)))
    return directory / name


EDGE = "[('dose', 'pressure')]"


def test_apps_of_users_own(flower, tmp_path):
    # One test, because all runs share the SuperLink that the first call starts.
    runs = {
        "mods": (
            MODS,
            f"FOUND DifferentialPrivacyClientSideFixedClipping 6 {EDGE}",
            f"FOUND run 6 {EDGE}",
        ),
        "adaptive": (ADAPTIVE, "FOUND DifferentialPrivacyClientSideAdaptiveClipping", EDGE),
        "plain": (
            PLAIN,
            f"FOUND warm {EDGE}",
            f"FOUND DifferentialPrivacyServerSideFixedClipping 6 {EDGE}",
            "FOUND DifferentialPrivacyServerSideAdaptiveClipping",
            "not of a strategy of flwr-causal",
            "start its strategy of flwr_causal.strategies",
        ),
    }
    for number, (name, (text, *expected)) in enumerate(runs.items(), start=1):
        output = flower.run(written(tmp_path, name, text))
        assert flower.statuses(at_least=number)[0] == "finished:completed", output
        for line in expected:
            assert line in output, output
    output = flower.run(written(tmp_path, "legacy", OF_CLIENT_FN))
    assert flower.statuses(at_least=4)[0].startswith("finished:failed"), output
    assert "client_app(NotearsADMMClient, source)" in output, output


def test_the_bundle_of_the_tutorials_app_runs_on_nodes(flower, tmp_path):
    """Two methods in one ServerApp; what ``flwr build`` makes holds their code and no table."""
    page = (REPOSITORY / "docs" / "tutorials" / "flower.md").read_text(encoding="utf-8")
    code = [one.text for one in blocks.blocks_of(page) if one.language == "python"]
    (last,) = [place for place, text in enumerate(code) if "run.save(" in text]
    text = "\n\n".join(code[: last + 1]).replace("max_rounds=20", "max_rounds=6")
    app = tmp_path / "app"
    (app / "my").mkdir(parents=True)
    (app / "my" / "app.py").write_text(text)
    (app / "my" / "test_app.py").write_text("import my.app")
    (app / "my" / "rows.csv").write_text("dose,pressure\n1,2\n")
    (app / "pyproject.toml").write_text(
        "".join(re.findall(r"^```toml\n(.*?)^```", page, re.S | re.M))
    )

    output = flower.call("flwr", "build", "--app", app)
    (bundle,) = tmp_path.glob("*.fab")
    with ZipFile(bundle) as archive:
        assert set(archive.namelist()) == {"pyproject.toml", "my/app.py", ".info/CONTENT"}, output
        assert archive.read("my/app.py").decode() == text
    output = flower.call("flwr", "install", bundle)
    (installed,) = (flower.home / "apps").iterdir()
    # Nothing but the bundle is left of the app.
    shutil.rmtree(app)
    deployment, results = Deployment(flower), tmp_path / "results"
    for number in range(2):
        deployment.add_node(f"clinic{number}", None, **{"partition-id": number})
    output += flower.run(installed, "clinic", f"method='notears-admm' output-dir='{results}'")

    assert flower.statuses("clinic") == ["finished:completed"], output
    (listed,) = json.loads(flower.call("flwr", "list", "clinic", "--format", "json"))["runs"]
    assert listed["fab-hash"] == hashlib.sha256(bundle.read_bytes()).hexdigest()
    for method in ("moments", "notears-admm"):
        run = Run.load(results / method)
        assert run.config["method"] == method
        assert [edge[:2] for edge in run.graph.edges()] == [("dose", "pressure")]
        assert run.total_rows == 400
        assert "dose" in (results / f"{method}.html").read_text(encoding="utf-8")


def test_a_new_methods_app_takes_the_rows_of_a_run(flower, tmp_path):
    folder = tmp_path / "ridge-graph"
    made = CliRunner().invoke(command_line, ["new", "ridge-graph", "--directory", folder])
    assert made.exit_code == 0, made.output
    declare(folder, "ridge-graph", {"ridge-graph": "ridge_graph:METHOD"})
    flower.environment["PYTHONPATH"] = f"{folder}:{REPOSITORY}"
    results = tmp_path / "results"

    output = flower.run(folder, "", f"rows=800 variables=6 output-dir='{results}'")

    assert flower.statuses() == ["finished:completed"], output
    run = Run.load(results)
    assert run.config["method"] == "ridge-graph"
    assert list(run.parties.values()) == [400, 400]
    assert len(run.graph.names) == 6

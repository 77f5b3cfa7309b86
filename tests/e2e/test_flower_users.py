"""Apps of Flower users' own under ``flwr run``: mods, wrappers, warm starts, refusals."""

from textwrap import dedent

import pytest

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

"""A dry run does all that comes before the training, tells the cost, and leaves nothing behind."""

import json
import stat

import numpy as np
import pandas as pd
import pytest
from federations import SpyGrid
from flwr.app import Context, RecordDict
from flwr.common.config import parse_config_args
from typer.testing import CliRunner

from flwr_causal.app import methods
from flwr_causal.app.dry_run import dry_run, on_nodes
from flwr_causal.app.server import server_app
from flwr_causal.client_app import app as nodes
from flwr_causal.clients import client_app
from flwr_causal.command_line import app as command_line
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.runtime.local_grid import LocalGrid
from flwr_causal.simulations import simulate
from flwr_causal.simulations.tables import PartyTables

SMALL = {"variables": 5, "rows": 150, "seed": 1, "max-rounds": 10}


@pytest.fixture
def job(caplog):
    """Run the app over nodes; return the grid, and read the last line of the log."""

    def start(config, node_configs=None):
        grid = SpyGrid(nodes, 3, run_config=config, node_configs=node_configs)
        caplog.set_level("INFO", logger="flwr")
        server_app()(grid, Context(grid.run.run_id, 1, {}, RecordDict(), dict(config)))
        return grid

    start.result = lambda: json.loads(caplog.records[-1].getMessage())["flwr-causal"]
    return start


def test_a_key_that_flower_refuses_without_its_name_is_named(tmp_path, monkeypatch):
    """Flower ends with [code: 15] alone; texts with quotation marks reach it whole."""
    (tmp_path / "pyproject.toml").write_text('[tool.flwr.app.config]\nmethod = "moments"\n')
    asked = tmp_path / "asked"
    (tmp_path / "flwr").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {asked}\n'
        "echo 'Error: [code: 15] Invalid run configuration.' >&2\nexit 1\n"
    )
    (tmp_path / "flwr").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(ConfigError, match=r"no key 'max-round'\. Did you mean 'max-rounds'\?"):
        on_nodes(tmp_path, "", {"max-round": 1})
    with pytest.raises(FederationError, match="code: 15"):
        on_nodes(tmp_path, "", {"exclude": 'a"b\\c'})
    pairs = parse_config_args([asked.read_text().splitlines()[-1]])
    assert pairs == {"exclude": 'a"b\\c', "dry-run": True}


@pytest.mark.parametrize("method", ["notears-admm", "moments", "describe", "fedges", "lingam"])
def test_nothing_is_asked_after_the_schema_and_nothing_is_written(job, method, tmp_path):
    target = tmp_path / "results"
    config = {"variables": 5, "rows": 150, "method": method, "output-dir": str(target)}
    grid = job({**config, "dry-run": True})
    kinds = {message.metadata.message_type for message in grid.sent}
    assert kinds == {"query.schema"}
    assert not target.exists()
    found = job.result()
    assert found["status"] == "could begin"
    assert found["parties"] == {f"party {k}": 50 for k in range(3)}
    assert len(found["columns"]) == 5
    assert found["exchanges"]


def test_a_run_that_could_not_begin_says_why(job, tmp_path):
    paths = []
    for k in range(3):
        frame = pd.DataFrame(np.random.default_rng(k).normal(size=(20, 2)), columns=["a", "b"])
        if k == 1:
            frame = frame.rename(columns={"b": "c"})
        paths.append(tmp_path / f"{k}.csv")
        frame.to_csv(paths[-1], index=False)
    configs = [{"data-path": str(path)} for path in paths]
    with pytest.raises(DataError, match=r"unshared.columns"):
        job({"method": "moments", "dry-run": True}, configs)
    assert job.result()["status"] == "failed"
    with pytest.raises(ConfigError, match="relative"):
        job({"method": "moments", "dry-run": True, "output-dir": "here"}, configs)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"run\.json"):
        job({"method": "moments", "dry-run": True, "output-dir": str(tmp_path / "own")}, configs)


def grid_of(method, parties):
    return LocalGrid(client_app(methods.find(method).client, PartyTables(parties)), len(parties))


@pytest.mark.few(3)
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("describe", {}),
        ("moments", {}),
        ("notears-admm", {"max_rounds": 8}),
        ("notears-admm", {"precision": "float32"}),
    ],
)
def test_the_estimate_holds_what_a_run_sends(method, options, secure):
    parties = [np.random.default_rng(k).normal(size=(60, 6)) for k in range(4)]
    options = {**options, **({"secure_aggregation": True} if secure else {})}
    found = dry_run(methods.build(method, options), grid_of(method, parties))
    run = simulate(method, parties, **options)
    assert run.rounds <= (found["exchanges_at_most"] or 1000)
    costs = {one["name"]: one for one in found["exchanges"]}
    own = [one for one in run.history if one["exchange"] in costs]
    for record in own:
        # Beside the arrays a message has names and forms.
        received = costs[record["exchange"]]["received"] * len(parties)
        assert received <= record["bytes_received"]
        if not costs[record["exchange"]]["further"]:
            assert record["bytes_received"] <= 1.2 * received + 3000 * len(parties)
    assert own
    if found["bytes_at_most"] is not None:
        received = sum(costs[one["exchange"]]["received"] * len(parties) for one in own)
        assert found["bytes_at_most"] >= received


def test_a_privacy_budget_is_not_touched(tmp_path):
    parties = [np.random.default_rng(k).normal(size=(60, 3)) for k in range(3)]
    grid = grid_of("moments", parties)
    with pytest.raises(ConfigError, match="epsilon"):
        dry_run(methods.build("moments", {"epsilon": 1.0}), grid)


@pytest.fixture
def fake_flwr(tmp_path, monkeypatch):
    """A program `flwr` that prints what it is told, and keeps its arguments."""

    def made(*lines):
        script = tmp_path / "bin" / "flwr"
        script.parent.mkdir(exist_ok=True)
        text = "\n".join(lines)
        script.write_text(
            f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{tmp_path}/arguments'\ncat <<'END'\n{text}\nEND\n"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin:/bin")
        return lambda: (tmp_path / "arguments").read_text().splitlines()

    return made


def test_the_command_asks_nodes_by_flwr_run(fake_flwr):
    parties = [np.random.default_rng(k).normal(size=(60, 3)) for k in range(3)]
    found = dry_run(methods.build("moments", {}), grid_of("moments", parties))
    arguments = fake_flwr("INFO :  Start", f"INFO :  {json.dumps({'flwr-causal': found})}", "INFO:")
    given = ["check", "--nodes", "--app", "app", "--connection", "hospitals", "-m", "moments"]
    given += ["-o", "sparsity=0.1", "-o", "expected-parties=north,south"]
    result = CliRunner().invoke(command_line, given)
    assert result.exit_code == 0, result.output
    assert "could begin" in result.output
    assert "party 2: 60 rows" in result.output
    assert arguments() == [
        *("run", "app", "hospitals", "--stream", "-c"),
        'sparsity=0.1 expected-parties="north,south" method="moments" dry-run=true',
    ]
    result = CliRunner().invoke(command_line, ["check", "--nodes", "--json"])
    assert json.loads(result.output) == json.loads(json.dumps(found))


def test_the_command_fails_where_the_run_could_not_begin(fake_flwr):
    failed = {"flwr-causal": {"status": "failed", "error": "north has no column 'b'"}}
    fake_flwr(f"ERROR :  {json.dumps(failed)}")
    result = CliRunner().invoke(command_line, ["check", "--nodes"])
    assert result.exit_code == 1
    assert "north has no column" in result.output
    fake_flwr("cannot connect")
    result = CliRunner().invoke(command_line, ["check", "--nodes"])
    assert result.exit_code == 1
    assert "cannot connect" in result.output
    for given in (["check"], ["check", "--nodes", "a.csv"]):
        result = CliRunner().invoke(command_line, given)
        assert result.exit_code == 2, given
        assert "--nodes" in result.output

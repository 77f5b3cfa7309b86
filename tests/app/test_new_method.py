"""`flwr-causal new`: a package that runs, passes its tests, and is found by its entry point."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from entry_point_packages import forget
from flower_apps import accepted_by_flower
from typer.testing import CliRunner

import flwr_causal
from flwr_causal.app import entry_points
from flwr_causal.app.new_method import create
from flwr_causal.command_line import app
from flwr_causal.errors import ConfigError
from flwr_causal.simulations import simulate

ROOT = Path(flwr_causal.__file__).parents[1]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A new package that can be imported, with its folder and what it declares."""
    folder = tmp_path / "ridge-graph"
    assert CliRunner().invoke(app, ["new", "ridge-graph", "--directory", folder]).exit_code == 0
    monkeypatch.syspath_prepend(str(folder))
    declared = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    yield folder, declared
    for name in [name for name in sys.modules if name.partition(".")[0] == "ridge_graph"]:
        del sys.modules[name]


@pytest.mark.nightly
def test_its_own_tests_pass(package):
    folder, _ = package
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        env={"PYTHONPATH": f"{folder}:{ROOT}", "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert int(re.search(r"(\d+) passed", ran.stdout)[1]) > 50


def test_the_entry_point_names_the_method(package, monkeypatch):
    _, declared = package
    ((name, value),) = declared["project"]["entry-points"]["flwr_causal.methods"].items()
    entry = EntryPoint(name, value, "flwr_causal.methods")
    monkeypatch.setattr(entry_points, "entry_points", lambda group: [entry])
    forget()
    try:
        rows = np.array([[i, 2.0 * i + (-1) ** i] for i in range(40)])
        run = simulate("ridge-graph", [rows[::2], rows[1::2]], threshold=0.1)
        assert run.config["method"] == declared["tool"]["flwr"]["app"]["config"]["method"]
        assert run.stop_reason == "one round is enough"
    finally:
        forget()


def definitions(text):
    """The classes and constants of a text; without docstrings of classes, which differ."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = [ast.dump(part) for part in node.body[1:]]
        elif isinstance(node, ast.Assign) and node.targets[0].id.isupper():
            found[node.targets[0].id] = ast.dump(node.value)
    return found


def test_it_is_the_first_method_of_the_guide(tmp_path):
    guide = (ROOT / "docs" / "new_method.md").read_text(encoding="utf-8")
    first = definitions(re.search(r"```python\n(.*?)```", guide, re.S)[1])
    written = create("regression", tmp_path / "regression")
    ours = "\n".join(
        p.read_text(encoding="utf-8")
        for p in written
        if p.parent.name != "tests" and p.suffix == ".py" and p.name != "__init__.py"
    )
    assert definitions(ours) == first


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("My Method", "no id of a method"),
        ("m" * 33, "at most 32"),
        ("moments", "a method 'moments' already"),
        ("json", "a module 'json' already"),
        ("class", "a module 'class' already"),
    ],
)
def test_names_that_cannot_be_used(name, says, tmp_path):
    with pytest.raises(ConfigError, match=says):
        create(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["my-method", "m2", "ridge", "a-b-c", "m" * 32])
def test_flower_accepts_the_name(name, tmp_path):
    create(name, tmp_path)
    accepted_by_flower(tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8")))


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        create("ridge-graph", tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        create("ridge-graph", tmp_path / "file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "notes.txt"]


def test_the_app_takes_the_keys_of_the_data_and_of_all_methods(tmp_path):
    create("my-graph", tmp_path)
    table = tomllib.loads((tmp_path / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    config = table["config"]
    assert config["method"] == "my-graph"
    assert (config["rows"], config["secure-aggregation"]) == (0, "")
    assert not any(key.startswith("moments.") for key in config)

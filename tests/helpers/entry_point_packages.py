"""Packages with entry points, as pip would have installed them."""

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

from flwr_causal.app import entry_points, methods

FIELD = tomllib.loads(
    (Path(__file__).parents[2] / "examples" / "field" / "pyproject.toml").read_text("utf-8")
)["project"]["entry-points"]["flwr_causal.methods"]


def install(folder, package, points, code, group="flwr_causal.methods"):
    """Write a package of one module into a folder of ``sys.path``: its code, what it declares."""
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text(code)
    values = {name: f"{module}:{attribute}" for name, attribute in points.items()}
    declare(folder, package, values, group)
    forget()


def declare(folder, package, points, group="flwr_causal.methods"):
    """Write what pip writes into a folder of ``sys.path`` about a package's entry points."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))


def forget():
    """Forget which packages declare what."""
    methods.find.cache_clear()
    entry_points.declared.cache_clear()


def declare_field(monkeypatch):
    """Declare the methods of examples/field."""
    points = [EntryPoint(name, value, "flwr_causal.methods") for name, value in FIELD.items()]
    monkeypatch.setattr(
        entry_points, "entry_points", lambda *, group: points if group.endswith("methods") else []
    )
    forget()

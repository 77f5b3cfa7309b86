"""The page on the field's methods: its blocks run, and its tables are what the methods declare."""

from pathlib import Path

import blocks
import numpy as np
import pandas as pd
import pytest
from entry_point_packages import FIELD, declare_field, forget
from typer.testing import CliRunner

from flwr_causal.app.methods import METHODS, OWN_METHODS, find
from flwr_causal.command_line import app
from flwr_causal.protocol import tables
from flwr_causal.reports.described import described

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "field_methods.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def package(monkeypatch):
    """The package as pip would have installed it."""
    declare_field(monkeypatch)
    yield
    forget()


def test_its_blocks_run(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        dose, age = rng.normal(size=(2, 80))
        table = pd.DataFrame({"age": age, "dose": dose, "pressure": dose - age})
        table["pressure"] += rng.normal(size=80)
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    text = PAGE.replace("pip install ./examples/field\n", "")
    assert list(blocks.run(text, "docs/field_methods.md", tmp_path))


def test_it_has_every_method():
    assert set(METHODS) == {*OWN_METHODS, *FIELD}
    for method in FIELD:
        assert f"`{method}`" in PAGE


@pytest.mark.parametrize("method", sorted(FIELD))
def test_its_tables_are_what_the_methods_declare(method):
    assert tables.leaves(find(method).strategy.contract) in PAGE


def test_a_method_says_how_many_exchanges_it_makes_or_that_it_does_not():
    most = {one: described(find(one).strategy())["exchanges_at_most"] for one in FIELD}
    assert most["peri"] == 1000
    assert most["fisher-z-pc"] is None
    shown = CliRunner().invoke(app, ["methods", "fisher-z-pc"])
    assert "exchanges at most: not stated" in shown.stdout

"""Public names are found by completion before they are first used."""

import subprocess
import sys
from importlib import import_module

import pytest

PACKAGES = (
    "flwr_causal",
    *("flwr_causal.clients", "flwr_causal.simulations", "flwr_causal.solvers"),
    *("flwr_causal.strategies", "flwr_causal.strategies.moments"),
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_its_public_names(package):
    module = import_module(package)
    assert set(module.__all__) <= set(dir(module))
    assert {"__name__", "__doc__"} <= set(dir(module))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        module.nothing  # noqa: B018 (the access is what is tested)


def test_they_are_listed_in_a_new_process():
    code = (
        f"import importlib; print([n for p in {PACKAGES} for n in dir(importlib.import_module(p))])"
    )
    listed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    for name in ("simulate", "NotearsADMM", "MomentsClient", "notears", "LocalGrid"):
        assert f"'{name}'" in listed.stdout

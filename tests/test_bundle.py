"""The bundle that Flower sends to nodes holds all that its apps import, and little else."""

import ast
import tomllib
from pathlib import Path

import pathspec

ROOT = Path(__file__).parents[1]
APP = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in ROOT.glob("flwr_causal/**/*.py")
}
# Public names that a ServerApp of the bundle never uses.
LAZY = {"flwr_causal"}


def imported(module):
    """The modules of the package that a module imports or names in a text."""
    names = set()
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names & set(FILES)


# Learners that `by_name` imports by file name, and the public solvers, for methods of others.
BY_NAME = {
    "flwr_causal.core.blocks.design",
    "flwr_causal.core.blocks.search",
    "flwr_causal.core.circuits.learners.decision_tree",
    "flwr_causal.core.circuits.learners.einsum",
    "flwr_causal.solvers",
}


def test_the_bundle_holds_what_the_apps_import_and_nothing_else():
    spec = pathspec.PathSpec.from_lines("gitwildmatch", APP["fab-exclude"])
    left_out = {name for name, path in FILES.items() if spec.match_file(path.relative_to(ROOT))}
    # Flower refuses a pattern that matches nothing.
    assert all(any(ROOT.glob(pattern)) for pattern in APP["fab-exclude"])
    found, waiting = set(), ["flwr_causal.server_app", "flwr_causal.client_app"]
    waiting += [
        name for name in FILES if name.startswith(("flwr_causal.strategies", "flwr_causal.clients"))
    ]
    while waiting:
        module = waiting.pop()
        if module not in found and module not in LAZY:
            found.add(module)
            waiting += imported(module)
    assert len(found) > 150
    assert not found & left_out
    files = {name for name, path in FILES.items() if path.name != "__init__.py"}
    assert files - left_out - found == BY_NAME - found

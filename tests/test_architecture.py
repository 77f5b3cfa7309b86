"""The floors of the house, the size of its rooms, and the agreement of its tables."""

import ast
import subprocess
import sys
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import flwr_causal
from flwr_causal.app.apps import JobConfig, read_config
from flwr_causal.app.methods import METHODS
from flwr_causal.app.sources import DataConfig
from flwr_causal.errors import ConfigError
from flwr_causal.strategies import LinearStrategy

ROOT = Path(flwr_causal.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
MOST_LINES = 350

FLOORS = {
    **dict.fromkeys(["core", "data", "errors", "lazy", "threads"], 0),
    **dict.fromkeys(["compat", "wire", "setup_message"], 1),
    **dict.fromkeys(["clients", "strategies"], 2),
    **dict.fromkeys(["methods", "reports"], 3),
    **dict.fromkeys(["sources", "comparison", "circuit_comparison", "local_grid", "apps"], 4),
    **dict.fromkeys(["simulations", "server_app", "client_app"], 5),
}
# What Flower documents for users, and its logger; all else of Flower belongs into compat.py.
PUBLIC_FLOWER = {
    "flwr.app": None,
    "flwr.clientapp": None,
    "flwr.serverapp": None,
    "flwr.serverapp.strategy": None,
    "flwr.client": {"NumPyClient"},
    "flwr.supercore": {"log"},
}


def name_of(path):
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def room_of(module):
    return module.split(".")[0]


def imports(path):
    """Every (module, names) that a file imports, inside functions and for type checkers too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module, {alias.name for alias in node.names}


def imported_rooms(path):
    for module, names in imports(path):
        parts = module.split(".")
        if parts[0] != "flwr_causal":
            continue
        yield from parts[1:2] or names


def test_every_room_is_on_a_floor():
    rooms = {room_of(name_of(path)) for path in MODULES} - {"__init__"}
    assert rooms == set(FLOORS)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down(path):
    room = room_of(name_of(path))
    for other in imported_rooms(path):
        assert room == "__init__" or FLOORS[other] <= FLOORS[room], f"{room} imports {other}"
        assert {room, other} != {"clients", "strategies"}
        if FLOORS.get(room) == 0:
            assert other in (room, "core", "errors", "lazy", "threads")
            assert not (room == "core" and other == "data"), "core imports data"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_flower_is_met_where_it_belongs(path):
    room = room_of(name_of(path))
    for module, names in imports(path):
        top = module.split(".")[0]
        if FLOORS.get(room) == 0:
            assert top not in ("flwr", "ray"), f"{name_of(path)} imports {module}"
        if top != "flwr" or room == "compat":
            continue
        assert module in PUBLIC_FLOWER, f"{name_of(path)} imports {module}: put it in compat.py"
        allowed = PUBLIC_FLOWER[module]
        assert allowed is None or (names or set()) <= allowed


def test_heavy_libraries_are_imported_when_needed():
    """A process that answers one message on a real node pays for every import."""
    code = (
        "import sys, flwr_causal.client_app, flwr_causal.server_app, flwr_causal.simulations\n"
        "print(sorted({'matplotlib', 'numba', 'ray', 'sklearn', 'torch'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_are_small_and_documented(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES, "it hides two ideas: split it"
    assert "TODO" not in text
    assert "FIXME" not in text
    tree = ast.parse(text)
    assert not text or ast.get_docstring(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        undocumented = [
            item.name
            for item in node.body
            if isinstance(item, ast.FunctionDef)
            and not item.name.startswith("_")
            and not ast.get_docstring(item)
        ]
        assert node.name.startswith("_") or (ast.get_docstring(node) and not undocumented), (
            f"{node.name}: {undocumented}"
        )
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), node.name


# The keys of `flwr run` are the options of the code, no more and no less.


def flat(table, prefix=""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def config_of_pyproject():
    with (ROOT.parent / "pyproject.toml").open("rb") as file:
        return dict(flat(tomllib.load(file)["tool"]["flwr"]["app"]["config"]))


def kebab(name):
    return name.replace("_", "-")


# Fields that a run config calls by their other name.
CONFIG_NAMES = {"start_from": "start", "kind": "model"}


def options_of_code():
    """Key -> default of every option."""
    known = {}
    for owner in (JobConfig, DataConfig):
        known |= {kebab(f.name): f.default for f in fields(owner)}
    common = {f.name for f in fields(LinearStrategy) if f.init}
    for method, (strategy, _) in METHODS.items():
        for field in fields(strategy):
            assert field.default is not MISSING, f"{method}: {field.name} has no default"
            if not field.init:
                continue
            if field.name in common:
                known.setdefault(kebab(field.name), field.default)
            else:
                name = CONFIG_NAMES.get(field.name, field.name)
                known[f"{method}.{kebab(name)}"] = field.default
    return known


def test_pyproject_lists_every_option():
    assert set(config_of_pyproject()) == set(options_of_code())


def test_pyproject_gives_the_defaults():
    known = options_of_code()
    for key, value in config_of_pyproject().items():
        if value != "":
            assert (type(value), value) == (type(known[key]), known[key]), key
    # An empty text may not stand for another default of the code's own tables.
    for owner in (JobConfig, DataConfig):
        for field in fields(owner):
            assert config_of_pyproject()[kebab(field.name)] == field.default


@pytest.mark.parametrize("method", METHODS)
def test_pyproject_builds_every_method_with_its_defaults(method):
    job, data, strategy = read_config({**config_of_pyproject(), "method": method})
    assert (job, data) == (JobConfig(method=method), DataConfig())
    assert strategy.options == METHODS[method].strategy().options


def test_options_of_the_methods_are_documented():
    for strategy, _ in METHODS.values():
        text = "".join(base.__doc__ or "" for base in strategy.__mro__)
        for field in fields(strategy):
            if field.init:
                assert field.name in text, f"{strategy.__name__}.{field.name}"


def test_a_method_is_found_by_its_id():
    from flwr_causal.app import methods

    for name, (strategy, _) in METHODS.items():
        assert strategy.method == name
        assert type(methods.build(name, {})) is strategy
    with pytest.raises(ConfigError, match=r"'pc'.*moments.*notears-admm"):
        methods.find("pc")

"""The house: which room may import which, no circles, and what every module must be."""

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import flwr_causal
from flwr_causal.app import methods

ROOT = Path(flwr_causal.__file__).parent
MOST_FILES = 25

# From the ground up. A room imports itself and what stands below its own line.
FLOORS = (
    "errors lazy",
    "core core.arguments core.arrays core.compiled core.documented core.files core.limits "
    "core.saved core.threads core.words",
    "contract core.answers core.devices core.folds core.received core.ties",
    "core.options",
    "core.parts",
    "core.description core.graphs core.privacy",
    "core.linear",
    "core.discrete core.interventions",
    "core.nonlinear core.ges",
    "core.consensus",
    "core.series",
    "core.blocks core.fedcausal core.circuits",
    "core.systems",
    "data",
    "doubts solvers compat interoperability",
    "protocol",
    "runtime party",
    "reports",
    "sources",
    "contracts",
    "clients strategies",
    "app",
    "server_app client_app simulations",
    "testing",
    "command_line",
    "__init__",
)
# The contracts of the methods are in the room of messages, above the sources that they name.
CONTRACTS = {"moments", "lingam", "consensus", "fedcausal", "fedges", "fedpc", "describe"}
# What both sides of secure sums know is on the floor of the contracts; each side is on its own.
SIDES = {"secure.server": "runtime", "secure.party": "clients"}
HEIGHT = {room: height for height, rooms in enumerate(FLOORS) for room in rooms.split()}
WITHOUT_FLOWER = HEIGHT["data"]
# What only one method has in the core.
CORE_OF = {"fedcausal": ["core.fedcausal"], "lingam": ["core.linear.lingam"]}
# Class names that stand for one thing in several modules: the functions `init` and `step` of a core
# have them, and a strategy and its core.
SHARED_NAMES = {"ClientState", "Info", "ServerProblem", "ServerState"}
# What Flower documents for users, and its logger; all else of Flower belongs into compat.py.
PUBLIC_FLOWER = {
    "flwr.app": None,
    "flwr.clientapp": None,
    "flwr.serverapp": None,
    "flwr.serverapp.strategy": None,
    "flwr.client": {"NumPyClient"},
    "flwr.supercore": {"log"},
}


@cache
def modules():
    """Name -> syntax tree of every module; a package goes by the name of its folder."""
    trees = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


@cache
def imports(tree):
    """Every (module, name or None) that is imported, inside functions and for type checkers too."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            found += [(node.module, alias.name) for alias in node.names]
    return found


def imported_modules(tree):
    """The modules of this package that are imported."""
    for module, name in imports(tree):
        if module.split(".")[0] == "flwr_causal":
            whole = f"{module}.{name}"
            yield whole if whole in modules() else module


def room_of(module):
    parts = module.split(".")[1:] or ["__init__"]
    if parts[0] == "secure":
        return SIDES.get(".".join(parts), "protocol")
    if parts[0] == "protocol" and parts[-1] in CONTRACTS:
        return "contracts"
    return ".".join(parts[: 2 if parts[0] == "core" else 1])


def test_imports_go_down():
    wrong = [room_of(module) for module in modules() if room_of(module) not in HEIGHT]
    for module, tree in modules().items():
        room = room_of(module)
        others = {room_of(other) for other in imported_modules(tree)} - {room}
        wrong += [
            f"{module} imports {other}"
            for other in sorted(others)
            if HEIGHT.get(other, -1) >= HEIGHT.get(room, -1)
        ]
        for library, name in imports(tree):
            if library.split(".")[0] in ("benchmarks", "tests", "tools"):
                wrong.append(f"{module} imports {library}, which a wheel leaves out")
            if library.split(".")[0] not in ("flwr", "ray") or room == "compat":
                continue
            allowed = PUBLIC_FLOWER.get(library, {}) if HEIGHT.get(room, 0) > WITHOUT_FLOWER else {}
            if allowed is not None and name not in allowed:
                wrong.append(f"{module} imports {library}.{name}: it belongs into compat.py")
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_itself_through_others():
    graph = defaultdict(set)
    for module, tree in modules().items():
        for other in imported_modules(tree):
            graph[module].add(other)
            # Python runs a package before the module in it.
            while "." in other:
                other = other.rpartition(".")[0]
                if not f"{module}.".startswith(f"{other}."):
                    graph[module].add(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def files_of(method):
    """The modules of one method only: strategy, client, contract, and its part of the core."""
    table = methods._OWN
    strategy, _, home = table[method]
    own = [f"strategies.{strategy.split('.')[0]}"]
    if sum(entry[2] == home for entry in table.values()) == 1:
        own += [f"clients.{home}", f"protocol.{home}", *CORE_OF.get(method, ())]
    pattern = re.compile(rf"{ROOT.name}\.({'|'.join(own)})(_|\.|$)")
    return set(filter(pattern.match, modules()))


@pytest.mark.parametrize("method", methods.OWN_METHODS)
def test_a_method_can_be_removed_with_its_line_in_the_table_of_methods(method):
    own, users = files_of(method), []
    # Lists of names, whose homes are imported when a name is first asked for.
    for name in modules().keys() - own - {f"{ROOT.name}.strategies", f"{ROOT.name}.clients"}:
        body = modules()[name].body
        run = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        users += [
            f"{name} imports {one}" for one in imported_modules(ast.Module(run)) if one in own
        ]
    assert own
    assert not users, users


def test_a_class_name_is_used_once():
    defined = defaultdict(list)
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                defined[node.name].append(module)
    doubled = {name: places for name, places in defined.items() if len(places) > 1}
    assert not doubled.keys() - SHARED_NAMES, doubled


def test_modules_are_documented_and_light_to_import():
    wrong = []
    folders = Counter(path.parent for path in ROOT.rglob("*.py"))
    wrong += [f"{folder} has {n} modules" for folder, n in folders.items() if n > MOST_FILES]
    for module, tree in modules().items():
        nodes = {module: tree}
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                nodes[f"{module}.{node.name}"] = node
                for item in node.body if isinstance(node, ast.ClassDef) else ():
                    if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                        nodes[f"{module}.{node.name}.{item.name}"] = item
        for name, node in nodes.items():
            if not ast.get_docstring(node):
                wrong.append(f"{name} has no docstring")
    wrong += [
        f"{module} imports typer"
        for module, tree in modules().items()
        if room_of(module) != "command_line" and any(name == "typer" for name, _ in imports(tree))
    ]
    # A process that answers one message on a real node pays for every import.
    code = (
        "import sys, flwr_causal.client_app, flwr_causal.server_app, flwr_causal.simulations\n"
        "heavy = 'matplotlib numba ray scipy.linalg scipy.optimize scipy.sparse sklearn torch'\n"
        "print(*set(heavy.split()) & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wrong += [f"{library} is imported at the start" for library in run.stdout.split()]
    assert not wrong, "\n".join(wrong)

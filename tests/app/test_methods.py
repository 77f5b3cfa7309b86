"""The table of methods."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from flwr.app import Context, RecordDict

from flwr_causal import client_app, clients, strategies
from flwr_causal.app import methods, pages, server
from flwr_causal.clients import CausalClient
from flwr_causal.errors import ConfigError
from flwr_causal.reports.run import Run
from flwr_causal.simulations import LocalGrid, simulate
from flwr_causal.strategies import CausalStrategy, Moments


def test_ids_are_kebab_case_and_lead_to_a_pair_that_fits():
    for name, (strategy, client) in methods.METHODS.items():
        assert name == name.lower().replace("_", "-")
        assert issubclass(strategy, CausalStrategy)
        assert issubclass(client, CausalClient)
        assert client.__name__ == strategy.__name__ + "Client"
        assert strategy.__doc__
        assert client.contract is strategy.contract
    assert {"notears-admm", "moments", "fedges"} <= set(methods.METHODS)


def test_the_clients_of_the_app_are_those_of_the_methods():
    assert {name: entry.client for name, entry in methods.METHODS.items()} == methods.CLIENTS


def test_build_checks_names_types_and_values():
    strategy = methods.build("moments", {"threshold": 1, "solver": "notears"})
    assert isinstance(strategy, Moments)
    assert (strategy.options.threshold, strategy.options.solver) == (1.0, "notears")
    for options, word in (
        ({"treshold": 1}, "Did you mean 'threshold'"),
        ({"threshold": "1"}, "'threshold' is '1'"),
        ({"threshold": -1}, "0 or more"),
    ):
        with pytest.raises(ConfigError, match=word):
            methods.build("moments", options)


def test_an_unknown_id_lists_the_known_ones():
    with pytest.raises(
        ConfigError,
        match=r"'ges'\. The methods are: 2dbn, describe, fedcausal, fedges, fedpc, lingam, "
        "moments, notears-admm",
    ):
        methods.build("ges", {})


def test_the_table_is_a_mapping():
    assert list(methods.METHODS) == list(methods.CLIENTS)
    assert len(methods.METHODS) == len(methods.CLIENTS) == len(list(methods.METHODS))
    for table in (methods.METHODS, methods.CLIENTS):
        assert "fedges" in table
        assert "ges" not in table
        with pytest.raises(KeyError, match="ges"):
            table["ges"]


def test_a_method_is_loaded_when_it_is_asked_for():
    """A process that answers one message of one method should not import the others."""
    code = (
        "import sys\nfrom flwr_causal.app import methods\n"
        "methods.CLIENTS['moments']\n"
        "print('numba' in sys.modules, 'flwr_causal.clients.fedges' in sys.modules)\n"
        "methods.CLIENTS['fedges']\n"
        "print('numba' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == ["False", "False", "True"], result.stdout + result.stderr


def test_the_packages_name_their_parts_and_load_them_when_asked():
    for package in (clients, strategies):
        for name in package.__all__:
            assert getattr(package, name).__name__ == name
        with pytest.raises(AttributeError, match="FedGEZ"):
            package.FedGEZ  # noqa: B018
    assert methods.find("fedges") == (strategies.FedGES, clients.FedGESClient)


def test_an_option_may_have_the_name_of_a_method_of_the_strategy():
    strategy = methods.build("fedges", {"start": "overwrite", "constant_columns": "fail"})
    assert (strategy.options.start, strategy.options.constant_columns) == ("overwrite", "fail")
    assert callable(strategy.start)
    with pytest.raises(ConfigError, match="Did you mean 'start'"):
        methods.build("fedges", {"strat": "fuse"})


# Methods of other packages.

PACKAGE = '''
from dataclasses import dataclass
from typing import ClassVar

from flwr_causal.app.methods import Method
from flwr_causal.clients import MomentsClient
from flwr_causal.strategies import Moments
from flwr_causal.strategies.moments import MomentsOptions


@dataclass(frozen=True, kw_only=True)
class MineOptions(MomentsOptions):
    """The options of somebody else's method.

    Parameters
    ----------
    depth : int, default 3
        How deep it looks.
    """

    depth: int = 3


class Mine(Moments):
    """A method of somebody else's."""

    method: ClassVar[str] = "mine"
    options_type = MineOptions


@dataclass(kw_only=True, eq=False)
class Old(Moments):
    """A method whose options are its own fields."""

    method: ClassVar[str] = "mine"
    depth: int = 3


METHOD = Method(strategy=Mine, client=MomentsClient)
FIELDS = Method(strategy=Old, client=MomentsClient)
HALF = MomentsClient
'''


def test_a_method_of_another_package_is_one_of_the_methods(installed):
    installed("their-package", {"mine": "METHOD"}, PACKAGE)
    strategy = methods.build("mine", {"depth": 4})
    assert (strategy.method, strategy.options.depth) == ("mine", 4)
    assert methods.CLIENTS["mine"] is clients.MomentsClient
    assert "mine" in methods.CLIENTS
    assert [*methods.OWN_METHODS, "mine"] == list(methods.METHODS)
    rows = np.random.default_rng(0).normal(size=(90, 3))
    run = simulate("mine", [rows[:40], rows[40:]], depth=2)
    assert (run.config["method"], run.config["depth"]) == ("mine", 2)
    with pytest.raises(ConfigError, match=r"Mine has no option 'dept'\. Did you mean 'depth'"):
        simulate("mine", [rows], dept=2)
    with pytest.raises(ConfigError, match=r"'ges'\. The methods are: .*lingam, mine, moments"):
        methods.find("ges")


def test_a_method_of_another_package_runs_as_an_app(installed, tmp_path):
    """As under ``flwr run`` and on real nodes; its options are keys behind its id."""
    installed("their-package", {"mine": "METHOD"}, PACKAGE)

    def run(num_nodes=3, nodes=None, **further):
        config = {"method": "mine", "variables": 4, "rows": 120, **further}
        config["output-dir"] = str(tmp_path / "out")
        grid = LocalGrid(client_app.app, num_nodes, config, nodes)
        context = Context(grid.run.run_id, 1, {}, RecordDict(), config)
        server.server_app()(grid, context)
        return Run.load(tmp_path / "out")

    found = run(**{"mine.depth": 4, "fedges.mode": "auto"})
    assert (found.config["method"], found.config["depth"]) == ("mine", 4)
    # Nobody but the method says what it is compared with.
    assert {"shd", "pooled", "alone"} <= set(found.metrics)
    assert run(options="mine.depth=5 mine.threshold=0.2").config["depth"] == 5
    for wrong, words in (
        ({"mine.dept": 4}, r"'mine\.dept'\. Did you mean 'mine\.depth'"),
        ({"mine.depth": "four"}, r"The option 'mine\.depth' is 'four'"),
        (
            {"method": "moments", "mine.depth": 4},
            r"mine\.depth=4 is an option of .* 'mine'",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            run(**wrong)
    rows = np.random.default_rng(0).normal(size=(90, 3))
    paths = [tmp_path / "north.csv", tmp_path / "south.csv"]
    for path, part in zip(paths, (rows[:40], rows[40:]), strict=True):
        pd.DataFrame(part, columns=["a", "b", "c"]).to_csv(path, index=False)
    found = run(2, [{"data-path": str(path), "name": path.stem} for path in paths])
    assert list(found.parties) == ["north", "south"]
    # Its keys can be written into the pyproject.toml of an app.
    written = pages.renew_keys('[project]\nname = "app"\n', ["mine"])
    assert "mine.depth = 3\n" in written


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (
            {"a-b": ({"moments": "METHOD"}, PACKAGE)},
            r"'a-b' declares a method 'moments'.*flwr-caus",
        ),
        (
            {"one": ({"mine": "METHOD"}, PACKAGE), "two": ({"mine": "METHOD"}, PACKAGE)},
            "packages 'one' and 'two' all declare a method 'mine'",
        ),
        (
            {"one": ({"mine": "METHOD"}, "import nowhere_to_be_found")},
            "'one' declares.*'one:METHOD', which cannot be imported: ModuleNotF.*nowhere",
        ),
        ({"one": ({"mine": "OTHER"}, PACKAGE)}, "'one'.*cannot be imported: AttributeError.*OTHER"),
        ({"one": ({"mine": "HALF"}, PACKAGE)}, "'one'.*'strategy' is None.*of CausalStrategy"),
        ({"one": ({"mine": "FIELDS"}, PACKAGE)}, r"'one:FIELDS': Old is a dataclass.*options_type"),
        ({"one": ({"yours": "METHOD"}, PACKAGE)}, r"Mine\.method is 'mine': both.* same id"),
    ],
    ids=["shadows", "twice", "import fails", "no such name", "no method", "fields", "another id"],
)
def test_methods_that_cannot_be_used(installed, declared, words):
    for package, (points, code) in declared.items():
        installed(package, points, code)
    ((name, *_), *_) = (points for points, _ in declared.values())
    with pytest.raises(ConfigError, match=words):
        methods.find(name)
    # The others are not touched by it.
    assert methods.find("fedges").strategy is strategies.FedGES

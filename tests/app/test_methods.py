"""The table of methods."""

import subprocess
import sys

import pytest

from flwr_causal import clients, strategies
from flwr_causal.app import methods
from flwr_causal.clients import CausalClient
from flwr_causal.errors import ConfigError
from flwr_causal.strategies import CausalStrategy, Moments


def test_ids_are_kebab_case_and_lead_to_a_pair_that_fits():
    for name, (strategy, client) in methods.METHODS.items():
        assert name == name.lower().replace("_", "-")
        assert issubclass(strategy, CausalStrategy)
        assert issubclass(client, CausalClient)
        assert client.__name__ == strategy.__name__ + "Client"
        assert strategy.__doc__
        assert client.discloses
    assert {"notears-admm", "moments", "fedges"} <= set(methods.METHODS)


def test_the_clients_of_the_app_are_those_of_the_methods():
    assert {name: entry.client for name, entry in methods.METHODS.items()} == methods.CLIENTS


def test_build_checks_names_types_and_values():
    strategy = methods.build("moments", {"threshold": 1, "solver": "notears"})
    assert isinstance(strategy, Moments)
    assert (strategy.threshold, strategy.solver) == (1.0, "notears")
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
        match=r"'ges'\. The methods are: 2dbn, fedcausal, fedges, fedpc, moments, notears-admm",
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
        "import sys\nfrom flwr_causal import methods\n"
        "methods.find('moments')\n"
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


def test_options_by_another_name_are_options():
    strategy = methods.build("fedges", {"start": "overwrite", "constant": "fail"})
    assert (strategy.start_from, strategy.constant_columns) == ("overwrite", "fail")
    with pytest.raises(ConfigError, match="same one"):
        methods.build("fedges", {"start": "fuse", "start_from": "fuse"})
    with pytest.raises(ConfigError, match="Did you mean 'start'"):
        methods.build("fedges", {"strat": "fuse"})

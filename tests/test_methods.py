"""The table of methods."""

import pytest

from flwr_causal import methods
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
    assert {"notears-admm", "moments"} <= set(methods.METHODS)


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
        ConfigError, match=r"'ges'\. The methods are: fedges, moments, notears-admm"
    ):
        methods.build("ges", {})

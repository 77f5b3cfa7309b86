"""Trainings beside the main one: a party answers those that the run states, no others."""

import json

import numpy as np
import pandas as pd
import pytest
from federations import SpyGrid, ask

from flwr_causal.app.methods import CLIENTS, METHODS
from flwr_causal.clients import Source, client_app
from flwr_causal.errors import ConfigError
from flwr_causal.protocol import records
from flwr_causal.strategies import Describe, FedGES, Moments, run

_RNG = np.random.default_rng(0)
NUMBERS = [pd.DataFrame(_RNG.normal(size=(40, 2)), columns=["x", "y"]) for _ in range(3)]
NAMED = [
    pd.DataFrame({"a": np.resize(["u", "u", "v"], 40), "b": np.resize(["w", "z"], 40)})
    for _ in range(3)
]


def asked(method, tables, exchange, training, **stated):
    """What a party without a policy replies where a server repeats an exchange in a training."""

    def source(context):
        return Source("party", lambda: tables[int(context.node_config["partition-id"])])

    grid = SpyGrid(client_app(CLIENTS, source), len(tables))
    run(method, grid)
    node, setup, last = grid.get_node_ids()[0], {}, None
    for message in grid.sent:
        if message.metadata.dst_node_id == node:
            config = records.config_of(message.content)
            setup |= {key: one for key, one in config.items() if key.startswith("setup-")}
            last = message.content if config.get("exchange") == exchange else last
    terms = json.loads(setup["setup-terms"])
    terms["options"] |= stated
    setup["setup-terms"] = json.dumps(terms, sort_keys=True)
    seed = terms["options"]["seed"]
    head = {"bundle-trainings": [training], "bundle-exchanges": [exchange], "bundle-seed": seed}
    plain = {
        f"{training}: {key}": one
        for key, one in records.config_of(last).items()
        if key not in ("exchange", "method", "round") and not key.startswith("setup-")
    }
    arrays = {f"{training}: {key}": one for key, one in records.arrays_of(last).items()}
    number = records.config_of(last)["round"]
    values = {**setup, **head, **plain, "method": method.method, "round": number}
    reply = ask(grid, node, arrays, exchange=exchange, **values)
    return str(reply.error.reason) if reply.has_error() else ""


@pytest.mark.parametrize(
    ("training", "stated", "other"),
    [
        ("replicate 2", {"replicates": 2}, ""),
        ("replicate 3", {"replicates": 2}, "replicates"),
        ("replicate 1", {}, "replicates"),
        ("without 3", {"leave_one_out": True}, ""),
        ("without 4", {"leave_one_out": True}, "leave_one_out"),
        ("without 1", {}, "leave_one_out"),
    ],
)
def test_a_training_that_the_run_does_not_state_is_refused(training, stated, other):
    found = asked(Moments(), NUMBERS, "sums", training, **stated)
    assert f"by the option '{other}'" in found if other else not found


def test_rows_are_not_drawn_again_where_small_counts_are_withheld():
    """In each draw of the rows other cells have as many rows as may be told."""
    options = {"mode": "exact", "minimum_count": 5, "parameters": False}
    for treatment, refused in (("suppress", True), ("report", False)):
        method = FedGES(small_counts=treatment, **options)
        found = asked(method, NAMED, "counts", "replicate 1", replicates=5)
        assert ("by the option 'replicates'" in found) is refused


@pytest.mark.parametrize("training", ["replicate 1", "without 1"])
def test_a_method_without_further_trainings_has_none_for_a_server_that_states_them(training):
    """Each would be one more question to an exchange that is answered once."""
    stated = {"replicates": 9, "leave_one_out": True}
    assert "AskedOtherwiseError" in asked(Describe(), NUMBERS, "tables", training, **stated)


@pytest.mark.parametrize("name", METHODS)
def test_a_contract_has_further_trainings_where_the_options_have(name):
    strategy, client = METHODS[name]
    if client.contract.trainings:
        strategy(replicates=2)
    else:
        with pytest.raises(ConfigError, match="'replicates'"):
            strategy(replicates=2)

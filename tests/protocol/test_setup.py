"""What the parties agreed on survives its way as plain values."""

from dataclasses import fields

import numpy as np
from flwr.app import ConfigRecord

from flwr_causal.data.check.policy import Policy
from flwr_causal.protocol.setup import PREFIX, Setup


def make_setup(**changes):
    values = {
        "names": ("x10", "x2", "ä"),
        "num_rows": 70,
        "num_clients": 4,
        "mean": np.array([1 / 3, -1e300, 5e-324]),
        "variance": np.array([0.1, 2.0, 1e-12]),
        "policy": Policy(missing_values="drop", constant_columns="drop", min_rows=3),
        "precision": "float32",
        "exchange": "0123456789abcdef",
        "options": {"standardize": True, "center": "party", "seed": 3, "rate": 0.1},
    }
    return Setup(**{**values, **changes})


def same(one, two):
    pairs = [(getattr(one, f.name), getattr(two, f.name)) for f in fields(Setup)]
    return all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else type(a) is type(b) and a == b
        for a, b in pairs
    )


def test_round_trip_through_flowers_record():
    setup = make_setup()
    record = ConfigRecord({"round": 1, "exchange": "round", **setup.to_config()})
    received = Setup.from_config(record)
    assert same(received, setup)
    assert received.names == setup.names
    assert type(received.options["standardize"]) is bool
    assert received.mean.dtype == np.float64


def test_every_key_can_be_told_from_the_rounds_own():
    assert all(key.startswith(PREFIX) for key in make_setup().to_config())


def test_without_sums_and_options():
    setup = make_setup(mean=np.zeros(0), variance=np.zeros(0), options={})
    received = Setup.from_config(ConfigRecord(setup.to_config()))
    assert same(received, setup)
    assert received.mean.shape == (0,)


def test_states_travel_only_where_there_are_some():
    assert not any(key.endswith("-states") for key in make_setup().to_config())
    assert make_setup().continuous == ()
    states = (("1", "10"), (), ("", "a", "ü"))
    setup = make_setup(states=states)
    received = Setup.from_config(ConfigRecord(setup.to_config()))
    assert same(received, setup)
    assert received.states == states
    assert received.continuous == ("x2",)


def test_states_of_one_column_are_not_taken_for_anothers():
    config = make_setup(states=(("a", "b"), ("c",), ())).to_config()
    assert Setup.from_config(ConfigRecord(config)).states == (("a", "b"), ("c",), ())

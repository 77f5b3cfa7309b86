"""What the parties agreed on survives its way as plain values."""

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
import pytest
from flwr.app import ConfigRecord

from flwr_causal.data.check.handling import Handling
from flwr_causal.protocol.options import FormError, PartyOptions
from flwr_causal.protocol.setup import KEYS as KEYS_NAME
from flwr_causal.protocol.setup import LEAST, PREFIX, Setup


@dataclass(frozen=True, kw_only=True)
class Own(PartyOptions):
    """Options of a method."""

    standardize: bool
    center: Literal["party", "global"]
    rate: float
    most: int | None = None
    sets: tuple[int, ...] = ()


def read(config):
    return Setup.from_config(config, Own)


def make_setup(**changes):
    values = {
        "names": ("x10", "x2", "ä"),
        "num_rows": 70,
        "num_clients": 4,
        "mean": np.array([1 / 3, -1e300, 5e-324]),
        "variance": np.array([0.1, 2.0, 1e-12]),
        "handling": Handling(missing_values="drop", constant_columns="drop", min_rows=3),
        "precision": "float32",
        "exchange": "0123456789abcdef",
        "options": Own(standardize=True, center="party", seed=3, rate=0.1, sets=(2, 0)),
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
    received = read(record)
    assert same(received, setup)
    assert received.names == setup.names
    assert type(received.options.standardize) is bool
    assert received.mean.dtype == np.float64


def test_every_key_can_be_told_from_the_rounds_own():
    assert all(key.startswith(PREFIX) for key in make_setup().to_config())


def test_without_sums():
    setup = make_setup(mean=np.zeros(0), variance=np.zeros(0))
    received = read(ConfigRecord(setup.to_config()))
    assert same(received, setup)
    assert received.mean.shape == (0,)


def test_states_travel_only_where_there_are_some():
    assert not any(key.endswith("-states") for key in make_setup().to_config())
    assert make_setup().continuous == ()
    states = (("1", "10"), (), ("", "a", "ü"))
    setup = make_setup(states=states)
    received = read(ConfigRecord(setup.to_config()))
    assert same(received, setup)
    assert received.states == states
    assert received.continuous == ("x2",)


def test_states_of_one_column_are_not_taken_for_anothers():
    config = make_setup(states=(("a", "b"), ("c",), ())).to_config()
    assert read(ConfigRecord(config)).states == (("a", "b"), ("c",), ())


MANY = {"states": (("a", "b"), (), ("c",)), "targets": (("x2",), ()), "groups": (1, 1, 2, 2)}
KEYS = tuple(f"{k:064x}" for k in range(1, 5))
FULL = make_setup(
    keys=KEYS,
    least_parties=(2, 2),
    key_names=tuple("abcd"),
    key_signatures=("0" * 128, "", "f" * 128, ""),
    terms="{}",
    signature="0" * 128,
    **MANY,
)
TOKEN = FULL.exchange
WRONG = {
    "names": [["x10", "x10", "ä"], ["x10"], "x10", [1, 2, 3], [], None],
    "num-rows": ["70", 70.0, True, -1, 2**62, float("nan"), [70]],
    "num-clients": ["4", 0, -4, True, 5],
    "mean": [[0.0], [0.0, 1.0, float("inf")], ["0", "1", "2"], [float("nan")] * 3, [True] * 3, 1.0],
    "variance": [
        [0.0] * 2,
        [-1.0, 1.0, 1.0],
        [],
        [1.0, float("nan"), 1.0],
        [1.0, float("inf"), 1.0],
    ],
    "precision": ["float16", "", 64, None],
    "minimum-count": [-1, "5", 1.5, True],
    "small-counts": ["", "hide", 1, ["report"]],
    "exchange": ["", " ", TOKEN.upper(), TOKEN + "\n", TOKEN[:-1], 7, "a b", "\u0660" * 16],
    "states": [["a"], [1, 2, 3], "abc"],
    "num-states": [[2, 1], [2, 0, -1], [2, 0, 2], ["2", "0", "1"], [True, False, 2]],
    "targets": [
        ['["x2"]', '["x2"]'],
        ["x2"],
        ['{"x2": 1}'],
        ["[1]"],
        ["[" * 10**5],
        ['["a", "a"]'],
    ],
    "keys": [
        KEYS[:3],
        [*KEYS[:3], KEYS[0]],
        [*KEYS[:3], "x"],
        [KEYS[0].upper().replace("1", "A"), *KEYS[1:]],
        [*KEYS[:3], KEYS[3] + " "],
        [*KEYS[:3], 5],
    ],
    "key-names": [["a"], [1, 2, 3, 4]],
    "key-signatures": [[""], ["0"] * 4, ["F" * 128] * 4],
    "groups": [[1, 1], [0, 1, 2, 2], [1, 1, 2, True], ["1", "1", "2", "2"]],
    "least-parties": [[2], [2, 2, 2], [0, 2], ["2", "2"], [2.0, 2.0]],
    "terms": [5, None, ["{}"]],
    "signature": ["0", 5, "G" * 128],
    "option-rate": [float("nan"), float("inf"), [1.0], None, "0.1", True, 2**2000],
    "option-center": ["", "Party", 1, None],
    "option-standardize": [1, "true", None],
    "option-most": ["3", 3.0, True, 2**63],
    "option-sets": [3, [1, "a"], [True], [1.0], "12"],
    "option-row_id": [3, b"a", None, "\ud800"],
    "option-Most": [3],
    "policy-missing_values": ["", "some", None],
    "policy-min_rows": [-1, "2", True, 2.0],
    "more": [1],
    "policys": [1],
}


@pytest.mark.parametrize("name", WRONG)
def test_an_agreement_of_another_form_is_refused(name):
    config = FULL.to_config()
    assert same(read(config), FULL)
    for value in WRONG[name]:
        with pytest.raises(FormError, match="was refused"):
            read({**config, PREFIX + name: value})


@pytest.mark.parametrize("name", [n for n in make_setup().to_config() if "policy" not in n])
def test_an_agreement_that_lacks_a_value_is_refused(name):
    config = make_setup().to_config()
    del config[name]
    if name in (PREFIX + "terms", PREFIX + "signature"):
        read(config)
        return
    option = name.removeprefix(f"{PREFIX}option-")
    words = f"'{name.removeprefix(PREFIX)}' must be in every agreement"
    words = f"The option '{option}' is None" if "option" in name else words
    with pytest.raises(FormError, match=words):
        read(config)


def test_a_policy_with_another_entry_is_refused():
    with pytest.raises(FormError, match="There is no option 'more' here"):
        read({**FULL.to_config(), PREFIX + "policy-more": "fail"})


def test_the_digest_is_that_of_what_arrives_and_differs_where_anything_does():
    received = read(ConfigRecord(FULL.to_config()))
    assert received.digest == FULL.digest
    assert len(FULL.digest) == 64
    training = FULL.of_training("replicate 1")
    others = {training.digest, FULL.of_training("replicate 2").digest, FULL.digest}
    assert len(others) == 3
    assert training.exchange == f"{TOKEN} replicate 1"


def test_a_list_of_keys_and_numbers_of_groups_fit_together():
    config = make_setup(keys=KEYS, least_parties=(3,)).to_config()
    read(config)
    # Parties with different columns have keys and no secure sums.
    read({**config, LEAST: []})
    for changes in ({LEAST: [3, 3]}, {KEYS_NAME: []}, {KEYS_NAME: list(KEYS[:2])}):
        with pytest.raises(FormError):
            read({**config, **changes})

"""Signed runs of every mode, under the policy that a deployment gives its parties."""

import json
from functools import partial
from importlib.resources import files
from string import Template

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from method_modes import MODES, NETWORKS, NUMBERS
from tampering import recorded

from flwr_causal.app.dry_run import COULD_BEGIN, dry_run
from flwr_causal.app.methods import CLIENTS, METHODS
from flwr_causal.clients import Source, client_app
from flwr_causal.data.read.pieces import open_table
from flwr_causal.simulations import LocalGrid
from flwr_causal.strategies import run

ALL = {
    **MODES,
    "describe": ("describe", NUMBERS, {}),
    "describe bins": ("describe", NUMBERS, {"bins": 64}),
    "describe secure": ("describe", NUMBERS, {"secure_aggregation": True}),
    "moments replicates": ("moments", NUMBERS, {"replicates": 2, "leave_one_out": True}),
    "moments secure": ("moments", NUMBERS, {"secure_aggregation": True}),
    "moments private": ("moments", NUMBERS, {"epsilon": 50.0}),
    "moments columns": ("moments", NUMBERS, {"exclude": "c"}),
    "admm paper": ("notears-admm", NUMBERS, {"variant": "paper", "max_rounds": 6}),
    "fedges paper": ("fedges", MODES["fedges exact"][1], {"variant": "paper"}),
    "fedpc paper": ("fedpc", MODES["fedpc sums"][1], {"variant": "paper"}),
    "fedpc bins": ("fedpc", MODES["fedpc sums"][1], {"learner": "trees", "bins": 4}),
}
FAST = ("describe", "fedges exact", "moments", "fedpc bins", "moments columns", "2dbn")


class _Kit(Template):
    delimiter = "@"


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    """The path of the coordinator's key, and the policy of a kit that knows it."""
    own, path = Ed25519PrivateKey.generate(), tmp_path_factory.mktemp("kit") / "key"
    path.write_bytes(own.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    line = own.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    kit = files("flwr_causal.app.deploy") / "templates" / "policy.example.toml.txt"
    return path, _Kit(kit.read_text()).substitute(party="party 0", askers=json.dumps(line))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in FAST else pytest.mark.nightly) for name in ALL],
)
def test_a_signed_run_of_every_mode_is_answered(key, tmp_path, name):
    if name in NETWORKS:
        pytest.importorskip("torch")
    path, policy = key
    (tmp_path / "policy.toml").write_text(policy)
    method, parties, options = ALL[name]
    grid = grid_of(tmp_path, parties)
    signed = {"signing_key": str(path), "min_available_nodes": len(parties), **options}
    run(METHODS[method].strategy(**signed), grid)
    assert not [one for one in recorded(tmp_path) if one["event"] != "sent"]


@pytest.mark.parametrize("name", ["describe", "fedges exact"])
def test_a_signed_dry_run_could_begin(key, tmp_path, name):
    path, policy = key
    (tmp_path / "policy.toml").write_text(policy)
    method, parties, options = ALL[name]
    grid = grid_of(tmp_path, parties)
    strategy = METHODS[method].strategy(signing_key=str(path), min_available_nodes=3, **options)
    found = dry_run(strategy, grid)
    assert found["status"] == COULD_BEGIN
    # Those that the run has, and no others.
    names = {"describe": ["overview", "tables"], "fedges exact": ["counts", "fit"]}
    assert [one["name"] for one in found["exchanges"]] == names[name]


def grid_of(tmp_path, parties):
    """The nodes of parties, of which the first has the policy."""
    configs = [{"name": f"party {k}", "data-path": "/a.csv"} for k in range(len(parties))]
    for config in configs:
        config |= {"row-secret": "e3b0c44298fc1c149afbf4c8996fb924"}
    configs[0]["policy"] = str(tmp_path / "policy.toml")

    def source(context):
        own = str(context.node_config["name"])
        return Source.opening(own, partial(open_table, parties[int(own[-1])]))

    return LocalGrid(client_app(CLIENTS, source), len(parties), node_configs=configs)

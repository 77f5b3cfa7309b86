"""Keys for secure sums that the parties have signed: a server cannot put its own in their place."""

import os
from types import SimpleNamespace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from federations import make_federation, spy

from flwr_causal.errors import CausalError, ConfigError, FederationError
from flwr_causal.protocol import records
from flwr_causal.secure import keys, signatures
from flwr_causal.strategies import Moments, run

TABLES = make_federation(d=3, n=120, parties=4, seed=1).tables


@pytest.fixture
def signing(tmp_path):
    """Node configs of four parties, each with its key and the file of all."""
    configs, lines = [], []
    for k in range(4):
        key = Ed25519PrivateKey.generate()
        file = tmp_path / f"key {k}"
        file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        lines.append(f'"party {k}" = "{public} comment"')
        configs.append({"partition-id": k, "num-partitions": 4, "sums-key": str(file)})
    peers = tmp_path / "peers.toml"
    peers.write_text("\n".join(lines))
    for config in configs:
        config["peers"] = str(peers)
    return SimpleNamespace(configs=configs, peers=peers)


def moments(configs):
    grid = spy(TABLES, node_configs=configs)
    return run(Moments(secure_aggregation=True), grid), grid


def test_signed_keys_are_accepted_and_said_in_the_report(signing):
    found, grid = moments(signing.configs)
    assert found.status == "completed"
    assert found.failures == ()
    first = records.config_of(grid.replies[0].content)
    assert len(bytes.fromhex(first["signature"])) == 64
    # Without keys to sign with nothing is said of names.
    _, grid = moments([{"partition-id": k, "num-partitions": 4} for k in range(4)])
    assert "signature" not in records.config_of(grid.replies[0].content)
    assert not any("setup-key-names" in records.config_of(m.content) for m in grid.sent)


def test_an_unsigned_or_unlisted_key_is_refused_by_name(signing):
    unsigned = [dict(config) for config in signing.configs]
    del unsigned[2]["sums-key"]
    with pytest.raises(FederationError, match="'party 2' has not signed its key"):
        moments(unsigned)
    foreign = [dict(config) for config in signing.configs]
    foreign[1]["sums-key"] = foreign[3]["sums-key"]
    with pytest.raises(FederationError, match="'party 1' has not signed its key"):
        moments(foreign)
    lines = signing.peers.read_text().splitlines()
    signing.peers.write_text("\n".join(lines[:3]))
    with pytest.raises(FederationError, match="'party 3' is not among the peers"):
        moments(signing.configs)


def test_a_list_of_peers_of_the_same_time_of_change_is_read_anew(signing):
    lines = signing.peers.read_text().splitlines()
    for listed in (4, 3):
        signing.peers.write_text("\n".join(lines[:listed]))
        os.utime(signing.peers, ns=(5, 5))
        assert len(signatures.read_peers(str(signing.peers))) == listed


def test_a_server_that_puts_its_own_key_in_place_is_found(signing, monkeypatch):
    from flwr_causal.runtime import schema

    agreed_keys = schema.agreed_keys

    def forged(method, parties):
        agreed = agreed_keys(method, parties)
        own = keys.public_key(keys.new_private_key()).hex()
        return {**agreed, "keys": (own, *agreed["keys"][1:])}

    monkeypatch.setattr(schema, "agreed_keys", forged)
    with pytest.raises(FederationError, match="'party 0' has not signed its key"):
        moments(signing.configs)
    # Nor can it keep silent about the signatures.
    monkeypatch.setattr(
        schema,
        "agreed_keys",
        lambda method, parties: {
            name: value
            for name, value in agreed_keys(method, parties).items()
            if not name.startswith("key_")
        },
    )
    with pytest.raises(FederationError, match="does not say whose the keys"):
        moments(signing.configs)


def test_a_signature_is_of_one_key_one_name_and_one_run(signing):
    file = signing.configs[0]["sums-key"]
    peers = signatures.read_peers(str(signing.peers))
    signature = signatures.signed_key("ab" * 32, "party 0", 7, file)
    check = signatures.check_peers
    check(["ab" * 32], [signature], ["party 0"], 7, peers)
    # A party that is absent has no key, and nothing to sign.
    check(["ab" * 32, ""], [signature, ""], ["party 0", "unknown"], 7, peers)
    for key, name, number in (
        ("cd" * 32, "party 0", 7),
        ("ab" * 32, "party 1", 7),
        ("ab" * 32, "party 0", 8),
    ):
        with pytest.raises(FederationError, match="has not signed"):
            check([key], [signature], [name], number, peers)
    both = {**peers, "other": peers["party 0"]}
    with pytest.raises(FederationError, match="'other' has not signed"):
        check(["ab" * 32], [signature], ["other"], 7, both)
    with pytest.raises(FederationError, match="takes part twice"):
        check(["ab" * 32] * 2, [signature] * 2, ["party 0"] * 2, 7, peers)


def test_files_that_cannot_be_read_are_named(signing, tmp_path):
    with pytest.raises(ConfigError, match=r"'peers' names .*missing.toml', which cannot be read"):
        signatures.read_peers(str(tmp_path / "missing.toml"))
    signing.peers.write_text("north = 'ssh-rsa AAAA'")
    with pytest.raises(ConfigError, match="'ssh-rsa AAAA' is no Ed25519 public key"):
        signatures.read_peers(str(signing.peers))
    with pytest.raises(ConfigError, match=r"node config's 'sums-key' names .*ssh-keygen"):
        signatures.signed_key("ab", "party 0", 1, str(tmp_path / "missing"))
    signing.configs[1]["sums-key"] = str(tmp_path / "missing")
    with pytest.raises(CausalError, match=r"party 1.*'sums-key' names"):
        moments(signing.configs)

"""Signatures of the parties' public keys, by which a party knows that they are those of its peers.

Without them the server, which passes the keys on, could replace them by its own. Each party has an
Ed25519 key of its own, made by ``ssh-keygen -t ed25519 -N ""``, and a file with the public keys of
all parties, which comes from them and not from the server.
"""

from __future__ import annotations

import tomllib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature

from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol.terms import private_key_of, public_key_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

#: The keys of the node config: the party's private key, and the file of the parties' public keys.
SUMS_KEY, PEERS = "sums-key", "peers"
_PURPOSE = "flwr-causal key for secure sums in run"


def signed_key(public_key: str, party: str, run_id: int, key_file: str) -> str:
    """Return a party's signature of its public key for one run, in hexadecimal digits.

    Parameters
    ----------
    public_key : str
        For secure sums, in hexadecimal digits.
    party : str
        Its name.
    run_id : int
        Flower's number of the run.
    key_file : str
        Path of the party's Ed25519 private key.

    Raises
    ------
    ConfigError
        If the file holds no such key.
    """
    key = private_key_of(key_file, f"The node config's '{SUMS_KEY}'")
    return key.sign(_message(public_key, party, run_id)).hex()


def read_peers(file: str) -> Mapping[str, Ed25519PublicKey]:
    """Return the parties' public keys by name.

    Parameters
    ----------
    file : str
        Path of a TOML file with a line for each party, ``north = "ssh-ed25519 AAAA..."``.

    Raises
    ------
    ConfigError
        If it cannot be read, or an entry is no Ed25519 key.
    """
    try:
        return _peers(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The node config's '{PEERS}' names '{file}', which cannot be read: {error}. It is a "
            'TOML file with a line for each party: north = "ssh-ed25519 AAAA..."'
        ) from error


# By its text: a file may be replaced by another one of the same time.
@lru_cache(maxsize=8)
def _peers(text: str) -> Mapping[str, Ed25519PublicKey]:
    return {name: public_key_of(str(line)) for name, line in tomllib.loads(text).items()}


def check_peers(
    keys: Sequence[str],
    signatures: Sequence[str],
    names: Sequence[str],
    run_id: int,
    peers: Mapping[str, Ed25519PublicKey],
) -> None:
    """Check that all keys of an agreement are signed by different peers.

    Parameters
    ----------
    keys, signatures, names : sequence of str
        By party, its public key for secure sums, its signature of it, and its name.
    run_id : int
        Flower's number of the run.
    peers : mapping of str to Ed25519PublicKey
        By name.

    Raises
    ------
    FederationError
        Naming the first party of which this is not so.
    """
    if not len(keys) == len(signatures) == len(names):
        raise FederationError(
            f"This party knows its peers ('{PEERS}' in its node config), and the agreement does "
            "not say whose the keys for secure sums are: install the same version of flwr-causal."
        )
    for key, signature, name in zip(keys, signatures, names, strict=True):
        if not key:
            continue
        if name not in peers:
            reason = "is not among the peers"
        elif names.count(name) > 1:
            reason = "takes part twice"
        elif not _is_signed(key, signature, name, run_id, peers[name]):
            reason = "has not signed its key for secure sums with the key that is listed"
        else:
            continue
        raise FederationError(
            f"'{name}' {reason} of this party ('{PEERS}' in its node config): it takes no part. "
            f"Give each node its '{SUMS_KEY}', and each party the public keys of all."
        )


def _is_signed(key: str, signature: str, name: str, run_id: int, peer: Ed25519PublicKey) -> bool:
    try:
        peer.verify(bytes.fromhex(signature), _message(key, name, run_id))
    except (InvalidSignature, ValueError):
        return False
    return True


def _message(public_key: str, party: str, run_id: int) -> bytes:
    return f"{_PURPOSE} {run_id}\n{public_key}\n{party}".encode()

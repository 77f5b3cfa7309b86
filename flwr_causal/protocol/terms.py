"""What a run asks of the parties, as a party's policy judges it, and who signs for it.

The server sends the terms with the question for the schema and with the agreement. They state the
method, its options and how many parties take part. With the option ``signing_key`` the coordinator
signs them for this one run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    load_ssh_private_key,
    load_ssh_public_key,
)

from flwr_causal.core.received import json_of
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Plain: TypeAlias = bool | int | float | str | None

_PURPOSE = "flwr-causal terms of run"


@dataclass(frozen=True)
class RunTerms:
    """What a run asks.

    Parameters
    ----------
    method : str
        Its id.
    options : mapping of str to bool, int, float, str or None
        Its options by name, without paths of the server's machine and without edges that are known.
    parties : int
        Fewest parties with which it starts.
    secure : bool
        Whether the server learns sums over all parties only.
    """

    method: str
    options: Mapping[str, Plain]
    parties: int
    secure: bool

    @classmethod
    def of(cls, method: str, options: Mapping[str, Any]) -> RunTerms:
        """Return the terms of a run with these options."""
        secure = bool(options.get("secure_aggregation", False))
        expected = str(options.get("expected_parties") or "")
        parties = expected.count(",") + 1 if expected else options.get("min_available_nodes", 1)
        least = options.get("min_parties", 0) if secure else 0
        return cls(
            method,
            {
                name: value
                for name, value in options.items()
                if isinstance(value, Plain)
                and not (isinstance(value, str) and Path(value).is_absolute())
            },
            max(int(parties), int(least)),
            secure,
        )

    def to_text(self) -> str:
        """Return the terms as JSON: the text that is signed."""
        return json.dumps(vars(self), sort_keys=True)

    # Each message of a run states the same terms.
    @classmethod
    @lru_cache(maxsize=8)
    def from_text(cls, text: str) -> RunTerms:
        """Return the terms of a text.

        Raises
        ------
        ConfigError
            If it is not one of :meth:`to_text`.
        """
        try:
            values = json_of(text)
            method, options = values["method"], values["options"]
            parties, secure = values["parties"], values["secure"]
        except (ValueError, TypeError, KeyError, RecursionError):
            method = options = parties = secure = None
        if not (
            isinstance(method, str)
            and isinstance(options, dict)
            and all(isinstance(value, Plain) for value in options.values())
            and isinstance(parties, int)
            and not isinstance(parties, bool)
            and isinstance(secure, bool)
        ):
            raise ConfigError(
                "The server does not state what the run asks: install the same version of "
                "flwr-causal on all machines."
            )
        return cls(method, options, parties, secure)


def signed(text: str, run_id: int, key_file: str) -> str:
    """Return the signature of terms for one run in hexadecimal digits.

    Parameters
    ----------
    text : str
        The terms.
    run_id : int
        Flower's number of the run.
    key_file : str
        Path of an Ed25519 private key as ``ssh-keygen -t ed25519 -N ""`` writes it.

    Raises
    ------
    ConfigError
        If the file holds no such key.
    """
    return private_key_of(key_file, "The option 'signing_key'").sign(_message(text, run_id)).hex()


@cache
def private_key_of(key_file: str, named: str) -> Ed25519PrivateKey:
    """Return the key of a file; ``named`` says in errors what names it.

    Raises
    ------
    ConfigError
        If the file holds no Ed25519 key.
    """
    try:
        key = load_ssh_private_key(Path(key_file).read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{named} names '{key_file}', which cannot be read: {error}. Make a key by: "
            'ssh-keygen -t ed25519 -N "" -f FILE'
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(
            f"{named} names '{key_file}', which holds no Ed25519 key. Make one by: "
            'ssh-keygen -t ed25519 -N "" -f FILE'
        )
    return key


def public_key_of(line: str) -> Ed25519PublicKey:
    """Return the key of a line such as ``ssh-ed25519 AAAA... coordinator``.

    Raises
    ------
    ConfigError
        If it is no Ed25519 key.
    """
    try:
        key = load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError(
            f"'{line}' is no Ed25519 public key: copy the line of the .pub file, 'ssh-ed25519 "
            "AAAA...'"
        )
    return key


def is_signed(text: str, run_id: int, signature: str, keys: Collection[str]) -> bool:
    """Return whether one of the public keys has signed the terms for this run."""
    for line in keys:
        try:
            public_key_of(line).verify(bytes.fromhex(signature), _message(text, run_id))
        except (InvalidSignature, ValueError):
            continue
        return True
    return False


def _message(text: str, run_id: int) -> bytes:
    return f"{_PURPOSE} {run_id}\n{text}".encode()

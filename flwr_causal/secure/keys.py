"""Keys of secure sums: each party's own, and one that each pair of parties shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from flwr_causal.errors import FederationError
from flwr_causal.protocol.setup import is_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Bytes of a private, a public and a shared key.
KEY_BYTES = 32
#: Fewest parties of a secure sum: of two, each knows the other's part from the sum.
LEAST_PARTIES = 3
_PURPOSE = b"flwr-causal secure sum, key of a pair of parties"


class PairKey(NamedTuple):
    """What a party shares with one other party.

    Parameters
    ----------
    key : bytes
        32 bytes that only these two parties know.
    sign : int
        1 if this party adds the masks from this key, -1 if it subtracts them.
    place : int
        Of the other party, in the list of public keys.
    """

    key: bytes
    sign: int
    place: int = -1


def new_private_key() -> bytes:
    """Return a private key, 32 bytes from the operating system."""
    return X25519PrivateKey.generate().private_bytes_raw()


def public_key(private: bytes) -> bytes:
    """Return the public key of a private key, 32 bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def is_public_key(text: object) -> bool:
    """Return whether a text is a public key from which a key of a pair follows.

    Points of small order give everyone the same key: they are none.
    """
    if not is_key(text):
        return False
    other = X25519PublicKey.from_public_bytes(bytes.fromhex(str(text)))
    try:
        X25519PrivateKey.generate().exchange(other)
    except ValueError:
        return False
    return True


def pair_keys(
    private: bytes,
    public_keys: Sequence[bytes],
    neighbours: Iterable[int] | None = None,
    least: int = LEAST_PARTIES,
) -> tuple[PairKey, ...]:
    """Return a party's key with each of its neighbours.

    The keys follow from a Diffie-Hellman exchange on X25519 (RFC 7748) by HKDF with SHA-256 (RFC
    5869), bound to both public keys.

    Parameters
    ----------
    private : bytes
        The party's own key.
    public_keys : sequence of bytes
        Those of all parties, its own among them; empty for a party that takes no part.
    neighbours : iterable of int, optional
        Their places in ``public_keys``. Default: all other parties.
    least : int, default 3
        The fewest parties.

    Raises
    ------
    FederationError
        As :func:`place_of`, and if a public key is none.
    """
    own = public_key(private)
    place_of(own, public_keys, least)
    private_key = X25519PrivateKey.from_private_bytes(private)
    others = range(len(public_keys)) if neighbours is None else neighbours
    return tuple(
        _pair_key(private_key, own, public_keys[place], place)
        for place in others
        if public_keys[place] != own
    )


def place_of(own: bytes, public_keys: Sequence[bytes], least: int = LEAST_PARTIES) -> int:
    """Return the place of a party's public key among those of all parties.

    Raises
    ------
    FederationError
        If there are fewer than ``least``, one occurs twice, or the party's own is missing.
    """
    present = list(filter(None, public_keys))
    if len(present) < least:
        raise FederationError(
            f"A secure sum needs {least} parties or more, not {len(present)}: of two, "
            "each knows the other's part from the sum."
        )
    if len(set(present)) < len(present):
        raise FederationError("A public key occurs twice among those of the secure sum's parties.")
    if own not in present:
        raise FederationError(
            "This party's public key is not among those of the secure sum: its node was restarted "
            "and has lost its key, or the keys have been exchanged. Start the run again."
        )
    return public_keys.index(own)


def sign_of(own: bytes, other: bytes) -> int:
    """Return 1 if the party of the first public key adds the masks of the pair, else -1."""
    return 1 if own < other else -1


def _pair_key(private: X25519PrivateKey, own: bytes, other: bytes, place: int) -> PairKey:
    try:
        secret = private.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:
        raise FederationError(f"A public key of the secure sum is none: {error}") from None
    derive = HKDF(SHA256(), KEY_BYTES, salt=None, info=_PURPOSE + min(own, other) + max(own, other))
    return PairKey(derive.derive(secret), sign_of(own, other), place)

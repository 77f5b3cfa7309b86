"""Masks that cancel in the sum over all parties."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from flwr_causal.protocol.secure.keys import KEY_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from flwr_causal.protocol.secure.keys import PairKey

WORD_BYTES = 8
_BLOCK_BYTES = 16
# Every key encrypts one stream of zeros: its counter may start at 0.
_COUNTER = bytes(_BLOCK_BYTES)


def mask_key(pair: PairKey, purpose: bytes) -> bytes:
    """Return the key of the mask of a pair of parties, for one purpose; the pair's key stays."""
    return hashlib.blake2b(purpose, key=pair.key, digest_size=KEY_BYTES).digest()


def mask(pairs: Iterable[PairKey], purpose: bytes, length: int) -> NDArray[np.uint64]:
    """Return a party's mask, words modulo 2^64; those of all parties add up to 0.

    For each other party the mask holds the key stream of AES-256 in counter mode under a key that
    follows by keyed BLAKE2b from the key of the pair and the purpose. The one party of the pair
    adds it, the other subtracts it.

    Parameters
    ----------
    pairs : iterable of PairKey
    purpose : bytes
        What is masked; a purpose must never mask two different vectors.
    length : int
        Words.
    """
    return streams(((mask_key(pair, purpose), pair.sign) for pair in pairs), length)


def streams(keys: Iterable[tuple[bytes, int]], length: int) -> NDArray[np.uint64]:
    """Return the sum of key streams of AES-256 in counter mode, words modulo 2^64.

    Parameters
    ----------
    keys : iterable of (bytes, int)
        The key of each stream, and the sign with which it is added.
    length : int
        Words.
    """
    zeros = bytes(length * WORD_BYTES)
    stream = bytearray(len(zeros) + _BLOCK_BYTES - 1)
    words = np.frombuffer(stream, dtype="<u8", count=length)
    total = np.zeros(length, dtype=np.uint64)
    for key, sign in keys:
        Cipher(AES(key), CTR(_COUNTER)).encryptor().update_into(zeros, stream)
        if sign > 0:
            total += words
        else:
            total -= words
    return total

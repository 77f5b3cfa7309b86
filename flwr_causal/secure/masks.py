"""Masks that cancel in the sum over all parties."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from flwr_causal.secure.keys import KEY_BYTES
from flwr_causal.secure.words import WORD_BYTES, WordSum

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from flwr_causal.secure.keys import PairKey
    from flwr_causal.secure.words import Size

_BLOCK_BYTES = 16
# Words that are masked at a time: what is added to them stays in the processor's cache.
_PIECE = 8192
# Every key encrypts one stream of zeros: its counter may start at 0.
_COUNTER = bytes(_BLOCK_BYTES)


def mask_key(pair: PairKey, purpose: bytes) -> bytes:
    """Return a key of a pair of parties for one purpose; the pair's key stays.

    Parameters
    ----------
    pair : PairKey
    purpose : bytes
        Of :func:`~flwr_causal.secure.purposes.purpose_of`.
    """
    return hashlib.blake2b(purpose, key=pair.key, digest_size=KEY_BYTES).digest()


def mask_keys(pairs: Iterable[PairKey], purpose: bytes) -> list[tuple[bytes, int]]:
    """Return the keys and signs of the streams that mask a party's vector, one for each pair.

    Those of all parties cancel: the one party of a pair adds the stream, the other subtracts it.

    Parameters
    ----------
    pairs : iterable of PairKey
    purpose : bytes
        What is masked; a purpose must never mask two different vectors.
    """
    return [(mask_key(pair, purpose), pair.sign) for pair in pairs]


def streams(
    keys: Iterable[tuple[bytes, int]], size: Size, vector: NDArray[np.uint64] | None = None
) -> NDArray[np.uint64]:
    """Return the sum of key streams of AES-256 in counter mode, each a vector of words.

    Parameters
    ----------
    keys : iterable of (bytes, int)
        The key of each stream, and the sign with which it is added.
    size : Size
        Of each.
    vector : ndarray of uint64, shape (words,), optional
        Is added to them.
    """
    encryptors = [(Cipher(AES(key), CTR(_COUNTER)).encryptor(), sign) for key, sign in keys]
    total = WordSum(size)
    if vector is not None:
        total.add(vector)
    stream = bytearray(_PIECE * WORD_BYTES + _BLOCK_BYTES - 1)
    for start in range(0, size.words, _PIECE):
        words = np.frombuffer(stream, dtype="<u8", count=min(_PIECE, size.words - start))
        zeros = bytes(words.nbytes)
        for encryptor, sign in encryptors:
            encryptor.update_into(zeros, stream)
            if sign > 0:
                total.add(words, start)
            else:
                total.subtract(words, start)
    return total.total()

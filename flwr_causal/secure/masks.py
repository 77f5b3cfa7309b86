"""Masks that cancel in the sum over all parties, and which parties mask together.

Up to :data:`COMPLETE` parties all mask with each other. More stand in a circle, in an order that is
drawn anew for each agreement, and each masks with those next to it (Bell et al. 2020, "Secure
single-server aggregation with (poly)logarithmic overhead").
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from flwr_causal.errors import FederationError
from flwr_causal.secure.keys import KEY_BYTES, LEAST_PARTIES
from flwr_causal.secure.purposes import purpose_of
from flwr_causal.secure.ring import WORD_BYTES, WordSum

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from numpy.typing import NDArray

    from flwr_causal.secure.keys import PairKey
    from flwr_causal.secure.ring import Size

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


#: With so many parties each masks with all others.
COMPLETE = 100
#: Of more parties, the largest share that may be missing from a sum, and the share that may work
#: together with the server, for which neighbours are enough.
MOST_LOST, COLLUDING = 0.3, 0.2
# Chance that neighbours who work with the server have the shares of a seed, of any party; and that
# fewer than needed are left.
_DISCLOSED, _TOO_FEW = 2.0**-40, 2.0**-20


def least_parties(parties: int, quorum: float) -> int:
    """Return how many parties must be in a secure sum.

    Parameters
    ----------
    parties : int
        That agreed.
    quorum : float
        The share of them that must reply. It is always more than a half: of two different sets
        of parties, at most one can then answer for a sum.
    """
    share = max(quorum, 1 - MOST_LOST) if parties > COMPLETE else quorum
    return max(LEAST_PARTIES, parties // 2 + 1, math.ceil(share * parties))


@dataclass(frozen=True)
class Circle:
    """The parties of secure sums and their neighbours.

    Parameters
    ----------
    order : tuple of int
        The parties' places in the list of public keys, as they stand in the circle.
    reach : int
        How many parties on each side are neighbours.
    shares : int
        How many shares of a seed give it back; of a party's neighbours and itself.
    least : int
        How many parties must be in a sum.
    """

    order: tuple[int, ...]
    reach: int
    shares: int
    least: int

    @property
    def all_must_reply(self) -> bool:
        """Whether no party may be missing; a sum then takes one exchange."""
        return self.least == len(self.order)

    def holders(self, place: int) -> tuple[int, ...]:
        """Return the places of a party's neighbours and its own, in ascending order."""
        size = len(self.order)
        if 2 * self.reach + 1 >= size:
            return tuple(sorted(self.order))
        middle = self.order.index(place)
        steps = range(middle - self.reach, middle + self.reach + 1)
        return tuple(sorted({self.order[step % size] for step in steps}))

    def connected(self, places: Collection[int]) -> bool:
        """Return whether neighbours connect these parties, so that no part of them has a sum."""
        found = [position for position, place in enumerate(self.order) if place in places]
        following = [*found[1:], found[0] + len(self.order)]
        gaps = [after - before for before, after in zip(found, following, strict=True)]
        return sum(gap > self.reach for gap in gaps) < 2


@lru_cache(maxsize=16)
def circle_of(keys: tuple[str, ...], least: int, token: str) -> Circle:
    """Return the circle of the parties that have keys; all compute the same.

    Parameters
    ----------
    keys : tuple of str
        The public keys in the parties' order; "" of a party that takes no part.
    least : int
        How many parties must be in a sum.
    token : str
        Of the agreement.

    Raises
    ------
    FederationError
        If so few parties could add up without the others.
    """
    places = [place for place, key in enumerate(keys) if key]
    count = len(places)
    if not max(LEAST_PARTIES, count // 2 + 1) <= least <= count:
        raise FederationError(
            f"A secure sum of {least} parties of {count} is refused: it must be that of "
            f"{LEAST_PARTIES} parties and of more than half of them."
        )
    chosen = _fewest_neighbours(count, least) if COMPLETE < count > least else None
    if chosen is None:
        return Circle(tuple(places), count // 2, least, least)
    drawn = {place: purpose_of("place in the circle", token, keys[place]) for place in places}
    neighbours, shares = chosen
    return Circle(tuple(sorted(places, key=drawn.__getitem__)), neighbours // 2, shares, least)


def _fewest_neighbours(parties: int, least: int) -> tuple[int, int] | None:
    """Return the smallest number of neighbours that is safe, and how many shares; None for all."""
    lost, colluding = parties - least, math.floor(COLLUDING * parties)
    for neighbours in range(4, parties - 1, 2):
        disclosed = _tails(parties - 1, colluding, neighbours)
        missing = _tails(parties - 1, lost, neighbours)
        for shares in range(neighbours // 2 + 1, neighbours + 1):
            too_few = missing[neighbours - shares + 1]
            if parties * disclosed[shares] <= _DISCLOSED and parties * too_few <= _TOO_FEW:
                return neighbours, shares
    return None


def _tails(others: int, marked: int, drawn: int) -> list[float]:
    """Return the chances that j or more of some drawn parties are marked, for j from 0 on."""

    def log_choices(total: int, part: int) -> float:
        return math.lgamma(total + 1) - math.lgamma(part + 1) - math.lgamma(total - part + 1)

    tails = [0.0]
    for found in range(drawn, -1, -1):
        chance = 0.0
        if found <= marked and drawn - found <= others - marked:
            ways = log_choices(marked, found) + log_choices(others - marked, drawn - found)
            chance = math.exp(ways - log_choices(others, drawn))
        tails.append(tails[-1] + chance)
    return tails[::-1]

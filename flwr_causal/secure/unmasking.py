"""The second exchange of a secure sum: the masks that do not cancel, of the sum alone.

A party adds a mask of its own to its vector, beside those of pairs. The mask follows from a seed
that is drawn for this sum and shared among the party's neighbours: each share travels through the
server, encrypted for the neighbour that holds it. Once the server has the vectors, it says whose
arrived. For a party whose vector arrived, its neighbours return the shares of its seed. For one
whose vector did not, they return the keys of the masks that they have with it in this sum. They do
never both, so that a vector that arrives late stays masked.

Where a party is missing, those in the sum first confirm to each other who is in it. A server that
names different parties to different ones would otherwise be given keys by some and shares by
others, which together unmask single vectors.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
from flwr_causal.contract.when import POOLED
from flwr_causal.errors import FederationError
from flwr_causal.protocol.contract import Contract
from flwr_causal.secure.keys import KEY_BYTES, sign_of
from flwr_causal.secure.masks import mask_key, streams
from flwr_causal.secure.purposes import purpose_of
from flwr_causal.secure.ring import WORD_BYTES
from flwr_causal.secure.shamir import PRIME, secret_of, shares_of
from flwr_causal.secure.totals import TOTALS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.secure.keys import PairKey
    from flwr_causal.secure.masks import Circle
    from flwr_causal.secure.ring import Size

#: Bytes of an encrypted share, with its authentication tag; and the words that these are.
BOX_BYTES = KEY_BYTES + 16
BOX_WORDS = BOX_BYTES // WORD_BYTES

CONFIRMATION = Exchange(
    "confirmation",
    "that all parties in a secure sum are told the same: who is in it",
    sends=(
        Sent("survivors", "1 for each party whose masked vector has arrived, else 0", ("parties",)),
    ),
    returns=(
        Disclosure(
            "seals",
            "for each other party in the sum, a digest of who is in it, under a key that these two "
            "know; else 0",
            ("parties", KEY_BYTES),
            "bytes",
            dtype="uint8",
        ),
    ),
    weight="one",
    timing="after each secure sum from which a party is missing",
    when=POOLED,
)

UNMASKING = Exchange(
    "unmasking",
    "the masks of a secure sum that do not cancel",
    sends=(
        Sent("survivors", "1 for each party whose masked vector has arrived, else 0", ("parties",)),
        Sent(
            "shares",
            "of each neighbour whose vector has arrived, the share of its seed that it encrypted "
            "for this party; else 0",
            ("holders", BOX_BYTES),
        ),
        Sent(
            "seals",
            "where a party is missing: of each other party in the sum, the digest that it has made "
            "for this party; else 0",
            ("parties", KEY_BYTES),
            optional=True,
        ),
    ),
    returns=(
        Disclosure(
            "keys",
            "of each neighbour whose vector has arrived, and of the party itself, a share of the "
            "seed of its own mask in this sum; of each other neighbour the key of the mask of the "
            "two in this sum",
            ("holders", KEY_BYTES),
            "bytes",
            dtype="uint8",
        ),
    ),
    weight="one",
    timing="after each secure sum from which a party may be missing",
    when=POOLED,
)

#: What every method's parties and server say to each other with secure sums.
SECURE_SUMS = Contract("secure-sums", (TOTALS, CONFIRMATION, UNMASKING))

# Each key encrypts one share.
_NONCE = bytes(12)
_DIGEST_BYTES = 48


def new_seed() -> bytes:
    """Return 32 bytes from the operating system, from which the polynomial of a sum follows."""
    return secrets.token_bytes(KEY_BYTES)


def polynomial(seed: bytes, shares: int) -> list[int]:
    """Return the polynomial whose first coefficient is the key of a party's own mask.

    It follows from a seed that never leaves the party, so that a repeated question has the same
    answer.
    """
    # With 128 bits more than the prime, remainders are uniform but for 2^-128.
    digests = (
        hashlib.blake2b(number.to_bytes(4, "big"), key=seed, digest_size=_DIGEST_BYTES).digest()
        for number in range(shares)
    )
    return [int.from_bytes(digest, "big") % PRIME for digest in digests]


def own_key(coefficients: list[int]) -> bytes:
    """Return the key of the party's own mask."""
    return _as_bytes(coefficients[0])


def shares_for(coefficients: list[int], places: Iterable[int]) -> dict[int, bytes]:
    """Return the shares of the key of a party's own mask, by the places of their holders."""
    shares = shares_of(coefficients, [place + 1 for place in places])
    return {place - 1: _as_bytes(share) for place, share in shares.items()}


def own_key_of(shares: Mapping[int, bytes]) -> bytes:
    """Return the key of a party's own mask, from shares by the places of their holders."""
    numbers = {place + 1: int.from_bytes(share, "big") for place, share in shares.items()}
    return _as_bytes(secret_of(numbers))


def encrypted(share: bytes, pair: PairKey, purpose: bytes, sender: bytes) -> bytes:
    """Return a share as it travels from the party of a public key to its holder."""
    return AESGCM(_box_key(pair, purpose, sender)).encrypt(_NONCE, share, None)


def decrypted(box: bytes, pair: PairKey, purpose: bytes, sender: bytes) -> bytes:
    """Return a share that has arrived.

    Raises
    ------
    FederationError
        If it is not what the party of the public key ``sender`` encrypted for this sum.
    """
    try:
        return AESGCM(_box_key(pair, purpose, sender)).decrypt(_NONCE, box, None)
    except InvalidTag:
        raise FederationError(
            f"The share of party {pair.place + 1} (in the run's order) was altered, or is of "
            "another sum: start the run again."
        ) from None


def seal_of(
    pair: PairKey, purpose: bytes, sender: bytes, survivors: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Return the seal by which a party confirms to another one who is in a sum, 32 bytes.

    Parameters
    ----------
    pair : PairKey
    purpose : bytes
        Of the sum.
    sender : bytes
        The public key of the party that confirms.
    survivors : ndarray of uint8, shape (parties,)
        1 for each party in the sum, else 0.
    """
    seal = mask_key(pair, purpose_of("parties in a sum", sender, purpose, survivors))
    return np.frombuffer(seal, dtype=np.uint8)


@dataclass(frozen=True, eq=False)
class Unmasking:
    """The server's side of the unmasking of one sum.

    Parameters
    ----------
    circle : Circle
    keys : sequence of bytes
        The parties' public keys, in their order.
    boxes : mapping of int to ndarray of uint8, shape (neighbours, 48)
        By the place of each party whose vector has arrived, its encrypted shares for its
        neighbours, in their order.
    """

    circle: Circle
    keys: Sequence[bytes]
    boxes: Mapping[int, NDArray[np.uint8]]

    @cached_property
    def holders(self) -> dict[int, tuple[int, ...]]:
        """By party, the places of its neighbours and its own."""
        return {place: self.circle.holders(place) for place in self.circle.order}

    @property
    def lost(self) -> list[int]:
        """The places of the parties whose vector has not arrived."""
        return [place for place in self.circle.order if place not in self.boxes]

    @property
    def survivors(self) -> NDArray[np.uint8]:
        """1 for each party whose vector has arrived, else 0."""
        marks = np.zeros(len(self.keys), dtype=np.uint8)
        marks[list(self.boxes)] = 1
        return marks

    @cached_property
    def _sent(self) -> dict[int, dict[int, NDArray[np.uint8]]]:
        """By sender and holder, the encrypted share."""
        sent = {}
        for sender, boxes in self.boxes.items():
            neighbours = [place for place in self.holders[sender] if place != sender]
            sent[sender] = dict(zip(neighbours, boxes, strict=True))
        return sent

    def forwarded(self, holder: int) -> NDArray[np.uint8]:
        """Return the encrypted shares for a party, by its neighbours; 0 where there is none."""
        none = np.zeros(BOX_BYTES, dtype=np.uint8)
        senders = self.holders[holder]
        return np.stack([self._sent.get(sender, {}).get(holder, none) for sender in senders])

    def seals_for(self, receiver: int, seals: Mapping[int, NDArray[np.uint8]]) -> NDArray[np.uint8]:
        """Return what other parties have confirmed to one, shape (parties, 32).

        Parameters
        ----------
        receiver : int
            The place of the party.
        seals : mapping of int to ndarray of uint8, shape (parties, 32)
            By the place of a party, what it returned.
        """
        own = np.zeros((len(self.keys), KEY_BYTES), dtype=np.uint8)
        for place, table in seals.items():
            own[place] = table[receiver]
        return own

    def enough(self, places: Collection[int]) -> bool:
        """Return whether answers of these parties give all masks that are left in the sum."""
        answering = frozenset(places)
        return all(
            len(answering.intersection(self.holders[place])) >= self.circle.shares
            for place in self.boxes
        ) and all(
            answering.issuperset(near for near in self.holders[place] if near in self.boxes)
            for place in self.lost
        )

    def masks(self, answers: Mapping[int, NDArray[np.uint8]], size: Size) -> NDArray[np.uint64]:
        """Return the masks that are left in the sum of the vectors.

        Parameters
        ----------
        answers : mapping of int to ndarray of uint8, shape (holders, 32)
            By the place of a party, what it returned; of enough parties.
        size : Size
            Of a vector.
        """
        given = {
            place: dict(zip(self.holders[place], map(bytes, keys), strict=True))
            for place, keys in answers.items()
        }
        keys = []
        for place in self.boxes:
            answering = [holder for holder in self.holders[place] if holder in given]
            shares = {holder: given[holder][place] for holder in answering[: self.circle.shares]}
            keys.append((own_key_of(shares), 1))
        for place in self.lost:
            neighbours = [near for near in self.holders[place] if near in self.boxes]
            keys += [
                (given[near][place], sign_of(self.keys[near], self.keys[place]))
                for near in neighbours
            ]
        return streams(keys, size)


def _box_key(pair: PairKey, purpose: bytes, sender: bytes) -> bytes:
    return mask_key(pair, _of_share(sender, purpose))


@lru_cache(maxsize=256)
def _of_share(sender: bytes, purpose: bytes) -> bytes:
    """Return what the shares of a party in a sum are for, the same for all holders."""
    return purpose_of("share of", sender, purpose)


def _as_bytes(number: int) -> bytes:
    return number.to_bytes(KEY_BYTES, "big")

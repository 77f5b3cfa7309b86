"""Masked tables between two parties, and what each of the two and the server compute from them.

Party a sends X_a + R_a to party b, sealed under the key of the pair, and b sends X_b + R_b to a.
The masks R follow from a seed that their party draws for one message and tells the server alone.
With the weights W of the rows

    X_a^T W (X_b + R_b)  -  (X_a + R_a)^T W R_b  +  R_a^T W R_b  =  X_a^T W X_b;

the first term is a's, the second one b's, the third one the server's.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from flwr_causal.errors import DataError, FederationError
from flwr_causal.protocol.products.matrices import weighted_products
from flwr_causal.secure.keys import KEY_BYTES
from flwr_causal.secure.masks import mask_key, mask_keys, streams
from flwr_causal.secure.purposes import purpose_of
from flwr_causal.secure.ring import WORD_BYTES, Size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import IntArray
    from flwr_causal.protocol.products.plan import Block, ProductPlan
    from flwr_causal.secure.keys import PairKey

    Words = NDArray[np.uint64]
    Sums = tuple[Words, Words]

#: Bytes of a nonce, which begins a sealed table, and of the seal, which ends it.
NONCE_BYTES, SEAL_BYTES = 32, 16
#: Bytes of the digest of a column.
DIGEST_BYTES = 16
#: A table that is sealed is smaller.
MOST_BYTES = 2**31 - 1
# Each key seals one table.
_COUNTER = bytes(12)


def mask_of(seed: bytes, receiver: int, rows: int, columns: int) -> Words:
    """Return the mask of the table for one party, shape (rows, columns)."""
    purpose = purpose_of("mask of the table for", receiver, rows, columns)
    key = hashlib.blake2b(purpose, key=seed, digest_size=KEY_BYTES).digest()
    return streams([(key, 1)], Size(rows * columns)).reshape(rows, columns)


def sealed(table: Words, pair: PairKey, sender: bytes, nonce: bytes, purpose: bytes) -> bytes:
    """Return a masked table as it travels through the server: nonce, ciphertext, seal.

    Parameters
    ----------
    table : ndarray of uint64
    pair : PairKey
        Of the sender and the receiver.
    sender : bytes
        The sender's public key.
    nonce : bytes
        Drawn for this message.
    purpose : bytes
        What all parties are asked: the run, the agreement and the plan.

    Raises
    ------
    DataError
        If the table is too large for one seal, 2 GiB.
    """
    data = table.astype("<u8", copy=False).tobytes()
    if len(data) > MOST_BYTES - SEAL_BYTES:
        raise DataError(
            f"a masked table has {len(data) / 2**30:.1f} GiB, and at most 2 can be sent: divide "
            "the rows among several runs, or the columns among several parties"
        )
    return nonce + AESGCM(_key(pair, sender, nonce)).encrypt(_COUNTER, data, purpose)


def opened(box: bytes, pair: PairKey, sender: bytes, purpose: bytes) -> tuple[bytes, Words]:
    """Return the nonce and the words of a table that has arrived.

    Raises
    ------
    FederationError
        If it is not what the sender sealed for this purpose.
    """
    nonce = box[:NONCE_BYTES]
    try:
        data = AESGCM(_key(pair, sender, nonce)).decrypt(_COUNTER, box[NONCE_BYTES:], purpose)
    except InvalidTag:
        raise FederationError(
            f"The masked table of party {pair.place + 1} (in the run's order) was altered, or is "
            "of another plan or agreement: start the run again."
        ) from None
    return nonce, np.frombuffer(data, dtype="<u8")


def box_bytes(rows: int, columns: int) -> int:
    """Return the bytes of a sealed table."""
    return NONCE_BYTES + rows * columns * WORD_BYTES + SEAL_BYTES


def box_sizes(plan: ProductPlan, place: int) -> dict[int, tuple[int, int]]:
    """Return rows and columns of the table that a party seals for each other one, by place.

    Of a party with which it computes nothing the table is empty: it gets the nonce alone.
    """
    shapes = {k: (0, 0) for k in range(len(plan.presence)) if k != place}
    for block in plan.blocks:
        rows = int(plan.counts[list(block.patterns)].sum())
        if block.one == place:
            shapes[block.other] = (rows, len(block.columns))
        elif block.other == place:
            shapes[block.one] = (rows, len(block.others))
    return shapes


def split_boxes(boxes: bytes, shapes: Mapping[int, tuple[int, int]]) -> dict[int, bytes]:
    """Return sealed tables that follow each other, by place."""
    parts, start = {}, 0
    for place, shape in shapes.items():
        parts[place] = boxes[start : start + box_bytes(*shape)]
        start += box_bytes(*shape)
    return parts


def reply_mask(
    pairs: Sequence[PairKey], nonces: Mapping[int, bytes], place: int, purpose: bytes, length: int
) -> Words:
    """Return the mask that hides a party's reply; the masks of all parties add up to 0.

    The stream of a pair is bound to the nonces of both, which each has drawn with the seed of its
    masks: with them, the plan and the weights, what a party adds to the sum is determined. One
    stream never masks two different vectors.

    Parameters
    ----------
    pairs : sequence of PairKey
        With all other parties.
    nonces : mapping of int to bytes
        By place, the party's own included.
    place : int
        Of the party itself.
    purpose : bytes
        What all parties are asked: the run, the agreement, the plan and the weights.
    length : int
        Words.
    """
    keys = []
    for pair in pairs:
        first, second = sorted((place, pair.place))
        own = purpose_of("sums of products", nonces[first], nonces[second], purpose, length)
        keys += mask_keys([pair], own)
    return streams(keys, Size(length))


class PartyTable(NamedTuple):
    """A party's rows in the order of the plan, as words.

    Parameters
    ----------
    plan : ProductPlan
    place : int
        Of the party.
    words : ndarray of uint64, shape (rows, d)
        0 in the columns that it does not hold.
    """

    plan: ProductPlan
    place: int
    words: Words

    def rows(self, patterns: Sequence[int]) -> Words:
        """Return the rows of some patterns, in the order of their numbers."""
        return self.words[self._places(patterns)]

    def _places(self, patterns: Sequence[int]) -> IntArray:
        """Return where the rows of some patterns are among the party's rows."""
        own = self.plan.patterns_of(self.place)
        return np.flatnonzero(np.repeat(np.isin(own, patterns), self.plan.counts[own]))

    def digests(
        self, pairs: Iterable[PairKey], purpose: bytes, hashes: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        """Return digests by which the server sees whether two parties have the same values.

        Those of the columns that two parties hold, over the rows that both have, are keyed by what
        these two parties share: who does not know the key learns whether they are equal, no more.

        Parameters
        ----------
        pairs : iterable of PairKey
            With all other parties.
        purpose : bytes
            What all parties are asked: the run, the agreement and the plan.
        hashes : ndarray of uint8, shape (rows, HASH_BYTES)
            Of the ids of the party's rows. With them digests of other rows than those that the
            parties have in common are never equal, and say nothing.

        Returns
        -------
        ndarray of uint8, shape (parties, d, DIGEST_BYTES)
            By the other party; 0 where it does not hold the column, or has none of the rows.
        """
        plan = self.plan
        found = np.zeros((*plan.presence.shape, DIGEST_BYTES), dtype=np.uint8)
        for pair in pairs:
            key = mask_key(pair, purpose_of("values of columns", purpose, plan.digest))
            patterns, columns = plan.shared(self.place, pair.place)
            places = self._places(patterns)
            words, of_rows = self.words[places].astype("<u8"), hashes[places].tobytes()
            for column in columns if len(words) else ():
                data = int(column).to_bytes(8, "little") + of_rows + words[:, column].tobytes()
                digest = hashlib.blake2b(data, key=key, digest_size=DIGEST_BYTES).digest()
                found[pair.place, column] = np.frombuffer(digest, dtype=np.uint8)
        return found

    def masked(self, seed: bytes) -> dict[int, Words]:
        """Return the masked table for each other party, by its place."""
        tables = {place: np.zeros((0, 0), np.uint64) for place in box_sizes(self.plan, self.place)}
        for block in self.plan.blocks:
            if self.place in (block.one, block.other):
                other = block.other if self.place == block.one else block.one
                columns = block.columns if self.place == block.one else block.others
                own = self.rows(block.patterns)[:, columns]
                tables[other] = own + mask_of(seed, other, *own.shape)
        return tables

    def sums(self, weights: IntArray, seed: bytes, received: Mapping[int, Words]) -> Sums:
        """Return the party's parts of all sums.

        Parameters
        ----------
        weights : ndarray of int64, shape (weightings, n)
            Of all rows of the plan.
        seed : bytes
            Of the party's masks.
        received : mapping of int to ndarray of uint64
            By place, the masked table of another party, in its shape.

        Returns
        -------
        products, sums : ndarray of uint64, shape (weightings, d, d)
            Sums of products of columns i and j; and of column i over the rows that know i and j.
        """
        products = np.zeros((len(weights), *(self.plan.num_columns,) * 2), dtype=np.uint64)
        sums = np.zeros_like(products)
        held = np.flatnonzero(self.plan.presence[self.place])
        alone = self.plan.alone(self.place)
        for pattern in self.plan.patterns_of(self.place):
            counted = alone[pattern].astype(np.uint64)
            own = self.rows([pattern])
            rows = self.plan.rows_of(pattern)
            if counted.any():
                part = weighted_products(own[:, held], weights[:, rows], own[:, held])
                products[:, held[:, None], held] += part * counted[np.ix_(held, held)]
            sums += (weights[:, rows].astype(np.uint64) @ own)[:, :, None] * counted
        for block in self.plan.blocks:
            if self.place in (block.one, block.other):
                self._add(block, weights, seed, received, (products, sums))
        return products, sums

    def _add(
        self,
        block: Block,
        weights: IntArray,
        seed: bytes,
        received: Mapping[int, Words],
        totals: Sums,
    ) -> None:
        """Add the party's part of its products with one other party."""
        first = self.place == block.one
        own = self.rows(block.patterns)[:, block.columns if first else block.others]
        theirs = received[block.other if first else block.one]
        noise = np.zeros((0, 0), np.uint64) if first else mask_of(seed, block.one, *own.shape)

        def part(rows: slice, own_weights: IntArray) -> Words:
            if first:
                return weighted_products(own[rows], own_weights, theirs[rows])
            return -weighted_products(theirs[rows], own_weights, noise[rows])

        _add_block(self.plan, block, weights, part, totals[0])
        for k, rows in _own_rows(self.plan, block):
            weighed = weights[:, self.plan.rows_of(block.patterns[k])].astype(np.uint64)
            levels, counted = weighed @ own[rows], block.counted[k].astype(np.uint64)
            counted = counted if first else counted.T
            ours, other = (block.columns, block.others) if first else (block.others, block.columns)
            totals[1][:, ours[:, None], other] += levels[:, :, None] * counted


def dealt(plan: ProductPlan, weights: IntArray, seeds: Mapping[int, bytes]) -> Words:
    """Return the products of the masks, which the server adds to the sum of the parties' products.

    Parameters
    ----------
    plan : ProductPlan
    weights : ndarray of int64, shape (weightings, n)
    seeds : mapping of int to bytes
        By place, the seed of a party's masks.
    """
    total = np.zeros((len(weights), *(plan.num_columns,) * 2), dtype=np.uint64)
    for block in plan.blocks:
        rows = int(plan.counts[list(block.patterns)].sum())
        one = mask_of(seeds[block.one], block.other, rows, len(block.columns))
        other = mask_of(seeds[block.other], block.one, rows, len(block.others))

        def part(
            rows: slice, own_weights: IntArray, one: Words = one, other: Words = other
        ) -> Words:
            return weighted_products(one[rows], own_weights, other[rows])

        _add_block(plan, block, weights, part, total)
    return total


def _add_block(
    plan: ProductPlan,
    block: Block,
    weights: IntArray,
    part: Callable[[slice, IntArray], Words],
    total: Words,
) -> None:
    """Add the products of a block, symmetrically, where they count."""
    for k, rows in _own_rows(plan, block):
        products = part(rows, weights[:, plan.rows_of(block.patterns[k])])
        products = products * block.counted[k].astype(np.uint64)
        total[:, block.columns[:, None], block.others] += products
        total[:, block.others[:, None], block.columns] += products.swapaxes(1, 2)


def _own_rows(plan: ProductPlan, block: Block) -> list[tuple[int, slice]]:
    """Return by pattern of a block where its rows are in the block's tables."""
    ends = np.cumsum(plan.counts[list(block.patterns)])
    starts = ends - plan.counts[list(block.patterns)]
    return [(k, slice(int(starts[k]), int(ends[k]))) for k in range(len(block.patterns))]


def _key(pair: PairKey, sender: bytes, nonce: bytes) -> bytes:
    return mask_key(pair, purpose_of("table of", sender, nonce))

"""The party's side where parties hold different columns of the same rows."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.clients.base import Asked, answers
from flwr_causal.clients.row_ids import RowIdClient
from flwr_causal.clients.secure import peers_of
from flwr_causal.errors import FederationError
from flwr_causal.protocol.columns import MASKED_TABLES, PRODUCTS, plan_of
from flwr_causal.protocol.products.matrices import check_size, fixed, fraction_bits
from flwr_causal.protocol.products.tables import (
    PartyTable,
    box_sizes,
    opened,
    reply_mask,
    sealed,
    split_boxes,
)
from flwr_causal.protocol.secure.unmasking import new_seed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.clients.base import Memory
    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray
    from flwr_causal.protocol.products.plan import Plan


class ColumnsClient(RowIdClient):
    """Base of the clients that compute products of their columns with those of other parties."""

    @answers(MASKED_TABLES)
    def masked_tables(self, asked: Asked) -> Arrays:
        """Return the party's columns masked and sealed for each other party, and the masks' seed.

        With digests of the columns that others hold, too, by which different values are noticed.

        Raises
        ------
        FederationError
            If a table was masked for another plan before: digests for several plans would tell
            which rows have the same value.

        Seed and nonce are new in each answer, so that no mask is used twice.
        """
        plan, peers = self._plan(asked), peers_of(self.context, self.setup)
        table, about = self._planned(plan, peers.place, asked), _digest(plan, asked)
        memory, agreement = self.recall(), self.setup.exchange
        if memory is not None and memory.numbers.get("agreement") == agreement:
            self._check_same(memory, about)
        seed, nonce = new_seed(), new_seed()
        own, digest = peers.keys[peers.place], plan.digest
        boxes = [
            sealed(words, peers.pairs[place], own, nonce, digest)
            for place, words in table.masked(seed).items()
        ]
        self.remember({}, seed=seed.hex(), nonce=nonce.hex(), about=about, agreement=agreement)
        return {
            "boxes": np.frombuffer(b"".join(boxes), dtype=np.uint8),
            "seed": np.frombuffer(seed, dtype=np.uint8),
            "digests": table.digests(peers.pairs.values(), self.setup.exchange.encode()),
        }

    @answers(PRODUCTS)
    def products_of_columns(self, asked: Asked) -> Arrays:
        """Return the party's parts of all sums, behind masks that cancel over all parties.

        Raises
        ------
        FederationError
            If the party has lost the seed of its masks, a table was altered on its way, or the
            question is about another table than the one that was masked: its words would be hidden
            by the same stream.
        """
        plan, peers = self._plan(asked), peers_of(self.context, self.setup)
        table, memory, place = self._planned(plan, peers.place, asked), self.recall(), peers.place
        if memory is None or "seed" not in memory.numbers:
            raise FederationError(
                "This party has lost the masks of its table: its node was restarted. Start the run "
                "again."
            )
        self._check_same(memory, _digest(plan, asked))
        shapes = {other: box_sizes(plan, other)[place] for other in peers.pairs}
        parts = split_boxes(asked["boxes"].tobytes(), shapes)
        nonces = {place: bytes.fromhex(str(memory.numbers["nonce"]))}
        received = {}
        for other, box in parts.items():
            nonces[other], words = opened(box, peers.pairs[other], peers.keys[other], plan.digest)
            received[other] = words.reshape(shapes[other])
        weightings, draw = int(asked["weightings"]), int(asked["draw"])
        weights = plan.weights(weightings - 1 - plan.num_folds, draw)
        numbers = plan.numbers(plan.patterns_of(place))
        check_size(self._product_values(asked), weights[:, numbers], self.setup.num_rows)
        products, sums = table.sums(weights, bytes.fromhex(str(memory.numbers["seed"])), received)
        words = np.concatenate([products.ravel(), sums.ravel(), np.ones(1, dtype=np.uint64)])
        purpose = f"{self.setup.exchange} {weightings} {draw} ".encode() + plan.digest
        words += reply_mask([*peers.pairs.values()], nonces, place, purpose, len(words))
        return {
            "products": words[: products.size].reshape(products.shape),
            "sums": words[products.size : -1].reshape(sums.shape),
            "ones": words[-1:],
        }

    def _plan(self, asked: Asked) -> Plan:
        """Return the plan that the party was sent."""
        return plan_of(asked.values)

    @staticmethod
    def _check_same(memory: Memory, about: str) -> None:
        """Check that a question is about the plan and the rows of the masked table."""
        if memory.numbers["about"] != about:
            raise FederationError(
                "The plan, or the order of rows, is not that of the masked table."
            )

    def _product_values(self, asked: Asked) -> FloatArray:
        """Return the party's rows in the order of the plan, centred and scaled, shape (n, m).

        Columns that it does not hold are 0.
        """
        held = self._product_columns(asked)[1]
        scale = np.tile(
            np.sqrt(self._of_held(self.setup.variance)), len(held) // len(self.setup.names)
        )
        values = np.zeros((len(asked["rows"]), len(held)))
        values[:, held] = self._centered_rows()[asked["rows"]] / scale
        return values

    def _centered_rows(self) -> FloatArray:
        """Return the rows of the columns that the party holds, with their lags, centred."""
        return self.rows() - self._of_held(self.setup.mean)

    def _of_held(self, values: FloatArray) -> FloatArray:
        """Return those of the agreed columns' values that are of columns that the party holds."""
        return values[[self.setup.names.index(name) for name in self.held_names]]

    def _product_columns(self, asked: Asked) -> tuple[Sequence[str], BoolArray]:
        """Return the name of each column of the plan, and whether the party holds it."""
        names = self.setup.names
        return names, np.array([name in self.held_names for name in names])

    def _planned(self, plan: Plan, place: int, asked: Asked) -> PartyTable:
        """Return the party's table as the plan has it.

        Raises
        ------
        FederationError
            If the plan is not that of its rows and columns.
        """
        rows = asked["rows"]
        own = len(plan.numbers(plan.patterns_of(place)))
        names, held = self._product_columns(asked)
        once = len(rows) == len(np.unique(rows)) == own and rows.min(initial=0) >= 0
        once = once and (plan.folds is None or len(plan.folds) == plan.num_rows)
        if not once or not np.array_equal(plan.presence[place], held):
            raise FederationError("The plan is not that of this party's rows and columns.")
        plan.check(names, self.setup.small.minimum)
        bits = fraction_bits(self.setup.num_rows, self.setup.num_clients)
        words = self.once(
            f"words {plan.digest.hex()}", lambda: fixed(self._product_values(asked), bits)
        )
        return PartyTable(plan, place, words)


def _digest(plan: Plan, asked: Asked) -> str:
    """Return what a masked table is of: plan and rows."""
    rows = np.asarray(asked["rows"]).astype("<i8").tobytes()
    return hashlib.blake2b(plan.digest + rows, digest_size=32).hexdigest()

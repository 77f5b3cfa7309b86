"""The party's side where parties hold different columns of the same rows."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.clients.base import Asked, answers
from flwr_causal.clients.row_ids import RowIdClient
from flwr_causal.errors import ConfigError, FederationError
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
from flwr_causal.secure.party import masked_once, multiplied_once, peers_of
from flwr_causal.secure.purposes import purpose_of
from flwr_causal.secure.unmasking import new_seed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr.app import Array, ConfigRecord
    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray
    from flwr_causal.protocol.products.plan import ProductPlan


class ColumnsClient(RowIdClient):
    """Base of the clients that compute products of their columns with those of other parties."""

    # For the node's state, once the reply is complete.
    _kept: Mapping[str, ConfigRecord] = MappingProxyType({})

    @answers(MASKED_TABLES)
    def masked_tables(self, asked: Asked) -> Arrays:
        """Return the party's columns masked and sealed for each other party, and the masks' seed.

        With digests of the columns that others hold, too, by which different values are noticed.

        Raises
        ------
        AskedOtherwiseError
            If a table was masked for another plan before: digests for several plans would tell
            which rows have the same value. Or if products were computed from the masked table.

        Seed and nonce are new in each answer, so that no mask is used twice.
        """
        plan, peers = self._plan(asked), peers_of(self.context, self.setup)
        table, purpose = self._planned(plan, peers.place, asked), self._purpose(asked)
        hashes = self.row_hashes()
        if hashes is None:
            raise ConfigError(
                "This party has no secret by which its rows are matched with those of others: set "
                "'row-secret-file' in its node config."
            )
        seed, nonce = new_seed(), new_seed()
        self._kept = masked_once(self.context, self.setup, self._row_purpose(asked), nonce)
        own = peers.keys[peers.place]
        boxes = [
            sealed(words, peers.pairs[place], own, nonce, purpose)
            for place, words in table.masked(seed).items()
        ]
        self.remember({}, seed=seed.hex(), nonce=nonce.hex())
        return {
            "boxes": np.frombuffer(b"".join(boxes), dtype=np.uint8),
            "seed": np.frombuffer(seed, dtype=np.uint8),
            "digests": table.digests(peers.pairs.values(), purpose, hashes[asked["rows"]]),
        }

    @answers(PRODUCTS)
    def products_of_columns(self, asked: Asked) -> Arrays:
        """Return the party's parts of all sums, behind masks that cancel over all parties.

        Raises
        ------
        FederationError
            If the party has lost the seed of its masks, or a table was altered on its way.
        AskedOtherwiseError
            If the question is about another table than the one that was masked, or another one
            about this table was answered: its words would be hidden by the same stream.
        """
        plan, peers = self._plan(asked), peers_of(self.context, self.setup)
        table, memory, place = self._planned(plan, peers.place, asked), self.recall(), peers.place
        if memory is None or "seed" not in memory.numbers:
            raise FederationError(
                "This party has lost the masks of its table: its node was restarted. Start the run "
                "again."
            )
        nonce, purpose = bytes.fromhex(str(memory.numbers["nonce"])), self._purpose(asked)
        sent = _sent(PRODUCTS, asked)
        question = purpose_of("question", asked.number, sent)
        self._kept = multiplied_once(
            self.context, self.setup, self._row_purpose(asked), nonce, question
        )
        shapes = {other: box_sizes(plan, other)[place] for other in peers.pairs}
        parts = split_boxes(asked["boxes"].tobytes(), shapes)
        nonces = {place: nonce}
        received = {}
        for other, box in parts.items():
            nonces[other], words = opened(box, peers.pairs[other], peers.keys[other], purpose)
            received[other] = words.reshape(shapes[other])
        weightings, draw = int(asked["weightings"]), int(asked["draw"])
        weights = plan.weights(weightings - 1 - plan.num_folds, draw)
        numbers = plan.numbers(plan.patterns_of(place))
        check_size(self._product_values(asked), weights[:, numbers], self.setup.num_rows)
        products, sums = table.sums(weights, bytes.fromhex(str(memory.numbers["seed"])), received)
        words = np.concatenate([products.ravel(), sums.ravel(), np.ones(1, dtype=np.uint64)])
        everything = purpose_of("products", purpose, asked.number, PRODUCTS.sent_alike(sent))
        words += reply_mask([*peers.pairs.values()], nonces, place, everything, len(words))
        return {
            "products": words[: products.size].reshape(products.shape),
            "sums": words[products.size : -1].reshape(sums.shape),
            "ones": words[-1:],
        }

    def commit(self, sent: Sequence[tuple[NDArray[Any], Array]] = ()) -> None:
        """Store also the plan of a masked table, and the questions that were answered."""
        super().commit(sent)
        self.context.state.update(self._kept)

    def _plan(self, asked: Asked) -> ProductPlan:
        """Return the plan that the party was sent."""
        return plan_of(asked.values)

    def _purpose(self, asked: Asked) -> bytes:
        """Return the bytes, known to all parties, to which seals and digests are bound."""
        content = MASKED_TABLES.sent_alike(_sent(MASKED_TABLES, asked))
        return purpose_of("masked tables", self.context.run_id, self.setup.digest, content)

    def _row_purpose(self, asked: Asked) -> bytes:
        """Return the bytes that name the party's masked table: :meth:`_purpose` and its rows."""
        return purpose_of("rows of a masked table", self._purpose(asked), asked["rows"])

    def _product_values(self, asked: Asked) -> FloatArray:
        """Return the party's rows in the order of the plan, centred and scaled, shape (n, m).

        Columns that it does not hold are 0.
        """
        held = self._product_columns(asked)[1]
        scale = np.tile(
            np.sqrt(self._held_values(self.setup.variance)),
            len(held) // len(self.setup.names),
        )
        values = np.zeros((len(asked["rows"]), len(held)))
        values[:, held] = self._centered_rows()[asked["rows"]] / scale
        return values

    def _centered_rows(self) -> FloatArray:
        """Return the rows of the columns that the party holds, with their lags, centred."""
        return self.rows() - self._held_values(self.setup.mean)

    def _held_values(self, values: FloatArray) -> FloatArray:
        """Return the entries of the party's own columns, given one for each agreed column."""
        return values[[self.setup.names.index(name) for name in self.held_names]]

    def _product_columns(self, asked: Asked) -> tuple[Sequence[str], BoolArray]:
        """Return the name of each column of the plan, and whether the party holds it."""
        names = self.setup.names
        return names, np.array([name in self.held_names for name in names])

    def _planned(self, plan: ProductPlan, place: int, asked: Asked) -> PartyTable:
        """Return the party's table as the plan has it.

        Raises
        ------
        FederationError
            If the plan is not that of its rows and columns.
        """
        rows, counts = asked["rows"], plan.counts.tolist()
        plan.require_room(max(1 + plan.num_folds, int(asked.values.get("weightings", 1))))
        own = sum(counts[pattern] for pattern in plan.patterns_of(place))
        names, held = self._product_columns(asked)
        once = len(rows) == len(np.unique(rows)) == own and rows.min(initial=0) >= 0
        once = once and len(plan.presence) == len(self.setup.keys) and min(counts, default=0) > 0
        once = once and plan.num_rows <= self.setup.num_rows
        once = once and (plan.folds is None or len(plan.folds) == plan.num_rows)
        if not once or not np.array_equal(plan.presence[place], held):
            raise FederationError("The plan is not that of this party's rows and columns.")
        plan.check(names, self.setup.small.minimum)
        bits = fraction_bits(self.setup.num_rows, self.setup.num_clients)
        words = self.once(
            f"words {plan.digest.hex()}", lambda: fixed(self._product_values(asked), bits)
        )
        return PartyTable(plan, place, words)


def _sent(exchange: Exchange, asked: Asked) -> dict[str, Any]:
    """Return the values that an exchange declares, of those that the party was sent."""
    return {one.name: asked[one.name] for one in exchange.sends if one.name in asked}

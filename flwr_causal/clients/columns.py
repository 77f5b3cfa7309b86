"""The party's side where parties hold different columns of the same rows."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.clients.base import CausalClient
from flwr_causal.contract.answers import Asked, answers
from flwr_causal.data.check.row_ids import (
    checked_ids,
    hashed_ids,
    hashes_of_rows,
    kind_of_ids,
    name_of_ids,
    plain_ids,
    problem_of_ids,
)
from flwr_causal.data.read.pieces import whole
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.party.node_config import weakness_of
from flwr_causal.protocol.columns import MASKED_TABLES, PRODUCTS, plan_of
from flwr_causal.protocol.products.matrices import check_size, fixed, fraction_bits
from flwr_causal.protocol.products.row_ids import ALIGN
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
    from pathlib import Path

    import pandas as pd
    from flwr.app import Array, ConfigRecord
    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays, BoolArray, FloatArray
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.products.plan import ProductPlan


class ColumnsClient(CausalClient):
    """Base of the clients that match rows by ids, and compute products with other parties' columns.

    The node config may hold ``row-secret-file`` (a file with the same text at all parties, unknown
    to the server; needed to align rows) or ``row-secret`` (the text itself). See the option
    ``row_id``.
    """

    # For the node's state, once the reply is complete.
    _kept: Mapping[str, ConfigRecord] = MappingProxyType({})

    def with_ids(self, report: TableReport) -> TableReport:
        """Return a report that says whether the table has ids, and whether rows can be matched.

        Ids that repeat matter where columns differ only, which a party alone does not know.
        """
        ids = self._id_column()
        if ids is None:
            return report
        return replace(
            report, has_ids=True, ids_problem=problem_of_ids(ids), ids_kind=kind_of_ids(ids)
        )

    @property
    def held_names(self) -> tuple[str, ...]:
        """The agreed columns that the party holds."""
        columns = set(map(str, self.table().columns))
        return tuple(name for name in self.setup.names if name in columns)

    @answers(ALIGN)
    def align(self, asked: Asked) -> Arrays:
        """Return keyed hashes of the ids, with lags of the ids of all steps; none without a secret.

        A hash of the latest step's id alone would match rows whose lags are other steps, where a
        party lacks a step.
        """
        hashes = self.row_hashes()
        return {} if hashes is None else {"hashes": hashes}

    def row_hashes(self) -> NDArray[np.uint8] | None:
        """Return the keyed hashes of the rows, shape (n_k, 16); None without a secret."""
        secret = self.secret()
        if secret is None:
            return None
        steps = self.kept_rows(self.setup.handling)
        return hashes_of_rows(hashed_ids(self._ids(), secret)[steps], secret)

    def ids(self) -> pd.Series:
        """Return the ids of the rows that are kept; with lags of their latest steps."""
        return self._ids().iloc[self.kept_rows(self.setup.handling)[:, 0]]

    def secret(self) -> bytes | None:
        """Return the secret under which ids are hashed."""
        node = self.node
        if node.row_secret_file is not None:
            return _secret_in(node.row_secret_file)
        if node.row_secret:
            return node.row_secret.encode()
        # A simulation needs no secret, because all tables are on one machine. The random numbers of
        # rows follow from the secret; in a simulation the secret is the seed.
        return str(self.setup.options.seed).encode() if node.is_simulated else None

    def _ids(self) -> pd.Series:
        ids = self._id_column()
        if ids is None:
            raise ConfigError("rows cannot be aligned: the table has no column of ids")
        return checked_ids(ids)

    def _id_column(self) -> pd.Series | None:
        table = self.source.read()
        name = name_of_ids(table.columns, self.options.row_id)
        # Without ids a large file stays where it is.
        return None if name is None else plain_ids(whole(table)[name])

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


def _secret_in(file: Path) -> bytes:
    """Return the secret that a file holds, without blanks and ends of lines around it."""
    try:
        secret = file.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"row-secret-file cannot be read: {error.strerror or error}") from error
    if weakness := weakness_of(secret.decode(errors="replace")):
        raise ConfigError(f"The secret in row-secret-file {weakness}.")
    return secret

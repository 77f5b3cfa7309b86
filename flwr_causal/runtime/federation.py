"""The parties of a run: who they are, who is asked in an exchange, what arrives, who failed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from logging import WARNING
from typing import TYPE_CHECKING

from flwr.app import ArrayRecord, Message
from flwr.supercore import log

from flwr_causal.compat import NODE_UNAVAILABLE
from flwr_causal.errors import FederationError
from flwr_causal.protocol import door, records
from flwr_causal.protocol.setup import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flwr.app import RecordDict
    from flwr.serverapp import Grid

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.exchange import Contract, Exchange
    from flwr_causal.protocol.setup import Setup

# A party that failed in so many rounds one after the other is not asked again: on real nodes each
# attempt costs the others a minute of waiting.
MAX_FAILURES = 3
# The code of a reply that arrived and was refused; Flower's own codes are not negative.
REFUSED = -1


@dataclass(frozen=True)
class Party:
    """One party of the run.

    Parameters
    ----------
    node_id : int
        Flower's id, random in each run.
    name : str
        The party's own name; unique in the run.
    partition_id : int
        Number of the partition in a simulation, -1 on real nodes.
    num_rows : int
        The rows that it trains on.
    """

    node_id: int
    name: str
    partition_id: int
    num_rows: int = 0


@dataclass(frozen=True)
class Failure:
    """A party that did not deliver in a round.

    Parameters
    ----------
    server_round : int
    party : str
    reason : str
    """

    server_round: int
    party: str
    reason: str


@dataclass(frozen=True, eq=False)
class Arrival:
    """The accepted reply of one party.

    Parameters
    ----------
    party : Party
    arrays : dict of str to ndarray
    message : Message
        As it arrived, for Flower's own averaging.
    """

    party: Party
    arrays: Arrays
    message: Message


@dataclass
class Collected:
    """What came of sending the messages of one exchange.

    Parameters
    ----------
    bytes_sent, bytes_received : int
        Server to parties and back, all parties together.
    setup_bytes : int
        The part of ``bytes_sent`` that belongs to the schema exchange.
    replies : list of Arrival
        In the parties' order.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    setup_bytes: int = 0
    replies: list[Arrival] = field(default_factory=list)


@dataclass
class Federation:
    """The parties that agreed in the schema exchange, in their fixed order.

    Parameters
    ----------
    parties : tuple of Party
    setup : Setup
        What they agreed on; sent to each party with its first message.
    contract : Contract
        What the method's exchanges declare.
    training : frozenset of str or None
        The names of the parties of the current training, once an exchange that declares
        ``same_parties`` has been answered: later ones of it go to these parties alone.
    """

    parties: tuple[Party, ...]
    setup: Setup
    contract: Contract
    training: frozenset[str] | None = None
    failures: list[Failure] = field(default_factory=list)
    _informed: set[int] = field(default_factory=set)
    _failed_in_a_row: dict[int, int] = field(default_factory=dict)

    def party(self, node_id: int) -> Party:
        """Return the party behind a node."""
        return next(party for party in self.parties if party.node_id == node_id)

    def sample(self, server_round: int, fraction: float, seed: int) -> list[Party]:
        """Return the parties of a round in their fixed order.

        Each party draws a number from the seed, the round and its name; those of the smallest
        numbers are chosen. Neither their order nor their node ids play a part.
        """
        able = [p for p in self.parties if self._failed_in_a_row.get(p.node_id, 0) < MAX_FAILURES]
        size = max(1, round(fraction * len(able)))
        draws = {p: random.Random(f"{seed}-{server_round}-{p.name}").random() for p in able}
        chosen = set(sorted(able, key=draws.__getitem__)[:size])
        return [party for party in able if party in chosen]

    def asked(
        self, exchange: Exchange, server_round: int, fraction: float, seed: int
    ) -> list[Party]:
        """Return the parties that an exchange goes to: a sample, or those of the training."""
        parties = self.sample(server_round, fraction, seed)
        if not exchange.same_parties or self.training is None:
            return parties
        return [party for party in parties if party.name in self.training]

    def note_training(self, exchange: Exchange, replied: Sequence[str], *, restarts: bool) -> None:
        """Note which parties a training is with.

        Raises
        ------
        FederationError
            If a party of the training did not reply, and the method does not start again
            without it.
        """
        if not exchange.same_parties:
            return
        lost = sorted((self.training or frozenset()) - set(replied))
        if lost and not restarts:
            raise FederationError(
                f"{', '.join(lost)} did not answer the exchange '{exchange.name}', but earlier "
                "ones of this training: results with a party and without it do not go together. "
                "Start the run again once it is back, or without it."
            )
        self.training = frozenset(replied)

    def needed(self, fraction: float, quorum: float) -> int:
        """Return how many parties must reply in a round, of all that agreed at the start."""
        return max(1, math.ceil(quorum * max(1, round(fraction * len(self.parties)))))

    def message(
        self,
        node_id: int,
        content: RecordDict,
        message_type: str,
        server_round: int,
        timeout: float,
    ) -> Message:
        """Return a message of a round; with the setup, for a node that has not had it yet."""
        return Message(
            content=content if node_id in self._informed else self._with_setup(content),
            dst_node_id=node_id,
            message_type=message_type,
            ttl=timeout,
            group_id=str(server_round),
        )

    def _with_setup(self, content: RecordDict) -> RecordDict:
        arrays = content.get(records.ARRAYS)
        record = arrays if isinstance(arrays, ArrayRecord) else None
        return records.message_content(
            record, {**records.config_of(content), **self.setup.to_config()}
        )

    def exchange(
        self,
        grid: Grid,
        exchange: Exchange,
        messages: Iterable[Message],
        *,
        server_round: int,
        timeout: float,
        needed: int,
    ) -> Collected:
        """Send the messages of an exchange, check the replies, and sort them.

        A party that fails, or whose reply the contract does not allow, is asked once more. The
        second attempt carries the setup again: a node that was restarted has lost it together with
        its state.

        Raises
        ------
        FederationError
            If fewer than ``needed`` parties replied.
        """
        sent = list(messages)
        result = Collected(bytes_sent=sum(records.num_bytes(m.content) for m in sent))
        result.setup_bytes = sum(_setup_bytes(m) for m in sent)
        # Kept before sending: a grid may take a message's content away once it is on its way.
        contents = {m.metadata.dst_node_id: (m.content, m.metadata.message_type) for m in sent}
        invited = [m.metadata.dst_node_id for m in sent]
        bodies = {node_id: content for node_id, (content, _) in contents.items()}
        reasons = self._collect(grid, exchange, sent, bodies, timeout, result)
        self._informed -= set(reasons)
        again = [
            self.message(node_id, *contents[node_id], server_round, timeout)
            for node_id, (code, _) in reasons.items()
            if code != NODE_UNAVAILABLE
        ]
        if again:
            result.bytes_sent += sum(records.num_bytes(m.content) for m in again)
            result.setup_bytes += sum(_setup_bytes(m) for m in again)
            reasons |= self._collect(grid, exchange, again, bodies, timeout, result)
        self._judge(invited, result, reasons, server_round)
        if len(result.replies) < needed:
            latest = {failure.party: failure.reason for failure in self.failures}
            raise FederationError(
                f"Exchange {server_round}: only {len(result.replies)} parties replied, the option "
                f"'quorum' asks for {needed}. "
                + "; ".join(f"{party}: {reason}" for party, reason in list(latest.items())[-3:])
            )
        return result

    def _collect(
        self,
        grid: Grid,
        exchange: Exchange,
        messages: Sequence[Message],
        bodies: Mapping[int, RecordDict],
        timeout: float,
        result: Collected,
    ) -> dict[int, tuple[int, str]]:
        """Send, add the accepted replies to the result, return why others failed, by node."""
        waiting = {m.metadata.dst_node_id for m in messages}
        asked, errors = set(waiting), {}
        late = f"no reply within {timeout:g} s"
        for reply in grid.send_and_receive(messages, timeout=timeout):
            node_id = reply.metadata.src_node_id
            if node_id not in asked:
                # The SuperLink itself answers for a node that it has given up.
                late = _last_line(reply.error.reason) if reply.has_error() else late
                continue
            if node_id not in waiting:
                continue  # delivered twice
            waiting.discard(node_id)
            if reply.has_error():
                errors[node_id] = (reply.error.code, _last_line(reply.error.reason))
                continue
            try:
                arrays = self._accepted(exchange, self.party(node_id), bodies[node_id], reply)
            except door.RefusedError as error:
                errors[node_id] = (REFUSED, f"its reply was refused: {error}")
                continue
            result.replies.append(Arrival(self.party(node_id), arrays, reply))
            result.bytes_received += records.reply_bytes(reply)
        return errors | dict.fromkeys(waiting, (NODE_UNAVAILABLE, late))

    def _accepted(
        self, exchange: Exchange, party: Party, sent: RecordDict, reply: Message
    ) -> Arrays:
        """Return the arrays of a reply that the contract allows."""
        agreed = self.contract.sizes(self.setup, party.num_rows)
        weight = party.num_rows if exchange.weight == "rows" else 1
        sizes = door.sizes_of(exchange, sent, agreed)
        return door.accepted(exchange, reply.content, sizes, weight=weight)

    def _judge(
        self,
        invited: Sequence[int],
        result: Collected,
        reasons: dict[int, tuple[int, str]],
        server_round: int,
    ) -> None:
        """Sort the replies in the parties' order, and note who failed."""
        order = {party.node_id: index for index, party in enumerate(self.parties)}
        result.replies.sort(key=lambda reply: order[reply.party.node_id])
        good = {reply.party.node_id for reply in result.replies}
        self._informed |= good
        for node_id in invited:
            if node_id in good:
                self._failed_in_a_row[node_id] = 0
                continue
            self._failed_in_a_row[node_id] = self._failed_in_a_row.get(node_id, 0) + 1
            failure = Failure(server_round, self.party(node_id).name, reasons[node_id][1])
            self.failures.append(failure)
            log(
                WARNING,
                "Exchange %d: %s is left out (%s).%s",
                server_round,
                failure.party,
                failure.reason,
                " It is not asked again." if self._failed_in_a_row[node_id] >= MAX_FAILURES else "",
            )


def _setup_bytes(message: Message) -> int:
    config = records.config_of(message.content)
    return records.values_bytes({k: v for k, v in config.items() if k.startswith(PREFIX)})


def _last_line(reason: str | None) -> str:
    lines = [line for line in (reason or "unknown reason").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "unknown reason"

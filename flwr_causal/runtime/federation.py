"""The parties of a run: who they are, who is asked in a round, who failed."""

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
from flwr_causal.protocol import wire
from flwr_causal.protocol.setup_message import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flwr.app import RecordDict
    from flwr.serverapp import Grid

    from flwr_causal.protocol.setup_message import Setup

# A party that failed in so many rounds one after the other is not asked again: on real nodes each
# attempt costs the others a minute of waiting.
MAX_FAILURES = 3


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


@dataclass
class Exchange:
    """What came of sending the messages of a round.

    Parameters
    ----------
    bytes_sent, bytes_received : int
        Server to parties and back, all parties together.
    setup_bytes : int
        The part of ``bytes_sent`` that belongs to the schema exchange.
    replies : list of Message
        Replies without an error, in the parties' order.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    setup_bytes: int = 0
    replies: list[Message] = field(default_factory=list)


@dataclass
class Federation:
    """The parties that agreed in the schema exchange, in their fixed order.

    Parameters
    ----------
    parties : tuple of Party
    setup : Setup
        What they agreed on; sent to each party with its first message.
    """

    parties: tuple[Party, ...]
    setup: Setup
    failures: list[Failure] = field(default_factory=list)
    _informed: set[int] = field(default_factory=set)
    _failed_in_a_row: dict[int, int] = field(default_factory=dict)

    def party(self, node_id: int) -> Party:
        """Return the party behind a node."""
        return next(party for party in self.parties if party.node_id == node_id)

    def sample(self, server_round: int, fraction: float, seed: int) -> list[Party]:
        """Return the parties of a round in their fixed order; the same seed, the same parties."""
        able = [p for p in self.parties if self._failed_in_a_row.get(p.node_id, 0) < MAX_FAILURES]
        size = max(1, round(fraction * len(able)))
        if size >= len(able):
            return able
        chosen = random.Random(f"{seed}-{server_round}").sample(range(len(able)), size)
        return [able[index] for index in sorted(chosen)]

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
        arrays = content.get(wire.ARRAYS)
        record = arrays if isinstance(arrays, ArrayRecord) else None
        return wire.instruction(record, {**wire.config_of(content), **self.setup.to_config()})

    def exchange(
        self,
        grid: Grid,
        messages: Iterable[Message],
        *,
        server_round: int,
        timeout: float,
        needed: int,
    ) -> Exchange:
        """Send the messages of a round, ask failing parties once more, and sort the replies.

        The second attempt carries the setup again: a node that was restarted has lost it together
        with its state.

        Raises
        ------
        FederationError
            If fewer than ``needed`` parties replied.
        """
        sent = list(messages)
        result = Exchange(bytes_sent=sum(wire.num_bytes(m.content) for m in sent))
        result.setup_bytes = sum(_setup_bytes(m) for m in sent)
        # Kept before sending: a grid may take a message's content away once it is on its way.
        contents = {m.metadata.dst_node_id: (m.content, m.metadata.message_type) for m in sent}
        invited = [m.metadata.dst_node_id for m in sent]
        reasons = self._collect(grid, sent, timeout, result)
        self._informed -= set(reasons)
        again = [
            self.message(node_id, *contents[node_id], server_round, timeout)
            for node_id, (code, _) in reasons.items()
            if code != NODE_UNAVAILABLE
        ]
        if again:
            result.bytes_sent += sum(wire.num_bytes(m.content) for m in again)
            result.setup_bytes += sum(_setup_bytes(m) for m in again)
            reasons |= self._collect(grid, again, timeout, result)
        self._judge(invited, result, reasons, server_round)
        if len(result.replies) < needed:
            latest = {failure.party: failure.reason for failure in self.failures}
            raise FederationError(
                f"Round {server_round}: only {len(result.replies)} parties replied, the option "
                f"'quorum' asks for {needed}. "
                + "; ".join(f"{party}: {reason}" for party, reason in list(latest.items())[-3:])
            )
        return result

    def _collect(
        self, grid: Grid, messages: Sequence[Message], timeout: float, result: Exchange
    ) -> dict[int, tuple[int, str]]:
        """Send, add the good replies to the result, return the errors by node."""
        asked = {m.metadata.dst_node_id for m in messages}
        silent, errors = set(asked), {}
        late = f"no reply within {timeout:g} s"
        for reply in grid.send_and_receive(messages, timeout=timeout):
            node_id = reply.metadata.src_node_id
            if node_id not in asked:
                # The SuperLink itself answers for a node that it has given up.
                late = _last_line(reply.error.reason) if reply.has_error() else late
                continue
            silent.discard(node_id)
            if reply.has_error():
                errors[node_id] = (reply.error.code, _last_line(reply.error.reason))
            else:
                result.replies.append(reply)
                result.bytes_received += wire.reply_bytes(reply)
        return errors | dict.fromkeys(silent, (NODE_UNAVAILABLE, late))

    def _judge(
        self,
        invited: Sequence[int],
        result: Exchange,
        reasons: dict[int, tuple[int, str]],
        server_round: int,
    ) -> None:
        """Sort the replies in the parties' order, and note who failed."""
        order = {party.node_id: index for index, party in enumerate(self.parties)}
        result.replies.sort(key=lambda reply: order[reply.metadata.src_node_id])
        good = {reply.metadata.src_node_id for reply in result.replies}
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
                "Round %d: %s is left out (%s).%s",
                server_round,
                failure.party,
                failure.reason,
                " It is not asked again." if self._failed_in_a_row[node_id] >= MAX_FAILURES else "",
            )


def _setup_bytes(message: Message) -> int:
    config = wire.config_of(message.content)
    return wire.values_bytes({k: v for k, v in config.items() if k.startswith(PREFIX)})


def _last_line(reason: str | None) -> str:
    lines = [line for line in (reason or "unknown reason").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "unknown reason"

"""The parties of a run: who they are, who is asked in an exchange, what arrives, who failed."""

from __future__ import annotations

import hashlib
import json
import math
import random
from dataclasses import dataclass, field, replace
from logging import WARNING
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from flwr.app import ArrayRecord, Message, MessageType, RecordDict
from flwr.supercore import log

from flwr_causal.compat import NODE_UNAVAILABLE, raised_text
from flwr_causal.core.words import by_reason, printable, some
from flwr_causal.errors import FederationError, ForgottenError, TableChangedError
from flwr_causal.protocol import door, records
from flwr_causal.protocol.contract import ReplyContext
from flwr_causal.protocol.setup import PREFIX
from flwr_causal.secure.groups import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import numpy as np
    from flwr.serverapp import Grid
    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.contract import Contract
    from flwr_causal.protocol.setup import Setup

# A party that failed in so many exchanges one after the other is not asked again: on real nodes
# each attempt costs the others a minute of waiting.
MAX_FAILURES = 3
# The code of a reply that arrived and was refused; Flower's own codes are not negative.
REFUSED = -1


@dataclass(frozen=True)
class Party:
    """One party of the run.

    Parameters
    ----------
    node_id : int
        Flower's id, random in each run; negative while the party has no node.
    name : str
        The party's own name; unique in the run.
    partition_id : int
        Number of the partition in a simulation, -1 on real nodes.
    num_rows : int
        The rows that it trains on; 0 where it withholds the number.
    public_key : str
        Its public key for secure sums, in hexadecimal digits.
    signature : str
        Its signature of this key, in hexadecimal digits; "" where it signs nothing.
    group : int
        The number of the group with which it adds up securely; 0 where there are no groups.
    """

    node_id: int
    name: str
    partition_id: int
    num_rows: int = 0
    public_key: str = ""
    signature: str = ""
    group: int = 0

    @property
    def has_node(self) -> bool:
        """Whether it can be sent a message."""
        return self.node_id >= 0


@dataclass(frozen=True)
class Failure:
    """A party that did not deliver in an exchange.

    Parameters
    ----------
    server_round : int
        The number of the exchange.
    party : str
    reason : str
    """

    server_round: int
    party: str
    reason: str


@dataclass(frozen=True, eq=False)
class Arrival:
    """The accepted reply of one party, or the sum or mean of a group's replies.

    Parameters
    ----------
    party : Party
        For a group one with its name and rows, and without a node.
    arrays : dict of str to ndarray
    message : Message or None
        As it arrived, for Flower's own averaging; None for a group.
    members : tuple of str
        The parties in the sum of a group.
    """

    party: Party
    arrays: Arrays
    message: Message | None = None
    members: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many parties' replies it stands for."""
        return max(1, len(self.members))


@dataclass
class Collected:
    """The accepted replies of one exchange, and its traffic.

    Parameters
    ----------
    sent, received : dict of str to int
        Bytes from the server to a party and back, by its name, without ``setup_bytes``.
    seconds : dict of str to float
        By party, from the server's message to the party's reply, by the clock of either machine.
    setup_bytes : int
        Of the agreement, which is sent with a party's first message; all parties together.
    replies : list of Arrival
        In the parties' order.
    lost : tuple of str
        The names of the parties that were asked and gave no accepted reply.
    changed : tuple of str
        Those of them whose table is not the one that they have reported on.
    totals : dict of int to ndarray of uint64
        Of secure sums, by group the sum of its parties' vectors without masks.
    without : dict of str to str
        The groups that have no sum, with the reason.
    """

    sent: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    setup_bytes: int = 0
    replies: list[Arrival] = field(default_factory=list)
    lost: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    totals: dict[int, NDArray[np.uint64]] = field(default_factory=dict)
    without: dict[str, str] = field(default_factory=dict)

    def add(self, other: Collected) -> None:
        """Add replies and traffic of another attempt, or of a second exchange for one purpose."""
        self.replies += other.replies
        self.setup_bytes += other.setup_bytes
        self.sent = _added(self.sent, other.sent)
        self.received = _added(self.received, other.received)
        self.seconds = _added(self.seconds, other.seconds)

    @property
    def bytes_sent(self) -> int:
        """Bytes from the server to the parties, all together, the agreement excluded."""
        return sum(self.sent.values())

    @property
    def bytes_received(self) -> int:
        """Bytes from the parties to the server, all together."""
        return sum(self.received.values())

    def traffic(self) -> dict[str, Any]:
        """Return bytes and seconds for the history; bytes that are the same for all as a number."""
        return {
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "party_bytes_sent": _common(self.sent),
            "party_bytes_received": _common(self.received),
            "party_seconds": {name: round(one, 4) for name, one in self.seconds.items()},
        }


Amount = TypeVar("Amount", int, float)


def _added(one: dict[str, Amount], other: dict[str, Amount]) -> dict[str, Amount]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def _common(values: dict[str, int]) -> int | dict[str, int]:
    """Return the value if it is the same under all names, else the values by name."""
    different = set(values.values())
    return different.pop() if len(different) == 1 else values


class Totals(NamedTuple):
    """What secure sums say of the rows.

    Parameters
    ----------
    all : TableReport
        Of all parties together.
    groups : mapping of int to TableReport
        Of each group's parties together; empty without groups.
    """

    all: TableReport
    groups: Mapping[int, TableReport]


class Returned(NamedTuple):
    """Parties whose node was gone and is back.

    Parameters
    ----------
    nodes : dict of str to int
        By name, the node that the party has now.
    changed : dict of str to str
        By name, why its table is not the one that it has reported on.
    num_bytes : int
        Bytes that were sent and received for this check.
    """

    nodes: dict[str, int]
    changed: dict[str, str]
    num_bytes: int = 0


#: Looks for the nodes of parties: see :meth:`Federation.exchange`.
Find: TypeAlias = "Callable[[Collection[str], Collection[int]], Returned]"


@dataclass
class Federation:
    """The parties that agreed in the schema exchange, in their fixed order.

    Parameters
    ----------
    parties : tuple of Party
    reports : mapping of str to TableReport
        The parties' answers in the schema exchange, by name.
    setup : Setup
        The agreement; sent to each party with its first message.
    contract : Contract
        Of the method.
    size : int
        The number of parties that agreed at first, of which the quorum is a share.
    failures : list of Failure
    failed_in_a_row : dict of str to int
        By party, in how many exchanges it has failed since its last reply.
    connected : set of int
        The nodes that were connected when last looked at. Default: those of the parties.
    total : Totals, optional
        With secure aggregation, the reports on the rows of parties together.
    together : collection of str
        With secure aggregation, the parties of the exchanges that declare ``same_parties``, from
        the first one on; empty before.
    """

    parties: tuple[Party, ...]
    reports: Mapping[str, TableReport]
    setup: Setup
    contract: Contract
    size: int
    failures: list[Failure] = field(default_factory=list)
    failed_in_a_row: dict[str, int] = field(default_factory=dict)
    connected: set[int] = field(default_factory=set)
    total: Totals | None = None
    together: Collection[str] = ()
    _informed: set[int] = field(default_factory=set)
    _last_with_setup: tuple[Any, Any, RecordDict] = field(
        default_factory=lambda: (None, None, RecordDict()), repr=False
    )

    def __post_init__(self) -> None:
        self.connected = self.connected or {party.node_id for party in self.parties}

    @property
    def groups(self) -> dict[str, tuple[Party, ...]]:
        """By name, the parties of each group that adds up securely; empty without groups."""
        return grouped(self.parties)

    @property
    def labels(self) -> dict[str, str]:
        """By party, the name under which methods know it: its own, or its group's."""
        own = {party.name: party.name for party in self.parties}
        return own | {one.name: name for name, group in self.groups.items() for one in group}

    @property
    def summed_reports(self) -> Mapping[str, TableReport]:
        """The reports under the names that a method knows: of the parties, or of the groups."""
        if not (self.groups and self.total):
            return self.reports
        return {name: self.total.groups[own[0].group] for name, own in self.groups.items()}

    @property
    def digests(self) -> dict[str, str]:
        """By party the digest of its report on its table, with secure sums also of all together."""
        reports = {"": self.total.all} if self.total is not None else {}
        reports |= {party.name: self.reports[party.name] for party in self.parties}
        return {
            name: hashlib.sha256(json.dumps(report.to_dict(), sort_keys=True).encode()).hexdigest()
            for name, report in reports.items()
        }

    def asked(
        self, exchange: Exchange, server_round: int, fraction: float, seed: int
    ) -> list[Party]:
        """Return the parties of an exchange in their fixed order: all, or a sample.

        Seed, number of the exchange and name of a party give it a random number; the parties with
        the smallest numbers are chosen. Neither the parties' order nor their node ids matter. All
        exchanges that declare ``same_parties`` have the same sample.
        """
        together = self.together if exchange.same_parties and self.together else None
        able = [
            party
            for party in self.parties
            if self.failed_in_a_row.get(party.name, 0) < MAX_FAILURES
            and (together is None or party.name in together)
        ]
        size = max(1, round(fraction * len(able)))
        if size >= len(able):
            return able
        number = 0 if exchange.same_parties else server_round
        draws = {p: random.Random(f"{seed}-{number}-{p.name}").random() for p in able}
        chosen = set(sorted(able, key=draws.__getitem__)[:size])
        return [party for party in able if party in chosen]

    def recall(self, failures: Sequence[Failure], replied: Sequence[str]) -> None:
        """Note who failed and who replied in an exchange of the run that is resumed."""
        self.failures += failures
        self.failed_in_a_row |= dict.fromkeys(replied, 0)
        for party in {failure.party: None for failure in failures}:
            self.failed_in_a_row[party] = self.failed_in_a_row.get(party, 0) + 1

    @property
    def absent(self) -> frozenset[str]:
        """The parties whose last reply is missing."""
        return frozenset(name for name, failed in self.failed_in_a_row.items() if failed)

    def moved(self, name: str, node_id: int) -> None:
        """Note that a party now has another node, or the same one without its state."""
        self._place(name, node_id)
        self._informed.discard(node_id)
        self.failed_in_a_row[name] = 0

    def left(self, party: Party) -> None:
        """Note that a party has no node; the next exchange looks for it."""
        self.connected.discard(party.node_id)
        self._place(party.name, min(0, *(each.node_id for each in self.parties)) - 1)

    def _place(self, name: str, node_id: int) -> None:
        self.parties = tuple(
            replace(party, node_id=node_id) if party.name == name else party
            for party in self.parties
        )

    def needed(self, fraction: float, quorum: float) -> int:
        """Return how many parties must reply in an exchange, of all that agreed at the start."""
        return max(1, math.ceil(quorum * max(1, round(fraction * self.size))))

    def message(
        self,
        node_id: int,
        content: RecordDict,
        exchange: Exchange,
        server_round: int,
        timeout: float,
    ) -> Message:
        """Return a message of an exchange; it holds the setup if the node has not received it."""
        if node_id not in self._informed:
            content = self._with_setup(content)
        return Message(
            content=content,
            dst_node_id=node_id,
            message_type=MessageType.QUERY if exchange.query else MessageType.TRAIN,
            ttl=timeout,
            group_id=str(server_round),
        )

    def _with_setup(self, content: RecordDict) -> RecordDict:
        """Return a content with the setup; one for all messages that have one content."""
        of, setup, found = self._last_with_setup
        if of is not content or setup is not self.setup:
            arrays = content.get(records.ARRAYS)
            record = arrays if isinstance(arrays, ArrayRecord) else None
            found = records.message_content(
                record, {**records.config_of(content), **self.setup.to_config()}
            )
            self._last_with_setup = content, self.setup, found
        return found

    def exchange(
        self,
        grid: Grid,
        exchange: Exchange,
        messages: Iterable[Message],
        *,
        server_round: int,
        timeout: float,
        find: Find | None = None,
        words: Mapping[str, int] | None = None,
    ) -> Collected:
        """Send the messages of an exchange, check the replies, and sort them.

        A party that fails, or whose reply the contract does not allow, is asked once more; one
        whose node was restarted, once it is back.

        Parameters
        ----------
        grid : Grid
        exchange : Exchange
        messages : iterable of Message
            One for each party that is asked.
        server_round : int
            The number of the exchange.
        timeout : float
            Seconds to wait for the replies of an attempt.
        find : callable, optional
            Looks for the nodes of parties: takes the names of those whose node is gone or has lost
            its state, and the ids of the nodes that have lost it. Default: nodes that have lost
            it are sent the setup again.
        words : mapping of str to int, optional
            By party, of the masked vector of a secure sum, which the reply then is.
        """
        parties = {party.node_id: party for party in self.parties}
        attempt = _Attempt(self, grid, exchange, server_round, timeout, parties, words)
        # The contents are kept here, since a grid may remove the content of a sent message.
        contents = {}
        sent = []
        for message in messages:
            contents[message.metadata.dst_node_id] = message.content
            sent.append(message)
        attempt.collect(sent, contents)
        forgotten = attempt.raised(ForgottenError)
        gone = [n for n, (code, _) in attempt.reasons.items() if code == NODE_UNAVAILABLE]
        gone += forgotten
        found = find([parties[n].name for n in gone], forgotten) if find and gone else None
        for old in gone:
            name = parties[old].name
            if found is not None and name in found.changed:
                attempt.reasons[old] = (REFUSED, found.changed[name])
            elif found is not None and name in found.nodes:
                new = found.nodes[name]
                parties[new] = replace(parties[old], node_id=new)
                contents[new] = contents.pop(old)
                attempt.reasons[new] = (REFUSED, attempt.reasons.pop(old)[1])
        if find is None:
            self._informed.difference_update(forgotten)
        changed = attempt.raised(TableChangedError)
        again = [
            self.message(node_id, contents[node_id], exchange, server_round, timeout)
            for node_id, (code, _) in attempt.reasons.items()
            if code != NODE_UNAVAILABLE and node_id not in changed
        ]
        if again:
            attempt.collect(again, contents)
        result = attempt.result
        order = {party.name: index for index, party in enumerate(self.parties)}
        result.replies.sort(key=lambda reply: order[reply.party.name])
        result.lost = tuple(parties[n].name for n in contents if n in attempt.reasons)
        result.changed = tuple(
            parties[node_id].name for node_id in attempt.raised(TableChangedError)
        )
        self._note(attempt, server_round)
        return result

    def check_quorum(self, collected: Collected, needed: int, server_round: int) -> None:
        """Check that enough parties have replied.

        Raises
        ------
        FederationError
            If fewer than ``needed`` have.
        """
        if len(collected.replies) < needed:
            raise FederationError(
                f"Exchange {server_round}: only {len(collected.replies)} parties replied, the "
                f"option 'quorum' asks for {needed}. {self.latest_reasons()}"
            )

    def latest_reasons(self) -> str:
        """Say why the last parties that failed have failed."""
        latest = {failure.party: failure.reason for failure in self.failures}
        return "; ".join(by_reason(latest)[-3:])

    def _note(self, attempt: _Attempt, server_round: int) -> None:
        """Note which parties have the setup, and which have failed."""
        good = [reply.party for reply in attempt.result.replies]
        self._informed.update(party.node_id for party in good)
        self.failed_in_a_row |= {party.name: 0 for party in good}
        alike: dict[tuple[str, bool], list[str]] = {}
        for node_id, (_, reason) in attempt.reasons.items():
            failure = Failure(server_round, attempt.parties[node_id].name, reason)
            failed = self.failed_in_a_row.get(failure.party, 0) + 1
            self.failed_in_a_row[failure.party] = failed
            self.failures.append(failure)
            alike.setdefault((reason, failed >= MAX_FAILURES), []).append(failure.party)
        for (reason, last), names in alike.items():
            log(
                WARNING,
                "Exchange %d: %s %s left out (%s).%s",
                server_round,
                some(names),
                "is" if len(names) == 1 else "are",
                reason,
                f" {'It is' if len(names) == 1 else 'They are'} not asked again." if last else "",
            )


@dataclass
class _Attempt:
    """The attempts of one exchange.

    Parameters
    ----------
    federation, grid, exchange, server_round, timeout, words
        As of :meth:`Federation.exchange`.
    parties : dict of int to Party
        By node.
    result : Collected
    reasons : dict of int to (int, str)
        By node without an accepted reply in the last attempt, the error's code and reason.
    """

    federation: Federation
    grid: Grid
    exchange: Exchange
    server_round: int
    timeout: float
    parties: dict[int, Party]
    words: Mapping[str, int] | None = None
    result: Collected = field(default_factory=Collected)
    reasons: dict[int, tuple[int, str]] = field(default_factory=dict)

    def raised(self, error: type[Exception]) -> list[int]:
        """Return the nodes whose client has raised an error, which travels as text."""
        return [n for n, (_, reason) in self.reasons.items() if error.__name__ in reason]

    def collect(self, messages: Sequence[Message], contents: Mapping[int, RecordDict]) -> None:
        """Send messages, add the accepted replies to the result, note why others failed."""
        placed = {m.metadata.dst_node_id: self.parties[m.metadata.dst_node_id] for m in messages}
        without = [node_id for node_id, party in placed.items() if not party.has_node]
        self.reasons |= dict.fromkeys(without, (NODE_UNAVAILABLE, "it is not connected"))
        messages = [m for m in messages if m.metadata.dst_node_id not in without]
        if not messages:
            return
        waiting = {message.metadata.dst_node_id for message in messages}
        asked = set(waiting)
        started = {}
        for message in messages:
            name, setup = placed[message.metadata.dst_node_id].name, setup_bytes(message.content)
            size = records.num_bytes(message.content) - setup
            self.result.sent[name] = self.result.sent.get(name, 0) + size
            self.result.setup_bytes += setup
            started[name] = message.metadata.created_at
        late, code = f"no reply within {self.timeout:g} s", REFUSED
        for reply in self.grid.send_and_receive(messages, timeout=self.timeout):
            node_id = reply.metadata.src_node_id
            if node_id not in asked:
                # The SuperLink itself answers for a node that it has given up.
                if reply.has_error():
                    late, code = _last_line(reply.error.reason), reply.error.code
                continue
            if node_id not in waiting:
                continue  # delivered twice
            waiting.discard(node_id)
            if reply.has_error():
                self.reasons[node_id] = (reply.error.code, _last_line(reply.error.reason))
                continue
            try:
                arrays = self._accepted(self.parties[node_id], contents[node_id], reply)
            except door.RefusedError as error:
                self.reasons[node_id] = (REFUSED, printable(f"its reply was refused: {error}"))
                continue
            self.reasons.pop(node_id, None)
            party = self.parties[node_id]
            self.result.replies.append(Arrival(party, arrays, reply))
            self.result.received[party.name] = records.reply_bytes(reply)
            # The clocks of two machines may differ by more than that.
            seconds = max(0.0, reply.metadata.created_at - started[party.name])
            self.result.seconds[party.name] = seconds
        self.reasons |= dict.fromkeys(waiting, (NODE_UNAVAILABLE, late))
        if code == NODE_UNAVAILABLE:
            # If such a node is connected, it was restarted: with node authentication its id stays.
            self.federation.connected -= waiting

    def _accepted(self, party: Party, sent: RecordDict, reply: Message) -> Arrays:
        """Return the arrays of a reply that the contract allows."""
        asked_to_clip = records.CLIPPING_NORM in records.config_of(sent)
        if records.has_norm_bit(reply.content) and not asked_to_clip:
            raise door.RefusedError(
                f"it holds '{records.NORM_BIT}' of adaptive clipping, for which nobody has asked"
            )
        if self.words is not None:
            own = self.words[party.name]
            vector = door.accepted_masked(reply.content, own, number=self.server_round)
            return {door.MASKED: vector}
        federation, exchange = self.federation, self.exchange.asked(records.config_of(sent))
        agreed = federation.contract.sizes(federation.setup, party.num_rows)
        if federation.reports[party.name].withheld:
            agreed.pop("n")  # the reply tells
        sizes = door.sizes_of(exchange, sent, agreed)
        weight = party.num_rows if exchange.weight == "rows" else 1
        arrays = door.accepted(
            exchange, reply.content, sizes, weight=weight, number=self.server_round
        )
        if asked_to_clip:
            door.check_clipped(sent, arrays)
        if exchange.contradiction is not None:
            received = {**records.config_of(sent), **records.arrays_of(sent)}
            known = ReplyContext(sizes, received, federation.setup, federation.reports[party.name])
            complaint = exchange.contradiction(arrays, known)
            if complaint:
                raise door.RefusedError(complaint)
        return arrays


def grouped(parties: Iterable[Party]) -> dict[str, tuple[Party, ...]]:
    """Return the parties of each group by its name, in the order of the groups' numbers."""
    groups: dict[int, list[Party]] = {}
    for party in parties:
        if party.group:
            groups.setdefault(party.group, []).append(party)
    return {
        name_of(number, [party.name for party in groups[number]]): tuple(groups[number])
        for number in sorted(groups)
    }


def setup_bytes(content: RecordDict) -> int:
    """Return the size of the agreement in a message's content."""
    config = records.config_of(content)
    return records.values_bytes({k: v for k, v in config.items() if k.startswith(PREFIX)})


def _last_line(reason: str | None) -> str:
    lines = [line for line in raised_text(reason).splitlines() if line.strip()]
    return printable(lines[-1].strip()) if lines else "unknown reason"

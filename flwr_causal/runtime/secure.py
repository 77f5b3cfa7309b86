"""The server's side of secure sums: what is refused, the totals of all parties, and the unmasking.

Every party must reply: masks cancel only in the sum over all parties. The server never learns a
part of a sum, and cannot tell which party has altered one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol import door, records
from flwr_causal.protocol.exchange import Known
from flwr_causal.protocol.replies import Replies
from flwr_causal.protocol.secure import totals
from flwr_causal.protocol.secure.keys import KEY_BYTES, LEAST_PARTIES
from flwr_causal.protocol.secure.ring import Layout, SumError
from flwr_causal.runtime.federation import Collected

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid
    from numpy.typing import NDArray

    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.data.check.report import TableReport
    from flwr_causal.protocol.exchange import Exchange
    from flwr_causal.runtime.federation import Arrival, Federation, Found, Party
    from flwr_causal.runtime.method import Method

#: The digits of the totals of so many parties could overflow.
MOST_PARTIES = 2**16
#: How often a party without a usable reply is asked; each time twice where its reply is refused.
ATTEMPTS = 2


def check_parties(method: Method[Any], parties: Sequence[Party]) -> None:
    """Check that the parties of a run can add up securely.

    Raises
    ------
    ConfigError
        If there are fewer than ``min_parties``.
    FederationError
        If a party has sent no key.
    """
    least = max(method.min_parties, LEAST_PARTIES)
    if len(parties) < least:
        raise ConfigError(
            f"The option 'secure_aggregation' is True, and there are {len(parties)} parties; "
            f"'min_parties' asks for {least}. Of two parties, each knows the other's part from the "
            "sum. Connect more parties."
        )
    if len(parties) >= MOST_PARTIES:
        raise ConfigError(f"secure_aggregation is for fewer than {MOST_PARTIES} parties.")
    without = [party.name for party in parties if not _is_key(party.public_key)]
    if without:
        raise FederationError(
            f"{', '.join(without)} sent no key for secure sums. Install the same version of "
            "flwr-causal on all machines."
        )


def check_targets(agreement: Agreement, reports: Mapping[str, TableReport]) -> None:
    """Check that rows under the same interventions are those of three parties or more.

    Rows are summed by their targets: of fewer parties such a sum would disclose too much.

    Raises
    ------
    DataError
        Naming the targets and the parties.
    """
    for targets in agreement.targets:
        own = [name for name, report in reports.items() if targets in (report.targets or ((),))]
        if len(own) < LEAST_PARTIES:
            acted = f"under an intervention on {', '.join(targets)}" if targets else "without one"
            raise DataError(
                f"Rows {acted} are at {', '.join(own)} only, and with secure_aggregation sums are "
                f"those of {LEAST_PARTIES} parties or more. Leave these rows out, or run without "
                "secure_aggregation."
            )


def _is_key(text: str) -> bool:
    try:
        return len(bytes.fromhex(text)) == KEY_BYTES
    except ValueError:
        return False


def ask_totals(method: Method[Any], grid: Grid, federation: Federation) -> tuple[TableReport, int]:
    """Run the exchange of totals.

    Parameters
    ----------
    method : Method
    grid : Grid
    federation : Federation
        Its setup has the agreed columns and the parties' keys, but neither means nor variances.

    Returns
    -------
    total : TableReport
        On the rows of all parties together.
    num_bytes : int
        Sent and received.

    Raises
    ------
    FederationError
        If a party does not reply, or the masks do not cancel.
    """
    names = federation.setup.names
    within = method.within_parties
    content = records.request(totals.TOTALS.name, method.method, 0, {"within": int(within)})
    collected = ask_all(
        federation,
        grid,
        totals.TOTALS,
        {party.name: content for party in federation.parties},
        server_round=0,
        timeout=method.round_timeout,
        words=totals.length(names),
    )
    added, parties = _added(collected.replies), len(collected.replies)
    total = totals.report_of(added, names, parties, within=within)
    return total, collected.bytes_sent + collected.bytes_received + collected.setup_bytes


def ask_all(
    federation: Federation,
    grid: Grid,
    exchange: Exchange,
    contents: Mapping[str, RecordDict],
    *,
    server_round: int,
    timeout: float,
    words: int,
    find: Callable[[Collection[str], Collection[int]], Found] | None = None,
) -> Collected:
    """Ask all parties, and those without a reply once more.

    Parameters
    ----------
    federation : Federation
    grid : Grid
    exchange : Exchange
    contents : mapping of str to RecordDict
        What each party is sent, by its name.
    server_round, timeout, words, find
        As of ``Federation.exchange``.

    Returns
    -------
    Collected
        The replies of all parties.

    Raises
    ------
    FederationError
        If there is none of a party; it names the party.
    """
    result = Collected()
    for _ in range(ATTEMPTS):
        replied = {reply.party.name for reply in result.replies}
        messages = [
            federation.message(party.node_id, contents[party.name], exchange, server_round, timeout)
            for party in federation.parties
            if party.name not in replied
        ]
        if not messages:
            break
        part = federation.exchange(
            grid,
            exchange,
            messages,
            server_round=server_round,
            timeout=timeout,
            find=find,
            words=words,
        )
        result.replies += part.replies
        result.setup_bytes += part.setup_bytes
        result.seconds |= part.seconds
        for total, more in ((result.sent, part.sent), (result.received, part.received)):
            for name, size in more.items():
                total[name] = total.get(name, 0) + size
    order = {reply.party.name: reply for reply in result.replies}
    lost = [party.name for party in federation.parties if party.name not in order]
    if lost:
        raise FederationError(
            f"Exchange {server_round}: there is no usable reply of {', '.join(lost)}, and with "
            "secure_aggregation all parties must reply: a sum of the others would reveal the "
            f"difference. {federation.latest_reasons()}. Start the run again once all parties can "
            "answer, or without these parties."
        )
    result.replies = [order[party.name] for party in federation.parties]
    return result


@dataclass(frozen=True, eq=False)
class SecureSum:
    """One secure sum, from the messages that ask for it.

    Parameters
    ----------
    federation : Federation
    exchange : Exchange
    server_round : int
        The number of the exchange.
    layout : Layout
        How the arrays lie in the parties' vectors.
    known : Known
        By which the totals are checked, as single replies are elsewhere.
    """

    federation: Federation
    exchange: Exchange
    server_round: int
    layout: Layout
    known: Known

    @classmethod
    def of(
        cls,
        federation: Federation,
        exchange: Exchange,
        messages: Sequence[Message],
        server_round: int,
    ) -> SecureSum:
        """Return the sum of the replies to these messages.

        Raises
        ------
        ConfigError
            If the replies cannot be added up securely, or not all parties are asked.
        """
        parties, setup = len(federation.parties), federation.setup
        asked = [exchange.asked(records.config_of(message.content)) for message in messages]
        if len(messages) < parties or any(
            len(own.returns) < len(exchange.returns) for own in asked
        ):
            raise ConfigError(
                f"The exchange '{exchange.name}' does not ask all {parties} parties for all of its "
                "sums, as secure_aggregation needs: run the method without it."
            )
        assert federation.total is not None
        content = messages[0].content
        agreed = federation.contract.sizes(setup, setup.num_rows)
        sizes = door.sizes_of(exchange, content, agreed)
        received = {**records.config_of(content), **records.arrays_of(content)}
        known = Known(sizes, received, setup, federation.total)
        return cls(federation, exchange, server_round, Layout.of(exchange, sizes, setup), known)

    def ask(
        self,
        grid: Grid,
        messages: Sequence[Message],
        *,
        timeout: float,
        find: Callable[[Collection[str], Collection[int]], Found],
    ) -> Collected:
        """Send the messages; return the replies of all parties, see :func:`ask_all`."""
        contents = {message.metadata.dst_node_id: message.content for message in messages}
        return ask_all(
            self.federation,
            grid,
            self.exchange,
            {party.name: contents[party.node_id] for party in self.federation.parties},
            server_round=self.server_round,
            timeout=timeout,
            words=self.layout.length,
            find=find,
        )

    def combined(self, collected: Collected) -> Replies:
        """Return the sums or means of all parties' replies.

        Raises
        ------
        FederationError
            If the masks do not cancel, or the totals are not possible.
        """
        exchange = self.exchange
        try:
            arrays = self.layout.decoded(_added(collected.replies))
            door.check_total(exchange, arrays, self.known.sizes)
        except (SumError, door.RefusedError) as error:
            raise self._impossible(str(error)) from None
        if exchange.contradiction is not None:
            complaint = exchange.contradiction(arrays, self.known)
            if complaint:
                raise self._impossible(complaint)
        return Replies(tuple(reply.party.name for reply in collected.replies), arrays)

    def _impossible(self, reason: str) -> FederationError:
        return FederationError(
            f"Exchange {self.server_round} ('{self.exchange.name}'): the sum over all parties was "
            f"refused: {reason}. Which party it comes from cannot be known from a secure sum: run "
            "without secure_aggregation to find out, or start the run again."
        )


def _added(replies: Iterable[Arrival]) -> NDArray[np.uint64]:
    """Return the sum of the parties' masked vectors modulo 2^64."""
    return reduce(np.add, (reply.arrays[door.MASKED] for reply in replies))

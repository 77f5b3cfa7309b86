"""The server's side of secure sums: what is refused, the totals of all parties, and each sum.

A sum is that of the parties whose masked vectors arrive. Where some may be missing, these parties
help to unmask it in a second exchange. The server learns no part of a sum, never asks for one again
with fewer parties, and cannot tell which party has altered one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol import door, records
from flwr_causal.protocol.exchange import Known
from flwr_causal.protocol.replies import Replies
from flwr_causal.protocol.secure import totals
from flwr_causal.protocol.secure.keys import KEY_BYTES, LEAST_PARTIES
from flwr_causal.protocol.secure.neighbours import circle_of, least_parties
from flwr_causal.protocol.secure.ring import Layout, SumError
from flwr_causal.protocol.secure.unmasking import BOX_BYTES, BOX_WORDS, UNMASKING, Unmasking
from flwr_causal.runtime.federation import Collected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from flwr.app import Message, RecordDict
    from flwr.serverapp import Grid
    from numpy.typing import NDArray

    from flwr_causal.data.check.report import TableReport
    from flwr_causal.data.interventions import Targets
    from flwr_causal.protocol.exchange import Exchange
    from flwr_causal.protocol.secure.neighbours import Circle
    from flwr_causal.runtime.federation import Federation, Find, Party
    from flwr_causal.runtime.method import Method

    Fix = Callable[[int, Sequence[str]], None]

#: The digits of the totals of so many parties could overflow.
MOST_PARTIES = 2**16
#: How often a party is asked whose reply a sum needs; each time twice where its reply is refused.
ATTEMPTS = 2

_REMEDY = "Start the run again once all of them can answer."
_TOO_FEW = (
    "a secure sum must be that of {least} of the {parties} parties at least (quorum, and more than "
    "half of them)"
)
_OF_EARLIER_SUMS = (
    "earlier sums of this method have them in it. Sums over different parties cannot be combined, "
    "and to start without them would repeat a sum with fewer parties, whose difference would be "
    "their numbers"
)
_NOT_CONNECTED = "without them the sum would fall into several, each of a part of the parties"
_NOT_UNMASKED = (
    "they have not helped to unmask the sum. It is not repeated with fewer parties: the difference "
    "of the two would be the numbers of those that are left out"
)


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
    # A party without a node is absent from a resumed run.
    without = [party.name for party in parties if party.has_node and not _is_key(party.public_key)]
    if without:
        raise FederationError(
            f"{', '.join(without)} sent no key for secure sums. Install the same version of "
            "flwr-causal on all machines."
        )


def agreed_keys(method: Method[Any], parties: Sequence[Party]) -> dict[str, Any]:
    """Return the parties' keys, where sums are secure sums or columns differ; else nothing."""
    if not (method.secure_aggregation or method.columns_differ):
        return {}
    agreed: dict[str, Any] = {"keys": tuple(party.public_key for party in parties)}
    if method.secure_aggregation:
        agreed["least_parties"] = least_parties(len(parties), method.quorum)
    if any(party.signature for party in parties):
        agreed["key_names"] = tuple(party.name for party in parties)
        agreed["key_signatures"] = tuple(party.signature for party in parties)
    return agreed


def check_targets(targets: Iterable[Targets], reports: Mapping[str, TableReport]) -> None:
    """Check that rows under the same interventions are those of three parties or more.

    Rows are summed by their targets: of fewer parties such a sum would disclose too much.

    Parameters
    ----------
    targets : iterable of tuple of str
        The different sets of targets.
    reports : mapping of str to TableReport
        Of the parties in the sums, by name.

    Raises
    ------
    DataError
        Naming the targets and the parties.
    """
    for one in targets:
        own = [name for name, report in reports.items() if one in (report.targets or ((),))]
        if len(own) < LEAST_PARTIES:
            acted = f"under an intervention on {', '.join(one)}" if one else "without one"
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


def ask_totals(
    method: Method[Any], grid: Grid, federation: Federation
) -> tuple[TableReport, tuple[str, ...], int]:
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
        On the rows of all parties that replied, together.
    replied : tuple of str
        The names of these parties.
    num_bytes : int
        Sent and received.

    Raises
    ------
    FederationError
        If too few parties reply, or the masks do not cancel.
    """
    names, within, number = federation.setup.summed, method.within_parties, totals.TOTALS_NUMBER
    content = records.request(totals.TOTALS.name, method.method, number, {"within": int(within)})
    collected = ask_sum(
        federation,
        grid,
        totals.TOTALS,
        {party.name: content for party in federation.parties},
        number=number,
        timeout=method.round_timeout,
        words=totals.length(names),
    )
    assert collected.total is not None
    replied = tuple(reply.party.name for reply in collected.replies)
    total = totals.report_of(collected.total, names, len(replied), within=within)
    num_bytes = collected.bytes_sent + collected.bytes_received + collected.setup_bytes
    return total, replied, num_bytes


def ask_sum(
    federation: Federation,
    grid: Grid,
    exchange: Exchange,
    contents: Mapping[str, RecordDict],
    *,
    number: int,
    timeout: float,
    words: int,
    find: Find | None = None,
    fix: Fix | None = None,
) -> Collected:
    """Ask parties for the vectors of a sum, and unmask it.

    Parameters
    ----------
    federation : Federation
    grid : Grid
    exchange : Exchange
    contents : mapping of str to RecordDict
        What each party is sent, by its name.
    number : int
        Of the exchange.
    timeout : float
        Seconds to wait for the replies of an attempt.
    words : int
        Of each vector.
    find : callable, optional
        As of ``Federation.exchange``.
    fix : callable, optional
        Called with the number of the exchange and the parties in the sum, before it is unmasked;
        raises an error if it must not be.

    Returns
    -------
    Collected
        The replies of the parties in the sum, the sum, and the traffic of both exchanges.

    Raises
    ------
    FederationError
        If replies are missing that the sum needs; it names the parties.
    """
    setup = federation.setup
    circle = circle_of(setup.keys, setup.least_parties, setup.exchange)
    together = set(federation.together) if exchange.same_parties else set[str]()
    boxes = 0 if circle.all_must_reply else len(circle.holders(circle.order[0])) - 1
    asking = _Asking(federation, grid, number, timeout, find)
    collected = asking.replies(
        exchange,
        contents,
        lambda replied: len(replied) >= circle.least and replied >= together,
        words + boxes * BOX_WORDS,
    )
    vectors = {reply.party.name: reply.arrays[door.MASKED] for reply in collected.replies}
    lost = [name for name in together or contents if name not in vectors]
    if lost and together:
        raise asking.ended(lost, _OF_EARLIER_SUMS)
    if len(vectors) < circle.least:
        raise asking.ended(lost, _TOO_FEW.format(least=circle.least, parties=len(circle.order)))
    if lost:
        check_targets(setup.targets, {name: federation.reports[name] for name in vectors})
    if fix is not None:
        fix(number, list(vectors))
    collected.total = reduce(np.add, (vector[:words] for vector in vectors.values()))
    if not circle.all_must_reply:
        shares = {name: vector[words:].view(np.uint8) for name, vector in vectors.items()}
        masks, answers = _masks(asking, circle, shares, words)
        collected.total -= masks
        collected.add(replace(answers, replies=[]))
    return collected


def _masks(
    asking: _Asking, circle: Circle, shares: Mapping[str, NDArray[np.uint8]], words: int
) -> tuple[NDArray[np.uint64], Collected]:
    """Ask the parties in a sum for the masks that are left in it.

    Parameters
    ----------
    asking : _Asking
    circle : Circle
    shares : mapping of str to ndarray of uint8
        By party in the sum, the bytes behind its vector.
    words : int
        Of a vector.
    """
    federation = asking.federation
    places = {party.name: k for k, party in enumerate(federation.parties) if party.name in shares}
    keys = [bytes.fromhex(key) for key in federation.setup.keys]
    boxes = {places[name]: own.reshape(-1, BOX_BYTES) for name, own in shares.items()}
    unmasking = Unmasking(circle, keys, boxes)
    if not circle.connected(boxes):
        missing = [p.name for k, p in enumerate(federation.parties) if k in unmasking.lost]
        raise asking.ended(missing, _NOT_CONNECTED)
    method, number = federation.contract.method, asking.number
    contents = {
        name: records.request(
            UNMASKING.name,
            method,
            number,
            {"survivors": unmasking.survivors, "shares": unmasking.forwarded(place)},
        )
        for name, place in places.items()
    }
    answers = asking.replies(
        UNMASKING,
        contents,
        lambda replied: unmasking.enough([places[name] for name in replied]),
    )
    given = {places[reply.party.name]: reply.arrays["keys"] for reply in answers.replies}
    if not unmasking.enough(given):
        raise asking.ended([n for n, place in places.items() if place not in given], _NOT_UNMASKED)
    return unmasking.masks(given, words), answers


@dataclass(frozen=True, eq=False)
class _Asking:
    """How parties are asked in the exchanges of one secure sum.

    Parameters
    ----------
    federation, grid, number, timeout, find
        As of :func:`ask_sum`.
    """

    federation: Federation
    grid: Grid
    number: int
    timeout: float
    find: Find | None

    def replies(
        self,
        exchange: Exchange,
        contents: Mapping[str, RecordDict],
        enough: Callable[[set[str]], bool],
        words: int | None = None,
    ) -> Collected:
        """Ask parties, and where not enough have replied once more those that have not."""
        federation, result = self.federation, Collected()
        for _ in range(ATTEMPTS):
            replied = {reply.party.name for reply in result.replies}
            if enough(replied):
                break
            messages = [
                federation.message(
                    party.node_id, contents[party.name], exchange, self.number, self.timeout
                )
                for party in federation.parties
                if party.name in contents and party.name not in replied
            ]
            result.add(
                federation.exchange(
                    self.grid,
                    exchange,
                    messages,
                    server_round=self.number,
                    timeout=self.timeout,
                    find=self.find,
                    words=words,
                )
            )
        order = {party.name: place for place, party in enumerate(federation.parties)}
        result.replies.sort(key=lambda reply: order[reply.party.name])
        return result

    def ended(self, lost: Iterable[str], why: str) -> FederationError:
        """Return the error of a sum that cannot be had."""
        return FederationError(
            f"Exchange {self.number}: there is no usable reply of {', '.join(lost)}, and with "
            f"secure_aggregation {why}. {self.federation.latest_reasons()}. {_REMEDY}"
        )


@dataclass(frozen=True, eq=False)
class SecureSum:
    """One secure sum, from the messages that ask for it.

    Parameters
    ----------
    federation : Federation
    exchange : Exchange
    server_round : int
        The number of the exchange.
    content : RecordDict
        What the parties are sent.
    layout : Layout
        How the arrays lie in the parties' vectors.
    fix : callable
        As of :func:`ask_sum`.
    """

    federation: Federation
    exchange: Exchange
    server_round: int
    content: RecordDict
    layout: Layout
    fix: Fix

    @classmethod
    def of(
        cls,
        federation: Federation,
        exchange: Exchange,
        messages: Sequence[Message],
        server_round: int,
        fix: Fix,
    ) -> SecureSum:
        """Return the sum of the replies to these messages.

        Raises
        ------
        ConfigError
            If the replies cannot be added up securely, or parties are asked for different sums.
        """
        asked = [exchange.asked(records.config_of(message.content)) for message in messages]
        if any(len(own.returns) < len(exchange.returns) for own in asked):
            raise ConfigError(
                f"The exchange '{exchange.name}' does not ask all parties for all of its sums, as "
                "secure_aggregation needs: run the method without it."
            )
        setup, content = federation.setup, messages[0].content
        sizes = _sizes(federation, exchange, content, setup.num_rows)
        layout = Layout.of(exchange, sizes, setup)
        return cls(federation, exchange, server_round, content, layout, fix)

    def ask(
        self,
        grid: Grid,
        messages: Sequence[Message],
        timeout: float,
        find: Find,
    ) -> Collected:
        """Send the messages; return the replies and their sum, see :func:`ask_sum`."""
        names = {party.node_id: party.name for party in self.federation.parties}
        return ask_sum(
            self.federation,
            grid,
            self.exchange,
            {names[message.metadata.dst_node_id]: message.content for message in messages},
            number=self.server_round,
            timeout=timeout,
            words=self.layout.length,
            find=find,
            fix=self.fix,
        )

    def combined(self, collected: Collected) -> Replies:
        """Return the sums or means of the replies.

        Raises
        ------
        FederationError
            If the masks do not cancel, or the totals are not possible.
        """
        federation, exchange = self.federation, self.exchange
        assert collected.total is not None
        parties = tuple(reply.party.name for reply in collected.replies)
        try:
            arrays, rows = self.layout.decoded(collected.total, len(parties))
            sizes = _sizes(federation, exchange, self.content, rows)
            door.check_total(exchange, arrays, sizes, len(parties))
        except (SumError, door.RefusedError) as error:
            raise self._impossible(str(error)) from None
        if exchange.contradiction is not None:
            assert federation.total is not None
            received = {**records.config_of(self.content), **records.arrays_of(self.content)}
            known = Known(sizes, received, federation.setup, federation.total)
            complaint = exchange.contradiction(arrays, known)
            if complaint:
                raise self._impossible(complaint)
        return Replies(parties, arrays, rows=rows)

    def _impossible(self, reason: str) -> FederationError:
        return FederationError(
            f"Exchange {self.server_round} ('{self.exchange.name}'): the sum over all parties was "
            f"refused: {reason}. Which party it comes from cannot be known from a secure sum: run "
            "without secure_aggregation to find out, or start the run again."
        )


def _sizes(
    federation: Federation, exchange: Exchange, content: RecordDict, rows: int
) -> dict[str, int]:
    agreed = federation.contract.sizes(federation.setup, rows)
    return door.sizes_of(exchange, content, agreed, federation.setup)

"""The replies to one exchange, combined as it declares: sums, means, or medians."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.errors import FederationError
from flwr_causal.protocol import records
from flwr_causal.protocol.bundle import Bundle, joined
from flwr_causal.protocol.replies import Fold, Replies, Summed, mean_of, median_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flwr.app import Message
    from flwr.serverapp import Grid

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.bundle import BundlePart
    from flwr_causal.runtime.federation import Arrival, Collected, Find
    from flwr_causal.runtime.method import Method

# Of fewer replies none can be told to be the false one.
LEAST_FOR_MEDIAN = 3
# Flower reads each array by np.load, and that its header by ast, in which two threads of CPython
# 3.11 now and then end with "AST constructor recursion depth mismatch".
_AVERAGING = RLock()


@dataclass(frozen=True, eq=False)
class SingleReplies:
    """An exchange whose replies the server sees one by one; see also ``SecureSum``.

    Parameters
    ----------
    method : Method
    strategy : Method or Strategy
        The method, or the privacy wrapper around it.
    exchange : Exchange
    server_round : int
        The number of the exchange.
    """

    method: Method
    strategy: Any
    exchange: Exchange
    server_round: int

    def ask(self, grid: Grid, messages: Iterable[Message], timeout: float, find: Find) -> Collected:
        """Send the messages; return the replies, see ``Federation.exchange``."""
        assert self.method._federation is not None
        return self.method._federation.exchange(
            grid,
            self.exchange,
            messages,
            server_round=self.server_round,
            timeout=timeout,
            find=find,
        )

    def arrivals(self, collected: Collected) -> Sequence[Arrival]:
        """Return the single replies, so that parties can be compared."""
        return collected.replies

    def combined(self, collected: Collected, arrivals: Sequence[Arrival]) -> Replies:
        """Return the replies combined: as means by Flower's averaging, as medians, or as declared.

        Flower averages what privacy wrappers change, which single trainings of a bundle are not.

        Raises
        ------
        FederationError
            If there are too few for a median, Flower cannot average them, or only some of them have
            the bit of its adaptive clipping.
        """
        method, exchange, number = self.method, self.exchange, self.server_round
        if isinstance(exchange, Bundle) and (exchange.single_means or _mixed(exchange, arrivals)):
            return _by_part(method, exchange, number, arrivals)
        if not exchange.averaged or method.options.aggregation == "median":
            return _as_declared(method, exchange, number, arrivals)
        messages = [reply.message for reply in arrivals if reply.message is not None]
        _check_norm_bits(number, arrivals)
        with _AVERAGING:
            means, _ = self.strategy.aggregate_train(number, messages)
        if means is None:
            raise FederationError(
                f"Exchange {number}: the replies of {len(arrivals)} parties could not be "
                "averaged. See the log for Flower's reason."
            )
        names = tuple(reply.party.name for reply in arrivals)
        return Replies(names, records.unpack_arrays(means), single_means(exchange, arrivals))


def combined_groups(
    method: Method, exchange: Exchange, server_round: int, replies: Sequence[Arrival]
) -> Replies:
    """Combine the sums or means of groups, as :class:`SingleReplies` does with single replies."""
    whole = isinstance(exchange, Bundle)
    found = (_by_part if whole else _as_declared)(method, exchange, server_round, replies)
    sums = {one.party.name: Summed(one.party.num_rows, one.members) for one in replies}
    return replace(found, sums=sums)


def of_part(part: BundlePart, replies: Sequence[Arrival]) -> list[Arrival]:
    """Return the replies of one training, of those to a bundle; only of parties that were asked."""
    own = [replace(reply, arrays=part.returned(reply.arrays)) for reply in replies]
    return [reply for reply in own if reply.arrays or not part.exchange.returns]


def _by_part(
    method: Method, bundle: Exchange, server_round: int, replies: Sequence[Arrival]
) -> Replies:
    assert isinstance(bundle, Bundle)
    # Of a training whose parties are all missing there is nothing, and the training has failed.
    return joined(
        (part, _as_declared(method, part.exchange, server_round, own))
        for part in bundle.parts
        if (own := of_part(part, replies))
    )


def _as_declared(
    method: Method, exchange: Exchange, server_round: int, replies: Sequence[Arrival]
) -> Replies:
    """Combine accepted replies as declared, without Flower: sums, means or medians."""
    if not exchange.averaged:
        fold = Fold(exchange)
        for reply in replies:
            fold.add(reply.party.name, reply.arrays)
        return fold.close()
    names = tuple(reply.party.name for reply in replies)
    arrays = [reply.arrays for reply in replies]
    rows = np.array([reply.party.num_rows for reply in replies], dtype=np.float64)
    if method.options.aggregation == "mean":
        ones = np.array([reply.count for reply in replies], dtype=np.float64)
        means = mean_of(arrays, rows if exchange.weight == "rows" else ones)
        return Replies(names, means, single_means(exchange, replies))
    if len(replies) < LEAST_FOR_MEDIAN:
        who = "groups" if replies and replies[0].members else "parties"
        text = (
            f"Exchange {server_round}: only {len(replies)} {who} replied, and "
            f"aggregation='median' needs {LEAST_FOR_MEDIAN}: of fewer none can be told to be "
            "the false one."
        )
        reasons = method._federation.latest_reasons() if method._federation else ""
        raise FederationError(f"{text} {reasons}".rstrip())
    return Replies(names, median_of(exchange, arrays, rows))


def single_means(exchange: Exchange, replies: Sequence[Arrival]) -> dict[str, Arrays]:
    """Return by party, or by group, the means that the training is given beside those of all."""
    return {one.party.name: one.arrays for one in replies} if exchange.single_means else {}


def _check_norm_bits(number: int, replies: Sequence[Arrival]) -> None:
    """Check that all replies, or none, have what Flower's adaptive clipping returns beside them."""
    told = [
        one.party.name
        for one in replies
        if one.message is not None and records.has_norm_bit(one.message.content)
    ]
    if 0 < len(told) < len(replies):
        other = [one.party.name for one in replies if one.party.name not in told]
        raise FederationError(
            f"Exchange {number}: {', '.join(told)} returned '{records.NORM_BIT}', of Flower's "
            f"adaptive clipping, and {', '.join(other)} did not: give all parties the same mods."
        )


def _mixed(bundle: Bundle, replies: Sequence[Arrival]) -> bool:
    """Return whether parts of a bundle are combined differently, or answered by other parties."""
    ways = {(part.exchange.averaged, part.exchange.weight) for part in bundle.parts}
    differ = any(reply.arrays.keys() != replies[0].arrays.keys() for reply in replies)
    return len(ways) > 1 or (bundle.averaged and differ)

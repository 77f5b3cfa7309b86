"""One exchange of a run: from what is asked to messages, and from replies to what is combined.

Replies are combined as the exchange declares: to sums, means, or medians.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import door, records
from flwr_causal.protocol.bundle import Bundle, joined
from flwr_causal.protocol.replies import Fold, Replies, Summed, mean_of, median_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flwr.app import ArrayRecord, Message
    from flwr.serverapp import Grid

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.bundle import BundlePart
    from flwr_causal.protocol.records import Value
    from flwr_causal.runtime.algorithm import Ask
    from flwr_causal.runtime.federation import Arrival, Collected, Federation, Find
    from flwr_causal.runtime.method import CausalMethod

# Of fewer replies none can be told to be the false one.
LEAST_FOR_MEDIAN = 3
# Flower reads each array by np.load, and that its header by ast, in which two threads of CPython
# 3.11 now and then end with "AST constructor recursion depth mismatch".
_AVERAGING = RLock()


@dataclass(frozen=True, eq=False)
class Round:
    """One exchange: a request as messages, and the replies as what a ``yield`` returns.

    The loop and the ``start`` of Flower's privacy wrappers both go through it. The replies to a
    secure sum, which the server does not see one by one, are taken in by ``SecureSum``.

    Parameters
    ----------
    method : CausalMethod
    strategy : CausalMethod or Strategy
        The method, or the privacy wrapper around it.
    request : Ask
    number : int
        Of the exchange.
    """

    method: CausalMethod
    strategy: Any
    request: Ask
    number: int

    @property
    def exchange(self) -> Exchange:
        """What is asked."""
        return self.request.exchange

    @property
    def federation(self) -> Federation:
        """The parties."""
        assert self.method._federation is not None
        return self.method._federation

    @property
    def arrays(self) -> ArrayRecord:
        """The arrays that every party is sent, which Flower hands to ``configure_train``."""
        common, _ = records.split(self.request.values)
        return records.pack_arrays(common, self.method.options.precision, self.exchange.exact)

    def messages(self, arrays: ArrayRecord, further: Mapping[str, Value]) -> list[Message]:
        """Return the messages, one for each party that is asked.

        Parameters
        ----------
        arrays : ArrayRecord
            Of :attr:`arrays`; a privacy wrapper may have changed them.
        further : mapping
            Further plain values for the parties.

        Raises
        ------
        ConfigError
            If what parties are sent has not the declared shapes, naming exchange and value.
        """
        request, exchange, federation = self.request, self.exchange, self.federation
        options, labels = self.method.options, federation.labels
        parties = federation.asked(exchange, self.number, options.fraction_train, options.seed)

        content = partial(
            records.request,
            exchange.name,
            self.method.method,
            self.number,
            precision=options.precision,
            exact=exchange.exact,
            config=further,
        )
        # One content for all that are sent the same: a content for each would cost more than the
        # exchange.
        common = content(records.split(request.values)[1])
        common[records.ARRAYS] = arrays
        contents = {
            party: content(request.values_for(own)) if own in request.own else common
            for party in parties
            if request.asks(own := labels[party.name])
        }
        agreed = federation.contract.sizes(federation.setup, 0)
        agreed.pop("n")
        for sent in {id(one): one for one in contents.values()}.values():
            try:
                door.sizes_of(exchange.asked(records.config_of(sent)), sent, agreed)
            except door.RefusedError as error:
                raise ConfigError(
                    f"{type(self.method).__name__} cannot ask for the exchange '{exchange.name}': "
                    f"{error}. Send what it declares as Sent, or declare what is sent."
                ) from error
        return [
            federation.message(party.node_id, sent, exchange, self.number, options.round_timeout)
            for party, sent in contents.items()
        ]

    def ask(self, grid: Grid, messages: Iterable[Message], timeout: float, find: Find) -> Collected:
        """Send the messages; return the replies, see ``Federation.exchange``."""
        return self.federation.exchange(
            grid,
            self.exchange,
            messages,
            server_round=self.number,
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
        method, exchange, number = self.method, self.exchange, self.number
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
    method: CausalMethod, exchange: Exchange, server_round: int, replies: Sequence[Arrival]
) -> Replies:
    """Combine the sums or means of groups, as :class:`Round` does with single replies."""
    whole = isinstance(exchange, Bundle)
    found = (_by_part if whole else _as_declared)(method, exchange, server_round, replies)
    sums = {one.party.name: Summed(one.party.num_rows, one.members) for one in replies}
    return replace(found, sums=sums)


def of_part(part: BundlePart, replies: Sequence[Arrival]) -> list[Arrival]:
    """Return the replies of one training, of those to a bundle; only of parties that were asked."""
    own = [replace(reply, arrays=part.returned(reply.arrays)) for reply in replies]
    return [reply for reply in own if reply.arrays or not part.exchange.returns]


def _by_part(
    method: CausalMethod, bundle: Exchange, server_round: int, replies: Sequence[Arrival]
) -> Replies:
    assert isinstance(bundle, Bundle)
    # Of a training whose parties are all missing there is nothing, and the training has failed.
    return joined(
        (part, _as_declared(method, part.exchange, server_round, own))
        for part in bundle.parts
        if (own := of_part(part, replies))
    )


def _as_declared(
    method: CausalMethod, exchange: Exchange, server_round: int, replies: Sequence[Arrival]
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

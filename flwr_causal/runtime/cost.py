"""What a run costs in exchanges and bytes, estimated from the declarations before it begins."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from flwr_causal.contract.exchange import WHOLE
from flwr_causal.errors import CausalError
from flwr_causal.secure.ring import WordLayout, not_a_sum
from flwr_causal.secure.words import WORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.contract.exchange import Disclosure, Exchange, Sent
    from flwr_causal.protocol.setup import Setup
    from flwr_causal.runtime.federation import Federation
    from flwr_causal.runtime.method import CausalMethod

#: Bytes of a number by what it is; of others those of a word, or of the option ``precision``.
_BYTES = {"bytes": 1, "mark": 1}


class ExchangeCost(NamedTuple):
    """One kind of exchange.

    Parameters
    ----------
    name, when : str
    sent, received : int
        Bytes of arrays to and from one party, of those whose size is known before the run.
    further : bool
        Whether there are others, whose size depends on the course of the run.
    """

    name: str
    when: str
    sent: int
    received: int
    further: bool


def costs_of(method: CausalMethod, federation: Federation) -> list[ExchangeCost]:
    """Return the cost of each exchange that a training may need with its options."""
    return [_cost(method, federation.setup, exchange) for exchange in method._exchanges]


def most_bytes(
    costs: Sequence[ExchangeCost], exchanges: int | None, parties: int, trainings: int
) -> int | None:
    """Return what travels at most in both directions; None where it is not known.

    Parameters
    ----------
    costs : sequence of ExchangeCost
    exchanges : int or None
        The most exchanges.
    parties, trainings : int
        How many there are; replicates are trainings.
    """
    if exchanges is None or any(one.further for one in costs):
        return None
    largest = max((one.sent + one.received for one in costs), default=0)
    return largest * exchanges * parties * trainings


def _cost(method: CausalMethod, setup: Setup, exchange: Exchange) -> ExchangeCost:
    try:
        sizes = exchange.sizes(method.contract.sizes(setup, setup.num_rows))
    except CausalError:  # sizes that follow from replies
        sizes = {}
    number = 4 if method.options.precision == "float32" else WORD_BYTES
    sends = [_bytes(one, sizes, number) for one in exchange.sends if one.shape is not None]
    returns = [_bytes(one, sizes, number) for one in exchange.returns]
    sent, received = (sum(size or 0 for size in known) for known in (sends, returns))
    further = None in (*sends, *returns)
    if method.options.secure_aggregation and not exchange.open and not not_a_sum(exchange):
        symbols = (str(symbol) for item in exchange.returns for symbol in item.shape)
        layout = WordLayout.of(exchange, {**dict.fromkeys(symbols, 0), **sizes}, setup)
        received = WORD_BYTES * layout.size.words
    return ExchangeCost(exchange.name, exchange.when_in_words, sent, received, further)


def _bytes(thing: Sent | Disclosure, sizes: Mapping[str, int], number: int) -> int | None:
    """Return the bytes of an array; None where its size is not known."""
    known = [one if isinstance(one, int) else sizes.get(one) for one in thing.shape or ()]
    if None in known:
        return None
    whole = WORD_BYTES if thing.values in WHOLE else number
    return _BYTES.get(thing.values, whole) * math.prod(one or 0 for one in known)

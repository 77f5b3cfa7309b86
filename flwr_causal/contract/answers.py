"""What a party is asked, and which function answers it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from flwr_causal.contract.exchange import Exchange
from flwr_causal.core.arguments import check_argument, tuple_of

if TYPE_CHECKING:
    from collections.abc import Mapping


Handler = TypeVar("Handler", bound=Callable[..., Any])


@dataclass(frozen=True)
class Asked:
    """What the server has sent in one exchange.

    Parameters
    ----------
    exchange : Exchange
    number : int
        Of the exchange in this run, from 1 on.
    values : mapping of str to ndarray, number or text
        By the names of ``exchange.sends``, with the further values of ``start(train_config=...)``.

    Examples
    --------
    >>> from flwr_causal.clients import Asked
    >>> from flwr_causal.protocol import Exchange, Sent
    >>> exchange = Exchange("step", "a step", sends=(Sent("size", "of the step"),))
    >>> asked = Asked(exchange, number=3, values={"size": 0.5})
    >>> asked["size"], asked.number
    (0.5, 3)
    """

    exchange: Exchange
    number: int
    values: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """Return one of the values."""
        return self.values[name]

    def __contains__(self, name: str) -> bool:
        """Return whether a value was sent."""
        return name in self.values


def answers(*exchanges: Exchange) -> Callable[[Handler], Handler]:
    """Mark the method of a client, or the function that becomes one, that answers these exchanges.

    It takes an :class:`Asked` and returns a dict of arrays, by the names that the exchange
    declares.

    Raises
    ------
    ConfigError
        If something else than exchanges is given.

    Examples
    --------
    >>> from flwr_causal.clients import CausalClient, answers
    >>> from flwr_causal.protocol import Contract, Disclosure, Exchange
    >>> array = Disclosure("mean", "of each column", ("d",), combine="mean")
    >>> mean = Exchange("mean", "means", returns=(array,))
    >>> class MeanClient(CausalClient):
    ...     contract = Contract("average", (mean,))
    ...
    ...     @answers(mean)
    ...     def means(self, asked):
    ...         return {"mean": self.rows().mean(axis=0)}
    """
    check_argument("@answers", "exchanges", exchanges, tuple_of(Exchange, "Exchange"))

    def mark(method: Handler) -> Handler:
        method.answers = tuple(one.name for one in exchanges)  # type: ignore[attr-defined]
        return method

    return mark

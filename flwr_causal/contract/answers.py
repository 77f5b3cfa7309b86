"""Decorators that bind functions to exchanges, and to steps that a subclass may replace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from flwr_causal.contract.exchange import Exchange
from flwr_causal.core.arguments import check_argument, tuple_of
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.contract.when import Condition

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


Step = TypeVar("Step", bound="Callable[..., Any]")


def step(when: Condition) -> Callable[[Step], Step]:
    """Mark a method that a subclass may replace, and that some runs do not call.

    Parameters
    ----------
    when : Condition
        Which runs call it.
    """

    def mark(method: Step) -> Step:
        method.called_in = when  # type: ignore[attr-defined]
        return method

    return mark


def check_steps(kind: type, run: Mapping[str, Any]) -> None:
    """Check that a run calls the steps that a class has replaced.

    Parameters
    ----------
    kind : type
        Of a strategy or a client.
    run : mapping
        What the run states, by the names of options.

    Raises
    ------
    ConfigError
        Naming the step, and the runs that call it.
    """
    for name, base, when in _replaced(kind):
        if not when.holds(run):
            raise ConfigError(
                f"{kind.__name__} replaces the step '{name}' of {base.__name__}, which this run "
                f"does not call: it is for {when}. Set these options, or leave the step as it is."
            )


@cache
def _replaced(kind: type) -> tuple[tuple[str, type, Condition], ...]:
    """Return the steps that a class has replaced, with the class that each is from."""
    return tuple(
        (name, base, method.called_in)
        for base in kind.__mro__
        for name, method in vars(base).items()
        if hasattr(method, "called_in") and getattr(kind, name) is not method
    )

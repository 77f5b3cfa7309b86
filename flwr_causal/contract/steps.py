"""Steps of a method that a subclass may replace, and the runs that have them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr_causal.contract.when import Condition

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

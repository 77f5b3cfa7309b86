"""Checks of a strategy's options: their names, and the parts that they choose."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from flwr_causal.core.arguments import shown
from flwr_causal.core.options import option_types
from flwr_causal.core.words import did_you_mean
from flwr_causal.data.interventions import USERS
from flwr_causal.errors import ConfigError
from flwr_causal.party.options import options_by_method
from flwr_causal.runtime.options import CountedRows, FewRows, sends_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from flwr_causal.core.parts import Misfit, Part

#: Options of one method that users may expect of others, with the settings that have them.
ELSEWHERE = {
    **dict.fromkeys(("interventions", "intervention_column"), USERS),
    **dict.fromkeys(
        ("epsilon", "delta", "scales"),
        "'moments' and 'notears-admm', whose second moments are one release "
        "(docs/differential_privacy.md)",
    ),
    "party_column": "'moments' with text_columns='keep' and 'fedges' with mode='exact'",
}

_Taken = ParamSpec("_Taken")


def refuse_fields(strategy: type) -> None:
    """Raise a ConfigError for a class of strategies whose options are its own fields."""
    if is_dataclass(strategy):
        raise ConfigError(
            f"{strategy.__name__} is a dataclass. Its options are a frozen dataclass of their own, "
            "a subclass of that of its base, which 'options_type' names."
        )


def check_options_type(strategy: Any, bases: Sequence[type]) -> None:
    """Raise a ConfigError where the options of a class lack some of its bases' options.

    Parameters
    ----------
    strategy : type of CausalStrategy
    bases : sequence of type
        The classes of options of its bases.
    """
    kind = strategy.options_type
    dataclass_itself = isinstance(kind, type) and "__dataclass_fields__" in vars(kind)
    if dataclass_itself and all(issubclass(kind, base) for base in bases):
        return
    names = " and ".join(dict.fromkeys(base.__name__ for base in bases))
    raise ConfigError(
        f"{strategy.__name__}.options_type is {shown(kind)}; it must be a class of options made by "
        f"@dataclass(frozen=True, kw_only=True), a subclass of {names}."
    )


def takes(
    kind: Callable[_Taken, Any],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, _Taken], None]]:
    """Declare for type checkers and editors that a strategy's constructor takes these options.

    Below ``if TYPE_CHECKING`` in the class: at run time the constructor is that of the base, which
    takes the options of ``options_type``.

    Parameters
    ----------
    kind : type
        The strategy's ``options_type``.
    """
    return lambda init: init


def check_names(strategy: Any, given: Mapping[str, object]) -> None:
    """Raise a ConfigError for an option that the strategy does not have, with the nearest names."""
    known = option_types(strategy.options_type)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, sorted(known))
            hint = f" It is for {ELSEWHERE[name]}." if name in ELSEWHERE else hint
            own = strategy.method in options_by_method()
            where = f"`flwr-causal options {strategy.method}` and " if own else ""
            raise ConfigError(
                f"{strategy.__name__} has no option '{name}'.{hint} All are listed by "
                f"{where}help({strategy.__name__})."
            )


def parts_of(strategy: Any) -> tuple[type[Part], ...]:
    """Return the parts that a strategy's options choose, with those about what leaves a party."""
    chosen: tuple[type[Part], ...] = strategy.options.parts
    if sends_counts(strategy):
        return (*chosen, CountedRows)
    return (*chosen, FewRows) if strategy.options.joins_columns else chosen


def refuse_misfits(misfits: Sequence[Misfit], message: str) -> None:
    """Raise a ConfigError for options that do not fit, if any; {remedies} says what to set."""
    if misfits:
        listed = dict.fromkeys(f"{one.name}={one.instead}" for one in misfits)
        raise ConfigError(message.format(remedies=", ".join(listed)))

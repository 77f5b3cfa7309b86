"""Checks of a strategy's options: their names, and the settings that they fit."""

from __future__ import annotations

import functools
from collections.abc import Callable  # noqa: TC003 (a named tuple's types)
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from flwr_causal.core.options import option_types, public_names, require, shown, within
from flwr_causal.core.words import nearest
from flwr_causal.data.interventions import USERS
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Options of one method that users may expect of others, with the settings that have them.
ELSEWHERE = {
    **dict.fromkeys(("interventions", "intervention_column"), USERS),
    **dict.fromkeys(
        ("epsilon", "delta", "scales"),
        "'moments' and 'notears-admm', whose second moments are one release; with as much noise on "
        "the counts of 5000 rows of alarm as epsilon=1 needs, FedGES makes 147 errors in place of "
        "13 (docs/differential_privacy.md)",
    ),
}

StrategyT = TypeVar("StrategyT")

#: By option, whether its value fits a setting, and what it must be, in words.
Needs: TypeAlias = "Mapping[str, tuple[bool, str]]"


class Mode(NamedTuple):
    """A setting in which an option has an effect.

    Parameters
    ----------
    text : str
        What the option is for, in words: "model='mlp'".
    holds : callable
        ``strategy -> bool``: whether its options, as far as they are decided, may be this setting.
    """

    text: str
    holds: Callable[[Any], bool]


def only(mode: Mode, default: Any, **bounds: float) -> Any:
    """Return the field of an option that has an effect in one mode only, and may have bounds.

    A value other than the default is refused in all others, see :func:`check_modes`. For an option
    that a strategy inherits, its class attribute ``narrowed`` has the mode, by name.
    """
    return field(default=default, metadata={"mode": mode, **(within(**bounds) if bounds else {})})


def also_called(**names: str) -> Callable[[type[StrategyT]], type[StrategyT]]:
    """Return a class decorator that gives options a second name; subclasses must repeat it.

    It is for options whose name is that of a method of the strategy, as ``start``: the field has
    another name. Both are accepted; run configs and errors use the second name.

    Parameters
    ----------
    **names
        Second name of an option, and the name of its field.
    """

    def decorate(strategy: type[StrategyT]) -> type[StrategyT]:
        own_init = strategy.__init__

        @functools.wraps(own_init)
        def renaming_init(self: StrategyT, **options: Any) -> None:
            for other, name in names.items():
                if name in options and other in options:
                    raise ConfigError(
                        f"The options '{other}' and '{name}' are the same one: give only one."
                    )
            own_init(self, **{names.get(name, name): value for name, value in options.items()})

        strategy.__init__ = renaming_init  # type: ignore[method-assign,assignment]
        fields_called = {name: other for other, name in names.items()}
        strategy.public_names = fields_called  # type: ignore[attr-defined]
        return strategy

    return decorate


def check_names(strategy: type, given: Mapping[str, object]) -> None:
    """Raise a ConfigError for an option that the strategy does not have, with the nearest name."""
    known = {*option_types(strategy), *public_names(strategy).values()}
    for name in given:
        if name not in known:
            near = nearest(name, known)
            hint = f" Did you mean '{near}'?" if near else ""
            hint = f" It is for {ELSEWHERE[name]}." if name in ELSEWHERE else hint
            raise ConfigError(
                f"{strategy.__name__} has no option '{name}'.{hint} It has: "
                f"{', '.join(sorted(known))}."
            )


def require_fitting(method: Any, needs: Needs, setting: str) -> None:
    """Raise a ConfigError for an option that does not fit a setting."""
    called = public_names(type(method))
    for name, (fits, needed) in needs.items():
        value = getattr(method, name)
        require(fits, called.get(name, name), value, f"{needed} with {setting}")


def refuse_unfitting(method: Any, needs: Needs, message: str) -> None:
    """Raise a ConfigError for all that do not fit; the message says by {remedies} what to set."""
    called = public_names(type(method))
    unfitting = {name: needed for name, (fits, needed) in needs.items() if not fits}
    if unfitting:
        listed = (f"{called.get(name, name)}={needed}" for name, needed in unfitting.items())
        raise ConfigError(message.format(remedies=", ".join(listed)))


def changed(method: Any, *names: str) -> bool:
    """Whether one of these options of a strategy differs from its default."""
    given = {option.name: option.default for option in fields(method)}
    return any(getattr(method, name) != given[name] for name in names)


def modes_of(strategy: type) -> dict[str, tuple[Mode, ...]]:
    """Return the modes of the options that have an effect in some settings only, by option."""
    found = {one.name: [one.metadata["mode"]] for one in fields(strategy) if "mode" in one.metadata}
    for base in strategy.__mro__:
        for name, mode in vars(base).get("narrowed", {}).items():
            found.setdefault(name, []).append(mode)
    return {name: tuple(modes) for name, modes in found.items()}


def check_modes(method: Any) -> None:
    """Raise for an option that differs from its default but has no effect in this setting.

    Raises
    ------
    ConfigError
        Naming the option, its value and the mode that it is for.
    """
    defaults = {option.name: option.default for option in fields(method)}
    called = public_names(type(method))
    for name, modes in modes_of(type(method)).items():
        value = getattr(method, name)
        if value == defaults[name]:
            continue
        for mode in modes:
            if not mode.holds(method):
                raise ConfigError(
                    f"The option '{called.get(name, name)}' is {shown(value)}, which is for "
                    f"{mode.text}: leave it out."
                )

"""Checks of a strategy's options against the types of its fields."""

from __future__ import annotations

import difflib
import functools
import math
import re
import sys
import types
from collections.abc import Callable  # noqa: TC003 (a named tuple's types)
from dataclasses import field, fields
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from flwr_causal.core.graphs.graph import is_utf8
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


def only(mode: Mode, default: Any) -> Any:
    """Return the field of an option that has an effect in one mode only.

    A value other than the default is refused in all others, see :func:`check_modes`. For an option
    that a strategy inherits, its class attribute ``narrowed`` has the mode, by name.
    """
    return field(default=default, metadata={"mode": mode})


#: The largest whole number that travels to the parties.
LARGEST = 2**63 - 1
#: A message shows the value of an option if it is at most so long.
LONGEST_SHOWN = 200
#: The most that an option may ask for of what costs memory or time: exchanges, steps, units.
MOST = 1_000_000


_known_types: dict[type, Mapping[str, Any]] = {}


def option_types(strategy: type) -> Mapping[str, Any]:
    """Return the type of every option of a strategy class, by name; computed once."""
    if strategy not in _known_types:
        _known_types[strategy] = _option_types(strategy)
    return _known_types[strategy]


def _option_types(strategy: type) -> dict[str, Any]:
    wanted = {field.name for field in fields(strategy) if field.init}
    types_by_name: dict[str, Any] = {}
    for base in reversed(strategy.__mro__):
        # Annotations of other fields may name classes that are imported for type checkers only.
        annotations = {
            k: v for k, v in vars(base).get("__annotations__", {}).items() if k in wanted
        }
        part = types.SimpleNamespace(__annotations__=annotations)
        types_by_name |= get_type_hints(part, vars(sys.modules[base.__module__]))
    return types_by_name


def also_called(**names: str) -> Callable[[type[StrategyT]], type[StrategyT]]:
    """Return a class decorator that gives options a second name; subclasses must repeat it.

    It is for options whose name is that of a method of the strategy, as ``model``: the field has
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
            typed = {name: other for other, name in names.items() if other in options}
            for name, other in typed.items():
                if name in options:
                    raise ConfigError(
                        f"The options '{other}' and '{name}' are the same one: give only one."
                    )
            try:
                own_init(self, **{names.get(name, name): value for name, value in options.items()})
            except ConfigError as error:
                error.args = (renamed(str(error), typed),)
                raise

        strategy.__init__ = renaming_init  # type: ignore[method-assign,assignment]
        fields_called = {name: other for other, name in names.items()}
        strategy.public_names = fields_called  # type: ignore[attr-defined]
        return strategy

    return decorate


def public_names(strategy: type) -> Mapping[str, str]:
    """Return the second names of a strategy's options, by the names of their fields."""
    names: Mapping[str, str] = vars(strategy).get("public_names", {})
    return names


def renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a message with other names for options.

    Replaced are ``option 'name'``, ``name=`` and bare words with an underscore. Quoted names, such
    as those of columns, are not replaced.

    Parameters
    ----------
    text : str
        The message.
    names : mapping of str to str
        New name by name in the message.
    """
    if not names:
        return text
    words = sorted(map(re.escape, names), key=len, reverse=True)
    name, snake = "|".join(words), "|".join(word for word in words if "_" in word) or "(?!)"
    pattern = (
        rf"(?<=option ')(?:{name})(?=')"
        rf"|(?<![\w.'\"/-])(?:{name})(?==)"
        rf"|(?<![\w.'\"/-])(?:{snake})(?![\w'\"/-]|\.\w)"
    )
    return re.sub(pattern, lambda found: names[found[0]], text)


def check_names(strategy: type, given: Mapping[str, object]) -> None:
    """Raise a ConfigError for an option that the strategy does not have, with the nearest name."""
    known = {*option_types(strategy), *public_names(strategy).values()}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            hint = f" It is for {ELSEWHERE[name]}." if name in ELSEWHERE else hint
            raise ConfigError(
                f"{strategy.__name__} has no option '{name}'.{hint} It has: "
                f"{', '.join(sorted(known))}."
            )


def check_options(strategy: Any) -> None:
    """Check every option of a strategy against its type, and convert whole numbers to floats.

    Raises
    ------
    ConfigError
        Naming the option, its value and its type.
    """
    for name, wanted in option_types(type(strategy)).items():
        setattr(strategy, name, checked(name, getattr(strategy, name), wanted))


def checked(name: str, value: Any, wanted: Any) -> Any:
    """Return a value as an option's type, or raise a ConfigError that names the option."""
    if isinstance(value, np.generic):
        value = value.item()
    alternatives = get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)
    if float in alternatives and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) <= sys.float_info.max else math.inf
    if any(_fits(value, alternative) for alternative in alternatives):
        return value
    raise _refusal(name, value, " or ".join(_describe(one) for one in alternatives))


def _fits(value: Any, wanted: Any) -> bool:
    if wanted is None or wanted is types.NoneType:
        return value is None
    if get_origin(wanted) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(wanted))
    if isinstance(value, bool) and wanted in (int, float):
        return False
    if not isinstance(value, get_origin(wanted) or wanted):
        return False
    if wanted is int:
        return bool(abs(value) <= LARGEST)
    if wanted is str:
        return is_utf8(value)  # it travels to the parties
    return wanted is not float or math.isfinite(value)


def _describe(wanted: Any) -> str:
    names = {
        int: "a whole number below 2^63",
        float: "a finite number",
        str: "a text",
        bool: "true or false",
        types.NoneType: "left out",
    }
    if get_origin(wanted) is Literal:
        return " or ".join(repr(choice) for choice in get_args(wanted))
    return names.get(wanted, getattr(wanted, "__name__", str(wanted)))


def require(holds: bool, name: str, value: object, allowed: str) -> None:
    """Raise a ConfigError that names the option, its value and the possible values."""
    if not holds:
        raise _refusal(name, value, allowed)


def require_fitting(method: Any, needs: Needs, setting: str) -> None:
    """Raise a ConfigError for an option that does not fit a setting."""
    for name, (fits, needed) in needs.items():
        require(fits, name, getattr(method, name), f"{needed} with {setting}")


def refuse_unfitting(method: Any, needs: Needs, message: str) -> None:
    """Raise a ConfigError for all that do not fit; the message says by {remedies} what to set."""
    remedies = ", ".join(f"{name}={needed}" for name, (fits, needed) in needs.items() if not fits)
    if remedies:
        raise ConfigError(renamed(message.format(remedies=remedies), public_names(type(method))))


def _refusal(name: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(f"The option '{name}' is {_shown(value)}; it must be {allowed}.")


def _shown(value: object) -> str:
    """Return how a message shows a value: as Python writes it, or its type."""
    try:
        shown = repr(value)
    except Exception:  # of whatever kind the user's object raises; Python itself: huge numbers
        shown = ""
    plain = 0 < len(shown) <= LONGEST_SHOWN and "\n" not in shown
    return shown if plain else f"a value of type {type(value).__name__}"


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
    for name, modes in modes_of(type(method)).items():
        value = getattr(method, name)
        if value == defaults[name]:
            continue
        for mode in modes:
            if not mode.holds(method):
                raise ConfigError(
                    f"The option '{name}' is {_shown(value)}, which is for {mode.text}: leave it "
                    "out."
                )

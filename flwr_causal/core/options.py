"""Options as data: the types and bounds of a dataclass's fields, checked, written and read."""

from __future__ import annotations

import json
import math
import sys
import types
from collections.abc import Callable  # noqa: TC003 (a named tuple's types)
from dataclasses import field, fields, is_dataclass
from functools import cache
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

from flwr_causal.core.arguments import shown
from flwr_causal.core.received import json_of
from flwr_causal.core.words import is_utf8
from flwr_causal.errors import CausalError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

OptionsT = TypeVar("OptionsT")
#: Whether a type takes floats, and what says whether a value is of each alternative.
_Form: TypeAlias = "tuple[bool, list[Callable[[Any], bool]]]"

#: The largest whole number that travels to the parties.
LARGEST = 2**63 - 1
#: The most that an option may ask for of what costs memory or time: exchanges, steps, units.
MOST = 1_000_000


_known_types: dict[type, Mapping[str, Any]] = {}


def option_types(owner: type) -> Mapping[str, Any]:
    """Return the type of every option of a dataclass, by name; computed once."""
    if owner not in _known_types:
        _known_types[owner] = _option_types(owner)
    return _known_types[owner]


def _option_types(owner: type) -> dict[str, Any]:
    wanted = {field.name for field in fields(owner) if field.init}
    types_by_name: dict[str, Any] = {}
    for base in (one for one in reversed(owner.__mro__) if is_dataclass(one)):
        wanted_here = wanted & {one.name for one in fields(base)}
        # Annotations of other fields may name classes that are imported for type checkers only.
        annotations = {
            k: v for k, v in vars(base).get("__annotations__", {}).items() if k in wanted_here
        }
        part = types.SimpleNamespace(__annotations__=annotations)
        types_by_name |= get_type_hints(part, vars(sys.modules[base.__module__]))
    return types_by_name


def check_types(options: Any) -> None:
    """Check every option of a dataclass against its type, and convert whole numbers to floats.

    Raises
    ------
    ConfigError
        Naming the option, its value and its type.
    """
    for name, wanted, form in _forms_of(type(options)):  # type: ignore[arg-type]
        given = getattr(options, name)
        value = _fitted(name, given, wanted, form)
        if value is not given:
            # Also of frozen ones, which are checked as they are made.
            object.__setattr__(options, name, value)


@cache
def _forms_of(owner: type) -> list[tuple[str, Any, _Form]]:
    """Return the name, the type and its form of every option: types take long to compare."""
    return [(name, wanted, _form(wanted)) for name, wanted in option_types(owner).items()]


class Bounds(NamedTuple):
    """The bounds of a number; other values of an option, such as "auto", have none.

    Parameters
    ----------
    least, most : float, optional
        Possible themselves.
    above, below : float, optional
        Not possible themselves.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def hold(self, value: float) -> bool:
        """Return whether a number is within the bounds."""
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        named = {"above": self.above, "at most": self.most, "below": self.below}
        words = {name: f"{one:.7g}" for name, one in named.items() if one is not None}
        if self.least is None:
            return ", ".join(f"{name} {one}" for name, one in words.items())
        last = [one if name == "at most" else f"{name} {one}" for name, one in words.items()]
        return f"from {self.least:.7g} to {last[0]}" if last else f"{self.least:.7g} or more"


def bounded(default: Any, **bounds: float) -> Any:
    """Return the field of an option that is a number within bounds, see :class:`Bounds`."""
    return field(default=default, metadata=within(**bounds))


def within(**bounds: float) -> dict[str, Any]:
    """Return the metadata of a field that is a number within bounds."""
    return {"bounds": Bounds(**bounds)}


def number_or_none(value: float | str) -> float | None:
    """Return the value of an option that is a number or a word, None where it is a word."""
    return None if isinstance(value, str) else value


def changed(options: Any, *names: str) -> bool:
    """Whether one of these options differs from its default."""
    given = {option.name: option.default for option in fields(options)}
    return any(getattr(options, name) != given[name] for name in names)


def check_bounds(options: Any) -> None:
    """Check every number among the options of a dataclass against the bounds of its field.

    The bounds of a field hold also where a subclass gives it another default.

    Raises
    ------
    ConfigError
        Naming the option, its value and its bounds.
    """
    for name, bounds in _bounds_of(type(options)):  # type: ignore[arg-type]
        value = getattr(options, name)
        # The words of bounds take longer than the check.
        if isinstance(value, int | float) and not bounds.hold(value):
            raise refusal(name, value, str(bounds))


@cache
def _bounds_of(owner: type) -> list[tuple[str, Bounds]]:
    return [
        (name, one.metadata["bounds"])
        for base in owner.__mro__
        for name, one in vars(base).get("__dataclass_fields__", {}).items()
        if name in vars(base).get("__annotations__", {}) and "bounds" in one.metadata
    ]


def checked(name: str, value: Any, wanted: Any) -> Any:
    """Return a value as an option's type, or raise a ConfigError that names the option."""
    return _fitted(name, value, wanted, _form(wanted))


def _fitted(name: str, value: Any, wanted: Any, form: _Form) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    takes_floats, fits = form
    if takes_floats and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) <= sys.float_info.max else math.inf
    for fit in fits:
        if fit(value):
            return value
    raise refusal(name, value, " or ".join(_describe(one) for one in _alternatives(wanted)))


def _alternatives(wanted: Any) -> tuple[Any, ...]:
    return get_args(wanted) if get_origin(wanted) in (Union, types.UnionType) else (wanted,)


@cache
def _form(wanted: Any) -> _Form:
    """Return whether a type takes floats, and of each alternative the test of a value.

    Types whose alternatives or choices stand in another order are equal, and have one entry.
    """
    alternatives = _alternatives(wanted)
    return float in alternatives, [_fitting(one) for one in alternatives]


def _fitting(wanted: Any) -> Callable[[Any], bool]:
    """Return the test of whether a value is of a type."""
    if wanted is None or wanted is types.NoneType:
        return lambda value: value is None
    if wanted is int:
        return lambda value: (
            isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
        )
    if wanted is float:
        return lambda value: isinstance(value, float) and math.isfinite(value)
    if wanted is str:  # it travels to the parties
        return lambda value: isinstance(value, str) and is_utf8(value)
    origin, choices = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return lambda value: any(type(value) is type(one) and value == one for one in choices)
    if origin is tuple:
        fits = _fitting(choices[0])
        return lambda value: isinstance(value, tuple) and all(fits(one) for one in value)
    return lambda value: isinstance(value, origin or wanted)


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
        raise refusal(name, value, allowed)


def refusal(name: str, value: object, allowed: str) -> ConfigError:
    """Return the error of an option that has an impossible value."""
    return ConfigError(f"The option '{name}' is {shown(value)}; it must be {allowed}.")


def as_text(write: Callable[[Any], Any], read: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the metadata of a field whose values are no numbers, texts or tuples of these.

    Parameters
    ----------
    write : callable
        Returns the option's value as lists and plain values for JSON.
    read : callable
        Opposite of ``write``; it refuses what ``write`` does not return.
    """
    return {"write": write, "read": read}


def to_plain(options: Any) -> dict[str, Any]:
    """Return a dataclass as values that a ``ConfigRecord`` holds, by name; None is left out."""
    plain = {}
    for one in fields(options):
        value = getattr(options, one.name)
        if value is None:
            continue
        if "write" in one.metadata:
            value = json.dumps(one.metadata["write"](value))
        plain[one.name] = list(value) if isinstance(value, tuple) else value
    return plain


def from_plain(kind: type[OptionsT], plain: Mapping[str, Any]) -> OptionsT:
    """Return the dataclass that :func:`to_plain` wrote.

    Raises
    ------
    ConfigError
        Naming the first value that is unknown, missing, or not of its option's type or bounds.
    """
    wanted = option_types(kind)
    for name in plain:
        if name not in wanted:
            raise ConfigError(f"There is no option '{name}' here.")
    values = {one.name: _read(one, plain.get(one.name)) for one in fields(kind)}  # type: ignore[arg-type]
    found = kind(**values)
    check_types(found)
    check_bounds(found)
    return found


def _read(option: Any, value: Any) -> Any:
    """Return the value of a field."""
    if isinstance(value, list):
        return tuple(value)
    if "read" not in option.metadata or value is None:
        return value
    try:
        return option.metadata["read"](json_of(value))
    except (ValueError, TypeError, AttributeError, KeyError, CausalError) as error:
        raise ConfigError(f"The option '{option.name}' cannot be read: {error}") from error

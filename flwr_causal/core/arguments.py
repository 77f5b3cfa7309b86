"""Arguments of what users call and construct, checked where they are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: A message shows a value if it is at most so long.
LONGEST_SHOWN = 200


class Form(NamedTuple):
    """What an argument must be.

    Parameters
    ----------
    words : str
        Behind "it must be".
    fits : callable
        ``value -> bool``.
    """

    words: str
    fits: Callable[[Any], bool]


TEXT = Form("a text", lambda value: isinstance(value, str))
FLAG = Form("True or False", lambda value: isinstance(value, bool))
FUNCTION = Form("a function", lambda value: callable(value) and not isinstance(value, type))


COUNT = Form(
    "a whole number from 0 on",
    lambda value: hasattr(value, "__index__") and not isinstance(value, bool) and int(value) >= 0,
)


def one_of(literal: Any) -> Form:
    """Return the form of one of the values of a ``Literal``."""
    choices = get_args(literal)
    return Form(
        f"one of {', '.join(map(repr, choices))}",
        lambda value: isinstance(value, str) and value in choices,
    )


def instance(kind: type | tuple[type, ...], words: str) -> Form:
    """Return the form of an object of a class."""
    return Form(words, lambda value: isinstance(value, kind))


def tuple_of(kind: type | tuple[type, ...], words: str) -> Form:
    """Return the form of a tuple whose entries are of a class."""
    return Form(
        f"a tuple of {words}",
        lambda value: isinstance(value, tuple) and all(isinstance(one, kind) for one in value),
    )


def or_none(form: Form) -> Form:
    """Return the form of an argument that may be left out."""
    return Form(f"{form.words}, or None", lambda value: value is None or form.fits(value))


def check_argument(where: str, name: str, value: object, form: Form) -> None:
    """Raise a ConfigError that names an argument, unless its value is of the form.

    Parameters
    ----------
    where : str
        What it was given to.
    name : str
    value : object
    form : Form
    """
    if not form.fits(value):
        raise ConfigError(f"{where}: '{name}' is {shown(value)}; it must be {form.words}.")


def check_fields(given: Any, forms: Mapping[str, Form]) -> None:
    """Check fields of a dataclass as it is made; lists become tuples.

    Raises
    ------
    ConfigError
        Naming the class, the object's own name if it has one, and the field.
    """
    name = getattr(given, "name", None)
    where = type(given).__name__ + (f" '{name}'" if isinstance(name, str) else "")
    for field, form in forms.items():
        value = getattr(given, field)
        if isinstance(value, list):
            value = tuple(value)
            object.__setattr__(given, field, value)
        check_argument(where, field, value, form)


def shown(value: object) -> str:
    """Return how a message shows a value: as Python writes it, or its type."""
    try:
        text = repr(value)
    except Exception:  # of whatever kind the user's object raises; Python itself: huge numbers
        text = ""
    plain = 0 < len(text) <= LONGEST_SHOWN and "\n" not in text
    return text if plain else f"a value of type {type(value).__name__}"

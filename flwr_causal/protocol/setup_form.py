"""The form of what the server sends: an agreement that has another one is not read.

The parties' masks are bound to the agreement. What is not exactly what a server writes (an empty
name, a text in place of a number, a key that nobody knows) may be made to take one agreement for
another, and is refused before a key is derived from it.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, get_args

from flwr_causal.core.received import json_of
from flwr_causal.core.words import fault_of_name
from flwr_causal.protocol.options import FormError, Treatment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

#: Hexadecimal digits of an agreement's name, of a public key, and of a signature.
TOKEN_DIGITS, KEY_DIGITS, SIGNATURE_DIGITS = 16, 64, 128
#: No number of an exchange is as large.
MOST_EXCHANGES = 2**31


def check_token(token: object) -> None:
    """Check the name of an agreement: 16 hexadecimal digits, as a server draws them.

    Raises
    ------
    FormError
        If it has another form.
    """
    if not _is_hex(token, TOKEN_DIGITS):
        raise FormError(_refused("exchange", f"{TOKEN_DIGITS} hexadecimal digits"))


def check_number(number: object) -> int:
    """Return the number of an exchange.

    Raises
    ------
    FormError
        If it is no whole number, negative or too large.
    """
    if type(number) is not int or not 0 <= number < MOST_EXCHANGES:
        raise FormError("The server's message has no possible number of an exchange.")
    return number


def is_key(text: object) -> bool:
    """Return whether a text has the form of a public key."""
    return _is_hex(text, KEY_DIGITS)


def is_signature(text: object) -> bool:
    """Return whether a text has the form of a signature."""
    return _is_hex(text, SIGNATURE_DIGITS)


def check_agreement(config: Mapping[str, Any], prefixes: Collection[str]) -> None:
    """Check the plain values of an agreement.

    Parameters
    ----------
    config : mapping
        By names without the prefix of agreements.
    prefixes : collection of str
        Of names that are checked elsewhere: the policy's and the options'.

    Raises
    ------
    FormError
        Naming the first value that is missing, unknown or of another form.
    """
    entries = {name: one for name, one in config.items() if not name.startswith(tuple(prefixes))}
    for name in entries:
        if name not in _FORMS:
            raise FormError(_refused(name, "in no agreement"))
    for name, (form, words, optional) in _FORMS.items():
        if name in entries and not form(entries[name]):
            raise FormError(_refused(name, words))
        if name not in entries and not optional:
            raise FormError(_refused(name, "in every agreement"))
    _check_lengths(entries)
    _check_keys(entries)


def _check_lengths(entries: Mapping[str, Any]) -> None:
    """Check lists with a value for each column."""
    columns = len(entries["names"])
    counts = entries.get("num-states", [])
    texts = entries.get("states", [])
    if (len(counts) != columns and (counts or texts)) or sum(counts) != len(texts):
        raise FormError(_refused("num-states", "one number for each column, of all states"))
    for name in ("mean", "variance"):
        if len(entries[name]) not in (0, columns) or len(entries[name]) != len(entries["mean"]):
            raise FormError(_refused(name, "one number for each column, or none"))
        # Columns of categories have neither.
        named = counts or [0] * columns
        unknown = [math.isnan(one) for one in entries[name]]
        if any(nan and not count for nan, count in zip(unknown, named, strict=bool(unknown))):
            raise FormError(_refused(name, "a finite number for each column of numbers"))


def _check_keys(entries: Mapping[str, Any]) -> None:
    """Check lists with a value for each party, and the numbers of groups."""
    keys, groups = entries.get("keys", []), entries.get("groups", [])
    least = entries.get("least-parties", [])
    present = [key for key in keys if key]
    if keys and (len(keys) != entries["num-clients"] or len(set(present)) < len(present)):
        raise FormError(_refused("keys", "one key for each party, all different"))
    for name in ("key-names", "key-signatures", "groups"):
        if name in entries and len(entries[name]) != len(keys):
            raise FormError(_refused(name, "one value for each key"))
    if len(least) not in ((len(set(groups)),) if groups else (0, 1)) or (least and not keys):
        raise FormError(_refused("least-parties", "one number for each group"))


def _refused(name: str, words: str) -> str:
    return (
        f"The parties' agreement was refused: '{name}' must be {words}. Install the same version "
        "of flwr-causal on all machines."
    )


def _is_hex(text: object, digits: int) -> bool:
    return isinstance(text, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", text) is not None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and not (value and fault_of_name(value))


def _whole_from(least: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and least <= value < 2**62


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _is_square(value: object) -> bool:
    return _is_number(value) and value >= 0  # type: ignore[operator]


def _each(form: Callable[[object], bool], *, different: bool = False) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        if not isinstance(value, list | tuple) or not all(map(form, value)):
            return False
        return not different or len(set(value)) == len(value)

    return check


def _is_list_of_names(text: object) -> bool:
    try:
        names = json_of(text) if isinstance(text, str) else None
    except ValueError:
        return False
    return isinstance(names, list) and _each(_is_name, different=True)(names)


def _or_none(form: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda text: text == "" or form(text)


def _or_nan(form: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: (isinstance(value, float) and math.isnan(value)) or form(value)


# By name: the form, in words, and whether it may be missing.
_FORMS: dict[str, tuple[Callable[[object], bool], str, bool]] = {
    "names": (_each(_is_name, different=True), "different names", False),
    "num-rows": (_whole_from(0), "a whole number, 0 or more", False),
    "num-clients": (_whole_from(1), "a whole number, 1 or more", False),
    "mean": (_each(_or_nan(_is_number)), "finite numbers", False),
    "variance": (_each(_or_nan(_is_square)), "finite numbers, 0 or more", False),
    "precision": (lambda value: value in ("float64", "float32"), "float64 or float32", False),
    "minimum-count": (_whole_from(0), "a whole number, 0 or more", False),
    "small-counts": (
        lambda value: value in get_args(Treatment),
        f"one of {', '.join(get_args(Treatment))}",
        False,
    ),
    "exchange": (
        lambda value: _is_hex(value, TOKEN_DIGITS),
        f"{TOKEN_DIGITS} hexadecimal digits",
        False,
    ),
    "states": (_each(_is_name), "names", True),
    "num-states": (_each(_whole_from(0)), "whole numbers, 0 or more", True),
    "targets": (_each(_is_list_of_names, different=True), "different lists of names", True),
    "keys": (_each(_or_none(is_key)), "public keys in hexadecimal digits", True),
    "key-names": (_each(_is_name), "names", True),
    "key-signatures": (_each(_or_none(is_signature)), "signatures in hexadecimal digits", True),
    "groups": (_each(_whole_from(1)), "whole numbers, 1 or more", True),
    "least-parties": (_each(_whole_from(1)), "whole numbers, 1 or more", True),
    "terms": (_is_text, "a text", True),
    "signature": (_or_none(is_signature), "a signature in hexadecimal digits", True),
}

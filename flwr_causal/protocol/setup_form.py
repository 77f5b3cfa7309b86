"""The form of what the server sends: an agreement that has another one is not read.

The parties' masks are bound to the agreement. What is not exactly what a server writes (an empty
name, a text in place of a number, a key that nobody knows) may be made to take one agreement for
another, and is refused before a key is derived from it.
"""

from __future__ import annotations

import json
import math
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np

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


class Entry(NamedTuple):
    """One entry of an agreement, by the name of its value.

    Parameters
    ----------
    fits : callable
        Whether a plain value has the form that servers write.
    words : str
        This form, in words.
    optional : bool
        Whether it may be missing; an empty tuple is not written then.
    write, read : callable
        Write the value as a plain one, and read it again.
    """

    fits: Callable[[object], bool]
    words: str
    optional: bool = False
    write: Callable[[Any], Any] = lambda value: value
    read: Callable[[Any], Any] = lambda plain: plain


def _listed(fits: Callable[[object], bool], words: str, *, optional: bool = True) -> Entry:
    return Entry(fits, words, optional, list, tuple)


def _numbers(form: Callable[[object], bool], words: str) -> Entry:
    read = partial(np.array, dtype=np.float64)
    return Entry(_each(_or_nan(form)), words, write=np.ndarray.tolist, read=read)


_ENTRIES: dict[str, Entry] = {
    "names": _listed(_each(_is_name, different=True), "different names", optional=False),
    "num-rows": Entry(_whole_from(0), "a whole number, 0 or more"),
    "num-clients": Entry(_whole_from(1), "a whole number, 1 or more"),
    "mean": _numbers(_is_number, "finite numbers"),
    "variance": _numbers(_is_square, "finite numbers, 0 or more"),
    "precision": Entry(lambda value: value in ("float64", "float32"), "float64 or float32"),
    "minimum-count": Entry(_whole_from(0), "a whole number, 0 or more"),
    "small-counts": Entry(
        lambda value: value in get_args(Treatment), f"one of {', '.join(get_args(Treatment))}"
    ),
    "exchange": Entry(
        lambda value: _is_hex(value, TOKEN_DIGITS), f"{TOKEN_DIGITS} hexadecimal digits"
    ),
    "terms": Entry(lambda value: isinstance(value, str), "a text", optional=True),
    "signature": Entry(_or_none(is_signature), "a signature in hexadecimal digits", optional=True),
    "states": _listed(_each(_is_name), "names"),
    "num-states": _listed(_each(_whole_from(0)), "whole numbers, 0 or more"),
    "targets": Entry(
        _each(_is_list_of_names, different=True),
        "different lists of names",
        optional=True,
        write=lambda value: [json.dumps(one) for one in value],
        read=lambda plain: tuple(tuple(json_of(text)) for text in plain),
    ),
    "keys": _listed(_each(_or_none(is_key)), "public keys in hexadecimal digits"),
    "least-parties": _listed(_each(_whole_from(1)), "whole numbers, 1 or more"),
    "groups": _listed(_each(_whole_from(1)), "whole numbers, 1 or more"),
    "key-names": _listed(_each(_is_name), "names"),
    "key-signatures": _listed(_each(_or_none(is_signature)), "signatures in hexadecimal digits"),
}


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an agreement as plain ones, both by names without the prefix."""
    return {
        name: entry.write(values[name])
        for name, entry in _ENTRIES.items()
        if not (entry.optional and values[name] == ())
    }


def read(config: Mapping[str, Any], prefixes: Collection[str]) -> dict[str, Any]:
    """Return the values of an agreement that has the form which servers write.

    Parameters
    ----------
    config : mapping
        By names without the prefix of agreements.
    prefixes : collection of str
        Of names that are read elsewhere: the handling's and the options'.

    Raises
    ------
    FormError
        Naming the first value that is missing, unknown or of another form.
    """
    plain = {name: one for name, one in config.items() if not name.startswith(tuple(prefixes))}
    for name in plain:
        if name not in _ENTRIES:
            raise FormError(_refused(name, "in no agreement"))
    for name, entry in _ENTRIES.items():
        if name in plain and not entry.fits(plain[name]):
            raise FormError(_refused(name, entry.words))
        if name not in plain and not entry.optional:
            raise FormError(_refused(name, "in every agreement"))
    _check_lengths(plain)
    _check_keys(plain)
    return {name: _ENTRIES[name].read(one) for name, one in plain.items()}

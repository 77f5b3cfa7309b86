"""Names that every reader of BIF files takes, and the way back to the real ones.

The real ones stand in a property ``flwr_causal_names = "..."``: their JSON with all signs that
mean something in a BIF file as percent codes.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

PROPERTY = "flwr_causal_names"
# Readers look for these wherever they stand.
KEYWORDS = frozenset(
    ("network", "variable", "probability", "property", "type", "discrete", "table", "default")
)
_NO_WORD = re.compile(r"[^A-Za-z0-9_]")
# pyAgrum takes 12 and 1_2 for states, but 1e5 and 1e_05 for numbers.
_NUMBER = re.compile(r"[0-9]+[eE]")


def plain_names(names: Sequence[str], *, variables: bool) -> tuple[str, ...]:
    """Return different names of ASCII letters, digits and underscores, as close as can be.

    Names that are fine stay, whatever comes before them.

    Parameters
    ----------
    names : sequence of str
        Different ones.
    variables : bool
        Whether they name variables, which may not begin with a digit nor differ in case only (some
        readers do not tell them apart); states may.

    Returns
    -------
    tuple of str
        Always the same for the same names.
    """

    def key(name: str) -> str:
        return name.lower() if variables else name

    plain = [_plain(name, variables) for name in names]
    kept = {key(name) for name, own in zip(names, plain, strict=True) if name == own}
    taken: set[str] = set()
    result = []
    for name, own in zip(names, plain, strict=True):
        candidate, number = own, 1
        while key(candidate) in taken or (candidate != name and key(candidate) in kept):
            number += 1
            candidate = f"{own}_{number}"
        taken.add(key(candidate))
        result.append(candidate)
    return tuple(result)


def _plain(name: str, variable: bool) -> str:
    """Return a name with underscores for what is no letter or digit."""
    plain = _NO_WORD.sub("_", name)
    if not plain or plain.lower() in KEYWORDS or _NUMBER.match(plain):
        return f"_{plain}"
    return f"_{plain}" if variable and plain[0].isdigit() else plain


def encoded_names(name: str, states: Sequence[str]) -> str:
    """Return what a property says to keep the real names."""
    return f'{PROPERTY} = "{quote(json.dumps([name, *states]), safe="")}"'


def decoded_names(words: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the real name and states from a property's words, None from any other property.

    Raises
    ------
    DataError
        If the property is not as `encoded_names` writes it.
    """
    if len(words) != 3 or words[0] != PROPERTY:
        return None
    try:
        name, *states = (str(text) for text in json.loads(unquote(words[2].strip('"'))))
    except (ValueError, TypeError) as error:
        raise DataError(f"the property {PROPERTY} is damaged ({error}): remove it") from None
    return name, tuple(states)

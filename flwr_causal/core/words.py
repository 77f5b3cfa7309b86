"""Texts: lists of names and values, names that look alike, and which texts can be written."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING
from unicodedata import category, normalize

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: How many entries a message lists, where nothing else is said.
LISTED = 5


def some(entries: Iterable[str], most: int = LISTED) -> str:
    """List a few entries, and say how many more there are."""
    listed = list(entries)
    rest = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name that is most like one, at least so much from 0 to 1; "" if none is."""
    return next(iter(get_close_matches(name, list(known), 1, cutoff)), "")


def is_utf8(text: str) -> bool:
    """Return whether a text can be written; one with half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_seen(name: str) -> str:
    """Return a name without case, blanks, invisible characters and its form of Unicode."""
    shown = normalize("NFKC", normalize("NFKC", name).casefold())
    return "".join(one for one in shown if not (one.isspace() or is_invisible(one)))


def is_invisible(character: str) -> bool:
    """Return whether a character controls or formats text, or is half of one."""
    return category(character) in ("Cc", "Cf", "Cs")


def by_name(names: Sequence[str]) -> list[int]:
    """Return the positions of the names, in the order of the sorted names."""
    return sorted(range(len(names)), key=names.__getitem__)

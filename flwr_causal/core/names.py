"""Names of columns: which a reader cannot tell apart, and their sorted order."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unicodedata import category, normalize

if TYPE_CHECKING:
    from collections.abc import Sequence


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

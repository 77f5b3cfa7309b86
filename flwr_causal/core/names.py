"""Names that a reader cannot tell apart."""

from __future__ import annotations

from unicodedata import category, normalize


def as_seen(name: str) -> str:
    """Return a name without case, blanks, invisible characters and its form of Unicode."""
    shown = normalize("NFKC", normalize("NFKC", name).casefold())
    return "".join(one for one in shown if not (one.isspace() or is_invisible(one)))


def is_invisible(character: str) -> bool:
    """Return whether a character controls or formats text, or is half of one."""
    return category(character) in ("Cc", "Cf", "Cs")

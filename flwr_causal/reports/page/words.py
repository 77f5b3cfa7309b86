"""Numbers in words."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """Return a number with its noun in the singular or plural."""
    if number == 1:
        return f"1 {thing}"
    plural = f"{thing[:-1]}ies" if thing in ("party", "reply") else f"{thing}s"
    return f"{number:,} {plural}"

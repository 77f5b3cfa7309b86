"""Texts: lists, tables, numbers in words, names that look alike, texts of others."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING
from unicodedata import category, is_normalized, normalize

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

#: How many entries a message lists, where nothing else is said.
LISTED = 5
#: The most letters of the name of a party, of a column or state, and of a foreign text.
MOST_OF_PARTY, MOST_OF_NAME, MOST_OF_TEXT = 100, 500, 4000
# They join or part the letters of Persian and of Indian scripts, in the middle of words.
_JOINERS = "\u200c\u200d"
_LEFT_OUT = " [...] "


def some(entries: Iterable[str], most: int = LISTED) -> str:
    """List a few entries, and say how many more there are."""
    listed = list(entries)
    rest = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {rest} more" if rest > 0 else "")


def by_reason(reasons: Mapping[str, str]) -> list[str]:
    """Return each reason once, behind those who have it."""
    alike: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        alike.setdefault(reason, []).append(name)
    return [f"{some(names)}: {reason}" for reason, names in alike.items()]


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the name that is most like one, at least so much from 0 to 1; "" if none is."""
    return next(iter(get_close_matches(name, list(known), 1, cutoff)), "")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question for the names that are most like one, 3 at most; "" if none is."""
    near = get_close_matches(name, list(known), 3)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


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
    """Return whether a character controls, formats or ends lines of text, or is half of one."""
    return category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def one_form(text: str) -> str:
    """Return a text as a name: in the form NFC of Unicode, on one line.

    Tables of some systems have letters and accents apart; headers of workbooks have ends of lines.
    """
    if text.isascii() and text.isprintable():
        return text
    if any(one.isspace() and is_invisible(one) for one in text):
        text = " ".join(text.split())
    return normalize("NFC", text)


def with_forms(frame: Any) -> Any:
    """Return a data frame whose columns are named as those of a table that a party reads."""
    names = [one_form(str(name)) for name in frame.columns]
    return frame if names == list(frame.columns) else frame.set_axis(names, axis=1)


def fault_of_name(name: str, most: int = MOST_OF_NAME) -> str:
    """Return what is wrong with the name of a party, a column or a state; "" for a good one.

    Such a name has letters, all of which print on one line, and is in the form NFC of Unicode, in
    which names that are the same are equal.

    Parameters
    ----------
    name : str
    most : int, default 500
        How many letters it may have.
    """
    if not 0 < len(name) <= most:
        return f"has {len(name):,} letters; it must have 1 to {most}"
    if name.isascii() and name.isprintable():
        return ""
    if any(map(_is_signal, name)):
        return "has characters that do not print, or ends of lines"
    if is_normalized("NFC", name):
        return ""
    return "is not in Unicode's form NFC, which unicodedata.normalize('NFC', name) returns"


def printable(text: str, most: int = MOST_OF_TEXT) -> str:
    """Return a text of somebody else as it is shown and stored: on one line, without signals.

    What does not print is written by its number, as in Python's source, and the middle of a long
    text is left out. What is returned stays as it is if it is given again.

    Parameters
    ----------
    text : str
    most : int, default 4000
        How many letters are shown, about.
    """
    text = _shortened(text, most)
    if text.isprintable():
        return text
    written = (one.encode("unicode_escape").decode() if _is_signal(one) else one for one in text)
    return _shortened("".join(written), most)


def _shortened(text: str, most: int) -> str:
    if len(text) <= most + len(_LEFT_OUT):
        return text
    return text[: most // 2] + _LEFT_OUT + text[-(most // 2) :]


def _is_signal(character: str) -> bool:
    return is_invisible(character) and character not in _JOINERS


def by_name(names: Sequence[str]) -> list[int]:
    """Return the positions of the names, in the order of the sorted names."""
    return sorted(range(len(names)), key=names.__getitem__)


def counted(number: int, thing: str) -> str:
    """Return a number with its noun in the singular or plural."""
    if number == 1:
        return f"1 {thing}"
    plural = f"{thing[:-1]}ies" if thing in ("party", "reply") else f"{thing}s"
    return f"{number:,} {plural}"


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; a bar in a cell, as of ``|W|``, does not end the cell."""
    first, *others = ([cell.replace("|", r"\|") for cell in row] for row in (heads, *rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in (first, ["---"] * len(heads), *others))

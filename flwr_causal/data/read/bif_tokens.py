"""The words and signs of a BIF file, one after the other."""

from __future__ import annotations

import re

from flwr_causal.errors import DataError

# Commas separate as blanks do. A bar is a sign of its own, whatever stands around it.
_TOKEN = re.compile(r'"[^"]*"|[{}()\[\]|;]|[^\s,{}()\[\]|;"]+')
_QUOTED_OR_COMMENT = re.compile(r'"[^"]*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


class Tokens:
    """A reader's place in a file.

    Parameters
    ----------
    text : str
        The file, with its comments.
    """

    def __init__(self, text: str) -> None:
        if "//" in text or "/*" in text:
            text = _QUOTED_OR_COMMENT.sub(
                lambda match: match[0] if match[0].startswith('"') else " ", text
            )
        self._tokens = _TOKEN.findall(text)
        self._place = 0

    def next_or_none(self) -> str | None:
        """Return the next token, None at the end of the file."""
        if self._place == len(self._tokens):
            return None
        self._place += 1
        token: str = self._tokens[self._place - 1]
        return token

    def next(self) -> str:
        """Return the next token; a DataError at the end of the file."""
        token = self.next_or_none()
        if token is None:
            raise DataError("the file ends within a block: it is not complete")
        return token

    def name(self) -> str:
        """Return the next token as a name, without quotes."""
        return _unquoted(self.next())

    def expect(self, token: str, where: str) -> None:
        """Pass over a token that must stand here."""
        found = self.next()
        if found != token:
            raise DataError(f"{where}: expected {token!r}, found {found[:40]!r}")

    def until(self, end: str) -> list[str]:
        """Return the tokens before the next ``end``, and pass over it."""
        try:
            stop = self._tokens.index(end, self._place)
        except ValueError:
            raise DataError(
                f"the file ends where {end!r} was expected: it is not complete"
            ) from None
        found: list[str] = self._tokens[self._place : stop]
        self._place = stop + 1
        return found

    def names_until(self, end: str) -> list[str]:
        """Return the names before the next ``end``, without quotes, and pass over it."""
        return [_unquoted(token) for token in self.until(end)]


def _unquoted(token: str) -> str:
    return token[1:-1] if token.startswith('"') else token

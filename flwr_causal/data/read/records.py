"""Read numbers from delimited text, each line independently of all others.

Other readers take in the lines after a quotation mark that is never closed, and refuse the file
where a line has too few or too many fields or is not UTF-8. Here such a line is left out alone.
"""

from __future__ import annotations

import re
from collections import deque
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from flwr_causal.data.read.cells import numbers_of_lines, numbers_of_texts
from flwr_causal.data.read.reading import COMMAS
from flwr_causal.data.read.tables import checked_header, open_text, tells_separator
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from flwr_causal.data.read.origin import Delimited


# Bytes that are not UTF-8 become characters that no number has.
_ERRORS = "surrogateescape"
# Stands for a separator within a field; of private use in Unicode, and in no number.
_WITHIN = "\ue000"


def delimited_numbers(
    text: Delimited, rows_of_piece: Callable[[int], int] | None, texts: Collection[str] = ()
) -> Iterator[pd.DataFrame]:
    """Read the numbers of a delimited text file with a header line in pieces.

    A row is a line, or several lines where a quoted text goes on over them. A row with more or
    fewer fields than the header is left out, and so is a line with a quotation mark that is out of
    place (RFC 4180) or never closed. :mod:`~flwr_causal.data.read.cells` says what cells hold.

    Parameters
    ----------
    text : Delimited
        An existing file.
    rows_of_piece : callable or None
        Returns the number of rows of a piece from the number of columns. With None the file is one
        piece.
    texts : collection of str, default ()
        Columns of which the texts of the cells are read in place of numbers.

    Yields
    ------
    DataFrame
        Rows of float64, and of texts, in columns named as in the header; at least one piece,
        perhaps empty.

    Raises
    ------
    DataError
        If the header line cannot be used; nothing behind it is an error.
    """
    grammar = _grammar(text.separator)
    header, before, newline = _header(text, grammar)
    size = None if rows_of_piece is None else rows_of_piece(len(header))
    with open_text(text, newline, _ERRORS) as lines:
        records = _records(islice(lines, before, None), grammar)
        if text.decimal == ",":
            # "1,5" is a number, and "1.500" none.
            records = (record.translate(COMMAS) for record in records)
        places = [place for place, name in enumerate(header) if name in texts]
        while True:
            block = list(islice(records, size))
            yield _cells(block, text, header, places)
            if size is None or len(block) < size:
                return


class _Grammar(NamedTuple):
    """The patterns of records: of complete ones, of those that end in a quoted text, of fields."""

    separator: str
    complete: re.Pattern[str]
    open: re.Pattern[str]
    field: re.Pattern[str]

    def goes_on(self, line: str) -> bool | None:
        """Return whether a quoted text goes on after a line; None where a mark is out of place."""
        if self.complete.fullmatch(line):
            return False
        return True if self.open.fullmatch(line) else None

    def fields(self, record: str) -> list[str]:
        """Return the fields of a complete record, without marks and blanks around them."""
        found = self.field.findall(record)
        return [(quoted.replace('""', '"') or plain).strip() for quoted, plain in found]

    def line(self, record: str) -> str:
        """Return a complete record without marks, with another character for a separator in it."""
        fields = self.fields(record)
        return self.separator.join(field.replace(self.separator, _WITHIN) for field in fields)


@lru_cache
def _grammar(separator: str) -> _Grammar:
    mark, other = re.escape(separator), f"[^{re.escape(separator)}]"
    # Each text has one way to match, so that nothing is tried twice. Python 3.11.2 and before match
    # possessive quantifiers wrongly.
    text = r'[^"]*(?:""[^"]*)*'
    field = f'(?:"{text}"|(?!"){other}*)'
    return _Grammar(
        separator,
        complete=re.compile(f"{field}(?:{mark}{field})*"),
        open=re.compile(f'(?:{field}{mark})*"{text}'),
        field=re.compile(f'(?:^|{mark})(?:"({text})"|({other}*))'),
    )


def _header(text: Delimited, grammar: _Grammar) -> tuple[list[str], int, str]:
    """Return the names, the number of lines up to the header, and the character that ends a line.

    It is the one behind the header, because other lines may hold another one.
    """
    with open_text(text, "", _ERRORS) as lines:
        filled = (one for one in enumerate(lines, start=1) if one[1].strip(" \r\n"))
        number, line = next(filled, (0, ""))
        if tells_separator(line, grammar.separator):
            number, line = next(filled, (0, ""))
    names = line.rstrip("\r\n")
    try:
        names.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"{text.path}: the header line is not UTF-8 text: save it as UTF-8"
        ) from None
    if grammar.goes_on(names) is not False:
        raise DataError(
            f"{text.path}: a quotation mark in the header line is out of place, or not closed in "
            "this line: correct it"
        )
    header = checked_header(text, grammar.fields(names) if names else [])
    return header, number, "\r" if line.endswith("\r") else "\n"


def _records(lines: Iterator[str], grammar: _Grammar) -> Iterator[str]:
    """Yield each row without marks, but for the lines whose quotation marks are out of place."""
    again: deque[str] = deque()

    while (line := again.popleft() if again else next(lines, None)) is not None:
        line = line.rstrip("\r\n")
        if '"' not in line:
            yield line
            continue
        parts, goes_on = [line], grammar.goes_on(line)
        while goes_on:
            line = again.popleft() if again else next(lines, None)
            if line is None:
                goes_on = None
            else:
                parts.append(line.rstrip("\r\n"))
                goes_on = grammar.goes_on('"' + parts[-1])
        if goes_on is None:
            # The lines after the first one stand for themselves.
            again.extendleft(reversed(parts[1:]))
        else:
            yield grammar.line("\n".join(parts))


def _cells(
    lines: Sequence[str], text: Delimited, header: Sequence[str], places: Sequence[int]
) -> pd.DataFrame:
    """Return the cells of the lines that have so many fields: numbers, and in places texts."""
    separator, width = text.separator, len(header)
    plain = None if places else numbers_of_lines(lines, separator, width)
    if plain is not None:
        return pd.DataFrame(plain, columns=pd.Index(header))
    kept = [line for line in lines if line.count(separator) == width - 1]
    cells = separator.join(kept).split(separator) if kept else []
    columns = [
        pd.Series([_text(cell, text) for cell in own], dtype=object)
        if k in places
        else pd.Series(numbers_of_texts(own))
        for k in range(width)
        for own in (cells[k::width],)
    ]
    found = pd.concat(columns, axis=1)
    found.columns = pd.Index(header)
    return found


def _text(cell: str, text: Delimited) -> str:
    """Return the text of a cell as it is in the file, without blanks around it."""
    cell = cell.translate(COMMAS) if text.decimal == "," else cell
    return cell.replace(_WITHIN, text.separator).strip()

"""Read CSV and TSV strictly: what pandas would mend without a word is an error or is kept as it is.

pandas renames a second column ``x`` to ``x.1``, takes a surplus first field as a row index and
fills short rows with missing values. A federation must not train on such guesses.
"""

from __future__ import annotations

import csv
import gzip
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO

import pandas as pd

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["read_delimited"]

#: Parse decimals to the nearest float64: the default from pandas 3.1 on, which warns of the option.
EXACT: dict[str, Any] = (
    {}
    if tuple(int(part) for part in pd.__version__.split(".")[:2]) >= (3, 1)
    else {"float_precision": "round_trip"}
)


def read_delimited(path: Path, separator: str) -> pd.DataFrame:
    """Read a delimited text file (UTF-8, a header line, gzip by the suffix ``.gz``).

    Numbers are parsed to the nearest float64. Doubled names in the header stay doubled.

    Parameters
    ----------
    path : Path
        An existing file.
    separator : str
        The one character between fields.

    Returns
    -------
    DataFrame
        Columns named as in the header, blanks around names dropped; rows numbered from 0.

    Raises
    ------
    DataError
        Empty, undecodable or ragged file, or a header that is none.
    """
    try:
        header = _header(path, separator)
        # pandas judges by the first row whether a surplus field is an index.
        _check_widths(path, separator, len(header), rows=1)
        frame: pd.DataFrame = pd.read_csv(
            path,
            sep=separator,
            encoding="utf-8-sig",
            compression="gzip" if _is_gzip(path) else None,
            # Without it a column may be parsed in chunks, to numbers here and text there.
            low_memory=False,
            **EXACT,
        )
        # A short row ends in a missing value, so complete last columns need no second look.
        if frame.iloc[:, -1].isna().any():
            _check_widths(path, separator, len(header))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text ({error}): save it as UTF-8") from error
    except (pd.errors.ParserError, csv.Error, EOFError) as error:
        raise DataError(
            f"{path} is not a table that can be read: {str(error).strip()}; "
            "every row needs one field for each name in the header"
        ) from error
    frame.columns = pd.Index(header)
    return frame


def _is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    if _is_gzip(path):
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as handle:
            yield handle
    else:
        with path.open("r", encoding="utf-8-sig", newline="") as handle:
            yield handle


def _header(path: Path, separator: str) -> list[str]:
    with _text(path) as handle:
        rows = csv.reader(handle, delimiter=separator)
        first = next((row for row in rows if not _is_blank(row)), None)
    if first is None:
        raise DataError(
            f"{path} is empty: a table needs a header line with the names of the variables"
        )
    header = [name.strip() for name in first]
    for other, name in ((";", "semicolons"), ("\t", "tabs"), (",", "commas")):
        if len(header) == 1 and other != separator and other in header[0]:
            raise DataError(
                f"{path} is separated by {name}: a .csv file needs commas, a .tsv file tabs; "
                "save it so, or read it yourself and pass a DataFrame"
            )
    if all(_is_number(name) for name in header) and not all(name.isdigit() for name in header):
        raise DataError(
            f"{path} has no header line (the first line is {separator.join(header[:3])}...): "
            "put the names of the variables there"
        )
    if "" in header:
        raise DataError(
            f"{path}: column number {header.index('') + 1} has no name in the header: name it; if "
            "it numbers the rows, write the file without it (pandas: to_csv(..., index=False), "
            "R: write.csv(..., row.names = FALSE))"
        )
    return header


def _is_blank(row: list[str]) -> bool:
    # As pandas has it, which skips such lines.
    return not row or (len(row) == 1 and not row[0].strip())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    # A variable may well be called "nan" or "inf".
    return any(character.isdigit() for character in text)


def _check_widths(path: Path, separator: str, width: int, rows: int | None = None) -> None:
    """Compare the first rows' (default: all rows') numbers of fields with the header's."""
    with _text(path) as handle:
        reader = csv.reader(handle, delimiter=separator)
        filled = (row for row in reader if not _is_blank(row))
        for row in islice(filled, None if rows is None else rows + 1):
            if len(row) != width:
                raise DataError(
                    f"{path}: line {reader.line_num} has {len(row)} fields and the header has "
                    f"{width}: every row needs one field for each name (an empty one, between "
                    "separators, where a value is missing)"
                )

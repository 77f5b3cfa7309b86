"""Read a table so that no row changes how another one is read: for runs with epsilon.

All columns hold float64, missing values as NaN. With a dictionary the number of a state is its
place in the list.

**Cells.** One rule for all columns and all kinds of files: a number is itself, a text is the number
that Python's ``float`` reads, true and false are 1 and 0, as texts in any case of letters, and all
else is missing: other texts, dates, durations, bytes, and numbers beyond float64. Other readers
choose a type for a column by all of its cells, so that one row changes what the others hold.

**Lines.** Other readers take in the lines after a quotation mark that is never closed, and refuse
the file where a line has too few or too many fields or is not UTF-8. Here such a line is left out
alone.
"""

from __future__ import annotations

import re
from collections import deque
from decimal import Decimal
from functools import lru_cache
from io import BytesIO
from itertools import islice
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from flwr_causal.core.discrete.discrete import state_name
from flwr_causal.data.read.arrow_files import arrow_rows
from flwr_causal.data.read.origin import origin_of
from flwr_causal.data.read.programs import frames_of
from flwr_causal.data.read.reading import AS_THEY_ARE, COMMAS, Reading, with_columns
from flwr_causal.data.read.tables import (
    EXACT,
    checked_header,
    from_array,
    from_frame,
    naming,
    npz_array,
    open_text,
    read_table,
    tells_separator,
)
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.data.read.origin import Delimited

_SPELLED = {"true": 1.0, "false": 0.0}
_READABLE = (str, int, float, Decimal, np.number, np.bool_)
# As programs write them, and what is read in their place.
_WRITTEN = {"True": "1", "False": "0"}
# Of texts of these characters alone, pandas reads the numbers that Python's float reads, faster.
_DIGITS = b"0123456789+-.eE"
# Letters of the numpy types whose values are numbers.
_PLAIN = "biufc"


def number_of(cell: Any) -> float:
    """Return the number that a cell holds, NaN if it holds none."""
    if isinstance(cell, complex | np.complexfloating):
        cell = cell.real if cell.imag == 0 else nan
    # numpy takes durations for whole numbers.
    if not isinstance(cell, _READABLE) or isinstance(cell, np.timedelta64):
        return nan
    try:
        number = float(cell)
    except (ValueError, OverflowError):
        return _SPELLED.get(cell.strip().lower(), nan) if isinstance(cell, str) else nan
    return number if isfinite(number) else nan


def text_of(cell: Any) -> str:
    """Return how a cell is spelled, without blanks around it: "1" for 1 and 1.0, "" if missing."""
    if isinstance(cell, str):
        return cell.strip()
    if cell is None or cell is pd.NaT or cell is pd.NA:
        return ""
    try:
        return "" if cell != cell else state_name(cell)
    except DataError:
        return str(cell).strip()
    except (ValueError, TypeError, ArithmeticError):  # arrays, durations, too many digits
        return ""


def numbers_of_texts(texts: Sequence[str]) -> FloatArray:
    """Return the numbers that texts hold, shape (n,), as :func:`number_of` does."""
    plain = numbers_of_lines(texts, ",", 1)
    if plain is not None:
        return plain[:, 0]
    known = {text: number_of(text) for text in set(texts)}
    return np.fromiter(map(known.__getitem__, texts), np.float64, len(texts))


def numbers_of_lines(lines: Sequence[str], separator: str, width: int) -> FloatArray | None:
    """Return the numbers in lines, shape (n, width), if their texts are plain numbers or empty.

    It saves time alone: :func:`number_of` gives the same numbers.
    """
    text = "\n".join(lines)
    marks = (separator * (width - 1) + "\n") * len(lines)
    if not (lines and text.isascii()):
        return None
    for word, number in _WRITTEN.items():
        if word in text:
            text = _whole_cells(word, separator).sub(number, text)
    raw = text.encode() + b"\n"
    if raw.translate(None, _DIGITS) != marks.encode():
        return None
    try:
        found = pd.read_csv(
            BytesIO(raw),
            sep=separator,
            header=None,
            dtype=np.float64,
            skip_blank_lines=False,
            **EXACT,
        )
    except ValueError:  # one is no number
        return None
    return _finite(found.to_numpy())


def numbers_of_array(array: NDArray[Any]) -> FloatArray:
    """Return the numbers that the cells of an array hold, of the same shape."""
    if isinstance(array, np.ma.MaskedArray):
        return np.where(np.ma.getmaskarray(array), nan, numbers_of_array(array.data))
    array = np.asarray(array)
    if array.dtype.kind in _PLAIN:
        # One number beyond float64 is no reason to warn.
        with np.errstate(all="ignore"):
            if array.dtype.kind == "c":
                array = np.where(array.imag == 0, array.real, nan)
            return _finite(array.astype(np.float64))
    if array.dtype.kind in "OU":
        return _of_cells(array.ravel().tolist()).reshape(array.shape)
    return np.full(array.shape, nan)


def numbers_of_column(column: pd.Series) -> FloatArray:
    """Return the numbers that the cells of a column hold, shape (n,)."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        return numbers_of_array(column.to_numpy())
    if isinstance(dtype, pd.CategoricalDtype):
        own = numbers_of_column(dtype.categories.to_series())
        return np.append(own, nan)[column.cat.codes.to_numpy()]
    if isinstance(dtype, pd.ArrowDtype):
        return numbers_of_arrow(column.array.__arrow_array__())
    return _of_cells(column.tolist())


def numbers_of_arrow(values: Any) -> FloatArray:
    """Return the numbers that the cells of a pyarrow.Array or ChunkedArray hold, shape (n,)."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        return np.concatenate([np.empty(0), *map(numbers_of_arrow, values.chunks)])
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        own = np.append(numbers_of_arrow(values.dictionary), nan)
        places: IntArray = values.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        return own[places]
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        return numbers_of_array(values.to_numpy(zero_copy_only=False))
    if types.is_decimal(kind):
        return _of_cells(values.to_pylist())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return numbers_of_texts(_arrow_texts(values))
    return np.full(len(values), nan)


def cells_of_arrow(values: Any) -> Sequence[Any]:
    """Return the cells of a pyarrow.Array or ChunkedArray as Python's objects, None if missing."""
    import pyarrow as pa

    if isinstance(values, pa.ChunkedArray):
        return [cell for chunk in values.chunks for cell in cells_of_arrow(chunk)]
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        own = [*cells_of_arrow(values.dictionary), None]
        return [own[place] for place in values.indices.cast(pa.int64()).fill_null(-1).to_pylist()]
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _arrow_texts(values)
    cells: Sequence[Any] = values.to_pylist()
    return cells


def _arrow_texts(values: Any) -> list[str]:
    """Return texts of pyarrow, of which files may hold some that are not UTF-8; "" if missing."""
    import pyarrow as pa

    texts = values.cast(pa.large_binary()).fill_null(b"").to_pylist()
    return [text.decode(errors="surrogateescape") for text in texts]


@lru_cache
def _whole_cells(word: str, separator: str) -> re.Pattern[str]:
    """Return the pattern of cells that are a word; it begins with the word, to be found fast."""
    other = f"[^{re.escape(separator)}\\n]"
    return re.compile(f"{word}(?<!{other}{word})(?!{other})")


def _of_cells(cells: Iterable[Any]) -> FloatArray:
    return np.array([number_of(cell) for cell in cells], dtype=np.float64)


def _finite(numbers: FloatArray) -> FloatArray:
    return np.where(np.isfinite(numbers), numbers, nan)


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
    place (RFC 4180) or never closed. :mod:`~flwr_causal.data.read.by_cell` says what cells hold.

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


def read_by_cell(source: Any, reading: Reading = AS_THEY_ARE) -> pd.DataFrame:
    """Read the numbers of a table, each from its own cell alone.

    Parameters
    ----------
    source : str, Path, numpy array or DataFrame
        As for :func:`~flwr_causal.data.read.tables.read_table`; an array may hold Python objects.
    reading : Reading, optional
        Of which the dictionary counts alone.

    Returns
    -------
    DataFrame
        Rows of float64; with a dictionary also texts, in columns that are no variables. A row of
        delimited text that cannot be read is left out.

    Raises
    ------
    DataError
        If the source cannot be read, is a list of tables, or lacks a column of the dictionary;
        never for a row or a cell.
    """
    if isinstance(source, list | tuple):
        raise DataError(
            "the party has a list of tables, that is, of time series, which a run with epsilon "
            "does not use: join them to one table"
        )
    dictionary = reading.dictionary
    texts = () if dictionary is None else dictionary.text_sources
    if isinstance(source, np.ndarray):
        cells = _of_array(source, texts=texts)
    elif isinstance(source, str | Path):
        cells = _from_path(Path(source), texts)
    else:
        cells = _of_frame(read_table(source), texts)
    return cells if dictionary is None else dictionary.applied_by_cell(cells)


def _of_frame(frame: pd.DataFrame, texts: Sequence[str]) -> pd.DataFrame:
    numbers = [numbers_of_column(column) for _, column in frame.items()]
    found = pd.DataFrame(np.column_stack(numbers), columns=frame.columns)
    return _with_texts(found, texts, lambda place: frame.iloc[:, place].tolist())


def _with_texts(
    numbers: pd.DataFrame, texts: Sequence[str], cells_of: Callable[[int], Iterable[Any]]
) -> pd.DataFrame:
    """Return columns of numbers, and in the place of some the texts of their cells."""
    spelled = {
        place: pd.Series([text_of(cell) for cell in cells_of(place)], dtype=object)
        for place, name in enumerate(numbers.columns)
        if name in texts
    }
    return with_columns(numbers, spelled)


def _from_path(path: Path, texts: Sequence[str]) -> pd.DataFrame:
    origin = origin_of(path)
    if origin.format != "npz":
        return pd.concat(pieces_by_cell(path, texts=texts), ignore_index=True)
    with naming(origin):
        return _of_array(*npz_array(origin.rows, shapes=False), texts=texts)


def _of_array(
    array: NDArray[Any],
    names: NDArray[Any] | None = None,
    where: str = "the array",
    texts: Sequence[str] = (),
) -> pd.DataFrame:
    # The message of from_array gives the shape, and with it the number of rows.
    if array.ndim != 2:
        raise DataError(f"{where} has {array.ndim} dimensions: a table has two, (rows, variables)")
    found = from_array(numbers_of_array(array), names, where)
    return _with_texts(found, texts, lambda place: array[:, place].tolist())


def pieces_by_cell(
    path: Path,
    rows_of_piece: Callable[[int], int] | None = None,
    texts: Sequence[str] = (),
) -> Iterator[pd.DataFrame]:
    """Read the numbers of all but NPZ archives in pieces, each from its own cell alone.

    Parameters
    ----------
    path : Path
        An existing file.
    rows_of_piece : callable, optional
        Returns the largest number of rows of a piece from the number of columns.
    texts : sequence of str, default ()
        Columns of which the texts of the cells are read in place of numbers.

    Yields
    ------
    DataFrame
        Rows of float64, and of texts; at least one piece, perhaps without rows.

    Raises
    ------
    DataError
        As of :func:`read_by_cell`.
    """
    origin = origin_of(path)
    with naming(origin):
        if (text := origin.delimited) is not None:
            yield from delimited_numbers(text, rows_of_piece, texts)
            return
        if origin.format not in ("parquet", "arrow"):
            for frame in frames_of(origin, rows_of_piece):
                yield _of_frame(from_frame(frame), texts)
            return
        with arrow_rows(origin) as rows:
            yield _of_arrow(rows.schema.empty_table(), texts)
            size = 2**16 if rows_of_piece is None else rows_of_piece(len(rows.schema.names))
            for batch in rows.batches(size):
                yield _of_arrow(batch, texts)


def _of_arrow(rows: Any, texts: Sequence[str]) -> pd.DataFrame:
    """Return the numbers of rows of pyarrow, without columns that pandas wrote for an index."""
    names = from_frame(rows.schema.empty_table().to_pandas()).columns
    index = (rows.schema.pandas_metadata or {}).get("index_columns", ())
    columns = [
        column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        if name not in index
    ]
    found = pd.DataFrame(np.column_stack([*map(numbers_of_arrow, columns)]), columns=names)
    return _with_texts(found, texts, lambda place: cells_of_arrow(columns[place]))

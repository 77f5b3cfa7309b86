"""Read one party's table: from a file, a numpy array or a pandas DataFrame, or a list of these.

The result is a DataFrame with string column names and rows numbered from 0. Errors in the data are
not corrected: repeated column names and missing values are kept, so that
:mod:`flwr_causal.data.check.checks` can report them with the party's name.

Delimited text is read strictly. By default pandas renames a second column ``x`` to ``x.1``, uses a
surplus first field as a row index and fills short rows with missing values, which could change the
data without notice.
"""

from __future__ import annotations

import csv
import gzip
import json
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypeGuard

import numpy as np
import pandas as pd

from flwr_causal.core.words import one_form
from flwr_causal.data.read.origin import DESCRIPTION, UTF_8, origin_of
from flwr_causal.data.read.programs import frames_of
from flwr_causal.data.read.reading import (
    AS_THEY_ARE,
    Reading,
    as_read,
    missing_texts,
    typed,
    with_columns,
    with_points,
)
from flwr_causal.data.read.texts import is_text
from flwr_causal.data.roles import SERIES
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from flwr_causal.data.read.origin import Delimited, Origin

#: By the first bytes of files that are no delimited text: what they are, and the remedy.
FOREIGN = {
    b"PK\x03\x04": "a ZIP archive or a workbook: unpack it, or give it a name that ends in .xlsx",
    b"\xd0\xcf\x11\xe0": "a workbook: give it a name that ends in .xls",
    b"PAR1": "a Parquet file: give it a name that ends in .parquet",
    b"BZh": "compressed by bzip2: unpack it, or compress it by gzip",
    b"\xfd7zXZ": "compressed by xz: unpack it, or compress it by gzip",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it, or compress it by gzip",
    b"\xff\xfe": 'UTF-16, which Excel calls "Unicode text": save it as UTF-8 ("CSV UTF-8")',
    b"\xfe\xff": 'UTF-16, which Excel calls "Unicode text": save it as UTF-8 ("CSV UTF-8")',
}

#: By the format of a file: the extra of this package that reads it, and the library.
EXTRAS = {
    "parquet": ("parquet", "pyarrow"),
    "arrow": ("parquet", "pyarrow"),
    "workbook": ("excel", "python-calamine"),
    "statistics": ("statistics", "pyreadstat"),
    "database": ("sql", "sqlalchemy"),
}

Source: TypeAlias = "str | Path | npt.NDArray[Any] | pd.DataFrame"

#: Option to parse decimals to the nearest float64. It is the default of pandas 3.1 and later, which
#: warn if the option is given.
EXACT: dict[str, Any] = (
    {}
    if tuple(int(part) for part in pd.__version__.split(".")[:2]) >= (3, 1)
    else {"float_precision": "round_trip"}
)


def read_table(source: Source | Sequence[Source], reading: Reading = AS_THEY_ARE) -> pd.DataFrame:
    """Read a table of samples (rows) and variables (columns).

    Parameters
    ----------
    source : str, Path, numpy array or DataFrame, or a list or tuple of such
        A path: ``.csv``, ``.tsv`` (both also with ``.gz``), ``.parquet``, ``.pq``, ``.npz``,
        ``.feather``, ``.arrow``, a workbook (``.xlsx``, ``.ods`` and others), a file of Stata, SPSS
        or SAS, or a table description (:mod:`~flwr_causal.data.read.origin`). An NPZ archive holds
        the table as the array ``X``, or as its only array of two dimensions if none has more, and
        optionally ``names``. Delimited files need a header line; blanks around names are removed,
        and a line before it that tells Excel the separator (``sep=,``).
        An array has shape (n, d); its variables are named ``x0``, ``x1``, ...; it is not copied.
        A DataFrame is copied shallowly; its index is dropped.
        A list holds several time series of one party with the same columns. Their rows are
        concatenated, and the first column, named :data:`SERIES`, numbers the series from 0.
    reading : Reading, optional
        What a run says about columns that may be read in several ways. Default: nothing, so that
        :mod:`~flwr_causal.data.read.reading` says what cells hold.

    Returns
    -------
    DataFrame
        n rows numbered from 0, d columns with string names (and :data:`SERIES` for a list).

    Raises
    ------
    DataError
        If the source cannot be read, or the series of a list have different columns.
    """
    if isinstance(source, list | tuple):
        return _from_series(source, reading)
    if isinstance(source, pd.DataFrame):
        return as_read(from_frame(source), reading)
    if isinstance(source, np.ndarray):
        return as_read(from_array(source), reading)
    if isinstance(source, str | Path):
        return _from_path(Path(source), reading)
    raise DataError(
        f"a table of type {type(source).__name__} cannot be read: "
        "give a path, a numpy array of shape (n, d) or a pandas DataFrame, or a list of series"
    )


@contextmanager
def naming(origin: Origin) -> Iterator[None]:
    """Raise errors of readers as a DataError that names the file."""
    path = origin.path
    try:
        yield
    except DataError as error:
        if str(path) in str(error):
            raise
        raise DataError(f"{path}: {error}") from error
    except ImportError as error:
        extra, library = EXTRAS[origin.format]
        raise DataError(
            f'{path} needs {library}: pip install "flwr-causal[{extra}]", or convert it to CSV'
        ) from error
    except Exception as error:  # a damaged file makes its reader raise almost anything
        raise DataError(
            f"{path} cannot be read ({str(error).strip() or type(error).__name__}): it is damaged, "
            "or of another type than its name says; save the table again"
        ) from error


def _from_path(path: Path, reading: Reading) -> pd.DataFrame:
    origin = origin_of(path)
    with naming(origin):
        cells = _cells(origin, reading.of_cells)
    return cells if reading.dictionary is None else as_read(cells, reading)


def _cells(origin: Origin, reading: Reading) -> pd.DataFrame:
    if (text := origin.delimited) is not None:
        return read_delimited(text, reading)
    if origin.format == "npz":
        return as_read(from_array(*npz_array(origin.rows)), reading)
    (frame,) = frames_of(origin)
    return as_read(from_frame(frame), reading)


def npz_array(
    path: Path, *, shapes: bool = True
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, str]:
    """Return the array in an NPZ archive, the names of its columns or None, and its place in words.

    Parameters
    ----------
    path : Path
        An existing file.
    shapes : bool, default True
        Whether an error gives the shapes of arrays, and with them the number of rows.

    Raises
    ------
    DataError
        If it holds Python objects, or not one table.
    """
    try:
        # Opened here, because numpy leaves a file open that is not an archive.
        with path.open("rb") as handle:
            loaded = np.load(handle, allow_pickle=False)
            if not isinstance(loaded, np.lib.npyio.NpzFile):
                raise DataError(f"{path} holds a single array, not an NPZ archive: use numpy.savez")
            with loaded as archive:
                # Any ZIP archive can be opened so; what is no array in it comes as bytes.
                arrays = {key: archive[key] for key in archive.files}
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{path} holds an array of Python objects, or no NPZ archive at all; such data can "
            "run code when loaded and is refused: save numbers, or names as an array of strings"
        ) from error
    arrays = {key: array for key, array in arrays.items() if isinstance(array, np.ndarray)}
    names = arrays.pop("names", None)
    if "X" in arrays:
        chosen = "X"
    else:
        tables = [key for key, array in arrays.items() if array.ndim == 2]
        # If there is an array of more dimensions, a single matrix is likely to be a graph.
        stacks = [key for key, array in arrays.items() if array.ndim > 2]
        if len(tables) != 1 or stacks:
            found = ", ".join(
                f"{key} {array.shape}" if shapes else key for key, array in arrays.items()
            )
            raise DataError(
                f"{path} holds {found or 'no array'}: save the table of samples as a "
                "two-dimensional array named X"
            )
        chosen = tables[0]
    return arrays[chosen], names, f"array {chosen!r} of {path}"


def from_array(
    array: npt.NDArray[Any], names: npt.NDArray[Any] | None = None, where: str = "the array"
) -> pd.DataFrame:
    """Return an array as a table.

    Parameters
    ----------
    array : ndarray of shape (n, d)
        It is not copied.
    names : ndarray of shape (d,), optional
        Default: ``x0``, ``x1``, ...
    where : str, default "the array"
        What it is, for the error.

    Raises
    ------
    DataError
        If it has another shape, holds Python objects, or ``names`` do not fit.
    """
    if array.ndim != 2:
        raise DataError(
            f"{where} has {array.ndim} dimension{'s' * (array.ndim != 1)}, shape {array.shape}: "
            "a table has two, (rows, variables); reshape(-1, 1) makes one variable of a vector"
        )
    if array.dtype.kind in "OV":
        raise DataError(
            f"{where} has the type {array.dtype}: give an array of numbers, "
            "or a pandas DataFrame where columns have different types"
        )
    if array.shape[1] == 0:
        raise DataError(f"{where} has no columns: a table needs at least one")
    if names is None:
        names = np.array([f"x{position}" for position in range(array.shape[1])])
    elif np.atleast_1d(names).shape != array.shape[1:]:
        raise DataError(
            f"{where} has {array.shape[1]} columns but 'names' has the shape {names.shape}: "
            "give one name for each column"
        )
    labels = [_label(name, k) for k, name in enumerate(np.atleast_1d(names).tolist(), start=1)]
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    # Python's own texts: those of pandas take longer to look through, which each message does.
    return pd.DataFrame(array, columns=pd.Index(labels, dtype=object), copy=False)


def from_frame(source: pd.DataFrame) -> pd.DataFrame:
    """Return a DataFrame as a table: names are texts, rows numbered from 0, bytes in native order.

    Raises
    ------
    DataError
        If it has no columns, or a column has no name that can be used.
    """
    if source.columns.nlevels > 1:
        raise DataError(
            "the DataFrame's columns have several levels: give every column one name, for example "
            "by frame.columns = ['_'.join(map(str, parts)) for parts in frame.columns]"
        )
    if source.shape[1] == 0:
        raise DataError("the DataFrame has no columns: a table needs at least one")
    labels = pd.Index([_label(name, k) for k, name in enumerate(source.columns, start=1)])
    frame = source.copy(deep=False)
    columns = [column for _, column in source.items()]
    usual = {
        place: found
        for place, column in enumerate(columns)
        if (found := _of_intervals(_native(column))) is not column
    }
    frame = with_columns(frame, usual)
    frame.columns = labels
    frame.index = pd.RangeIndex(len(frame))
    return frame


def _is_foreign(dtype: Any) -> TypeGuard[np.dtype[Any]]:
    """Say whether numbers stand in the byte order of other machines."""
    return isinstance(dtype, np.dtype) and not dtype.isnative


def _native(column: pd.Series) -> pd.Series:
    dtype = column.dtype
    return column.astype(dtype.newbyteorder("=")) if _is_foreign(dtype) else column


def _of_intervals(column: pd.Series) -> pd.Series:
    """Return the intervals of pandas.cut and qcut as categories with their texts: (0.0, 1.0]."""
    dtype = column.dtype
    intervals = dtype.categories.dtype if isinstance(dtype, pd.CategoricalDtype) else dtype
    if not isinstance(intervals, pd.IntervalDtype):
        return column
    column = column.astype("category")
    return column.cat.rename_categories(list(map(str, column.cat.categories)))


def _label(name: Any, position: int) -> str:
    """Return the name of a column as text.

    Raises
    ------
    DataError
        It is missing or blank, or cannot be written as UTF-8.
    """
    if pd.api.types.is_scalar(name) and pd.isna(name):
        name = ""
    try:
        label = name.decode() if isinstance(name, bytes) else str(name)
        label.encode()
    except UnicodeError as error:
        raise DataError(
            f"the name of column number {position} is no UTF-8 text ({error}): rename the column"
        ) from error
    if not label.strip():
        raise DataError(f"column number {position} of the table has no name: name it")
    return one_form(label)


def _from_series(sources: Sequence[Any], reading: Reading) -> pd.DataFrame:
    if not sources:
        raise DataError("the party's list of series is empty: give at least one table")
    frames: list[pd.DataFrame] = []
    for position, source in enumerate(sources, start=1):
        where = f"series {position} of {len(sources)}"
        if not isinstance(source, str | Path | np.ndarray | pd.DataFrame):
            raise DataError(
                f"{where} in the party's list: a table of type {type(source).__name__} cannot be "
                "read: give each as a numpy array of shape (steps, variables) or a pandas DataFrame"
            )
        try:
            frame = read_table(source, reading)
        except DataError as error:
            raise DataError(f"{where}: {error}") from error
        _check_same_columns(where, frame, frames[0] if frames else frame)
        frames.append(frame[list(frames[0].columns)] if frames else frame)
    together = pd.concat(frames, ignore_index=True)
    together.insert(0, SERIES, np.repeat(np.arange(len(frames)), [len(frame) for frame in frames]))
    return together


def _check_same_columns(where: str, frame: pd.DataFrame, first: pd.DataFrame) -> None:
    """Check that a series has the columns of the first one, each once, in any order."""
    if SERIES in frame.columns:
        raise DataError(f"{where} has a column {SERIES!r}, which numbers the series: rename it")
    if not frame.columns.is_unique:
        name = frame.columns[frame.columns.duplicated()][0]
        raise DataError(f"{where} has several columns {name!r}: rename or remove all but one")
    other = sorted(set(frame.columns) ^ set(first.columns))
    if other:
        lacking = "has no" if other[0] in first.columns else "alone has a"
        raise DataError(
            f"{where} {lacking} column {other[0]!r}, unlike the first: all series of a party need "
            "the same columns"
        )


def read_delimited(text: Delimited, reading: Reading = AS_THEY_ARE) -> pd.DataFrame:
    """Read a delimited text file with a header line.

    Numbers are parsed to the nearest float64. Repeated names in the header are kept.

    Parameters
    ----------
    text : Delimited
        An existing file.
    reading : Reading, optional

    Returns
    -------
    DataFrame
        Columns named as in the header, without blanks around names; rows numbered from 0.

    Raises
    ------
    DataError
        If the file is empty, is not in its encoding, has rows of different lengths, or has no
        header.
    """
    (frame,) = delimited_pieces(text, None, reading)
    # A short row has a missing value in the last column: otherwise no row is short.
    if frame.iloc[:, -1].isna().any():
        check_widths(text)
    return _with_codes(text, frame, reading) if reading.codes else frame


def _with_codes(text: Delimited, frame: pd.DataFrame, reading: Reading) -> pd.DataFrame:
    """Return a table in which columns of few numbers are text where these are spelled as codes."""
    few = tuple(
        str(name)
        for name, column in frame.items()
        if name not in reading.numbers
        and pd.api.types.is_numeric_dtype(column.dtype)
        and column.nunique() <= reading.codes
    )
    if not few:
        return frame
    (texts,) = delimited_pieces(text, None, Reading(categories=few))
    changed = {
        place: found
        for place, (name, column) in enumerate(texts.items())
        if name in few and is_text(found := typed(_pointed(column, text), reading.codes))
    }
    return as_read(with_columns(frame, changed), reading)


def delimited_pieces(
    text: Delimited,
    rows_of_piece: Callable[[int], int] | None,
    reading: Reading = AS_THEY_ARE,
) -> Iterator[pd.DataFrame]:
    """Read a delimited text file in pieces of some rows, which follow from the number of columns.

    Everything else is as for :func:`read_delimited`, apart from rows with too few fields: they are
    filled with missing values, see :func:`check_widths`. With None the file is one piece.
    """
    with _unreadable_text(text):
        header = _header(text)
        # pandas uses a surplus field of the first row as an index.
        _check_fields(text, len(header), rows=1)
        texts = {k: str for k, name in enumerate(header) if name in reading.categories}
        with pd.read_csv(
            text.path,
            sep=text.separator,
            decimal=text.decimal,
            skiprows=text.skip_lines + _lines_before_header(text),
            encoding=text.encoding,
            compression="gzip" if _is_gzip(text.path) else None,
            header=0,
            names=range(len(header)),
            # Which other texts are missing values depends on the column, see `typed`.
            keep_default_na=False,
            na_values=[""],
            dtype=texts,
            # With low_memory a column is parsed in chunks, some to numbers and others to texts.
            low_memory=False,
            iterator=True,
            **EXACT,
        ) as reader:
            size = None if rows_of_piece is None else rows_of_piece(len(header))
            while True:
                try:
                    frame: pd.DataFrame = reader.read(size)
                except StopIteration:
                    return
                yield _as_named(frame, header, text, reading)
                if size is None:
                    return


def _as_named(
    frame: pd.DataFrame, header: list[str], text: Delimited, reading: Reading
) -> pd.DataFrame:
    """Convert the columns of delimited text by their types, and name them."""
    changed = {
        place: typed(_pointed(column.rename(name), text))
        for place, (name, (_, column)) in enumerate(zip(header, frame.items(), strict=True))
        if name not in reading.categories and is_text(column)
    }
    frame = with_columns(frame, changed)
    frame.columns = pd.Index(header)
    return as_read(frame, reading)


def _pointed(column: pd.Series, text: Delimited) -> pd.Series:
    """Return a column of texts in which numbers with a decimal comma have a point in its place."""
    return column if text.decimal == "." else with_points(column)


def check_widths(text: Delimited) -> None:
    """Check that all rows of a delimited text file have as many fields as the header.

    Raises
    ------
    DataError
        A row has more or fewer.
    """
    with _unreadable_text(text):
        _check_fields(text, len(_header(text)))


def texts_of_missing(path: Path) -> dict[str, dict[str, int]]:
    """Return by column how often each text of a delimited file stands for a missing value.

    An empty field is "". Other files have no such texts.
    """
    origin = origin_of(path)
    with naming(origin):
        if (text := origin.delimited) is None:
            return {}
        frame = read_delimited(text, Reading(categories=tuple(_header(text))))
    return {str(name): missing_texts(_pointed(column, text)) for name, column in frame.items()}


def spelled_table(path: Path) -> pd.DataFrame:
    """Return a table whose cells are texts, as they are spelled; numbers have a decimal point.

    Raises
    ------
    DataError
        If the table cannot be read, or two columns have one name.
    """
    origin = origin_of(path)
    columns = read_table(path).columns
    if not columns.is_unique:
        name = columns[columns.duplicated()][0]
        raise DataError(f"{path} has several columns {name!r}: rename or remove all but one")
    frame = read_table(path, Reading(categories=tuple(columns)))
    if (text := origin.delimited) is None or text.decimal == ".":
        return frame
    changed: dict[int, pd.Series] = {}
    for place, (_, column) in enumerate(frame.items()):
        with suppress(DataError):  # marks between thousands stay
            changed[place] = with_points(column)
    return with_columns(frame, changed)


@contextmanager
def _unreadable_text(text: Delimited) -> Iterator[None]:
    """Raise a DataError in place of the errors of text readers."""
    try:
        yield
    except UnicodeDecodeError as error:
        named = "UTF-8" if text.encoding == UTF_8 else text.encoding
        line = _description(text, 'encoding = "cp1252"')
        raise DataError(
            f"{text.path} is not {named} text, at byte {error.start}: save it as UTF-8, or "
            f"describe it: {line}"
        ) from error
    except (pd.errors.ParserError, csv.Error, EOFError) as error:
        raise DataError(
            f"{text.path} is not a table that can be read: {str(error).strip()}; "
            "every row needs one field for each name in the header"
        ) from error


def _is_gzip(path: Path) -> bool:
    """Return whether a file is compressed, whatever its name says."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _description(text: Delimited, line: str) -> str:
    """Say how a table description names a file, with one more line."""
    return f'a file NAME{DESCRIPTION} with the lines file = "{text.path.name}" and {line}'


def _check_is_text(text: Delimited) -> None:
    """Raise a DataError if a file begins as a file of another format does."""
    path = text.path
    if len("\n".encode(text.encoding)) > 1 and text.encoding != UTF_8:  # UTF-16 has zero bytes
        return
    with path.open("rb") as file:
        first = file.read(512)
    for start, what in FOREIGN.items():
        if first.startswith(start):
            raise DataError(f"{path} is {what}")
    if b"\0" in first.partition(b"\n")[0] and not _is_gzip(path):
        raise DataError(f"{path} has zero bytes in its header, as UTF-16 has: save it as UTF-8")


@contextmanager
def open_text(text: Delimited, newline: str = "", errors: str = "strict") -> Iterator[TextIO]:
    """Open a text file, behind the lines that are skipped.

    Parameters
    ----------
    text : Delimited
    newline, errors : str
        As of Python's ``open``.

    Raises
    ------
    DataError
        If it is a file of another format.
    """
    _check_is_text(text)
    opened = gzip.open if _is_gzip(text.path) else open
    with opened(text.path, "rt", encoding=text.encoding, errors=errors, newline=newline) as handle:
        for _ in range(text.skip_lines):
            handle.readline()
        yield handle


def _header(text: Delimited) -> list[str]:
    with open_text(text) as handle:
        rows = csv.reader(handle, delimiter=text.separator)
        first = next(_filled(rows, text.separator), [])
    return checked_header(text, first)


def _filled(rows: Iterable[list[str]], separator: str) -> Iterator[list[str]]:
    """Yield the rows that are not blank, without a first one that tells Excel the separator."""
    filled = (row for row in rows if not _is_blank(row))
    first = next(filled, None)
    if first is None:
        return
    if not tells_separator(separator.join(first), separator):
        yield first
    yield from filled


def _lines_before_header(text: Delimited) -> int:
    """Return the number of lines up to one that tells Excel the separator; 0 if there is none."""
    with open_text(text) as handle:
        for number, line in enumerate(handle, start=1):
            if line.strip():
                return number if tells_separator(line, text.separator) else 0
    return 0


def tells_separator(line: str, separator: str) -> bool:
    """Return whether a line tells Excel by which character fields are separated: "sep=,"."""
    return line.strip(' \r\n"').lower() == f"sep={separator}"


def checked_header(text: Delimited, first: list[str]) -> list[str]:
    """Return the names in the first row of a delimited text file, without blanks around them.

    Raises
    ------
    DataError
        If there is no row, or they are no names.
    """
    path = text.path
    if not first:
        raise DataError(
            f"{path} is empty: a table needs a header line with the names of the variables"
        )
    header = [name.strip() for name in first]
    for other, name in ((";", "semicolons"), ("\t", "tabs"), (",", "commas"), ("|", "bars")):
        if len(header) == 1 and other != text.separator and other in header[0]:
            line = _description(text, f"separator = {json.dumps(other)}")
            raise DataError(
                f"{path} is separated by {name}: a .csv file needs commas, a .tsv file tabs; "
                f"save it so, or describe it: {line}"
            )
    if all(_is_number(name) for name in header) and not all(name.isdigit() for name in header):
        raise DataError(
            f"{path} has no header line, its first line holds numbers: put the names of the "
            "variables there"
        )
    if "" in header:
        raise DataError(
            f"{path}: column number {header.index('') + 1} has no name in the header: name it; if "
            "it numbers the rows, write the file without it (pandas: to_csv(..., index=False), "
            "R: write.csv(..., row.names = FALSE))"
        )
    return list(map(one_form, header))


def _is_blank(row: list[str]) -> bool:
    # pandas skips such lines.
    return not row or (len(row) == 1 and not row[0].strip())


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    # A variable may have the name "nan" or "inf".
    return any(character.isdigit() for character in text)


def _check_fields(text: Delimited, width: int, rows: int | None = None) -> None:
    """Raise a DataError if one of the first rows (default: all) has not ``width`` fields."""
    with open_text(text) as handle:
        reader = csv.reader(handle, delimiter=text.separator)
        for row in islice(_filled(reader, text.separator), None if rows is None else rows + 1):
            if len(row) != width:
                title = (
                    "; if this is a title, and the names stand below it, describe the table: "
                    + _description(text, "skip-lines = 1")
                )
                raise DataError(
                    f"{text.path}: line {text.skip_lines + reader.line_num} has {len(row)} fields "
                    f"and the header has {width}: every row needs one field for each name (an "
                    "empty one, between separators, where a value is missing)"
                    + title
                    * (rows is not None)
                )

"""Tables that are read in pieces of some rows, so that a large file is never in memory as a whole.

Sums over the rows of a table are computed piece by piece. The number of rows of a piece follows
from the number of columns alone, and a table in memory is cut in the same way: the same rows give
the same sums to the last bit, wherever they stand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from flwr_causal.data.check.columns import all_columns, kind_of
from flwr_causal.data.dictionary.faults import DictionaryFaultError, joined_faults
from flwr_causal.data.read.by_cell import pieces_by_cell, read_by_cell
from flwr_causal.data.read.origin import origin_of
from flwr_causal.data.read.programs import frames_of
from flwr_causal.data.read.reading import AS_THEY_ARE, Reading, as_read
from flwr_causal.data.read.tables import (
    check_widths,
    delimited_pieces,
    from_frame,
    naming,
    read_table,
)
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pandas as pd

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.data.check.report import Kind
    from flwr_causal.data.dictionary.faults import DictionaryFault
    from flwr_causal.data.read.origin import Origin

#: Values of a piece, rows times columns: 8 MiB of float64.
PIECE = 2**20
#: Bytes of a file from which on it is read in pieces.
LARGE = 2**25
#: Pieces of a query's rows that stay in memory; more of them are read anew in each pass.
HELD = 8
#: Files that a process keeps open tables of.
CACHED_TABLES = 8


@dataclass(frozen=True, eq=False)
class LargeFile:
    """A large table in a file or a database, read anew in each pass over its rows.

    Parameters
    ----------
    path : Path
        Of the file, or of a table description.
    columns : Index of str
        The names of its columns.
    version : tuple of int
        Of each file that holds the table, or says where it is, the time of modification in ns and
        the size in bytes, when it was opened.
    by_cell : bool, default False
        Whether its cells are read as numbers, each on its own, see :func:`open_table`.
    reading : Reading, optional
        What a run says about columns that may be read in several ways.
    """

    path: Path
    columns: pd.Index
    version: tuple[int, ...]
    by_cell: bool = False
    reading: Reading = AS_THEY_ARE

    def __len__(self) -> int:
        return len(self.whole) if self._rows_in_pieces is None else self._rows_in_pieces

    @cached_property
    def whole(self) -> pd.DataFrame:
        """All rows, which stay in memory."""
        self._check_version()
        if self.by_cell:
            return _with_names(read_by_cell(self.path, self.reading), self.columns)
        return _with_names(read_table(self.path, self.reading), self.columns)

    def pieces(self) -> Iterator[pd.DataFrame]:
        """Yield the rows, in pieces of :func:`rows_of_piece` rows.

        A file is read into memory as a whole where a piece of a column holds values of another kind
        than the others (numbers, booleans, texts): only all of the column then tells what it holds.

        Raises
        ------
        DataError
            If the file cannot be read, is not the one that was opened, or is changed before the
            last piece is read.
        """
        if not self.by_cell and self._rows_in_pieces is None:
            yield from pieces(self.whole)
            return
        self._check_version()
        count = 0
        for cells, piece, _ in _pieces_read(self.path, self.by_cell, self.reading):
            count += len(cells)
            yield _with_names(piece, self.columns)
        self._check_version()
        if not self.by_cell and count != self._rows_in_pieces:  # a database has no version
            raise self._changed()

    @cached_property
    def _rows_in_pieces(self) -> int | None:
        """The number of rows; None if pieces differ in kind. The file is read once for it.

        Raises
        ------
        DictionaryFaultError
            If rows do not fit the dictionary.
        """
        self._check_version()
        count, short = 0, False
        kinds: list[Kind] = []
        faults: list[DictionaryFault] = []
        for cells, piece, own in _pieces_read(self.path, self.by_cell, self.reading):
            faults += own
            found = [kind_of(column) for column in all_columns(piece)]
            if (kinds or found) != found or "other" in found:
                return None
            kinds, count = found, count + len(piece)
            short = short or bool(cells.iloc[:, -1].isna().any())
        if faults:
            raise DictionaryFaultError(joined_faults(faults))
        text = origin_of(self.path).delimited
        if short and not self.by_cell and text is not None:
            check_widths(text)
        return count

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold all of the table; none where its rows are in a database."""
        origin = origin_of(self.path)
        return () if origin.format == "database" else origin.files

    def _check_version(self) -> None:
        if _version_of(origin_of(self.path)) != self.version:
            raise self._changed()

    def _changed(self) -> DataError:
        return DataError(
            f"{self.path} was changed while a run was reading it: start the run again, and leave "
            "the table as it is until the run has ended"
        )


#: A table whose rows can be read again and again.
Table: TypeAlias = "pd.DataFrame | LargeFile"


def rows_of_piece(num_columns: int) -> int:
    """Return the number of rows of a piece of a table."""
    return max(PIECE // max(num_columns, 1), 1)


def pieces(table: Table) -> Iterator[pd.DataFrame]:
    """Yield the rows of a table in pieces, in their order; one without rows is one piece."""
    if isinstance(table, LargeFile):
        yield from table.pieces()
        return
    size = rows_of_piece(table.shape[1])
    if len(table) <= size:
        yield table
        return
    for start in range(0, len(table), size):
        yield table.iloc[start : start + size]


def whole(table: Table) -> pd.DataFrame:
    """Return all rows of a table in memory."""
    return table.whole if isinstance(table, LargeFile) else table


def joined(parts: Iterator[FloatArray], num_rows: int) -> FloatArray:
    """Return arrays of shape (n_k, d) as one, without a second copy of them in memory.

    Parameters
    ----------
    parts : iterator of float64 arrays
        At least one.
    num_rows : int
        The rows of all, or more.
    """
    first, second = next(parts), next(parts, None)
    if second is None:
        return first
    rows, end = np.empty((num_rows, first.shape[1])), 0
    for part in chain((first, second), parts):
        rows[end : end + len(part)] = part
        end += len(part)
    return rows[:end]


def selected(table: Table, names: Collection[str]) -> Table:
    """Return a table with the columns of these names alone; a large file stays where it is."""
    if isinstance(table, LargeFile):
        kept = table.columns[table.columns.isin([*names])]
        return table if len(kept) == len(table.columns) else _selected(table, tuple(kept))
    return _with_names(table, names)


@lru_cache(maxsize=CACHED_TABLES)
def _selected(file: LargeFile, names: tuple[str, ...]) -> LargeFile:
    return replace(file, columns=file.columns[file.columns.isin(names)])


def _with_names(frame: pd.DataFrame, names: Collection[str]) -> pd.DataFrame:
    wanted = set(names)
    kept = [name in wanted for name in frame.columns]
    return frame if all(kept) else frame.loc[:, kept]


def open_table(source: Any, *, by_cell: bool = False, reading: Reading = AS_THEY_ARE) -> Table:
    """Read a table as :func:`~flwr_causal.data.read.tables.read_table` does, or open a large file.

    Parameters
    ----------
    source : str, Path, numpy array or DataFrame, or a list or tuple of such
        As for :func:`~flwr_causal.data.read.tables.read_table`.
    by_cell : bool, default False
        Whether all cells are read as numbers, so that no row changes how another one is read, see
        :func:`~flwr_causal.data.read.by_cell.read_by_cell`. Lists are refused then.
    reading : Reading, optional
        What a run says about columns that may be read in several ways; with ``by_cell`` its
        dictionary counts alone.

    Returns
    -------
    DataFrame or LargeFile
        A LargeFile for a file of 32 MiB or more that can be read in pieces (NPZ archives and
        workbooks cannot), and for a query with more values than :data:`HELD` pieces have.

    Raises
    ------
    DataError
        If the source cannot be read.
    """
    read = partial(read_by_cell if by_cell else read_table, reading=reading)
    if not isinstance(source, str | Path):
        return read(source)
    origin = origin_of(Path(source))
    path, version = origin.path, _version_of(origin)
    opened = _pieces_read(path, by_cell, reading)
    if origin.format == "database":
        held = [*islice(opened, HELD + 1)]
        _, first, faults = held[0]
        if len(held) == 1 and not faults:
            return first
        small = len(held) <= HELD
    else:
        small = not origin.in_pieces or origin.rows.stat().st_size < LARGE
        first = None
    if small:
        return read(path)
    columns = (next(opened)[1] if first is None else first).columns
    return LargeFile(path, columns, version, by_cell, reading)


def open_table_cached(
    path: str | Path, *, by_cell: bool = False, reading: Reading = AS_THEY_ARE
) -> Table:
    """Open a file as :func:`open_table` does, once per process while the file is unchanged.

    All calls return the same object, which callers must not modify. The last 8 tables are kept. A
    file is treated as unchanged while its modification time and its size are the same; a small
    table of a database stays as it was first read.
    """
    origin = origin_of(Path(path))
    return _open_version(origin.path, _version_of(origin), by_cell, reading)


@lru_cache(maxsize=CACHED_TABLES)
def _open_version(path: Path, version: tuple[int, ...], by_cell: bool, reading: Reading) -> Table:
    return open_table(path, by_cell=by_cell, reading=reading)


def _version_of(origin: Origin) -> tuple[int, ...]:
    found = [file.stat() for file in origin.files]
    return tuple(number for one in found for number in (one.st_mtime_ns, one.st_size))


def _pieces_read(
    path: Path, by_cell: bool, reading: Reading
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame, list[DictionaryFault]]]:
    """Yield a file's rows in pieces: their cells, the values read from them, and the faults."""
    row = 1
    for cells in _file_pieces(path, by_cell, reading.of_cells):
        if reading.dictionary is None:
            yield cells, cells, []
        elif by_cell:
            yield cells, reading.dictionary.applied_by_cell(cells), []
        else:
            yield cells, *reading.dictionary.applied(cells, row)
        row += len(cells)


def _file_pieces(path: Path, by_cell: bool, reading: Reading) -> Iterator[pd.DataFrame]:
    if by_cell:
        yield from pieces_by_cell(path, rows_of_piece, reading.categories)
        return
    origin = origin_of(path)
    with naming(origin):
        if (text := origin.delimited) is not None:
            yield from delimited_pieces(text, rows_of_piece, reading)
            return
        for frame in frames_of(origin, rows_of_piece):
            yield as_read(from_frame(frame), reading)

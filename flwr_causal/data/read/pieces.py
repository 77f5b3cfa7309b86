"""Tables that are read in pieces of some rows, so that a large file is never in memory as a whole.

Sums over the rows of a table are computed piece by piece. The number of rows of a piece follows
from the number of columns alone, and a table in memory is cut in the same way: the same rows give
the same sums to the last bit, wherever they stand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from flwr_causal.data.check.columns import all_columns, kind_of
from flwr_causal.data.dictionary.faults import DictionaryFaultError, joined_faults
from flwr_causal.data.read.by_cell import pieces_by_cell, read_by_cell
from flwr_causal.data.read.reading import AS_THEY_ARE, Reading, as_read
from flwr_causal.data.read.tables import (
    check_widths,
    delimited_pieces,
    existing_file,
    from_frame,
    naming,
    parquet_file,
    read_table,
    separator_of,
)
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import pandas as pd

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.data.check.report import Kind
    from flwr_causal.data.dictionary.faults import DictionaryFault

#: Values of a piece, rows times columns: 8 MiB of float64.
PIECE = 2**20
#: Bytes of a file from which on it is read in pieces.
LARGE = 2**25
#: Files that a process keeps open tables of.
CACHED_TABLES = 8


@dataclass(frozen=True, eq=False)
class LargeFile:
    """A large CSV, TSV or Parquet file, read anew in each pass over its rows.

    Parameters
    ----------
    path : Path
    columns : Index of str
        The names of its columns.
    version : tuple of two int
        The file's time of modification in ns and its size in bytes, when it was opened.
    by_cell : bool, default False
        Whether its cells are read as numbers, each on its own, see :func:`open_table`.
    reading : Reading, optional
        What a run says about columns that may be read in several ways.
    """

    path: Path
    columns: pd.Index
    version: tuple[int, int]
    by_cell: bool = False
    reading: Reading = AS_THEY_ARE

    def __len__(self) -> int:
        return len(self.whole) if self._rows_in_pieces is None else self._rows_in_pieces

    @cached_property
    def whole(self) -> pd.DataFrame:
        """All rows, which stay in memory."""
        self._check_version()
        if self.by_cell:
            return _with_names(read_by_cell(self.path), self.columns)
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
        for _, piece, _ in _pieces_read(self.path, self.by_cell, self.reading):
            yield _with_names(piece, self.columns)
        self._check_version()

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
        if short and not self.by_cell and (separator := separator_of(self.path)):
            check_widths(self.path, separator)
        return count

    def _check_version(self) -> None:
        if _version_of(existing_file(self.path)) != self.version:
            raise DataError(
                f"{self.path} was changed while a run was reading it: start the run again, and "
                "leave the file as it is until the run has ended"
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
        What a run says about columns that may be read in several ways; not with ``by_cell``.

    Returns
    -------
    DataFrame or LargeFile
        A LargeFile for the path of delimited text or Parquet of 32 MiB or more.

    Raises
    ------
    DataError
        If the source cannot be read.
    """
    read = read_by_cell if by_cell else partial(read_table, reading=reading)
    if not isinstance(source, str | Path):
        return read(source)
    path = existing_file(Path(source)).absolute()
    version = _version_of(path)
    if version[1] < LARGE or path.name.lower().endswith(".npz"):
        return read(path)
    _, first, _ = next(_pieces_read(path, by_cell, reading))
    return LargeFile(path, first.columns, version, by_cell, reading)


def open_table_cached(
    path: str | Path, *, by_cell: bool = False, reading: Reading = AS_THEY_ARE
) -> Table:
    """Open a file as :func:`open_table` does, once per process while the file is unchanged.

    All calls return the same object, which callers must not modify. The last 8 tables are kept. A
    file is treated as unchanged while its modification time and its size are the same.
    """
    absolute = existing_file(Path(path)).absolute()
    return _open_version(absolute, _version_of(absolute), by_cell, reading)


@lru_cache(maxsize=CACHED_TABLES)
def _open_version(path: Path, version: tuple[int, int], by_cell: bool, reading: Reading) -> Table:
    return open_table(path, by_cell=by_cell, reading=reading)


def _version_of(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size


def _pieces_read(
    path: Path, by_cell: bool, reading: Reading
) -> Iterator[tuple[pd.DataFrame, pd.DataFrame, list[DictionaryFault]]]:
    """Yield the rows of a file in pieces: their cells, as they are read, and what does not fit."""
    row = 1
    for cells in _file_pieces(path, by_cell, reading.of_cells):
        if reading.dictionary is None:
            yield cells, cells, []
        else:
            yield cells, *reading.dictionary.applied(cells, row)
        row += len(cells)


def _file_pieces(path: Path, by_cell: bool, reading: Reading) -> Iterator[pd.DataFrame]:
    if by_cell:
        yield from pieces_by_cell(path, rows_of_piece)
        return
    with naming(path):
        if separator := separator_of(path):
            yield from delimited_pieces(path, separator, rows_of_piece, reading)
        else:
            for piece in _parquet_pieces(path):
                yield as_read(piece, reading)


def _parquet_pieces(path: Path) -> Iterator[pd.DataFrame]:
    import pyarrow as pa

    with parquet_file(path) as file:
        names = [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]
        size = rows_of_piece(len(names))
        held: list[Any] = []
        for batch in file.iter_batches(batch_size=size):
            held.append(batch)
            while sum(map(len, held)) >= size:
                table = pa.Table.from_batches(held)
                yield from_frame(table.slice(0, size).to_pandas())
                held = table.slice(size).to_batches()
        if held:
            yield from_frame(pa.Table.from_batches(held).to_pandas())

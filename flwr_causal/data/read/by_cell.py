"""Read a table so that no row changes how another one is read: for runs with epsilon.

All columns hold float64, missing values as NaN; :mod:`~flwr_causal.data.read.cells` says which
number a cell holds. With a dictionary the number of a state is its place in the list.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.data.read.arrow_files import arrow_rows
from flwr_causal.data.read.cells import (
    cells_of_arrow,
    numbers_of_array,
    numbers_of_arrow,
    numbers_of_column,
    text_of,
)
from flwr_causal.data.read.origin import origin_of
from flwr_causal.data.read.programs import frames_of
from flwr_causal.data.read.reading import AS_THEY_ARE, Reading, with_columns
from flwr_causal.data.read.records import delimited_numbers
from flwr_causal.data.read.tables import (
    from_array,
    from_frame,
    naming,
    npz_array,
    read_table,
)
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray


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

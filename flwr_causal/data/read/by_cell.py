"""Read a table so that no row changes how another one is read: for runs with epsilon.

All columns hold float64, missing values as NaN; :mod:`~flwr_causal.data.read.cells` says which
number a cell holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from flwr_causal.data.read.arrow_files import arrow_rows
from flwr_causal.data.read.cells import numbers_of_array, numbers_of_arrow, numbers_of_column
from flwr_causal.data.read.origin import origin_of
from flwr_causal.data.read.programs import frames_of
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
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray


def read_by_cell(source: Any) -> pd.DataFrame:
    """Read the numbers of a table, each from its own cell alone.

    Parameters
    ----------
    source : str, Path, numpy array or DataFrame
        As for :func:`~flwr_causal.data.read.tables.read_table`; an array may hold Python objects.

    Returns
    -------
    DataFrame
        Rows of float64. A row of delimited text that cannot be read is left out.

    Raises
    ------
    DataError
        If the source cannot be read, or is a list of tables; never for a row or a cell.
    """
    if isinstance(source, list | tuple):
        raise DataError(
            "the party has a list of tables, that is, of time series, which a run with epsilon "
            "does not use: join them to one table"
        )
    if isinstance(source, np.ndarray):
        return _of_array(source)
    if isinstance(source, str | Path):
        return _from_path(Path(source))
    return _of_frame(read_table(source))


def _of_frame(frame: pd.DataFrame) -> pd.DataFrame:
    cells = [numbers_of_column(column) for _, column in frame.items()]
    return pd.DataFrame(np.column_stack(cells), columns=frame.columns)


def _from_path(path: Path) -> pd.DataFrame:
    origin = origin_of(path)
    if origin.format != "npz":
        return pd.concat(pieces_by_cell(path), ignore_index=True)
    with naming(origin):
        return _of_array(*npz_array(origin.rows, shapes=False))


def _of_array(
    array: NDArray[Any], names: NDArray[Any] | None = None, where: str = "the array"
) -> pd.DataFrame:
    # The message of from_array gives the shape, and with it the number of rows.
    if array.ndim != 2:
        raise DataError(f"{where} has {array.ndim} dimensions: a table has two, (rows, variables)")
    return from_array(numbers_of_array(array), names, where)


def pieces_by_cell(
    path: Path, rows_of_piece: Callable[[int], int] | None = None
) -> Iterator[pd.DataFrame]:
    """Read the numbers of all but NPZ archives in pieces, each from its own cell alone.

    Parameters
    ----------
    path : Path
        An existing file.
    rows_of_piece : callable, optional
        Returns the largest number of rows of a piece from the number of columns.

    Yields
    ------
    DataFrame
        Rows of float64; at least one piece, perhaps without rows.

    Raises
    ------
    DataError
        As of :func:`read_by_cell`.
    """
    origin = origin_of(path)
    with naming(origin):
        if (text := origin.delimited) is not None:
            yield from delimited_numbers(text, rows_of_piece)
            return
        if origin.format not in ("parquet", "arrow"):
            for frame in frames_of(origin, rows_of_piece):
                yield _of_frame(from_frame(frame))
            return
        with arrow_rows(origin) as rows:
            yield _of_arrow(rows.schema.empty_table())
            size = 2**16 if rows_of_piece is None else rows_of_piece(len(rows.schema.names))
            yield from map(_of_arrow, rows.batches(size))


def _of_arrow(rows: Any) -> pd.DataFrame:
    """Return the numbers of rows of pyarrow, without columns that pandas wrote for an index."""
    names = from_frame(rows.schema.empty_table().to_pandas()).columns
    index = (rows.schema.pandas_metadata or {}).get("index_columns", ())
    columns = [
        column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
        if name not in index
    ]
    return pd.DataFrame(np.column_stack([*map(numbers_of_arrow, columns)]), columns=names)

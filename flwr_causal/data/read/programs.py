"""Tables of other programs, whose columns have types: one way to read all of their formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.data.read.arrow_files import arrow_frames
from flwr_causal.data.read.databases import database_frames
from flwr_causal.data.read.statistics_files import statistics_frames
from flwr_causal.data.read.workbooks import read_workbook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

    from flwr_causal.data.read.origin import Origin


def frames_of(
    origin: Origin, rows_of_piece: Callable[[int], int] | None = None
) -> Iterator[pd.DataFrame]:
    """Read a table of another format than text and NPZ in pieces.

    Parameters
    ----------
    origin : Origin
    rows_of_piece : callable, optional
        Returns the number of rows of a piece, the last one apart, from the number of columns.
        Default: the table is one piece; a workbook is in any case.

    Yields
    ------
    DataFrame
        Columns of the types that the source states, with their names.

    Raises
    ------
    DataError
        If the table cannot be read.
    """
    if origin.format == "workbook":
        yield read_workbook(origin)
    elif origin.format == "statistics":
        yield from statistics_frames(origin, rows_of_piece)
    elif origin.format == "database":
        yield from database_frames(origin, rows_of_piece)
    else:
        yield from arrow_frames(origin, rows_of_piece)

"""Sheets of workbooks: Excel (.xlsx, .xlsm, .xlsb, .xls) and OpenDocument (.ods)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from flwr_causal.data.read.reading import of_cells, with_whole_numbers
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from flwr_causal.data.read.origin import Origin


def read_workbook(origin: Origin) -> pd.DataFrame:
    """Read a sheet, whose first row that is not empty holds the names of the columns.

    Empty rows are left out. Cells have the types that the workbook gives them.

    Raises
    ------
    DataError
        If the sheet does not exist or is empty, or if several are not empty and none is named.
    """
    from python_calamine import CalamineWorkbook

    with CalamineWorkbook.from_path(str(origin.rows)) as book:
        names = list(book.sheet_names)
        if origin.sheet and origin.sheet not in names:
            raise DataError(
                f"{origin.rows} has no sheet {origin.sheet!r}: name one of {', '.join(names)}"
            )
        wanted = [origin.sheet] if origin.sheet else names
        found = {name: _filled_rows(book.get_sheet_by_name(name)) for name in wanted}
    filled = {name: rows for name, rows in found.items() if rows}
    if len(filled) > 1:
        raise DataError(
            f"{origin.rows} has several sheets ({', '.join(filled)}): name one by 'sheet' in a "
            "table description, or save it as a file of its own"
        )
    if not filled:
        raise DataError(f"{origin.rows} is empty: a table needs a row with the names of variables")
    (rows,) = filled.values()
    return _frame(rows)


def _filled_rows(sheet: Any) -> list[list[Any]]:
    return [row for row in sheet.to_python() if any(cell != "" for cell in row)]


def _frame(rows: list[list[Any]]) -> pd.DataFrame:
    header, *body = rows
    columns = [*zip(*body, strict=True)] or [()] * len(header)
    kept = [k for k, name in enumerate(header) if name != "" or any(c != "" for c in columns[k])]
    frame = pd.concat([_column(columns[k]) for k in kept], axis=1)
    frame.columns = pd.Index([_name(header[k]) for k in kept], dtype=object)
    return frame


def _column(cells: tuple[Any, ...]) -> pd.Series:
    column = of_cells(cells)
    return with_whole_numbers(column) if column.dtype == "float64" else column


def _name(cell: Any) -> str:
    """Return a name of a column; a year in the header is a number."""
    number = isinstance(cell, float) and cell.is_integer()
    return str(int(cell) if number else cell).strip()

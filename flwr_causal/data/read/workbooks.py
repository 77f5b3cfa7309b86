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

    Empty rows are left out, and so are hidden sheets that are not named. Cells have the types that
    the workbook gives them.

    Raises
    ------
    DataError
        If the sheet does not exist or is empty, if several are not empty and none is named, or if
        the row of names lacks some, as a title does.
    """
    from python_calamine import CalamineWorkbook, SheetVisibleEnum

    with CalamineWorkbook.from_path(str(origin.rows)) as book:
        names = list(book.sheet_names)
        if origin.sheet and origin.sheet not in names:
            raise DataError(
                f"{origin.rows} has no sheet {origin.sheet!r}: name one of {', '.join(names)}"
            )
        hidden = [
            one.name for one in book.sheets_metadata if one.visible != SheetVisibleEnum.Visible
        ]
        wanted = [origin.sheet] if origin.sheet else names
        found = {name: _filled_rows(book.get_sheet_by_name(name), origin) for name in wanted}
    filled = {name: rows for name, rows in found.items() if rows}
    shown = {name: rows for name, rows in filled.items() if name not in hidden}
    filled = shown if len(shown) == 1 else filled
    if len(filled) > 1:
        listed = ", ".join(f"{name} (hidden)" if name in hidden else name for name in filled)
        raise DataError(
            f"{origin.rows} has several sheets ({listed}): name one by 'sheet' in a table "
            "description, or save it as a file of its own"
        )
    if not filled:
        raise DataError(f"{origin.rows} is empty: a table needs a row with the names of variables")
    (rows,) = filled.values()
    _check_names(origin, rows)
    return _frame([row for _, row in rows])


def _filled_rows(sheet: Any, origin: Origin) -> list[tuple[int, list[Any]]]:
    """Return the rows that are not empty, and are not skipped, with their numbers from 1."""
    rows = enumerate(sheet.to_python(skip_empty_area=False), start=1)
    return [
        (number, row)
        for number, row in rows
        if number > origin.skip_lines and any(cell != "" for cell in row)
    ]


def _check_names(origin: Origin, rows: list[tuple[int, list[Any]]]) -> None:
    """Raise a DataError if a column with values has no name in the first row."""
    used = [any(row[k] != "" for _, row in rows) for k in range(len(rows[0][1]))]
    bare = {number: sum(used[k] and row[k] == "" for k in range(len(used))) for number, row in rows}
    number = rows[0][0]
    if not bare[number]:
        return
    full = next((one for one, lacking in bare.items() if not lacking), None)
    below = f", such as row {full} is" if full else ""
    skipped = f"skip-lines = {full - 1 if full else 'their number'}"
    raise DataError(
        f"{origin.rows}: {bare[number]} of {sum(used)} columns have no name in the first row, row "
        f"{number}: name all columns there; if titles stand above the row of names{below}, write "
        f"{skipped} in a table description (docs/how_to/sources.md)"
    )


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

"""CSV files for spreadsheets, which take some texts for formulas: those begin with an apostrophe.

The apostrophe is taken away when such a file is read again, so that all texts come back.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from pathlib import Path

# Spreadsheets leave out blanks, quotes and what is not printed before a formula; some take the wide
# characters of East Asian scripts for the same.
_FORMULA = re.compile(
    r"[\s'\"\x00-\x20\ufeff\u200b-\u200f\u2060]*"
    r"[=+\-@\uff1d\uff0b\uff0d\uff20\t\r\n]"
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def guarded(text: str) -> str:
    """Return a text as a cell that no spreadsheet takes for a formula; numbers stay as they are."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unguarded(cell: str) -> str:
    """Return the text from which :func:`guarded` made this cell."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def write_csv(frame: pd.DataFrame, path: Path, *, index: bool = False) -> None:
    """Write a table whose texts, also in its header, are no formulas; `read_csv` reads it.

    Parameters
    ----------
    frame : DataFrame
    path : Path
    index : bool, default False
        Whether the index is the first column.
    """
    made = _mapped(frame, guarded)
    texts = [*made.columns, *(made.index if index else ())]
    texts += [cell for name in _texts(made) for cell in made.iloc[:, name]]
    # A line break of another kind than that of the file must be quoted, too.
    broken = any(isinstance(text, str) and "\r" in text for text in texts)
    quoting: Literal[0, 2] = csv.QUOTE_NONNUMERIC if broken else csv.QUOTE_MINIMAL
    made.to_csv(path, index=index, quoting=quoting, lineterminator="\n")


def read_csv(path: Path, **how: Any) -> pd.DataFrame:
    """Return a table that `write_csv` wrote; ``how`` is as for ``pandas.read_csv``."""
    return _mapped(pd.read_csv(path, **how), unguarded)


def _mapped(frame: pd.DataFrame, change: Any) -> pd.DataFrame:
    """Return a table whose texts are changed: those of cells, header and index."""

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, str) else value

    result = frame.set_axis([changed(name) for name in frame.columns], axis=1)
    if frame.index.dtype.kind == "O":
        result = result.set_axis([changed(name) for name in frame.index], axis=0)
    for place in _texts(frame):
        column = [changed(value) for value in frame.iloc[:, place]]
        result.isetitem(place, np.array([*column, None], dtype=object)[:-1])
    return result


def _texts(frame: pd.DataFrame) -> list[int]:
    """Return the places of columns that may hold texts."""
    kinds = (pd.CategoricalDtype, pd.StringDtype)
    return [k for k, kind in enumerate(frame.dtypes) if kind.kind == "O" or isinstance(kind, kinds)]

"""The default names of columns that are no variables: ids, series, times and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The column of row ids: rows of different parties with the same id describe the same subject.
ROW_ID = "row_id"
#: The column of the class to predict; the name is that of scikit-learn's tables.
TARGET = "target"
#: The column of the number of the series, from 0, in a table read from a list of series.
SERIES = "(series)"


def target_in(columns: Iterable[str], target: str = "") -> str:
    """Return the name of the target: ``target``, or "target" if it is a column, or ""."""
    return target or (TARGET if TARGET in columns else "")

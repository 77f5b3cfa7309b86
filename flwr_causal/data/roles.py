"""The default names of columns that are no variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The same id in tables of different parties marks rows about the same thing.
ROW_ID = "row_id"
#: The class that is to be predicted, as scikit-learn calls it in its tables.
TARGET = "target"
#: Numbers the series of a party that gave a list of several, from 0 in their order.
SERIES = "(series)"


def target_in(columns: Iterable[str], target: str = "") -> str:
    """Return the target: the named one, else a column of the usual name, else none ("")."""
    return target or (TARGET if TARGET in columns else "")

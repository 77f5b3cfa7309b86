"""Tables of several parties about the same things, joined by a column of ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd


def joined_tables(tables: Sequence[pd.DataFrame], row_id: str) -> pd.DataFrame:
    """Return one table of all parties' columns and rows.

    Rows of one id become one, values that nobody has are missing. Tables without the column of ids
    are put below each other.

    Parameters
    ----------
    tables : sequence of DataFrame
        At least one.
    row_id : str
        The column of ids.

    Raises
    ------
    DataError
        If only some tables have ids, an id occurs twice in a table, or parties differ in a value.
    """
    import pandas as pd

    with_ids = [row_id in table.columns for table in tables]
    if not any(with_ids):
        return pd.concat(tables, ignore_index=True)
    if not all(with_ids):
        raise DataError(f"only some of the tables have the column {row_id!r}: give it to all")
    for number, table in enumerate(tables):
        if table[row_id].duplicated().any():
            raise DataError(f"table {number} has ids in {row_id!r} that repeat: one row each")
    result = tables[0].set_index(row_id)
    for number, table in enumerate(tables[1:], start=1):
        own = table.set_index(row_id)
        both = result.index.intersection(own.index)
        for name in result.columns.intersection(own.columns):
            left, right = result.loc[both, name], own.loc[both, name]
            if not ((left == right) | left.isna() | right.isna()).all():
                raise DataError(f"table {number} has other values of {name!r} than one before it")
        result = result.combine_first(own)
    names = list(dict.fromkeys(name for table in tables for name in table.columns))
    return result.reset_index()[names]

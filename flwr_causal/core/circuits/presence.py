"""Tables of several parties: which columns and rows they have in common, and their join.

The presence matrix says which party holds which column. Columns that the same parties hold make a
group. The groups determine how the parties' circuits are composed, and the presence matrix whether
a federation is horizontal, vertical or hybrid; no option declares it.

References
----------
Seng, Busch, Prasad, Dhami, Mundt, Kersting: Scaling Probabilistic Circuits via Data Partitioning,
2025, Algorithm 1, lines 1-7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import pandas as pd
    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, IntArray


Setting = Literal["horizontal", "vertical", "hybrid"]


class ColumnGroup(NamedTuple):
    """Columns that the same parties hold.

    Parameters
    ----------
    columns : tuple of int
        Ascending.
    parties : tuple of int
        Ascending.
    """

    columns: tuple[int, ...]
    parties: tuple[int, ...]


def column_groups(presence: ArrayLike) -> tuple[ColumnGroup, ...]:
    """Return the groups of a presence matrix, in the order of their first columns.

    Parameters
    ----------
    presence : array_like of bool, shape (parties, columns)

    Raises
    ------
    DataError
        If a party holds no column, or a column has no holder.
    """
    checked = _checked_presence(presence)
    members: dict[tuple[int, ...], list[int]] = {}
    for column, holders in enumerate(checked.T):
        members.setdefault(tuple(np.flatnonzero(holders).tolist()), []).append(column)
    return tuple(ColumnGroup(tuple(columns), parties) for parties, columns in members.items())


def setting_of(presence: ArrayLike) -> Setting:
    """Return the setting of a presence matrix.

    Horizontal: every party holds every column, as a single party does. Vertical: every column is
    held by one party. Hybrid: anything else.
    """
    checked = _checked_presence(presence)
    if checked.all():
        return "horizontal"
    return "vertical" if (checked.sum(axis=0) == 1).all() else "hybrid"


def common_rows(ids: Sequence[Sequence[Hashable]]) -> list[IntArray]:
    """Return the rows that all parties have, as positions in each party's table.

    Parameters
    ----------
    ids : sequence of sequence
        For each party, the id of each of its rows.

    Returns
    -------
    list of ndarray of int64, shape (n,)
        Row ``result[p][i]`` has the same id at all parties p. The order is that of the first
        party's rows.

    Raises
    ------
    DataError
        If an id occurs twice at a party.
    """
    places = []
    for party, of_party in enumerate(ids):
        place = {one: row for row, one in enumerate(of_party)}
        if len(place) < len(of_party):
            raise DataError(
                f"party {party} has ids that repeat: rows are aligned by ids, one row each"
            )
        places.append(place)
    shared = [one for one in ids[0] if all(one in place for place in places)]
    return [np.array([place[one] for one in shared], dtype=np.int64) for place in places]


def joined_tables(tables: Sequence[pd.DataFrame], row_id: str) -> pd.DataFrame:
    """Return one table with all parties' columns and rows.

    Rows with the same id are joined; values that no table has are missing. Tables without the
    column of ids are concatenated.

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
        other = table.set_index(row_id)
        both = result.index.intersection(other.index)
        for name in result.columns.intersection(other.columns):
            left, right = result.loc[both, name], other.loc[both, name]
            if not ((left == right) | left.isna() | right.isna()).all():
                raise DataError(f"table {number} has other values of {name!r} than one before it")
        result = result.combine_first(other)
    names = list(dict.fromkeys(name for table in tables for name in table.columns))
    return result.reset_index()[names]


def _checked_presence(presence: ArrayLike) -> BoolArray:
    checked = np.asarray(presence, dtype=bool)
    if checked.ndim != 2 or not checked.size:
        raise DataError(f"a presence matrix is (parties, columns), got the shape {checked.shape}")
    empty = np.flatnonzero(~checked.any(axis=1))
    if len(empty):
        raise DataError(f"party {empty[0]} holds none of the columns: leave it out")
    missing = np.flatnonzero(~checked.any(axis=0))
    if len(missing):
        raise DataError(f"no party holds column {missing[0]}: leave it out")
    return checked

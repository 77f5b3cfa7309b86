"""Which columns and rows the parties have in common, and the setting that follows from it.

Columns that the same parties hold make a group: the distinct columns of the presence matrix. The
groups decide what is composed how; whether a federation is horizontal, vertical or hybrid is found
here and declared nowhere.

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
        If a party holds no column, or nobody holds one.
    """
    checked = _checked(presence)
    members: dict[tuple[int, ...], list[int]] = {}
    for column, holders in enumerate(checked.T):
        members.setdefault(tuple(np.flatnonzero(holders).tolist()), []).append(column)
    return tuple(ColumnGroup(tuple(columns), parties) for parties, columns in members.items())


def setting_of(presence: ArrayLike) -> Setting:
    """Name the setting of a presence matrix.

    Horizontal: every party holds every column (one party alone does). Vertical: no column is held
    twice. Hybrid: anything else.
    """
    checked = _checked(presence)
    if checked.all():
        return "horizontal"
    return "vertical" if (checked.sum(axis=0) == 1).all() else "hybrid"


def common_rows(ids: Sequence[Sequence[Hashable]]) -> list[IntArray]:
    """Return where each party has the rows that all parties have, in one order.

    Parameters
    ----------
    ids : sequence of sequence
        Of each party, the id of each of its rows.

    Returns
    -------
    list of ndarray of int64, shape (n,)
        Row ``result[p][i]`` of party p is about the same thing for all p; in the order of the first
        party's rows.

    Raises
    ------
    DataError
        If an id occurs twice at a party, or no row is common.
    """
    places = []
    for party, own in enumerate(ids):
        place = {one: row for row, one in enumerate(own)}
        if len(place) < len(own):
            raise DataError(
                f"party {party} has ids that repeat: rows are aligned by ids, one row each"
            )
        places.append(place)
    shared = [one for one in ids[0] if all(one in place for place in places)]
    if not shared:
        raise DataError(
            "the parties have no row in common: check that their ids are of one kind, and their "
            'row-secret the same (node config), or take weights="counts", which needs no ids'
        )
    return [np.array([place[one] for one in shared], dtype=np.int64) for place in places]


def _checked(presence: ArrayLike) -> BoolArray:
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

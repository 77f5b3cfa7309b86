"""Counts of few rows: which of them do not leave a party.

A count of few rows discloses values of single rows. Without it the other counts of a table still
add up to fewer rows than the table has, and the difference is a count of its own: further counts
are withheld until each of them might be of the minimum of rows, whatever the others are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, IntArray


def are_small(counts: NDArray[Any], minimum: int) -> BoolArray:
    """Return the mask of the counts above 0 and below the minimum."""
    return np.asarray((counts > 0) & (counts < minimum))


def withheld(counts: NDArray[Any], minimum: int, tables: IntArray | None = None) -> BoolArray:
    """Return the mask of withheld counts.

    They are the small ones of each table, and the smallest others until the rows of all of them,
    less one for each, are ``minimum - 1`` or more, or nothing is left: where the total is known,
    and also that each withheld count is above 0, each might then be ``minimum`` or more.

    Parameters
    ----------
    counts : ndarray of integers, shape (cells,)
        Each row of a party is in one cell of each table.
    minimum : int
        The fewest rows.
    tables : ndarray of int64, shape (cells,), optional
        The table of each cell, ascending. Default: all are of one.

    Returns
    -------
    ndarray of bool, shape (cells,)
    """
    values = counts.astype(np.int64)
    if tables is None:
        tables = np.zeros(len(values), dtype=np.int64)
    small = are_small(values, minimum)
    concerned = np.bincount(tables, weights=small) > 0
    order = np.lexsort((values, tables))
    ordered, owners = values[order], tables[order]
    # What the smaller cells of the same table leave open, if each of them has a row.
    room = np.maximum(ordered - 1, 0)
    before = np.cumsum(room) - room
    first = np.searchsorted(owners, owners, side="left")
    before = before - before[first] if len(before) else before
    result = np.zeros(len(values), dtype=np.bool_)
    result[order] = (ordered > 0) & concerned[owners] & (before < minimum - 1)
    return result | small


def is_total(total: float, rows: int, minimum: int) -> bool:
    """Return whether a table of a party's rows may have this total, with counts withheld.

    Parameters
    ----------
    total : float
        The sum of its counts.
    rows : int
        The party's number of rows.
    minimum : int
        The fewest rows of what was withheld; 0: nothing was.
    """
    return total == rows or (minimum > 0 and (total == 0 or 0 <= total <= rows - minimum))

"""Which numbers of a party's gaps would tell of few rows, all that leaves taken together.

A server knows a party's number of rows and how many cells of each column are missing. For two
columns the rows form four cells, with values of both, of one or of none of them: one cell gives the
others. So the rows that lack both, the rows that have both, and the sums over these are withheld
where any of the four cells is small. Sums of a column over the rows that have another one, or a
third one, differ by the rows that have only one of these: they are withheld where such rows are
few. Counts of whole patterns would give the cells of pairs: where any of these, or a pattern, is
small, no pattern is counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.discrete.small_counts import are_small

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, IntArray

#: Products of numbers that :func:`overlapping` makes at most; beyond them all columns with gaps
#: count as overlapping.
MOST_PRODUCTS = 10**10


def few_together(both: IntArray, rows: int, minimum: int) -> BoolArray:
    """Return the pairs of columns of whose gaps a cell is of few rows, (d, d).

    The diagonal is False.

    Parameters
    ----------
    both : ndarray of int, shape (d, d)
        Rows in which two columns are missing; on the diagonal those in which one is.
    rows : int
        Of the party.
    minimum : int
        The fewest rows that may be told.
    """
    first, second = np.diagonal(both)[:, None], np.diagonal(both)[None, :]
    cells = (both, first - both, second - both, rows - first - second + both)
    found = np.any([are_small(cell, minimum) for cell in cells], axis=0)
    np.fill_diagonal(found, False)
    return np.asarray(found)


def overlapping(missing: BoolArray, counts: IntArray, minimum: int) -> BoolArray:
    """Return the pairs of columns whose sums differ from others by sums over few rows, (q, q).

    Parameters
    ----------
    missing : ndarray of bool, shape (m, q)
        The different patterns of gaps.
    counts : ndarray of int, shape (m,)
        How many rows have each.
    minimum : int
        The fewest rows that may be told.

    Returns
    -------
    ndarray of bool, shape (q, q)
        Symmetric, False on the diagonal. At [i, j]: from the sums of column i (or j) over the rows
        that have both, and over those that it has with a third column, its sum over few rows would
        follow.
    """
    q = missing.shape[1]
    some = np.asarray(missing.any(axis=1))
    gaps, present = missing[some].astype(np.float64), ~missing[some]
    found = np.zeros((q, q), dtype=np.bool_)
    if len(gaps) * q**3 > MOST_PRODUCTS:
        lacking = np.asarray(gaps.any(axis=0))
        return np.asarray((lacking[:, None] | lacking) & ~np.eye(q, dtype=np.bool_))
    for i in range(q):
        held = present * (counts[some] * present[:, i])[:, None]
        # At [j, k] the rows that have i and j, and lack k.
        small = are_small(held.T @ gaps, minimum)
        found[i] = small.any(axis=0) | small.any(axis=1)
    # The sum over all values of a column is told with the report on the table.
    np.fill_diagonal(found, False)
    return np.asarray(found | found.T)

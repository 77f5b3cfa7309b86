"""Cells that lie apart from the others of a column, and columns that are skewed as amounts are.

Both are found by the party in its own rows, and a report has one flag of each.

- Cells lie apart where a few of them, at most one in twenty, are far out and hardly any are between
  them and the rest: of mistyped cells, or those in other units, and not of heavy tails. Distances
  are from the median, in units of the one that a twentieth of the rows exceed.
- A column is skewed as amounts are where its values are positive and their logarithms are far less
  skewed: of concentrations, incomes, counts of cells.

The limits were chosen on simulated systems, by party and column: with one cell in a hundred moved
by 6 to 12 standard deviations 6 in 10 columns have cells apart, with normal, exponential, Laplace,
gamma, uniform and t noise of 5 degrees of freedom 3 of 12,000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr_causal.core.arrays import BoolArray, FloatArray

#: Rows of a table that are looked at, from the first one; of fewer than FEWEST nothing is said.
LOOKED_AT, FEWEST = 4096, 50
#: The share of the rows beyond the unit of distances.
TAIL = 0.05
#: So many units are far, and fewer cells than half of those that are far lie from BETWEEN to FAR.
FAR, BETWEEN, TIMES = 2.5, 1.5, 2
#: Fewest different distances of cells that lie apart: one or two may be chance.
FEWEST_APART = 3
#: Least skewness of an amount, and most of its logarithms', as a share of it.
SKEWED, OF_LOGARITHMS = 0.8, 0.35


def cells_apart(rows: FloatArray) -> BoolArray:
    """Return which columns have a few cells that lie apart from all others, shape (d,).

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Cells that are not finite do not count.
    """
    return _by_column(_are_apart, rows)


def skewed_as_amounts(rows: FloatArray) -> BoolArray:
    """Return which columns are positive, and far less skewed in logarithms, shape (d,).

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Cells that are not finite do not count.
    """
    return _by_column(_are_skewed, rows)


def _by_column(judge: Callable[[FloatArray], BoolArray], rows: FloatArray) -> BoolArray:
    """Return what is found of each column's finite cells, of complete columns at once.

    ``judge`` is given columns as rows, (d', n), of FEWEST cells or more each.
    """
    columns, found = np.ascontiguousarray(rows.T), np.zeros(rows.shape[1], dtype=np.bool_)
    if len(rows) < FEWEST:
        return found
    finite = np.isfinite(columns)
    complete = finite.all(axis=1)
    found[complete] = judge(columns[complete])
    for j in np.flatnonzero(~complete & (finite.sum(axis=1) >= FEWEST)):
        found[j] = judge(columns[j, finite[j]][None])[0]
    return found


def _are_apart(columns: FloatArray) -> BoolArray:
    middle, outer = columns.shape[1] // 2, int((1 - TAIL) * columns.shape[1])
    medians = np.partition(columns, middle, axis=1)[:, middle, None]
    distances = np.abs(columns - medians)
    ordered = np.partition(distances, (middle, outer), axis=1)
    # Where most rows have one value, all others are far from it.
    varies, unit = ordered[:, middle] > 0, ordered[:, outer, None]
    tails = ordered[:, outer:]
    far = tails > FAR * unit
    counts, beside = far.sum(axis=1), (tails > BETWEEN * unit).sum(axis=1)
    found = varies & (counts >= FEWEST_APART) & (counts >= TIMES * (beside - counts))
    # A rare state of few is one value.
    for j in np.flatnonzero(found):
        found[j] = len(np.unique(tails[j, far[j]])) >= FEWEST_APART
    return np.asarray(found)


def _are_skewed(columns: FloatArray) -> BoolArray:
    found = columns.min(axis=1) > 0
    own = _skewness(columns[found])
    of_logarithms = np.abs(_skewness(np.log(columns[found])))
    found[found] = (own > SKEWED) & (of_logarithms < OF_LOGARITHMS * own)
    return np.asarray(found)


def _skewness(columns: FloatArray) -> FloatArray:
    # Powers of numbers near the largest ones of float64 would be infinite.
    scale = np.abs(columns).max(axis=1, keepdims=True)
    centred = columns / np.where(scale > 0, scale, 1.0)
    centred -= centred.mean(axis=1, keepdims=True)
    squares = centred * centred
    spread = np.sqrt(squares.mean(axis=1))
    return np.asarray((squares * centred).mean(axis=1) / np.where(spread > 0, spread**3, 1.0))

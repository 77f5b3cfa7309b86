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
    from flwr_causal.core.arrays import BoolArray, FloatArray

#: Rows of a table that are looked at, from the first one; of fewer than FEWEST nothing is said.
LOOKED_AT, FEWEST = 10_000, 50
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
    return np.array([_is_apart(column[np.isfinite(column)]) for column in rows.T], dtype=np.bool_)


def skewed_as_amounts(rows: FloatArray) -> BoolArray:
    """Return which columns are positive, and far less skewed in logarithms, shape (d,).

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Cells that are not finite do not count.
    """
    return np.array([_is_skewed(column[np.isfinite(column)]) for column in rows.T], dtype=np.bool_)


def _is_apart(values: FloatArray) -> bool:
    n = len(values)
    if n < FEWEST:
        return False
    distances = np.sort(np.abs(values - np.median(values)))
    unit = distances[int((1 - TAIL) * n)]
    # Where most rows have one value, all others are far from it.
    if distances[n // 2] <= 0:
        return False
    within, beside = np.searchsorted(distances, [FAR * unit, BETWEEN * unit], side="right")
    # A rare state of few is one value.
    different = len(np.unique(distances[within:]))
    return different >= FEWEST_APART and int(n - within) >= TIMES * int(within - beside)


def _is_skewed(values: FloatArray) -> bool:
    if len(values) < FEWEST or values.min() <= 0:
        return False
    own = _skewness(values)
    return own > SKEWED and abs(_skewness(np.log(values))) < OF_LOGARITHMS * own


def _skewness(values: FloatArray) -> float:
    # Powers of numbers near the largest ones of float64 would be infinite.
    centred = values / np.abs(values).max(initial=np.finfo(np.float64).tiny)
    centred = centred - centred.mean()
    spread = np.sqrt(np.mean(centred**2))
    return float(np.mean((centred / spread) ** 3)) if spread > 0 else 0.0

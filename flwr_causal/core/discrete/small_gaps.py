"""Sums over the rows that have two columns: the rows that they leave out, so that no few rows show.

Two such sums differ by a sum over rows of some patterns of gaps. What all of them together tell is
a sum for each pattern, and one for the rows that are left out, since the sum over all rows that
have a column is known. Hence each pattern is left out, or has the minimum of rows; and of the rows
that are left out, none or the minimum have each column, and none or the minimum lack it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.discrete.small_counts import are_small

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, IntArray


def summed_rows(missing: BoolArray, minimum: int) -> BoolArray:
    """Return the mask of the rows that sums by pairs of columns are over.

    Rows are left out in their order, whatever they hold.

    Parameters
    ----------
    missing : ndarray of bool, shape (n, d)
        Each column has gaps in no row or in ``minimum`` rows, and values likewise; where one has
        not, no row may be left.
    minimum : int
        The fewest rows.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    packed = np.packbits(missing, axis=1)
    keys = np.ascontiguousarray(packed).view(f"V{packed.shape[1]}")[:, 0]
    _, first, group, counts = np.unique(
        keys, return_index=True, return_inverse=True, return_counts=True
    )
    out = left_out(missing[first], counts, minimum)
    order = np.argsort(group, kind="stable")
    begins = np.cumsum(counts) - counts
    rank = np.empty(len(missing), dtype=np.int64)
    rank[order] = np.arange(len(missing)) - np.repeat(begins, counts)
    return np.asarray(rank >= out[group])


def left_out(patterns: BoolArray, counts: IntArray, minimum: int) -> IntArray:
    """Return how many rows of each pattern of gaps are left out, shape (m,).

    Parameters
    ----------
    patterns : ndarray of bool, shape (m, d)
        Different ones.
    counts : ndarray of int, shape (m,)
        Rows with each.
    minimum : int
        The fewest rows.
    """
    out = np.where(are_small(counts, minimum), counts, 0)
    sides = np.hstack([patterns, ~patterns]).astype(np.int64)
    held = out @ sides  # of the rows left out, those that lack each column, and that have it
    while (short := are_small(held, minimum)).any():
        side = int(np.argmax(short))
        rest = (counts - out) * sides[:, side]
        largest = int(np.argmax(rest))
        if rest[largest] == 0:
            return counts.copy()
        more = minimum - int(held[side])
        if rest[largest] - more < minimum:
            more = int(rest[largest])
        out[largest] += more
        held += more * sides[largest]
    return out

"""The distributions of one column in the boxes of a decision tree: nothing outside of its box."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.leaves.categorical import Categorical
from flwr_causal.core.circuits.leaves.histogram import Histogram

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Rows that each bin and tail of the whole table is given: a place without rows is possible too.
EMPTY_ROWS = 0.5


def number_leaves(
    column: int,
    values: FloatArray,
    member: IntArray,
    cuts: FloatArray,
    boxes: IntArray,
    num_bins: int,
    smoothing: float,
) -> list[Histogram]:
    """Return a histogram for each box; all have the same edges, and are evaluated together.

    Parameters
    ----------
    column : int
    values : ndarray of float64, shape (n,)
    member : ndarray of int64, shape (n,)
        The box of each row.
    cuts : ndarray of float64, shape (m,)
        Ascending; as scikit-learn compares, ``float32(x) <= cut`` lies before it.
    boxes : ndarray of int64, shape (boxes, 2)
        Segments between cuts, from, up to and without.
    num_bins : int
        Bins between quantiles, which cuts divide further.
    smoothing : float
        Rows of each box, distributed as the whole table is within it.
    """
    wide = _quantile_edges(values, num_bins)
    starts = first_after(cuts)
    edges = np.unique(np.concatenate((wide, starts)))
    # Pieces are the lower tail, the bins and the upper tail; each belongs to one between quantiles.
    whole = np.searchsorted(wide, edges, side="right")
    whole = np.concatenate(([0], whole))
    widths = np.concatenate(([1.0], np.diff(edges), [1.0]))
    shares = widths / np.bincount(whole, widths)[whole]
    first = np.concatenate(([0], np.searchsorted(edges, starts) + 1, [len(edges) + 1]))
    piece = np.arange(len(edges) + 1)
    inside = (piece >= first[boxes[:, :1]]) & (piece < first[boxes[:, 1:]])

    rows = np.zeros((len(boxes), len(wide) + 1))
    np.add.at(rows, (member, np.searchsorted(wide, values, side="right")), 1.0)
    prior = np.where(inside, (rows.sum(axis=0) + EMPTY_ROWS)[whole] * shares, 0.0)
    masses = smoothing * prior / prior.sum(axis=1, keepdims=True)
    share = np.where(inside, shares, 0.0)
    for k in range(len(wide) + 1):
        own = whole == k
        total = share[:, own].sum(axis=1, keepdims=True)
        masses[:, own] += rows[:, [k]] * np.divide(
            share[:, own], total, out=np.zeros_like(share[:, own]), where=total > 0
        )
    masses /= masses.sum(axis=1, keepdims=True)
    tail = (wide[-1] - wide[0]) / num_bins
    return [Histogram(column, edges, row, tail) for row in masses]


def state_leaves(
    column: int,
    values: FloatArray,
    member: IntArray,
    cuts: FloatArray,
    boxes: IntArray,
    order: IntArray,
    smoothing: float,
) -> list[Categorical]:
    """Return the probabilities of the states in each box; arguments as for `number_leaves`.

    ``order`` is the position of each state, shape (states,), which is what the cuts divide.
    """
    segment = np.searchsorted(cuts, order, side="left")
    inside = (segment >= boxes[:, :1]) & (segment < boxes[:, 1:])
    rows = np.zeros((len(boxes), len(order)))
    np.add.at(rows, (member, values.astype(np.int64)), 1.0)
    prior = np.where(inside, rows.sum(axis=0) + EMPTY_ROWS, 0.0)
    masses = rows + smoothing * prior / prior.sum(axis=1, keepdims=True)
    return [Categorical(column, row / row.sum()) for row in masses]


def first_after(cuts: FloatArray) -> FloatArray:
    """Return the least float64 whose float32 is above each cut, shape (m,)."""
    below = cuts.astype(np.float32)
    below = np.where(below > cuts, np.nextafter(below, np.float32(-np.inf)), below)
    above = np.nextafter(below, np.float32(np.inf))
    middle = 0.5 * (below.astype(np.float64) + above.astype(np.float64))
    # Halfway the even one of the two is taken.
    return np.where(middle.astype(np.float32) > cuts, middle, np.nextafter(middle, np.inf))


def _quantile_edges(values: FloatArray, num_bins: int) -> FloatArray:
    """Return bounds of bins of about equally many rows, a little wider than the values."""
    inner = np.unique(np.quantile(values, np.arange(1, num_bins) / num_bins))
    low, high = values.min(), values.max()
    margin = (high - low) / len(values) if high > low else 0.5 * max(abs(high), 1.0)
    edges = np.concatenate(([low - margin], inner[(inner > low) & (inner < high)], [high + margin]))
    return np.asarray(edges)

"""Leaves over one column as functions of sums over rows, and the priors that smooth them.

A leaf is the most probable one given its sums and a prior that is the column's distribution in the
whole table, since few rows say little:

- a table, of the states of a category or of the bins of a histogram, is counted with ``smoothing``
  pseudo rows distributed as all rows are;
- a normal distribution's mean is drawn to that of all rows by `MEAN_PSEUDO_ROWS` rows, and its
  variance has ``smoothing / 2`` pseudo rows of `SPREAD_SHARE` times the deviation of all rows: a
  cluster is narrower than the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.leaves.histogram import Histogram

if TYPE_CHECKING:
    from flwr_causal.core.circuits.nodes import Leaf

FloatArray = NDArray[np.float64]
Numbers = FloatArray | float

#: Both matter little: on breast cancer the test log-likelihood of learn_spn stays within .1 from
#: .03 to .5 and from .1 to .5.
MEAN_PSEUDO_ROWS = 0.1
SPREAD_SHARE = 0.3
#: Pseudo row of all states, and of bins by width, in the distribution of all rows.
FLAT_ROWS = 0.5
#: Deviation of a number that is constant, over its size (over 1, of zeros).
CONSTANT_SPREAD = 1e-3


def location_and_spread(column: FloatArray, row_weights: FloatArray) -> tuple[float, float]:
    """Return mean and standard deviation of known numbers; above 0 for constant ones too."""
    mean = float(np.average(column, weights=row_weights))
    spread = float(np.sqrt(np.average((column - mean) ** 2, weights=row_weights)))
    size = abs(mean) or 1.0
    # What a constant column deviates is rounding.
    return mean, spread if spread > 1e-9 * size else CONSTANT_SPREAD * size


def prior_masses(counts: FloatArray, widths: FloatArray) -> FloatArray:
    """Return the distribution of all rows over the entries of a table."""
    filled = counts + FLAT_ROWS * widths / widths.max()
    return np.asarray(filled / filled.sum())


def table_widths(leaf: Leaf) -> FloatArray:
    """Return the width of each entry of a table: 1 of a state, of a tail its scale."""
    if isinstance(leaf, Histogram):
        return np.concatenate(([leaf.tail], np.diff(leaf.edges), [leaf.tail]))
    return np.ones(leaf.num_states[0])


def smoothed_tables(counts: FloatArray, prior: FloatArray, smoothing: float) -> FloatArray:
    """Return the most probable table of counts (..., S)."""
    return np.asarray(
        (counts + smoothing * prior) / (counts.sum(axis=-1, keepdims=True) + smoothing)
    )


def smoothed_normals(
    rows: Numbers, first: Numbers, second: Numbers, smoothing: float
) -> tuple[FloatArray, FloatArray]:
    """Return the most probable mean and variance, in units of the column.

    Parameters
    ----------
    rows, first, second : ndarray of float64, or float
        Number of rows, and sums of z and of z^2 with z = (x - mean) / deviation of all rows.
    smoothing : float
    """
    pseudo = 0.5 * smoothing
    mean = np.asarray(first / (rows + MEAN_PSEUDO_ROWS))
    # sum (z - mean)^2 + MEAN_PSEUDO_ROWS mean^2, expanded
    scatter = np.maximum(second - mean * first, 0.0)
    return mean, np.asarray((scatter + pseudo * SPREAD_SHARE**2) / (rows + pseudo))

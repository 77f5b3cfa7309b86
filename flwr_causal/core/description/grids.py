"""Common grids of columns of numbers, and quantiles from counts of rows on them.

A first, coarse grid follows from a column's mean and standard deviation alone: powers of two, and
the mean with powers of two of the deviation on both sides. Whatever the unit, the offset and the
values far outside, it shows to a factor of two where the rows are. From its counts follows a grid
of equal steps over these rows; no value of a single row is in it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray

#: Powers of two of the coarse grid: of the values themselves, and of the deviations from the mean.
_OF_VALUES = 2.0 ** np.arange(-20, 41)
_OF_DEVIATIONS = 2.0 ** np.arange(-12, 5)
#: How many edges the coarse grid of a column has; some may coincide.
NUM_PLACES = 2 * (1 + len(_OF_VALUES) + len(_OF_DEVIATIONS))
#: A grid holds the rows between these shares of a column, and those beyond without a gap up to
#: those further shares; what lies outside, such as codes of missing values, is counted only.
INNER, OUTER = (0.05, 0.95), (0.001, 0.999)
#: A cell from 0 that is narrower than this share of a step is 0.
NO_WIDTH = 1e-3
# Up to the rounding of another processor.
_ALIKE = 1e-9
#: The shares of the rows whose quantiles are told.
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


class StepGrid(NamedTuple):
    """Equal steps over a column of numbers.

    Parameters
    ----------
    lowest : float
        The first edge.
    width : float
        Of a step, above 0.
    """

    lowest: float
    width: float

    def edges(self, bins: int) -> FloatArray:
        """Return the edges of so many steps, shape (bins + 1,)."""
        return np.asarray(self.lowest + self.width * np.arange(bins + 1), dtype=np.float64)


def place_edges(mean: FloatArray, deviation: FloatArray) -> FloatArray:
    """Return the coarse grids of q columns, each ascending.

    Parameters
    ----------
    mean, deviation : ndarray of shape (q,)
        Of the rows of all parties.

    Returns
    -------
    ndarray of shape (q, NUM_PLACES)
    """
    values = np.concatenate([-_OF_VALUES, [0.0], _OF_VALUES])
    steps = np.concatenate([-_OF_DEVIATIONS, [0.0], _OF_DEVIATIONS])
    about = mean[:, None] + deviation[:, None] * steps
    return np.sort(np.hstack([np.tile(values, (len(mean), 1)), about]), axis=1)


def rows_below(values: FloatArray, edges: FloatArray) -> IntArray:
    """Return how many values lie below each of some edges, shape (g,).

    Parameters
    ----------
    values : ndarray of shape (n,)
        Of one column, none missing.
    edges : ndarray of shape (g,)
        Ascending.
    """
    passed = np.searchsorted(edges, values, side="right")
    return np.cumsum(np.bincount(passed, minlength=len(edges) + 1))[:-1]


def rows_below_steps(values: FloatArray, grid: StepGrid, bins: int) -> IntArray:
    """Return the same for the edges of equal steps, shape (bins + 1,)."""
    with np.errstate(over="ignore"):
        step = np.clip(np.floor((values - grid.lowest) / grid.width), -1, bins)
    return np.cumsum(np.bincount(step.astype(np.int64) + 1, minlength=bins + 2))[:-1]


def grid_of(edges: FloatArray, below: IntArray, bins: int, *, whole: bool) -> StepGrid:
    """Return the grid over the rows of a column, from the counts on its coarse grid.

    Parameters
    ----------
    edges : ndarray of shape (g,)
        As :func:`place_edges` returns them.
    below : ndarray of int, shape (g,)
        The rows of all parties below each.
    bins : int
        Steps of the grid.
    whole : bool
        Whether the column holds whole numbers only: then each step holds as many of them, one if
        there are so few.
    """
    lower, upper = _ends(edges, np.asarray(below, dtype=np.float64))
    if whole:
        first = math.floor(lower)
        return StepGrid(first - 0.5, float(max(1, math.ceil((upper - first) / bins))))
    return StepGrid(lower, max((upper - lower) / bins, math.ulp(max(abs(lower), abs(upper)))))


def are_grids(edges: FloatArray, lowest: FloatArray, widths: FloatArray, bins: int) -> bool:
    """Return whether :func:`grid_of` returns these grids of q columns for some counts.

    Parameters
    ----------
    edges : ndarray of shape (q, g)
        As :func:`place_edges` returns them.
    lowest, widths : ndarray of shape (q,)
    bins : int
    """
    for own, first, width in zip(edges, lowest, widths, strict=True):
        # From one edge to another one, or over the whole numbers from one edge to another one.
        steps = np.maximum((own - first) / bins, np.spacing(np.maximum(np.abs(own), abs(first))))
        begins = np.isclose(own, first, rtol=_ALIKE, atol=0).any()
        by_edges = begins and np.isclose(steps, width, rtol=_ALIKE, atol=0).any()
        wholes = np.maximum(1.0, np.ceil((own - first - 0.5) / bins))
        by_wholes = (np.floor(own) - 0.5 == first).any() and (wholes == width).any()
        if not (by_edges or by_wholes):
            return False
    return True


def _ends(edges: FloatArray, below: FloatArray) -> tuple[float, float]:
    """Return two edges of the coarse grid between which the rows of a column are."""
    total = below[-1] if len(below) else 0.0
    if total <= 0:
        return float(edges[0]), float(edges[-1])
    first, last = _around(below, INNER[0] * total), _around(below, INNER[1] * total) + 1
    least, most = _around(below, OUTER[0] * total), _around(below, OUTER[1] * total) + 1
    last, most = min(last, len(edges) - 1), min(most, len(edges) - 1)
    filled = np.flatnonzero(np.diff(below) > 0)  # the cell after each edge
    for cell in filled[(filled < first) & (filled >= least)][::-1].tolist():
        if edges[first] - edges[cell + 1] > edges[last] - edges[first]:
            break
        first = cell
    for cell in filled[(filled >= last) & (filled < most)].tolist():
        if edges[cell] - edges[last] > edges[last] - edges[first]:
            break
        last = cell + 1
    return float(edges[first]), float(edges[last])


def _around(below: FloatArray, rows: float) -> int:
    """Return the last edge with at most so many rows below it; 0 if there is none."""
    return max(int(np.searchsorted(below, rows, side="right")) - 1, 0)


def quantile(
    grid: StepGrid,
    below: NDArray[np.int64],
    coarse: tuple[FloatArray, NDArray[np.int64]],
    seen: int,
    share: float,
    *,
    whole: bool,
) -> float | None:
    """Return a quantile of a column, from the rows below the edges of its grids.

    Parameters
    ----------
    grid : StepGrid
    below : ndarray of int, shape (bins + 1,)
    coarse : tuple of ndarray of shape (g,)
        The edges of the coarse grid, and the rows below each. Where most rows of a skewed column
        are in one step, they tell where in it.
    seen : int
        The rows with a value.
    share : float
        From 0 to 1.
    whole : bool
        Whether the column holds whole numbers; where a step holds one of them, it is returned.

    Returns
    -------
    float or None
        Within the step that holds it; None if it lies outside the grid. 0 where it is as near to
        0 as the coarse grid tells: most of such rows have the value 0.
    """
    rows = share * seen
    if seen <= 0 or not below[0] <= rows <= below[-1] or below[-1] <= below[0]:
        return None
    edges = grid.edges(len(below) - 1)
    step = max(int(np.searchsorted(below, rows, side="left")), 1)
    if whole and grid.width == 1.0:
        return float(edges[step] - 0.5)
    inside = (coarse[0] > edges[step - 1]) & (coarse[0] < edges[step])
    ends = [edges[step - 1], *coarse[0][inside], edges[step]]
    counts = np.maximum.accumulate([below[step - 1], *coarse[1][inside], below[step]])
    counts = np.minimum(counts, below[step])
    part = max(int(np.searchsorted(counts, rows, side="left")), 1)
    held = counts[part] - counts[part - 1]
    if ends[part - 1] == 0 and ends[part] - ends[part - 1] < NO_WIDTH * grid.width:
        return 0.0
    along = (rows - counts[part - 1]) / held if held else 1.0
    return float(ends[part - 1] + along * (ends[part] - ends[part - 1]))

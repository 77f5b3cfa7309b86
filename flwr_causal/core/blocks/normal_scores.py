"""Normal scores of a column of numbers, from counts of rows up to the points of a grid.

The normal score of a value is the normal quantile of its rank among the rows of all parties. A
system whose effects are linear between monotone functions of its variables (nonparanormal, Liu,
Lafferty & Wasserman 2009) is linear in normal scores, and the graph of their correlations is found
as that of a Gaussian system (Harris & Drton 2013). Scores do not depend on units, and a value far
from all others counts no more than the next one.

Both sides derive the points from the agreed means and variances (:func:`grid_points`). Parties
count their rows up to each point (:func:`counts_up_to`), and the sums give a score to each cell
between two points (:func:`cell_scores`), that of its middle rank. A party interpolates between the
middles of cells (:func:`maps_of`).

References
----------
Liu, H., Lafferty, J. & Wasserman, L. (2009). The nonparanormal: semiparametric estimation of high
dimensional undirected graphs. JMLR 10.

Harris, N. & Drton, M. (2013). PC algorithm for nonparanormal graphical models. JMLR 14.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.discrete.cut_points import rounded_units

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import FloatArray, IntArray

#: Points about the mean lie EVEN to a rounded standard deviation up to WIDE of them, beyond at
#: distances that grow by 2^(1/4) to 256 times as far, and within the innermost at distances that
#: shrink by 2^(1/2).
EVEN, WIDE = 8, 4
#: Points about 0, for columns of amounts: THIRDS to each factor of 2, over OCTAVES of them.
THIRDS, OCTAVES = 3, 14


def _offsets() -> tuple[FloatArray, FloatArray]:
    """Return the distances from the mean and from 0 of the points, in standard deviations."""
    even = np.arange(1, WIDE * EVEN + 1) / EVEN
    near = 2.0 ** (-np.arange(1, 17) / 2) / EVEN
    far = WIDE * 2.0 ** (np.arange(1, 33) / 4)
    beside = np.concatenate([near, even, far])
    about_zero = 2.0 * WIDE * 2.0 ** (-np.arange(OCTAVES * THIRDS) / THIRDS)
    return np.concatenate([-beside, [0.0], beside]), np.concatenate([-about_zero, about_zero])


_ABOUT_MEAN, _ABOUT_ZERO = _offsets()
#: The number of cells that the points of a column part.
CELLS = 1 + len(_ABOUT_MEAN) + len(_ABOUT_ZERO)


@dataclass(frozen=True)
class NormalScores:
    """The normal scores of a column, as a piecewise linear function of its values.

    Parameters
    ----------
    values, scores : tuple of float
        Ascending, of the same length. Beyond the first and the last value scores are constant.
    """

    values: tuple[float, ...]
    scores: tuple[float, ...]

    def of(self, values: FloatArray) -> FloatArray:
        """Return the scores of values; NaN of NaN."""
        return np.interp(values, self.values, self.scores)

    def back(self, scores: FloatArray) -> FloatArray:
        """Return the values that have these scores."""
        return np.interp(scores, self.scores, self.values)


def scores_from_plain(plain: Mapping[str, Any]) -> NormalScores:
    """Return normal scores of their fields, as ``dataclasses.asdict`` gives them."""
    return NormalScores(*(tuple(map(float, plain[name])) for name in ("values", "scores")))


def grid_points(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return the points that part the cells of each column, (d, CELLS - 1), ascending.

    Parameters
    ----------
    mean, variance : ndarray of shape (d,)
        Over the rows of all parties.
    """
    centre, scale = rounded_units(mean, variance)
    points = np.concatenate(
        [centre[:, None] + scale[:, None] * _ABOUT_MEAN, scale[:, None] * _ABOUT_ZERO], axis=1
    )
    return np.sort(points, axis=1)


def counts_up_to(rows: FloatArray, points: FloatArray) -> IntArray:
    """Return how many rows have a value up to each point, and a value at all, (d, CELLS).

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Cells that are missing are NaN.
    points : ndarray of shape (d, CELLS - 1)
    """
    counts = np.zeros((len(points), CELLS), dtype=np.int64)
    for j, own in enumerate(points):
        seen = np.sort(rows[~np.isnan(rows[:, j]), j])
        counts[j, :-1] = np.searchsorted(seen, own, side="right")
        counts[j, -1] = len(seen)
    return counts


def cell_scores(counts: IntArray) -> FloatArray:
    """Return the score of each cell of each column, (d, CELLS), ascending.

    Scores have mean 0 and variance 1 over the rows as they lie in cells. A cell without rows has
    the score of the nearest one with some, so that a value which many rows share has one score,
    wherever in its cell it is.

    Parameters
    ----------
    counts : ndarray of shape (d, CELLS)
        Those of :func:`counts_up_to`, summed over parties; a column without rows has scores of 0.
    """
    # The server alone needs it.
    from scipy.special import ndtri

    scores = np.zeros(counts.shape)
    for found, up_to in zip(scores, counts, strict=True):
        rows = np.diff(up_to, prepend=0)
        full = np.flatnonzero(rows)
        if not len(full):
            continue
        shares = rows[full] / up_to[-1]
        own = ndtri((up_to[full] - rows[full] / 2) / up_to[-1])
        own -= shares @ own
        spread = np.sqrt(shares @ own**2)
        own = own / spread if spread > 0 else own
        found[:] = own[np.searchsorted((full[1:] + full[:-1]) / 2, np.arange(len(up_to)))]
    return scores


def maps_of(points: FloatArray, scores: FloatArray) -> list[NormalScores]:
    """Return the map of each column, through the middles of the cells between its outer rows.

    Parameters
    ----------
    points : ndarray of shape (d, CELLS - 1)
    scores : ndarray of shape (d, CELLS)
        Those of :func:`cell_scores`, constant beyond the outer rows.
    """
    found = []
    for own, of_cells in zip(points, scores, strict=True):
        middles = np.concatenate([own[:1], (own[:-1] + own[1:]) / 2, own[-1:]])
        first = np.searchsorted(of_cells, of_cells[0], side="right") - 1
        last = max(np.searchsorted(of_cells, of_cells[-1]), first)
        used = slice(first, last + 1)
        found.append(NormalScores(tuple(middles[used].tolist()), tuple(of_cells[used].tolist())))
    return found

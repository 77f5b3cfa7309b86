"""Choices among values that may be equal, and when a score is better than another one.

Values that are equal by theory (scores of equivalent graphs, distances of a row from two centres)
differ by rounding once they are computed, and rounding depends on the processor, on the order of
sums and on units. The functions take values whose difference is not above rounding as equal, and
choose the first of them. A search goes on only where :func:`is_lower` holds: each of its steps is
then better than all before by more than rounding, so that it comes to no state twice and ends.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray

#: Values are equal if they differ by at most this share of the larger one, or of 1.
TIE = 1e-9
# Of values to sort by.
_DIGITS = 9
#: Scores made of log-likelihoods are equal if they differ by less than this, for each row of a sum.
#: The logarithm of a residual variance that is :data:`LEAST_SHARE` of the whole has such an error.
SCORE_TIE = 1e-7
#: Gains of operators are equal if they differ by at most this, or by the share TIE of the larger.
GAIN_TIE = 1e-7
#: Least eigenvalue of correlations whose determinants are compared as scores. A smaller one is a
#: rounding error or not far from it, and so would be the score.
LEAST_SHARE = 1e-8


def is_lower(score: float, than: float, rows: float, tie: float = SCORE_TIE) -> bool:
    """Return whether a score, of which lower is better, is better by more than rounding.

    Parameters
    ----------
    score, than : float
        The new score and the old one. Nothing is lower than NaN, NaN is not lower than anything,
        and of infinite scores of one sign none is.
    rows : float
        Number of rows whose log-likelihoods the scores sum up.
    tie : float
        Difference for each row up to which scores are equal.
    """
    return bool(score < than - tie * max(rows, 1.0))


def equal_to_largest(values: ArrayLike, axis: int | None = None) -> BoolArray:
    """Return which values are as large as the largest.

    Parameters
    ----------
    values : array_like of float
        Without NaN.
    axis : int, optional
        Along which the largest is looked for. Default: among all values.

    Returns
    -------
    ndarray of bool
        Of the shape of ``values``.
    """
    given = np.asarray(values, dtype=np.float64)
    largest = given.max(axis=axis, keepdims=True)
    room = np.where(np.isfinite(largest), TIE * np.maximum(np.abs(largest), 1.0), 0.0)
    return np.asarray(given >= largest - room)


def first_largest(values: ArrayLike, axis: int | None = None) -> NDArray[np.intp]:
    """Return the position of the first value that is as large as the largest.

    Parameters
    ----------
    values, axis
        As of :func:`equal_to_largest`.

    Returns
    -------
    ndarray of int
        As of ``numpy.argmax``.
    """
    return np.asarray(equal_to_largest(values, axis).argmax(axis=axis), dtype=np.intp)


def first_smallest(values: ArrayLike, axis: int | None = None) -> NDArray[np.intp]:
    """Return the position of the first value that is as small as the smallest.

    Parameters
    ----------
    values, axis
        As of :func:`equal_to_largest`.
    """
    return first_largest(-np.asarray(values, dtype=np.float64), axis)


def whole(value: float) -> int:
    """Return the nearest whole number of a count that was computed as a float; halves go up.

    Parameters
    ----------
    value : float
        Rows that weighted sums tell, where a half such as 121.5 may be 121.49999999999999.
    """
    return math.floor(value + 0.5 + min(TIE * max(abs(value), 1.0), 0.25))


def as_ranked(values: ArrayLike) -> FloatArray:
    """Return values to sort by: rounded, so that equal values keep their order in a stable sort.

    Parameters
    ----------
    values : array_like of float
        Of a size of about 1, such as logarithms or shares.
    """
    return np.asarray(np.round(np.asarray(values, dtype=np.float64), _DIGITS), dtype=np.float64)

"""Geometric medians of the parties' arrays, which a minority of false ones cannot move far.

The geometric median of arrays z_k with weights u_k minimises ``sum_k u_k ||z - z_k||``. It is a
mean of the z_k, with shares proportional to u_k over the distance of z_k from it (Weiszfeld 1937),
so that it keeps what holds for each of them and for their means: symmetry, signs, and that a matrix
of second moments is positive semi-definite. Arrays that hold less than half of the weight can move
it only by a bounded distance, whatever their values. In many dimensions arrays that differ by
sampling alone all have about the same distance, and the geometric median is close to their mean.
The coordinate-wise median has neither property: of second moments it is not a matrix of second
moments, and on simulated data without false arrays it costs many edges (docs/figures).

The weights are ``u_k = sqrt(n_k)``: distances that are due to sampling are proportional to
``1 / sqrt(n_k)``, so that the shares are then proportional to the rows n_k, as in the mean. A party
that reports many rows has less weight than in the mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.limits import check_deadline

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray

MOST_ITERATIONS = 200
TOLERANCE = 1e-9
# Entries farther away than this, in the usual unit, count as this far: their squares can be added.
FAR = 1e60
# Updates of the metric in which second moments are compared; about five suffice.
MOST_METRICS = 20
METRIC_TOLERANCE = 1e-6
# Least eigenvalue of the metric's correlations: directions of less variance are collinear columns.
LEAST_EIGENVALUE = 1e-3


def median_shares(arrays: FloatArray, rows: FloatArray) -> FloatArray:
    """Return the shares of the arrays in their geometric median.

    An entry is compared in units of its median absolute deviation, so that the units of columns
    have no effect.

    Parameters
    ----------
    arrays : ndarray of shape (K, ...)
        One array a party.
    rows : ndarray of shape (K,)
        n_k, the rows of each party.

    Returns
    -------
    ndarray of shape (K,)
        Positive, with the sum 1.
    """
    flat = arrays.reshape(len(arrays), -1)
    apart = flat - np.median(flat, axis=0)
    spread = np.median(np.abs(apart), axis=0)
    positive = spread[spread > 0]
    # Entries on which most parties agree exactly are compared in the usual unit.
    usual = float(np.median(positive)) if len(positive) else 1.0
    return _weiszfeld(apart / np.where(spread > 0, spread, usual), rows)


def second_moment_shares(moments: FloatArray, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the shares of second moments in their geometric median, and their distances from it.

    Matrices are compared after a linear map of the columns that makes the median's total the
    identity. The result does not depend on units or on any other linear map of the columns, and all
    directions count alike: false products of columns that are strongly correlated are far away in
    the directions of little variance.

    Parameters
    ----------
    moments : ndarray of shape (K, folds, s, s)
        Mean products of s columns, by party and fold.
    rows : ndarray of shape (K,)
        n_k, the rows of each party.

    Returns
    -------
    shares : ndarray of shape (K,)
        Positive, with the sum 1.
    distances : ndarray of shape (K,)
        Distances from the median times sqrt(n_k), divided by the median of these: about 1 for
        parties that differ by sampling alone.
    """
    size = np.sqrt(np.median(np.diagonal(moments.sum(axis=1), axis1=1, axis2=2), axis=0))
    size = np.where(size > 0, size, 1.0)
    scaled = moments / np.outer(size, size)
    shares = _weiszfeld((scaled - np.median(scaled, axis=0)).reshape(len(moments), -1), rows)
    for _ in range(MOST_METRICS):
        before = shares
        median = np.tensordot(before, scaled, axes=1)
        values, vectors = np.linalg.eigh(median.sum(axis=0))
        whiten = vectors / np.sqrt(np.maximum(values, LEAST_EIGENVALUE))
        apart = (whiten.T @ (scaled - median) @ whiten).reshape(len(moments), -1)
        shares = _weiszfeld(apart, rows)
        if np.abs(shares - before).max() < METRIC_TOLERANCE:
            break
    distances = np.linalg.norm(apart - shares @ apart, axis=1) * np.sqrt(rows)
    typical = float(np.median(distances))
    # Where most parties are equal, the others differ from them by more than any number of times.
    apart_from_equal = np.where(distances > 0, np.inf, 1.0)
    return shares, distances / typical if typical > 0 else apart_from_equal


def _median(values: FloatArray) -> float:
    """Return the median of a few finite numbers, as ``np.median``, which takes much longer."""
    ordered = np.sort(values)
    middle = len(ordered) // 2
    return float(ordered[middle] + ordered[~middle]) / 2.0


def _weiszfeld(points: FloatArray, rows: FloatArray) -> FloatArray:
    """Return the shares of points in their geometric median, starting from the origin.

    Parameters
    ----------
    points : ndarray of shape (K, D)
        Near the origin, apart from false ones.
    rows : ndarray of shape (K,)
    """
    weights = np.sqrt(np.maximum(rows, 1.0))
    points = np.clip(points, -FAR, FAR)
    products = points @ points.T
    own = np.diagonal(products)
    shares, squares = np.zeros(len(points)), own
    for _ in range(MOST_ITERATIONS):
        check_deadline()
        distances = np.sqrt(np.maximum(squares, 0.0))
        # In units that a minority cannot make large.
        usual = _median(distances)
        if usual == 0:
            shares = np.where(distances > 0, 0.0, weights)
            return np.asarray(shares / shares.sum())
        before = shares
        shares = weights / np.maximum(distances, TOLERANCE * usual)
        shares = shares / shares.sum()
        if np.abs(shares - before).max() < TOLERANCE:
            break
        squares = own - 2 * products @ shares + shares @ products @ shares
    return np.asarray(shares)

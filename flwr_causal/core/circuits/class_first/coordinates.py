"""The coordinates in which second moments are taken, and how matrices and tails are sent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from flwr_causal.core.circuits.class_first.power_sums import relative_transform

FloatArray = NDArray[np.float64]


class Coordinates(NamedTuple):
    """How numbers are transformed before second moments are taken of them, each of shape (d,).

    Parameters
    ----------
    scale : ndarray of float
        Standard deviation of a column; ``u = x / scale``.
    middle : ndarray of float
        Mean of u, about which the power acts.
    reach : ndarray of float
        ``|u|`` beyond which the transform goes on as a straight line.
    powers : ndarray of float
        Of Yeo and Johnson; 1 leaves a column as it is.
    center, unit : ndarray of float
        Mean and deviation of the relative transform.
    """

    scale: FloatArray
    middle: FloatArray
    reach: FloatArray
    powers: FloatArray
    center: FloatArray
    unit: FloatArray

    def apply(self, numbers: FloatArray) -> FloatArray:
        """Transform numbers (n, d): mean 0 and deviation 1 over all parties' rows."""
        t = relative_transform(numbers / self.scale, self.middle, self.powers, self.reach)
        return np.asarray((t - self.center) / self.unit)


def packed(matrices: FloatArray) -> FloatArray:
    """Upper triangles of symmetric matrices (..., d, d), shape (..., d (d + 1) / 2)."""
    rows, columns = np.triu_indices(matrices.shape[-1])
    return matrices[..., rows, columns]


def unpacked(triangles: FloatArray, d: int) -> FloatArray:
    """Opposite of :func:`packed`."""
    rows, columns = np.triu_indices(d)
    matrices = np.empty((*triangles.shape[:-1], d, d))
    matrices[..., rows, columns] = triangles
    matrices[..., columns, rows] = triangles
    return matrices


def tails_of(dof: ArrayLike) -> FloatArray:
    """Inverse degrees of freedom, which are finite: 0 is a Gaussian."""
    return np.asarray(1.0 / np.asarray(dof, dtype=np.float64))


def dof_of(tails: FloatArray) -> FloatArray:
    """Opposite of :func:`tails_of`."""
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / tails)

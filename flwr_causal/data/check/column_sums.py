"""Sums over a table's columns of numbers, of each piece of its rows and of several pieces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class ColumnSums:
    """What some rows of d columns of numbers add up to.

    All arrays have shape (d,). Missing values do not count, other than in ``missing``.

    Parameters
    ----------
    present : int64 array
        Values that are not missing.
    lowest, highest : float64 arrays
        Infinite, of the wrong sign, for a column without values.
    between : bool array
        Whether there is a value other than these two.
    mean : float64 array
        The mean, rounded to a float64; 0 for a column without values.
    remainder, squares : float64 arrays
        Sums of the deviations from ``mean`` as it is rounded, and of their squares.
    """

    present: IntArray
    lowest: FloatArray
    highest: FloatArray
    between: BoolArray
    mean: FloatArray
    remainder: FloatArray
    squares: FloatArray

    @property
    def same(self) -> BoolArray:
        """Whether all values of a column are one number, or missing."""
        return np.asarray((self.present == 0) | (self.lowest == self.highest))

    @property
    def finite(self) -> BoolArray:
        """Whether no value of a column is infinite."""
        bounds = np.isfinite(self.lowest) & np.isfinite(self.highest)
        return np.asarray((self.present == 0) | bounds)


def sums_of(values: FloatArray) -> ColumnSums:
    """Return the sums of rows, shape (n, d) with n >= 0, where missing values are NaN."""
    n, d = values.shape
    missing = np.isnan(values)
    present = n - missing.sum(axis=0)
    if n == 0:
        none = np.zeros(d)
        return ColumnSums(present, none + np.inf, none - np.inf, none > 0, none, none, none)
    lowest = np.fmin.reduce(values, axis=0, initial=np.inf)
    highest = np.fmax.reduce(values, axis=0, initial=-np.inf)
    between = ((values > lowest) & (values < highest)).any(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        if missing.any():
            mean = np.where(missing, 0.0, values).sum(axis=0) / np.maximum(present, 1)
        else:
            mean = values.mean(axis=0)
        # The rounded mean of equal numbers need not be that number.
        mean = np.where(lowest == highest, lowest, mean)
        deviations = values - mean
        deviations[missing] = 0.0
        remainder = deviations.sum(axis=0)
        squares = np.einsum("nd,nd->d", deviations, deviations)
    return ColumnSums(present, lowest, highest, between, mean, remainder, squares)


def combined(parts: Sequence[ColumnSums]) -> ColumnSums:
    """Return the sums of all rows from those of disjoint sets of rows, at least one.

    Deviations are taken from one part's mean, so that a large offset common to all rows costs no
    digits (Chan, Golub & LeVeque 1983).
    """
    if len(parts) == 1:
        return parts[0]
    lowest = np.min([part.lowest for part in parts], axis=0)
    highest = np.max([part.highest for part in parts], axis=0)
    between = np.zeros(len(lowest), dtype=np.bool_)
    for part in parts:
        between |= part.between
        for value in (part.lowest, part.highest):
            between |= (part.present > 0) & (value > lowest) & (value < highest)
    counts = np.array([part.present for part in parts])
    means, remainders, squares = (
        np.array([getattr(part, name) for part in parts])
        for name in ("mean", "remainder", "squares")
    )
    with np.errstate(over="ignore", invalid="ignore"):
        reference = means[np.argmax(counts > 0, axis=0), np.arange(counts.shape[1])]
        shifts = np.where(counts > 0, means - reference, 0.0)
        total = np.maximum(counts.sum(axis=0), 1)
        mean = reference + ((counts * shifts + remainders).sum(axis=0)) / total
        mean = np.where(lowest == highest, lowest, mean)
        shifts = np.where(counts > 0, means - mean, 0.0)
        return ColumnSums(
            counts.sum(axis=0),
            lowest,
            highest,
            between,
            mean,
            (remainders + counts * shifts).sum(axis=0),
            (squares + 2 * remainders * shifts + counts * shifts**2).sum(axis=0),
        )


class ColumnProducts:
    """Sums of products of the deviations from one row of reference numbers, piece by piece.

    Parameters
    ----------
    reference : float64 array of shape (d,)
        Numbers near the means, so that deviations keep their digits.

    Attributes
    ----------
    rows : int
        How many have been added.
    """

    def __init__(self, reference: FloatArray) -> None:
        self._reference = reference
        self._total = np.zeros(len(reference))
        self._products = np.zeros((len(reference), len(reference)))
        self.rows = 0

    def add(self, values: FloatArray) -> None:
        """Add rows of shape (n, d)."""
        with np.errstate(over="ignore", invalid="ignore"):
            deviations = values - self._reference
            self._total += deviations.sum(axis=0)
            self._products += deviations.T @ deviations
        self.rows += len(values)

    def second(self) -> FloatArray:
        """Return the central second moments of all rows, shape (d, d)."""
        n = max(self.rows, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._products / n - np.outer(self._total / n, self._total / n)

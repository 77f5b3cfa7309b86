"""Levels of units: whether parties, or series, differ in the means of their columns.

Where levels differ for reasons that no column holds, such as the device or the patients of a
clinic, moments about one mean mix effects with differences between units: all columns whose levels
differ are associated. Moments within units, about the mean of each unit, have the effects alone, as
a regression with an intercept for each unit has them (Mundlak 1978).

References
----------
Mundlak, Y. (1978). On the pooling of time series and cross section data. Econometrica 46.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.linear.moments import SampleMoments, mean_and_second, row_products
from flwr_causal.core.linear.regression import given_others

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

#: Levels differ if chance gives one of all columns such an F statistic with less than this
#: probability, and more than this share of the column's variance is between units. Of simulated
#: tables 20 of 20 with shifted levels were told so, and none of 50 others.
CHANCE, LEAST_SHARE = 1e-4, 0.02
#: Spreads are unlike beyond so many standard errors, and by this factor.
SPREAD_ERRORS, LEAST_SPREAD = 5.0, 1.25
#: A column varies between units only if so little of its variance is within them: of products
#: about the means of units, and of sums about one mean, in which rounding leaves more.
FLAT, FLAT_OF_SUMS = 1e-15, 1e-9


def unit_products(rows: FloatArray, units: IntArray) -> FloatArray:
    """Return the sums of products of rows z about the means of their units, and of these means.

    Parameters
    ----------
    rows : ndarray of shape (n, s)
    units : ndarray of int64, shape (n,)
        The unit of each row, numbered from 0.

    Returns
    -------
    ndarray of shape (2, 1 + s, 1 + s)
        First those within units: at [0, 0] the degrees of freedom, n less the number of units, at
        [1:, 1:] the sum of (z - m_u) (z - m_u)^T, and 0 elsewhere. Then the sum of [1, m_u]
        [1, m_u]^T over the rows.
    """
    counts = np.bincount(units)
    sums = np.zeros((len(counts), rows.shape[1]))
    np.add.at(sums, units, rows)
    means = sums / np.maximum(counts, 1)[:, None]
    centred = rows - means[units]
    rest = np.zeros_like(sums)
    np.add.at(rest, units, centred)
    # What rounding has left of the means.
    means += rest / np.maximum(counts, 1)[:, None]
    centred = rows - means[units]
    present = counts > 0
    return _products(centred.T @ centred, means[present], counts[present])


def pieces_products(pieces: Iterable[FloatArray]) -> FloatArray:
    """Return the same of rows of one unit, in pieces."""
    every = iter(pieces)
    first = next(every)
    # About a mean that is near that of all, which costs no digits.
    near = first.mean(axis=0)
    sums = row_products(first - near)
    for rows in every:
        sums += row_products(rows - near)
    count = sums[0, 0]
    rest, second = mean_and_second(sums)
    return _products(count * second, (near + rest)[None], np.array([count]))


def _products(within: FloatArray, means: FloatArray, counts: FloatArray | IntArray) -> FloatArray:
    found = np.zeros((2, *np.add(within.shape, 1)))
    found[0, 0, 0] = counts.sum() - len(counts)
    found[0, 1:, 1:] = within
    own = np.column_stack([np.ones(len(means)), means])
    found[1] = (own * counts[:, None]).T @ own
    return found


def about_one_mean(products: FloatArray) -> FloatArray:
    """Return the products of the rows [1, z], (1 + s, 1 + s), from :func:`unit_products`."""
    found = products.sum(axis=0)
    found[0, 0] = products[1, 0, 0]
    return np.asarray(found)


def between_units(sums: FloatArray, counts: FloatArray | IntArray) -> FloatArray:
    """Return the products of the means of units, shape (1 + s, 1 + s), from sums of rows.

    Parameters
    ----------
    sums : ndarray of shape (units, s)
        Of each unit's rows.
    counts : ndarray of shape (units,)

    Returns
    -------
    ndarray
        At [0, 0] the number of units, at [1:, 1:] the sum of n_u m_u m_u^T, and 0 elsewhere.
    """
    found = np.zeros((1 + sums.shape[1],) * 2)
    found[0, 0] = len(sums)
    found[1:, 1:] = (sums / counts[:, None]).T @ sums
    return found


def about_means(products: FloatArray, between: FloatArray) -> FloatArray:
    """Return the products of rows about the means of their units, and the mean of all rows.

    Parameters
    ----------
    products
        ``(1 + m, 1 + m)`` of the rows [1, z].
    between
        :func:`between_units`, divided by the same number.
    """
    found = products.copy()
    of_all = products[0, 1:]
    found[1:, 1:] += np.outer(of_all, of_all) / products[0, 0] - between[1:, 1:]
    return found


@dataclass(frozen=True, eq=False)
class Levels:
    """Moments of all rows, and within units.

    Parameters
    ----------
    total : SampleMoments
        About the mean of all rows.
    units : int
    within : SampleMoments
        About the mean of each unit. ``n`` is a row less for each unit but one: the residual
        variance of a regression then has the degrees of freedom of one with their intercepts.
    count : int
        How many of the columns are judged: those at t, given the others, their lags.
    """

    total: SampleMoments
    units: int
    within: SampleMoments
    count: int

    @classmethod
    def of(cls, products: FloatArray, num_rows: int, names: Sequence[str], count: int) -> Levels:
        """Return the levels of rows.

        Parameters
        ----------
        products : ndarray of shape (2, 1 + m, 1 + m)
            :func:`unit_products`, divided by the number of rows.
        num_rows : int
        names : sequence of str
            Of the m columns.
        count : int
        """
        total = SampleMoments.from_products(num_rows, about_one_mean(products), names)
        within, share = products[0], products[1, 0, 0]
        units = max(num_rows - round(num_rows * float(within[0, 0])), 1)
        rows = max(num_rows - units + 1, 1)
        second = within[1:, 1:] / share * (num_rows / rows)
        return cls(total, units, replace(total, n=rows, second=second, units=units), count)

    @cached_property
    def flat(self) -> BoolArray:
        """The columns that vary between units only, shape (m,)."""
        limits = FLAT * np.where(self.total.variances > 0, self.total.variances, 1.0)
        return np.asarray(self.within.variances <= limits)

    @cached_property
    def shares(self) -> FloatArray:
        """The share of the judged columns' variance that is between units, shape (count,).

        Given their lags, and given the columns that vary between units only; 0 for these.
        """
        return self._tested[0]

    @cached_property
    def differ(self) -> BoolArray:
        """Whether the levels of the judged columns differ, shape (count,)."""
        return _beyond_chance(*self._tested)

    @cached_property
    def _tested(self) -> tuple[FloatArray, FloatArray]:
        """The shares between units, and the probability of such F statistics by chance."""
        shares, chance = np.zeros(self.count), np.ones(self.count)
        judged = np.flatnonzero(~self.flat[: self.count])
        lags = np.flatnonzero(~self.flat[self.count :]) + self.count
        explaining = np.flatnonzero(self.flat & (self.total.variances > 0))
        free = self.within.n - 1 - len(lags)
        between = self.units - 1 - len(explaining)
        if not len(judged) or free < 1 or between < 1:
            return shares, chance
        given = self.total.subset([*judged, *lags, *explaining])
        whole = given_others(given, len(judged)).variances * self.total.n
        inner = given_others(self.within.subset([*judged, *lags]), len(judged)).variances
        shares[judged], chance[judged] = _analysed(whole, inner * self.within.n, between, free)
        return shares, chance


def _analysed(
    whole: FloatArray, inner: FloatArray, between: FloatArray | int, free: FloatArray | int
) -> tuple[FloatArray, FloatArray]:
    """Return the shares of sums of squares that are between units, and their chance (F test).

    Parameters
    ----------
    whole, inner
        Sums of squares about one mean, and within units.
    between, free
        Their degrees of freedom, both 1 or more.
    """
    from scipy.special import fdtrc

    gap, known = np.maximum(whole - inner, 0.0), inner > 0
    shares = np.divide(gap, whole, out=np.zeros_like(gap), where=whole > 0)
    ratio = np.divide(gap / between, inner / free, out=np.zeros_like(gap), where=known)
    return shares, np.where(known, fdtrc(between, free, ratio), 1.0)


def _beyond_chance(shares: FloatArray, chance: FloatArray) -> BoolArray:
    return np.asarray((shares > LEAST_SHARE) & (chance * len(shares) < CHANCE))


def unlike_spreads(variances: FloatArray, rows: FloatArray) -> BoolArray:
    """Return where a party's variance of a column differs from the other parties', shape (K, d).

    Beyond :data:`SPREAD_ERRORS` standard errors of its logarithm, for noise of kurtosis 9 as of a
    t distribution with 5 degrees of freedom, and by :data:`LEAST_SPREAD` in standard deviations.

    Parameters
    ----------
    variances, rows
        ``(K, d)`` of each party's rows, and their numbers; 0 where a party lacks the column.
    """
    others = rows.sum(axis=0) - rows
    known = (rows > 1) & (others > 1) & (variances > 0)
    total = (rows * variances).sum(axis=0) - rows * variances
    known &= total > 0
    left = np.divide(total, others, out=np.ones_like(total), where=known)
    gaps = np.log(np.where(known, variances, 1.0) / np.where(known, left, 1.0))
    errors = np.sqrt(8 / np.where(known, rows, 1.0) + 8 / np.where(known, others, 1.0))
    clear = np.abs(gaps) > np.maximum(SPREAD_ERRORS * errors, 2 * np.log(LEAST_SPREAD))
    return np.asarray(known & clear)


class SeenLevels(NamedTuple):
    """Levels of the columns by the cells that are seen.

    Attributes
    ----------
    shares
        ``(m,)`` share of a column's variance that is between units.
    differ
        ``(m,)`` whether the levels differ.
    flat
        ``(m,)`` whether the column varies between units only.
    """

    shares: FloatArray
    differ: BoolArray
    flat: BoolArray

    @classmethod
    def of(
        cls,
        counts: FloatArray,
        sums: FloatArray,
        squares: FloatArray,
        units: FloatArray,
        between: FloatArray,
    ) -> SeenLevels:
        """Return the levels of columns.

        Parameters
        ----------
        counts, sums, squares
            ``(m,)`` of each column's seen cells.
        units
            ``(m,)`` units with such cells.
        between
            ``(m,)`` sums over units of their squared sums by their counts.
        """
        about = sums**2 / counts
        whole, inner = squares - about, squares - between
        free = counts - units
        judged = (units > 1) & (free >= 1) & (whole > 0)
        flat = judged & (inner <= FLAT_OF_SUMS * whole)
        shares, chance = _analysed(whole, inner, np.maximum(units - 1, 1.0), np.maximum(free, 1.0))
        differ = judged & ~flat & _beyond_chance(shares, chance)
        return cls(np.where(judged & ~flat, shares, 0.0), differ, flat)


def deviations(shares: FloatArray) -> FloatArray:
    """Return the spread of the units' levels in standard deviations within units."""
    within = np.maximum(1 - shares, FLAT)
    return np.asarray(np.sqrt(shares / within))

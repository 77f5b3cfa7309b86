"""Means and covariances of numbers of which no row has all: the most likely ones, by EM.

Columns that no party holds together are taken to be independent given the columns that connect
them. Of the covariances that agree with the known entries the one of largest entropy is used; its
inverse is 0 at the unknown entries (Dempster 1972). For parties that hold (a, S) and (b, S) this is
p(S) p(a | S) p(b | S). EM finds the most likely such covariance. Its expectation
step needs only the moments of each pattern, from which the missing columns are regressed.

References
----------
Dempster: Covariance selection, Biometrics 1972.
Hastie, Tibshirani & Friedman: The elements of statistical learning, 2009, Algorithm 17.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.limits import steps
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

#: Largest change of an entry, of columns whose variance is about 1, at which EM has converged.
TOLERANCE = 1e-7
MAX_STEPS = 500


class PartMoments(NamedTuple):
    """Moments of rows in which only some columns are known.

    Parameters
    ----------
    columns : ndarray of int64, shape (k,)
        Ascending.
    rows : float
        Number of rows.
    mean : ndarray of float64, shape (k,)
    covariance : ndarray of float64, shape (k, k)
        Positive definite; divided by the number of rows.
    """

    columns: IntArray
    rows: float
    mean: FloatArray
    covariance: FloatArray


def joint_moments(
    parts: Sequence[PartMoments], names: Sequence[str], of: str = "the rows"
) -> tuple[FloatArray, FloatArray]:
    """Return the most likely mean and covariance of a Gaussian, by EM.

    Parameters
    ----------
    parts : sequence of PartMoments
        Of different rows. A row that is in two parts counts twice.
    names : sequence of str
        Of the d columns.
    of : str, default "the rows"
        Describes the rows in the error message.

    Returns
    -------
    mean : ndarray of float64, shape (d,)
    covariance : ndarray of float64, shape (d, d)
        Its inverse is 0 for columns that no part holds together.

    Raises
    ------
    DataError
        If a column is in no part that has rows.
    """
    present, num_columns = [part for part in parts if part.rows > 0], len(names)
    known = np.zeros((num_columns, num_columns), dtype=bool)
    for part in present:
        known[np.ix_(part.columns, part.columns)] = True
    unseen = np.flatnonzero(~np.diagonal(known))
    if len(unseen):
        listed = ", ".join(names[int(j)] for j in unseen)
        raise DataError(
            f"no party has rows of {of} with the columns {listed}: the parties that hold these "
            "need such rows too"
        )
    if len(present) == 1:
        return present[0].mean.copy(), present[0].covariance.copy()
    groups, adjacent = known_groups(known)
    mean, covariance = _first_moments(present, num_columns)
    for _ in steps("The fit of moments of columns that no party has together", MAX_STEPS):
        new_mean, new_covariance = _em_step(present, mean, covariance)
        new_covariance = completed(new_covariance, groups, adjacent)
        change = max(
            float(np.abs(new_mean - mean).max()), float(np.abs(new_covariance - covariance).max())
        )
        mean, covariance = new_mean, new_covariance
        if change < TOLERANCE:
            break
    return mean, covariance


def completed(
    covariance: FloatArray, groups: Sequence[IntArray], adjacent: BoolArray
) -> FloatArray:
    """Return the covariance of largest entropy that agrees with the known entries.

    Algorithm 17.1 of Hastie et al., with groups of columns in place of single ones: the covariances
    of a group with those that are not adjacent to it follow from its regression on the adjacent
    ones, group by group, until nothing changes.

    Parameters
    ----------
    covariance : ndarray of float64, shape (d, d)
    groups : sequence of ndarray of int64
        Columns of each group. Within a group all entries are known.
    adjacent : ndarray of bool, shape (groups, groups)
        Whether the entries between two groups are known.

    Returns
    -------
    ndarray of float64, shape (d, d)
        Equal to ``covariance`` at the known entries; its inverse is 0 at the others.
    """
    result = covariance.copy()
    near = [
        _columns_in(groups, adjacent[g] & (np.arange(len(groups)) != g)) for g in range(len(groups))
    ]
    far = [_columns_in(groups, ~adjacent[g]) for g in range(len(groups))]
    for group, others, unknown in zip(groups, near, far, strict=True):
        if not len(others):
            result[np.ix_(unknown, group)] = 0.0
            result[np.ix_(group, unknown)] = 0.0
    for _ in steps("The fit of moments of columns that no party has together", MAX_STEPS):
        before = result.copy()
        for group, others, unknown in zip(groups, near, far, strict=True):
            if len(others) and len(unknown):
                slopes = np.linalg.solve(
                    result[np.ix_(others, others)], result[np.ix_(others, group)]
                )
                filled = result[np.ix_(unknown, others)] @ slopes
                result[np.ix_(unknown, group)] = filled
                result[np.ix_(group, unknown)] = filled.T
        if np.abs(result - before).max() < TOLERANCE * 1e-3:
            break
    return result


def _em_step(
    parts: Sequence[PartMoments], mean: FloatArray, covariance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and covariance of all rows, missing columns regressed on the known ones."""
    total = sum(part.rows for part in parts)
    first = np.zeros_like(mean)
    means, spreads = [], []
    for part in parts:
        columns = part.columns
        slopes = np.linalg.solve(covariance[np.ix_(columns, columns)], covariance[columns]).T
        means.append(mean + slopes @ (part.mean - mean[columns]))
        spreads.append(
            covariance - slopes @ covariance[columns] + slopes @ part.covariance @ slopes.T
        )
        first += part.rows / total * means[-1]
    second = np.zeros_like(covariance)
    for part, own_mean, spread in zip(parts, means, spreads, strict=True):
        deviation = own_mean - first
        second += part.rows / total * (spread + np.outer(deviation, deviation))
    return first, (second + second.T) / 2.0


def _first_moments(parts: Sequence[PartMoments], num_columns: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean and variance of each column over the rows with it; covariances are 0."""
    counts, first, second = (np.zeros(num_columns) for _ in range(3))
    for part in parts:
        counts[part.columns] += part.rows
        first[part.columns] += part.rows * part.mean
        second[part.columns] += part.rows * (np.diagonal(part.covariance) + part.mean**2)
    mean = first / counts
    return mean, np.diag(second / counts - mean**2)


def known_groups(known: BoolArray) -> tuple[list[IntArray], BoolArray]:
    """Return groups of columns with equal rows of ``known``, and which groups are adjacent."""
    _, first, labels = np.unique(known, axis=0, return_index=True, return_inverse=True)
    labels = labels.reshape(-1)
    groups = [np.flatnonzero(labels == g).astype(np.int64) for g in range(len(first))]
    return groups, known[np.ix_(first, first)]


def _columns_in(groups: Sequence[IntArray], chosen: BoolArray) -> IntArray:
    """Return the columns of the chosen groups, ascending."""
    parts = [group for group, one in zip(groups, chosen, strict=True) if one]
    return np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)

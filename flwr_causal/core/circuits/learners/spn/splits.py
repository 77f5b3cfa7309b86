"""How LearnSPN splits a mixed table: columns by a test of independence, rows by k-means.

Both work on indicators of the states of every column; a number is first cut into bins of about
equally many rows, so that numbers and categories are on one scale. Rows may have weights.

Columns: one matrix product counts all pairs of states of all pairs of columns, over the rows in
which both are known. The likelihood ratio of a pair of columns,
``G = 2 sum_ab n_ab log(n_ab n / (n_a n_b))``, is compared with a quantile of the chi-squared
distribution. The test detects any form of dependence between the bins, monotone or not. LearnSPN is
often used with a threshold on the randomised dependence coefficient (RDC) instead. RDC estimates,
from random features, the largest correlation between functions of the two columns; for tables of
counts this is a singular value. The same threshold is a stricter test for many rows than for few.

Rows: k-means on the indicators. A missing value has the same distance to every state of its column.
Mixtures fitted by EM to the same indicators gave circuits of the same likelihood in more time.

References
----------
Gens & Domingos: Learning the structure of sum-product networks, ICML 2013 (the G test).
Lopez-Paz, Hennig & Schoelkopf: The randomized dependence coefficient, NIPS 2013.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import chdtri, xlogy

from flwr_causal.core.ties import as_ranked, first_smallest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray


class Indicators(NamedTuple):
    """Rows as zeros and ones.

    Parameters
    ----------
    matrix : ndarray of float32, shape (n, B)
        One column for every state or bin of every variable; all 0 for a missing value.
    starts : ndarray of int, shape (d + 1,)
        The columns of variable j are ``starts[j]`` to ``starts[j + 1]``.
    """

    matrix: NDArray[np.float32]
    starts: IntArray

    def part(self, rows: IntArray, columns: IntArray) -> Indicators:
        """Return the indicators of some rows and variables."""
        spans = [np.arange(self.starts[j], self.starts[j + 1]) for j in columns]
        sizes = np.diff(self.starts)[columns]
        matrix = self.matrix[rows]
        if len(columns) < len(self.starts) - 1:
            matrix = matrix[:, np.concatenate(spans)]
        return Indicators(matrix, np.concatenate(([0], np.cumsum(sizes))))


def indicators(
    values: FloatArray, num_states: IntArray, row_weights: FloatArray, bins: int
) -> Indicators:
    """Code rows by the states and bins of their values.

    Parameters
    ----------
    values : ndarray of float64, shape (n, d)
        NaN is a missing value.
    num_states : ndarray of int, shape (d,)
        Of each variable; 0 for a number.
    row_weights : ndarray of float64, shape (n,)
        How often each row counts.
    bins : int
        Bins of a number.
    """
    n = len(values)
    codes = np.empty(values.shape, dtype=np.int64)
    sizes = np.empty(values.shape[1], dtype=np.int64)
    for j, states in enumerate(num_states):
        column = values[:, j]
        known = ~np.isnan(column)
        if states:
            codes[known, j] = column[known]
            sizes[j] = states
        else:
            cuts = equal_cuts(column[known], row_weights[known], bins)
            codes[known, j] = np.searchsorted(cuts, column[known])
            sizes[j] = len(cuts) + 1
        codes[~known, j] = -1
    starts = np.concatenate(([0], np.cumsum(sizes)))
    # Missing values fall into one more column, which is cut off.
    places = np.where(codes < 0, starts[-1], codes + starts[:-1])
    matrix = np.zeros((n, starts[-1] + 1), dtype=np.float32)
    matrix[np.arange(n)[:, None], places] = 1.0
    return Indicators(matrix[:, :-1], starts)


def equal_cuts(numbers: FloatArray, row_weights: FloatArray, bins: int) -> FloatArray:
    """Return ascending cuts between numbers, so that bins hold about equally many rows.

    Parameters
    ----------
    numbers : ndarray of float64, shape (n,)
        Finite. Equal numbers are in one bin.
    row_weights : ndarray of float64, shape (n,)
    bins : int

    Returns
    -------
    ndarray of float64, shape (at most bins - 1,)
        Bin k holds ``cuts[k - 1] < x <= cuts[k]``.
    """
    if len(numbers) == 0:
        return np.empty(0)
    order = np.argsort(numbers, kind="stable")
    ascending, share = numbers[order], np.cumsum(row_weights[order])
    wanted = share[-1] * np.arange(1, bins) / bins
    cuts = ascending[np.searchsorted(share, wanted)]
    different = np.diff(cuts, prepend=-np.inf) > 0
    return np.asarray(cuts[different & (cuts < ascending[-1])])


def joint_counts(coded: Indicators, row_weights: FloatArray) -> FloatArray:
    """Count all pairs of states of all pairs of columns, shape (B, B)."""
    weighted = coded.matrix
    if (row_weights != 1).any():
        weighted = weighted * row_weights.astype(np.float32)[:, None]
    counts: FloatArray = np.asarray(weighted.T @ coded.matrix, dtype=np.float64)
    return counts


def likelihood_ratios(joint: FloatArray, starts: IntArray) -> tuple[FloatArray, IntArray]:
    """Test the independence of every pair.

    Parameters
    ----------
    joint : ndarray of float64, shape (B, B)
        See `joint_counts`.
    starts : ndarray of int, shape (d + 1,)
        See `Indicators`.

    Returns
    -------
    statistics : ndarray of float64, shape (d, d)
        G of each pair over the rows in which both are known.
    degrees : ndarray of int, shape (d, d)
        Degrees of freedom of each pair; 0 if one of the two is constant in these rows.
    """
    edges = starts[:-1]
    # Counts of each state among the rows in which the other variable is known, (B, d) ...
    single = np.add.reduceat(joint, edges, axis=1)
    # ... and of the rows in which both are known, (d, d).
    both = np.add.reduceat(single, edges, axis=0)
    pairs = np.add.reduceat(np.add.reduceat(xlogy(joint, joint), edges, axis=0), edges, axis=1)
    rows = np.add.reduceat(xlogy(single, single), edges, axis=0)
    ratio = 2.0 * (pairs - rows - rows.T + xlogy(both, both))
    occurring = np.add.reduceat(single > 0, edges, axis=0, dtype=np.int64)
    degrees = np.maximum(occurring - 1, 0) * np.maximum(occurring.T - 1, 0)
    return np.maximum(ratio, 0.0), degrees


def largest_correlations(joint: FloatArray, starts: IntArray) -> FloatArray:
    """Return the maximal correlation of each pair of columns, over their states and bins.

    It is the largest correlation between functions of the two columns (Hirschfeld, Gebelein and
    Renyi), which RDC estimates: the largest singular value of the standardised table of counts.

    Parameters
    ----------
    joint, starts
        As in `likelihood_ratios`.

    Returns
    -------
    ndarray of float64, shape (d, d)
        From 0 to 1, symmetric; the diagonal is 0.
    """
    sizes = np.diff(starts)
    d, most = len(sizes), int(sizes.max(initial=0))
    # Tables of one size, in which the states that a column does not have occur in no row.
    places = np.where(np.arange(most) < sizes[:, None], starts[:-1, None] + np.arange(most), -1)
    padded = np.pad(joint, (0, 1))
    result = np.zeros((d, d))
    for a in range(d - 1):
        tables = padded[starts[a] : starts[a + 1]][:, places[a + 1 :]].transpose(1, 0, 2)
        n = np.maximum(tables.sum(axis=(1, 2), keepdims=True), 1.0)
        expected = tables.sum(axis=2, keepdims=True) * tables.sum(axis=1, keepdims=True) / n
        standard = (tables - expected) / np.sqrt(np.maximum(expected * n, 1e-300))
        largest = np.linalg.svd(standard, compute_uv=False)[:, 0]
        result[a, a + 1 :] = result[a + 1 :, a] = np.minimum(largest, 1.0)
    return result


def dependent_pairs(
    coded: Indicators,
    row_weights: FloatArray,
    significance: float,
    correlation: float | None = None,
) -> BoolArray:
    """Return which pairs are dependent.

    Parameters
    ----------
    coded : Indicators
    row_weights : ndarray of float64, shape (n,)
    significance : float
        Level of the test: probability that a pair of independent columns is called dependent.
    correlation : float, optional
        Threshold on the maximal correlation, in place of the test.

    Returns
    -------
    ndarray of bool, shape (d, d)
        Symmetric; the diagonal is False.
    """
    joint = joint_counts(coded, row_weights)
    if correlation is not None:
        return largest_correlations(joint, coded.starts) > correlation
    statistics, degrees = likelihood_ratios(joint, coded.starts)
    critical = chdtri(np.maximum(degrees, 1), significance)
    found: BoolArray = (statistics > critical) & (degrees > 0)
    np.fill_diagonal(found, False)
    return found


def groups_of(dependent: BoolArray) -> list[IntArray]:
    """Return the columns of each connected component, in the order of their first columns."""
    count, labels = connected_components(dependent, directed=False)
    return [np.flatnonzero(labels == group) for group in range(count)]


#: Steps of k-means; clusters hardly change in further ones.
STEPS = 12
#: Rows to which the means are fitted, a sample if there are more; all rows are assigned.
MOST_ROWS = 20_000


def cluster_rows(
    coded: Indicators, row_weights: FloatArray, clusters: int, rng: np.random.Generator
) -> IntArray:
    """Return the cluster of each row.

    Sums of indicators over rows of whole weights are exact, and a row as far from two means belongs
    to the first: the clusters are the same on every processor.

    Parameters
    ----------
    coded : Indicators
    row_weights : ndarray of float64, shape (n,)
    clusters : int
    rng : Generator
        Draws the rows from which clusters start.

    Returns
    -------
    ndarray of int64, shape (n,)
        From 0 to ``clusters - 1``; some may be empty.
    """
    n = len(coded.matrix)
    if n <= clusters:
        return np.arange(n)
    chosen = np.sort(rng.choice(n, MOST_ROWS, replace=False)) if n > MOST_ROWS else slice(None)
    matrix, weights = coded.matrix[chosen].astype(np.float64), row_weights[chosen]
    # k-means++ starts no better here.
    means = matrix[rng.choice(len(matrix), clusters, replace=False, p=weights / weights.sum())]
    labels, distances = _nearest(matrix, means)
    for _ in range(STEPS):
        before = labels
        means = _means(matrix, weights, labels, distances, means)
        labels, distances = _nearest(matrix, means)
        if np.array_equal(labels, before):
            break
    if n <= MOST_ROWS:
        return labels
    parts = range(0, n, MOST_ROWS)
    return np.concatenate(
        [
            _nearest(coded.matrix[first : first + MOST_ROWS].astype(np.float64), means)[0]
            for first in parts
        ]
    )


def _nearest(matrix: FloatArray, means: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the nearest mean of each row, and the squared distance from it, up to |row|^2."""
    distances = (means**2).sum(axis=1) - 2.0 * (matrix @ means.T)
    labels = first_smallest(distances, axis=1)
    return labels, distances[np.arange(len(matrix)), labels]


def _means(
    matrix: FloatArray,
    weights: FloatArray,
    labels: IntArray,
    distances: FloatArray,
    means: FloatArray,
) -> FloatArray:
    """Return the means of the clusters; an empty one moves to the row farthest from its mean."""
    members = np.eye(len(means))[labels] * weights[:, None]
    sizes = members.sum(axis=0)
    moved = np.where(
        sizes[:, None] > 0, members.T @ matrix / np.maximum(sizes, 1e-300)[:, None], means
    )
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        away = np.maximum(distances + (matrix**2).sum(axis=1), 0.0)
        farthest = np.argsort(as_ranked(-away), kind="stable")[: len(empty)]
        moved[empty] = matrix[farthest]
    return np.asarray(moved)

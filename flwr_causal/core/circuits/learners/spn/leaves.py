"""Leaves over one column as functions of sums over rows, and their fit to rows of a table.

A leaf is the maximum a posteriori estimate from its sums. As few rows do not determine a
distribution, its prior is the column's distribution in the whole table:

- the probabilities of the states of a category, or of the bins of a histogram, have ``smoothing``
  pseudo rows, distributed as all rows are;
- the mean of a normal distribution has `MEAN_PSEUDO_ROWS` pseudo rows at the mean of all rows, and
  its variance ``smoothing / 2`` pseudo rows at `SPREAD_SHARE` times the standard deviation of all
  rows, as a cluster is narrower than the table.

A number gets the kind of leaf with the larger leave-one-out log-likelihood, which has a closed form
(`LeafFit`).
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import xlogy

from flwr_causal.core.arrays import FloatArray
from flwr_causal.core.circuits.learners.spn.splits import equal_cuts
from flwr_causal.core.circuits.leaves.univariate import NORMALISER, Categorical, Gaussian, Histogram
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.options import NumericLeaf
    from flwr_causal.core.circuits.nodes import Leaf

Numbers = FloatArray | float
#: Prior of normal distributions, see above. On breast cancer the test log-likelihood of learn_spn
#: changes by less than .1 nats from .03 to .5 and from .1 to .5.
MEAN_PSEUDO_ROWS = 0.1
SPREAD_SHARE = 0.3
#: Pseudo rows of a state, or of the widest bin (of others in proportion to their width), in the
#: distribution of all rows.
FLAT_ROWS = 0.5
#: Standard deviation that a constant number is given, relative to its absolute value (1 for zeros).
CONSTANT_SPREAD = 1e-3
#: Nats by which a histogram must be better, as it has many more parameters to store and send.
MARGIN = 5.0
#: Bins of a histogram.
BINS = 32
#: Width of the narrowest bin, relative to the range. Else many equal numbers (such as no capital
#: gain) would have an unbounded density.
NARROWEST = 1e-3
#: Share of rows with one value (such as hours per week) above which a number has no normal leaf: if
#: all rows of a leaf had this value, the density there would be too large.
SPIKE = 0.1
#: Mean distance of values beyond a histogram from its end, in standard deviations.
TAIL = 0.25


def location_and_spread(column: FloatArray, row_weights: FloatArray) -> tuple[float, float]:
    """Return mean and standard deviation of known numbers; the latter is above 0 if constant."""
    mean = float(np.average(column, weights=row_weights))
    spread = float(np.sqrt(np.average((column - mean) ** 2, weights=row_weights)))
    size = abs(mean) or 1.0
    # Deviations of a constant column are rounding errors.
    return mean, spread if spread > 1e-9 * size else CONSTANT_SPREAD * size


def prior_masses(counts: FloatArray, widths: FloatArray) -> FloatArray:
    """Return the probabilities of states or bins in all rows, from their counts and widths."""
    filled = counts + FLAT_ROWS * widths / widths.max()
    return np.asarray(filled / filled.sum())


def table_widths(leaf: Leaf) -> FloatArray:
    """Return the width of each bin of a histogram, its scale for a tail; 1 for each state."""
    if isinstance(leaf, Histogram):
        return np.concatenate(([leaf.tail], np.diff(leaf.edges), [leaf.tail]))
    return np.ones(leaf.num_states[0])


def smoothed_tables(counts: FloatArray, prior: FloatArray, smoothing: float) -> FloatArray:
    """Return the smoothed probabilities of states or bins from their counts (..., S)."""
    return np.asarray(
        (counts + smoothing * prior) / (counts.sum(axis=-1, keepdims=True) + smoothing)
    )


def smoothed_normals(
    rows: Numbers, first: Numbers, second: Numbers, smoothing: float
) -> tuple[FloatArray, FloatArray]:
    """Return the smoothed mean and variance of normal distributions, in units of the column.

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


@dataclass(frozen=True, eq=False)
class ColumnPriors:
    """The distribution of each column in all rows, the prior of its leaves.

    Parameters
    ----------
    num_states : ndarray of int, shape (d,)
        0 for a number.
    means, spreads : ndarray of float64, shape (d,)
        Mean and standard deviation of a number; 0 and 1 for a category.
    edges : list of ndarray
        Bounds of a number's bins; empty for a category.
    tails : ndarray of float64, shape (d,)
        Scale of a histogram's tails.
    widths, masses : list of ndarray
        Width and probability of each state (with width 1), or of the lower tail, the bins and the
        upper tail.
    spiked : ndarray of bool, shape (d,)
        Numbers that have no normal leaves, see `SPIKE`.
    starts : ndarray of int, shape (d + 1,)
        First of each column's masses among the masses of all columns.
    """

    num_states: IntArray
    means: FloatArray
    spreads: FloatArray
    edges: list[FloatArray]
    tails: FloatArray
    widths: list[FloatArray]
    masses: list[FloatArray]
    spiked: NDArray[np.bool_]
    starts: IntArray

    @classmethod
    def of(cls, domain: Domain, values: FloatArray, row_weights: FloatArray) -> ColumnPriors:
        """Describe the columns of a table.

        Raises
        ------
        DataError
            If a number is missing in every row.
        """
        d = values.shape[1]
        num_states = domain.num_states
        means, spreads, tails = np.zeros(d), np.ones(d), np.ones(d)
        edges, widths, masses = [], [], []
        spiked = np.zeros(d, dtype=np.bool_)
        for j, states in enumerate(num_states.tolist()):
            known = ~np.isnan(values[:, j])
            column, weights = values[known, j], row_weights[known]
            bounds, wide = np.empty(0), np.ones(states)
            if states:
                codes = column.astype(np.int64)
            else:
                if weights.sum() == 0:
                    raise DataError(
                        f"column {domain.names[j]!r} is missing in every row that counts: leave "
                        "it out, or give its values"
                    )
                means[j], spreads[j] = location_and_spread(column, weights)
                tails[j] = TAIL * spreads[j]
                spikes = spikes_of(column, weights)
                spiked[j] = len(spikes) > 0
                bounds = histogram_edges(column, weights, float(spreads[j]), spikes)
                codes = np.searchsorted(bounds, column, side="right")
                wide = np.concatenate(([tails[j]], np.diff(bounds), [tails[j]]))
            edges.append(bounds)
            widths.append(wide)
            counts = np.bincount(codes, weights, minlength=len(wide)).astype(np.float64)
            masses.append(prior_masses(counts, wide))
        starts = np.cumsum([0, *(len(mass) for mass in masses)])
        return cls(num_states, means, spreads, edges, tails, widths, masses, spiked, starts)

    def codes(self, values: FloatArray) -> NDArray[np.int32]:
        """Return the place of each value among the masses of all columns, (n, d).

        The place of a missing value is after all others.
        """
        codes = np.empty(values.shape, dtype=np.int32)
        for j, bounds in enumerate(self.edges):
            column = values[:, j]
            missing = np.isnan(column)
            if self.num_states[j]:
                place = np.where(missing, 0, column).astype(np.int32)
            else:
                place = np.searchsorted(bounds, column, side="right").astype(np.int32)
            codes[:, j] = np.where(missing, self.starts[-1], place + self.starts[j])
        return codes


def spikes_of(column: FloatArray, row_weights: FloatArray) -> FloatArray:
    """Return the values with a share of rows above `SPIKE`, ascending; none if it is all rows."""
    values, places = np.unique(column, return_inverse=True)
    shares = np.bincount(places, row_weights) / row_weights.sum()
    return np.asarray(values[(shares > SPIKE) & (shares < 1)])


def histogram_edges(
    column: FloatArray, row_weights: FloatArray, spread: float, spikes: FloatArray
) -> FloatArray:
    """Return bounds of bins, shape (B + 1,).

    The bins hold about equally many rows. Each spike has a bin of the least width.
    """
    low, high = column.min(), column.max()
    if high - low < spread * NARROWEST:  # constant
        return np.array([low - spread, high + spread])
    narrow = NARROWEST * (high - low)
    # A bin holds its lower bound and not its upper one: the largest number must be inside.
    kept, least = [float(low), float(high + narrow)], 0.999 * narrow
    cuts = np.concatenate((spikes, spikes + narrow, equal_cuts(column, row_weights, BINS)))
    for cut in cuts.tolist():
        place = bisect(kept, cut)
        if all(abs(cut - near) >= least for near in kept[max(place - 1, 0) : place + 1]):
            kept.insert(place, cut)
    return np.array(kept)


class LeafFit:
    """Fits leaves to rows of one table.

    Parameters
    ----------
    domain : Domain
    values : ndarray of float64, shape (n, d)
    row_weights : ndarray of float64, shape (n,)
    smoothing : float
        Pseudo rows, above 0; see the module.
    kind : {"auto", "gaussian", "histogram"}
        Leaves of numbers.
    least_deviation : float, default 0
        Of normal leaves, in units of their columns.
    """

    def __init__(
        self,
        domain: Domain,
        values: FloatArray,
        row_weights: FloatArray,
        smoothing: float,
        kind: NumericLeaf,
        least_deviation: float = 0.0,
    ) -> None:
        self.columns = ColumnPriors.of(domain, values, row_weights)
        self.row_weights = row_weights
        self.smoothing = smoothing
        self.kind = kind
        self._least_variances = (least_deviation / self.columns.spreads) ** 2
        self._codes = self.columns.codes(values)
        # Numbers in units of their columns: squares keep their digits.
        self._standard = (values - self.columns.means) / self.columns.spreads

    def leaves(self, rows: IntArray, scope: Sequence[int]) -> list[Leaf]:
        """Return one leaf for each column of a scope, fitted to some rows."""
        priors = self.columns
        weights = self.row_weights[rows]
        codes = self._codes[np.ix_(rows, np.array(scope))]
        counts: FloatArray = np.bincount(
            codes.ravel(), np.repeat(weights, len(scope)), minlength=int(priors.starts[-1]) + 1
        ).astype(np.float64)
        leaves: list[Leaf] = []
        numbers = [j for j in scope if priors.num_states[j] == 0]
        normals = iter(self._normals(rows, np.array(numbers, dtype=np.int64)))
        for j in scope:
            mine = counts[priors.starts[j] : priors.starts[j + 1]]
            masses = smoothed_tables(mine, priors.masses[j], self.smoothing)
            if priors.num_states[j]:
                leaves.append(Categorical(j, masses))
                continue
            normal, score = next(normals)
            if self.kind == "histogram" or (
                self.kind == "auto"
                and (priors.spiked[j] or self._leave_one_out(j, mine) > score + MARGIN)
            ):
                leaves.append(Histogram(j, priors.edges[j], masses, priors.tails[j]))
            else:
                leaves.append(normal)
        return leaves

    def _normals(self, rows: IntArray, numbers: IntArray) -> list[tuple[Gaussian, float]]:
        """Return the normal distribution of each number, and its leave-one-out log-likelihood.

        The latter is the sum over rows of the log density of a row's number under the distribution
        that is fitted to the other rows.
        """
        z = self._standard[np.ix_(rows, numbers)]
        known = ~np.isnan(z)
        z = np.where(known, z, 0.0)
        weights = self.row_weights[rows][:, None] * known
        total, first = weights.sum(axis=0), (weights * z).sum(axis=0)
        second = (weights * z**2).sum(axis=0)
        mean, variance = smoothed_normals(total, first, second, self.smoothing)
        least = self._least_variances[numbers]
        variance = np.maximum(variance, least)
        spreads = self.columns.spreads[numbers]
        means = self.columns.means[numbers] + spreads * mean
        deviations = spreads * np.sqrt(variance)
        normals = map(Gaussian, numbers.tolist(), means.tolist(), deviations.tolist())
        # A single row is left out, also of a row with a weight above 1.
        others = np.maximum(total - 1.0, 0.0)
        mean, variance = smoothed_normals(others, first - z, second - z**2, self.smoothing)
        variance = np.maximum(variance, least)
        densities = -0.5 * ((z - mean) ** 2 / variance + np.log(variance)) - NORMALISER
        scores = (weights * (densities - np.log(spreads))).sum(axis=0)
        return list(zip(normals, scores.tolist(), strict=True))

    def _leave_one_out(self, j: int, counts: FloatArray) -> float:
        """Return the leave-one-out log-likelihood of the histogram of a column; see `_normals`."""
        priors = self.columns
        table = np.maximum(counts - 1.0, 0.0) + self.smoothing * priors.masses[j]
        shares = table / (max(counts.sum() - 1.0, 0.0) + self.smoothing)
        return float(xlogy(counts, shares / priors.widths[j]).sum())

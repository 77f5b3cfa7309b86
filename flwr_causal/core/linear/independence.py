"""Tests of the independence of numbers, and of blocks of columns, from second moments.

Numbers are tested by the partial correlation, whose t test is that of a further regressor; blocks
by the likelihood ratio of two regressions.

References
----------
Sörbom, D. (1989). Model modification. Psychometrika 54. (The score test of a further covariance.)
Anderson, T. W. (2003). An introduction to multivariate statistical analysis. Section 8.5.
(Bartlett's factor of the likelihood ratio.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.independence import (
    Independence,
    IndependenceTests,
    PairTest,
    p_value,
)
from flwr_causal.core.linear.moments import SampleMoments, distinct, moments_of_variables
from flwr_causal.core.linear.regression import informing_rows, regress, solved
from flwr_causal.core.ties import whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.independence import Variables
    from flwr_causal.core.linear.effects import Blocks

# A variable is a linear function of others if they leave this share of its variance.
COLLINEAR_SHARE = 1e-10


class NumberTests(IndependenceTests):
    """Tests of numbers.

    Parameters
    ----------
    moments : SampleMoments, or sequence of SampleMoments
        Of the m columns, or one for each of the first d; unknown entries are NaN.
    num_variables : int
        d.
    """

    def __init__(
        self, moments: SampleMoments | Sequence[SampleMoments], num_variables: int
    ) -> None:
        self.own = moments_of_variables(moments, num_variables)
        self.names = self.own[0].names

    def test(self, i: int, j: int, given: Variables) -> Independence | None:
        """Test whether i and j are independent, on the rows that inform about j."""
        (found,) = self.each(np.array([i]), j, np.asarray(given, dtype=np.intp))
        return found

    def each(self, others: IntArray, j: int, given: IntArray) -> Iterator[Independence | None]:
        """Test each of some columns as a further regressor of j beside others.

        There is no test where a moment is unknown, rows are too few, or a column is a linear
        function of the others.
        """
        part = self.own[j]
        found = partial_correlations(part.second, j, given, others)
        rows = _rows_for(part, others, given, j)
        degrees = rows - len(given) - 2
        t_values, p_values = _t_test(found, degrees)
        ratios = -rows * np.log1p(-np.minimum(found**2, 1 - COLLINEAR_SHARE))
        known = np.isfinite(found) & (degrees >= 1)
        columns = (one.tolist() for one in (known, found, t_values, p_values, ratios, rows))
        for tested, r, t, p, ratio, n in zip(*columns, strict=True):
            yield Independence(r, t, p, ratio, 1, n) if tested else None

    def strength(self, i: int, j: int, given: Variables) -> float:
        """Return the partial correlation, with its sign."""
        columns = np.asarray(given, dtype=np.intp)
        found = partial_correlations(self.own[j].second, j, columns, np.array([i]))
        return float(np.nan_to_num(found[0]))

    def residual_tests(self, edges: BoolArray, before: BoolArray) -> Iterator[PairTest]:
        """Test whether residuals are correlated, of the same rows for all variables.

        The residual of the earlier variable is tested as a further regressor of the later one. That
        is the score test of a covariance of their noise terms.
        """
        if len(distinct(self.own)[0]) > 1:
            return
        part = self.own[0]
        second, d = part.second, edges.shape[1]
        families = [np.array([j, *np.flatnonzero(edges[:, j])], dtype=np.intp) for j in range(d)]
        contrasts = []
        for j, (_, *parents) in enumerate(families):
            own = np.array(parents, dtype=np.intp)
            known = np.isfinite(second[np.ix_(families[j], families[j])]).all()
            found = regress(second, own, j)[0] if known else np.full(len(own), np.nan)
            contrasts.append(np.array([1.0, *-found]))
        spread = np.array(
            [a @ second[np.ix_(f, f)] @ a for a, f in zip(contrasts, families, strict=True)]
        )
        for i, j in np.argwhere(before[:d] & ~edges[:d]):
            parents = families[j][1:]
            with_parents = second[np.ix_(parents, families[i])] @ contrasts[i]
            covariance = contrasts[j] @ second[np.ix_(families[j], families[i])] @ contrasts[i]
            rows = _rows_for(part, np.array([i]), parents, int(j))
            degrees = int(rows[0]) - len(families[i]) - len(parents) - 1
            if degrees < 1 or not np.isfinite([covariance, *with_parents, spread[j]]).all():
                continue
            among = second[np.ix_(parents, parents)]
            left = float(spread[i] - with_parents @ solved(among, with_parents))
            if min(left / second[i, i], spread[j] / second[j, j]) > COLLINEAR_SHARE:
                partial = np.clip(covariance / np.sqrt(left * spread[j]), -1.0, 1.0)
                t, p = _t_test(np.array(partial), degrees)
                correlation = float(covariance / np.sqrt(spread[i] * spread[j]))
                names = part.names[i], part.names[j]
                yield PairTest(*names, (), correlation, float(t), float(p))

    def whole_test(
        self, edges: BoolArray, before: BoolArray
    ) -> tuple[float, int, float] | tuple[None, None, None]:
        """Test the graph against the same causal order with all edges: ratio, degrees, p-value."""
        statistic, degrees = 0.0, 0
        for j, part in enumerate(self.own):
            parents, all_before = (np.flatnonzero(mask[:, j]) for mask in (edges, before | edges))
            further = len(all_before) - len(parents)
            factor = part.n - 2 - len(all_before) + further / 2
            family = np.array([j, *all_before], dtype=np.intp)
            if factor < 1 or not np.isfinite(part.second[np.ix_(family, family)]).all():
                return None, None, None
            with_all, restricted = (regress(part.second, p, j)[1] for p in (all_before, parents))
            if not with_all > COLLINEAR_SHARE * part.second[j, j]:
                return None, None, None
            statistic += factor * float(np.log(restricted / with_all))
            degrees += further
        return statistic, degrees, p_value(statistic, degrees) if degrees else 1.0


class BlockTests(IndependenceTests):
    """Tests of blocks of columns, by likelihood ratios.

    Columns of categories are not normal, but in large samples the ratio has the same distribution
    where their residual covariances are alike.

    Parameters
    ----------
    blocks : Blocks
        The m variables.
    """

    def __init__(self, blocks: Blocks) -> None:
        self.blocks, self.names = blocks, blocks.names

    def test(self, i: int, j: int, given: Variables) -> Independence | None:
        """Compare two regressions of the columns of j, with and without those of i (Wilks).

        There is no test where the rows are too few.
        """
        from flwr_causal.core.linear.order_search import log_pivots  # its kernels need numba

        moments = moments_of_variables(self.blocks.moments, 1 + j)[j]
        before, own, other = self.blocks.of(given), *(self.blocks.columns[k] for k in (j, i))
        with_other = np.concatenate([before, other])
        logs = [
            log_pivots(moments.correlations, np.concatenate([columns, own]))[len(columns) :].sum()
            for columns in (before, with_other)
        ]
        regressors = np.concatenate([other, before])
        rows = whole(float(informing_rows(moments, regressors, int(own[0]))[0]))
        # Bartlett's factor, see Anderson (2003), section 8.5.
        factor = rows - 1 - len(with_other) + (len(other) - len(own) - 1) / 2
        if factor < 1:
            return None
        ratio = max(factor * float(logs[0] - logs[1]), 0.0)
        # A mean of the squared canonical correlations, by their geometric mean.
        strength = float(np.sqrt(-np.expm1(-ratio / rows / min(len(own), len(other)))))
        return Independence.by_ratio(ratio, len(own) * len(other), rows, strength)


def partial_correlations(
    second: FloatArray, child: int, given: IntArray, others: IntArray
) -> FloatArray:
    """Return the partial correlation of a column with each of some others, given the same ones.

    Returns
    -------
    ndarray of shape (len(others),)
        NaN where a moment is unknown, or a column is a linear function of the others.
    """
    columns = np.array([child, *others], dtype=np.intp)
    if not np.isfinite(second[np.ix_([child, *given], [child, *given])]).all():
        return np.full(len(others), np.nan)
    with_given = second[np.ix_(given, columns)]
    coefficients = solved(second[np.ix_(given, given)], with_given)
    variances = second[columns, columns]
    left = variances - (coefficients * with_given).sum(axis=0)
    left = np.where(left > COLLINEAR_SHARE * variances, left, np.nan)
    shared = second[child, others] - coefficients[:, 0] @ with_given[:, 1:]
    return np.asarray(np.clip(shared / np.sqrt(left[0] * left[1:]), -1.0, 1.0))


def _rows_for(part: SampleMoments, others: IntArray, parents: IntArray, child: int) -> IntArray:
    """Return how many rows inform about each of some further regressors of a child, (k,)."""
    if part.together is None:
        return np.full(len(others), part.n)
    regressors = [np.array([i, *parents], dtype=np.intp) for i in others]
    rows = [informing_rows(part, own, child)[0] for own in regressors]
    return np.rint(rows).astype(np.int64)


def _t_test(correlation: FloatArray, degrees: IntArray | int) -> tuple[FloatArray, FloatArray]:
    """Return Student's t of partial correlations, and the two-sided p-values."""
    from scipy.special import stdtr

    least = np.maximum(degrees, 1)
    with np.errstate(divide="ignore"):
        t = correlation * np.sqrt(least / (1 - correlation**2))
    return t, 2 * stdtr(least, -np.abs(t))

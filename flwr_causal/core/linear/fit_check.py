"""Whether the rows agree with a graph of numbers, or of blocks of columns, from second moments.

In a causal order each variable is independent, given its parents, of every variable before it that
is no parent. Of numbers each statement is tested by the partial correlation, whose t test is that
of a further regressor; of blocks by the likelihood ratio of two regressions.

References
----------
Sörbom, D. (1989). Model modification. Psychometrika 54. (The score test of a further covariance.)
Anderson, T. W. (2003). An introduction to multivariate statistical analysis. Section 8.5.
(Bartlett's factor of the likelihood ratio.)
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.fit_check import (
    FitCheck,
    PairTest,
    before_each,
    check_order,
)
from flwr_causal.core.graphs.fit_check import edge_tests as tests_of_edges
from flwr_causal.core.linear.moments import Moments, distinct, moments_of_variables
from flwr_causal.core.linear.regression import informing_rows, regress, solved
from flwr_causal.core.ties import whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.doubt import EdgeTest
    from flwr_causal.core.graphs.fit_check import Tested
    from flwr_causal.core.linear.effects import Blocks

# A variable is a linear function of others if they leave this share of its variance.
COLLINEAR_SHARE = 1e-10


def check(
    moments: Moments | Sequence[Moments], edges: BoolArray, held_out: float | None = None
) -> FitCheck:
    """Test the independencies that a graph of numbers implies.

    Parameters
    ----------
    moments
        Moments of the m columns, or one for each of the first d; unknown entries are NaN.
    edges
        ``(m, d)``: the parents of the first d columns, which form a DAG.
    held_out
        The mean log density of each party's rows under the system of all others', if it is known.
    """
    own = moments_of_variables(moments, edges.shape[1])
    before = before_each(edges)

    def tests(j: int, parents: IntArray, others: IntArray) -> Iterator[Tested | None]:
        for r, t, p in _added(own[j], j, parents, others).tolist():
            yield (r, t, p) if np.isfinite(r) else None

    residuals = _residual_tests(own[0], edges, before) if len(distinct(own)[0]) == 1 else ()
    found = check_order(own[0].names, edges, tests, residuals)
    statistic, degrees, p_value = _likelihood_ratio(own, edges, before)
    return replace(
        found,
        statistic=statistic,
        degrees=degrees,
        p_value=p_value,
        held_out_log_likelihood=held_out,
        held_out_by="" if held_out is None else "each party in turn",
    )


def edge_tests(moments: Moments | Sequence[Moments], edges: BoolArray) -> list[EdgeTest]:
    """Test each edge of a graph of numbers; parameters as in :func:`check`."""
    own = moments_of_variables(moments, edges.shape[1])

    def ratio(i: int, j: int, others: IntArray) -> tuple[float, int, int]:
        correlation = float(_added(own[j], j, others, np.array([i]))[0, 0])
        if not np.isfinite(correlation):
            return 0.0, 0, 0
        rows = int(_rows_for(own[j], np.array([i]), others, j)[0])
        return -rows * float(np.log1p(-min(correlation**2, 1 - COLLINEAR_SHARE))), 1, rows

    return tests_of_edges(own[0].names, edges, ratio)


def check_blocks(blocks: Blocks, edges: BoolArray) -> FitCheck:
    """Test the independencies that a graph of blocks of columns implies, by likelihood ratios.

    Columns of categories are not normal, but in large samples the ratio has the same distribution
    where their residual covariances are alike.

    Parameters
    ----------
    blocks
        The m variables.
    edges
        ``(m, d)``: the parents of the first d variables, which form a DAG.
    """
    from scipy.special import chdtrc

    def tests(j: int, parents: IntArray, others: IntArray) -> Iterator[Tested | None]:
        for i in others.tolist():
            statistic, degrees, rows = block_ratio(blocks, i, j, parents)
            # A mean of the squared canonical correlations, by their geometric mean.
            least = min(len(blocks.columns[k]) for k in (i, j))
            strength = float(np.sqrt(-np.expm1(-statistic / rows / least)))
            yield (strength, statistic, float(chdtrc(degrees, statistic))) if degrees else None

    return check_order(blocks.names, edges, tests)


def block_edge_tests(blocks: Blocks, edges: BoolArray) -> list[EdgeTest]:
    """Test each edge of a graph of blocks; parameters as in :func:`check_blocks`."""
    return tests_of_edges(blocks.names, edges, partial(block_ratio, blocks))


def block_ratio(
    blocks: Blocks, first: int, second: int, given: Sequence[int] | IntArray
) -> tuple[float, int, int]:
    """Return the likelihood ratio of whether a block depends on another, its degrees, and the rows.

    It is that of two regressions of its columns, with and without the other block (Wilks). The
    degrees are 0 where the rows are too few.
    """
    from flwr_causal.core.linear.order_search import log_pivots  # its kernels need numba

    moments = moments_of_variables(blocks.moments, 1 + second)[second]
    before, own, other = blocks.of(given), blocks.columns[second], blocks.columns[first]
    with_first = np.concatenate([before, other])
    logs = [
        log_pivots(moments.correlations, np.concatenate([others, own]))[len(others) :].sum()
        for others in (before, with_first)
    ]
    regressors = np.concatenate([other, before])
    rows = whole(float(informing_rows(moments, regressors, int(own[0]))[0]))
    # Bartlett's factor, see Anderson (2003), section 8.5.
    factor = rows - 1 - len(with_first) + (len(other) - len(own) - 1) / 2
    degrees = len(own) * len(other)
    return max(factor * float(logs[0] - logs[1]), 0.0), degrees if factor >= 1 else 0, rows


def _added(part: Moments, child: int, parents: IntArray, others: IntArray) -> FloatArray:
    """Test each of some columns as a further regressor of a variable beside its parents.

    Returns
    -------
    ndarray of shape (len(others), 3)
        Partial correlation, t and p-value; NaN where a moment is unknown, there are too few rows,
        or a column is a linear function of the others.
    """
    second, columns = part.second, np.array([child, *others], dtype=np.intp)
    result = np.full((len(others), 3), np.nan)
    if not np.isfinite(second[np.ix_([child, *parents], [child, *parents])]).all():
        return result
    with_parents = second[np.ix_(parents, columns)]
    coefficients = solved(second[np.ix_(parents, parents)], with_parents)
    variances = second[columns, columns]
    left = variances - (coefficients * with_parents).sum(axis=0)
    left = np.where(left > COLLINEAR_SHARE * variances, left, np.nan)
    shared = second[child, others] - coefficients[:, 0] @ with_parents[:, 1:]
    result[:, 0] = np.clip(shared / np.sqrt(left[0] * left[1:]), -1.0, 1.0)
    degrees = _rows_for(part, others, parents, child) - len(parents) - 2
    result[:, 1], result[:, 2] = _t_test(result[:, 0], degrees)
    result[degrees < 1] = np.nan
    return result


def _rows_for(part: Moments, others: IntArray, parents: IntArray, child: int) -> IntArray:
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


def _residual_tests(part: Moments, edges: BoolArray, before: BoolArray) -> Iterator[PairTest]:
    """Test whether the residuals of two variables without an edge are correlated.

    The residual of the earlier variable is tested as a further regressor of the later one. That is
    the score test of a covariance of their noise terms.
    """
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
        explained = with_parents @ solved(second[np.ix_(parents, parents)], with_parents[:, None])
        left = float(spread[i] - explained[0])
        if min(left / second[i, i], spread[j] / second[j, j]) > COLLINEAR_SHARE:
            partial = np.clip(covariance / np.sqrt(left * spread[j]), -1.0, 1.0)
            t, p_value = _t_test(np.array(partial), degrees)
            correlation = float(covariance / np.sqrt(spread[i] * spread[j]))
            names = part.names[i], part.names[j]
            yield PairTest(*names, (), correlation, float(t), float(p_value))


def _likelihood_ratio(
    own: Sequence[Moments], edges: BoolArray, before: BoolArray
) -> tuple[float, int, float] | tuple[None, None, None]:
    """Test the graph against the same causal order with all edges: statistic, degrees, p-value."""
    from scipy.special import chdtrc

    statistic, degrees = 0.0, 0
    for j, part in enumerate(own):
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
    return statistic, degrees, float(chdtrc(degrees, statistic)) if degrees else 1.0

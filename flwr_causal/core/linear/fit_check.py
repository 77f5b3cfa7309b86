"""Whether the rows agree with a linear system's graph, from second moments.

In a causal order each variable is independent, given its parents, of every variable before it that
is no parent. These statements, one for each pair without an edge, imply all others that the graph
implies. Each is tested by the partial correlation, whose t test is that of a further regressor.

References
----------
Shipley, B. (2000). A new inferential test for path models based on directed acyclic graphs.
Structural Equation Modeling 7. (One test for each pair without an edge.)
Sörbom, D. (1989). Model modification. Psychometrika 54. (The score test of a further covariance.)
Anderson, T. W. (2003). An introduction to multivariate statistical analysis. Section 8.5.
(Bartlett's factor of the likelihood ratio.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.graphs.doubt import EdgeTest
from flwr_causal.core.graphs.fit_check import FitCheck, PairTest, tests_table
from flwr_causal.core.linear.moments import Moments, distinct, moments_of_variables
from flwr_causal.core.linear.regression import informing_rows, regress, solved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# A variable is a linear function of others if they leave this share of its variance.
COLLINEAR_SHARE = 1e-10


def check(
    moments: Moments | Sequence[Moments], edges: BoolArray, held_out: float | None = None
) -> FitCheck:
    """Test the independencies that a graph implies.

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
    before = _before(edges)
    tests = list(_independencies(own, edges, before))
    residuals = []
    if len(distinct(own)[0]) == 1:
        residuals = list(_residual_tests(own[0], edges, before))
    statistic, degrees, p_value = _likelihood_ratio(own, edges, before)
    return FitCheck(
        independencies=tests_table(tests),
        residuals=tests_table(residuals).drop(columns="given"),
        untested=int((before & ~edges).sum()) - len(tests),
        statistic=statistic,
        degrees=degrees,
        p_value=p_value,
        held_out_log_likelihood=held_out,
        held_out_by="" if held_out is None else "each party in turn",
    )


def on_rows(rows: Moments, edges: BoolArray, log_densities: FloatArray) -> FitCheck:
    """Test a graph on rows to which the system was not fitted.

    Parameters
    ----------
    rows
        Moments of the rows.
    edges
        As in :func:`check`.
    log_densities
        Of each row, in nats.
    """
    return check(rows, edges).with_rows(float(log_densities.mean()))


def edge_tests(moments: Moments | Sequence[Moments], edges: BoolArray) -> list[EdgeTest]:
    """Test each edge given the other parents of its effect; edges without a test are left out.

    Parameters
    ----------
    moments, edges
        As in :func:`check`.
    """
    found = []
    for j, part in enumerate(moments_of_variables(moments, edges.shape[1])):
        parents = np.flatnonzero(edges[:, j])
        for i in parents:
            others, own = parents[parents != i], np.array([i])
            tested = _added(part, j, others, own)[0]
            if np.isfinite(tested[0]):
                rows = int(_rows_for(part, own, others, j)[0])
                ratio = -rows * float(np.log1p(-min(tested[0] ** 2, 1 - COLLINEAR_SHARE)))
                found.append(EdgeTest(part.names[i], part.names[j], ratio, 1, rows))
    return found


def _before(edges: BoolArray) -> BoolArray:
    """Return the mask of the columns before each variable in a causal order, ``(m, d)``.

    Columns of the past come before all variables.
    """
    d = edges.shape[1]
    rank = np.empty(d, dtype=np.int64)
    rank[topological_order(edges[:d])] = np.arange(d)
    result = np.ones(edges.shape, dtype=bool)
    result[:d] = rank[:, None] < rank
    return result


def _independencies(
    own: Sequence[Moments], edges: BoolArray, before: BoolArray
) -> Iterator[PairTest]:
    """Test each variable's independence of what comes before it, given its parents."""
    for j, part in enumerate(own):
        parents, others = np.flatnonzero(edges[:, j]), np.flatnonzero(before[:, j] & ~edges[:, j])
        given = tuple(part.names[k] for k in parents)
        for i, (r, t, p) in zip(others, _added(part, j, parents, others), strict=True):
            if np.isfinite(r):
                yield PairTest(part.names[i], part.names[j], given, float(r), float(t), float(p))


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

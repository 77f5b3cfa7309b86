"""Whether rows of numbers and categories agree with a graph, from the moments of their blocks.

In a causal order each variable is independent, given its parents, of every variable before it that
is no parent. Each statement is tested by the likelihood ratio of two regressions of its block of
columns, with and without the other block (Wilks). Columns of categories are not normal, but in
large samples the ratio has the same distribution where their residual covariances are alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.doubt import EdgeTest
from flwr_causal.core.graphs.fit_check import check_order
from flwr_causal.core.linear.moments import columns_of, moments_of_variables
from flwr_causal.core.linear.order_search import log_pivots
from flwr_causal.core.linear.regression import informing_rows
from flwr_causal.core.ties import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.core.graphs.fit_check import FitCheck, Tested
    from flwr_causal.core.linear.moments import Moments


class BlockTests:
    """The moments of the rows that inform about each variable, and the columns by variable."""

    def __init__(self, moments: Moments | Sequence[Moments], widths: Sequence[int]) -> None:
        self.moments, self.columns = moments_of_variables(moments, len(widths)), columns_of(widths)

    def of(self, variables: Sequence[int] | IntArray) -> IntArray:
        """Return the columns of variables side by side."""
        none = np.empty(0, dtype=np.intp)
        return np.concatenate([none, *[self.columns[k] for k in variables]])

    def likelihood_ratio(
        self, first: int, second: int, given: Sequence[int] | IntArray
    ) -> tuple[float, int, int]:
        """Return the ratio of whether one variable depends on another, its degrees, and the rows.

        The degrees are 0 where the rows are too few.
        """
        before, own, moments = self.of(given), self.columns[second], self.moments[second]
        with_first = np.concatenate([before, self.columns[first]])
        logs = [
            log_pivots(moments.correlations, np.concatenate([others, own]))[len(others) :].sum()
            for others in (before, with_first)
        ]
        regressors = np.concatenate([self.columns[first], before])
        rows = whole(float(informing_rows(moments, regressors, int(own[0]))[0]))
        # Bartlett's factor, see Anderson (2003), section 8.5.
        factor = rows - 1 - len(with_first) + (len(self.columns[first]) - len(own) - 1) / 2
        degrees = len(own) * len(self.columns[first])
        return max(factor * float(logs[0] - logs[1]), 0.0), degrees if factor >= 1 else 0, rows


def check(
    names: Sequence[str],
    widths: Sequence[int],
    moments: Moments | Sequence[Moments],
    dag: BoolArray,
) -> FitCheck:
    """Test the independencies that a DAG implies.

    Parameters
    ----------
    names : sequence of str
        The m variables: d, and with lags their past.
    widths : sequence of int
        Of their blocks.
    moments : Moments or sequence of Moments
        Of all columns; or for each variable those of the rows that inform about its causes.
    dag : ndarray of bool, shape (m, d)
        The parents of the first d variables.
    """
    from scipy.special import chdtrc

    blocks = BlockTests(moments, widths)

    def test(i: int, j: int, given: IntArray) -> Tested | None:
        statistic, degrees, rows = blocks.likelihood_ratio(i, j, given)
        if not degrees:
            return None
        # A mean of the squared canonical correlations, by their geometric mean.
        strength = float(np.sqrt(-np.expm1(-statistic / rows / min(widths[i], widths[j]))))
        return strength, statistic, float(chdtrc(degrees, statistic))

    return check_order(names, dag, test)


def edge_tests(
    names: Sequence[str],
    widths: Sequence[int],
    moments: Moments | Sequence[Moments],
    dag: BoolArray,
) -> list[EdgeTest]:
    """Test each edge given the other parents of its effect; parameters as in :func:`check`."""
    blocks, found = BlockTests(moments, widths), []
    for i, j in np.argwhere(dag).tolist():
        others = np.flatnonzero(dag[:, j])
        statistic, degrees, rows = blocks.likelihood_ratio(i, j, others[others != i])
        if degrees:
            found.append(EdgeTest(names[i], names[j], statistic, degrees, rows))
    return found

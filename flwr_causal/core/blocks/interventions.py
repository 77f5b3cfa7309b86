"""The moments of blocks of columns without interventions, from rows with and without.

Rows under an intervention on a variable inform about all mechanisms but its own
(:mod:`core.interventions.moments`). The regressions of each block on the blocks of its parents,
over the rows in which the variable was no target, imply moments of all columns: those of rows in
which nothing is a target, so far as the graph and the linear functions of the columns hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.linear.moments import Moments, columns_of
from flwr_causal.core.linear.regression import solved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray


def implied_moments(moments: Sequence[Moments], widths: Sequence[int], dag: BoolArray) -> Moments:
    """Return the moments that the regressions of a DAG imply.

    Parameters
    ----------
    moments : sequence of Moments
        Of all columns, for each of the d variables those of the rows in which it is no target.
    widths : sequence of int
        Number of columns of each variable.
    dag : ndarray of bool, shape (d, d)

    Returns
    -------
    Moments
        ``n`` is the smallest of the numbers of rows, so that standard errors are not too small.
    """
    columns, one = columns_of(widths), moments[0]
    mean, second = np.zeros(one.d), np.zeros((one.d, one.d))
    for j in topological_order(dag):
        part, own = moments[j], columns[j]
        parents = np.concatenate([own[:0], *[columns[i] for i in np.flatnonzero(dag[:, j])]])
        shared = part.second[np.ix_(parents, own)]
        weights = solved(part.second[np.ix_(parents, parents)], shared)
        left = part.second[np.ix_(own, own)] - weights.T @ shared
        mean[own] = part.mean[own] + (mean[parents] - part.mean[parents]) @ weights
        # Columns that are still to come have no covariance with anything yet.
        second[own] = weights.T @ second[parents]
        second[:, own] = second[own].T
        among = weights.T @ second[np.ix_(parents, parents)] @ weights
        second[np.ix_(own, own)] = among + (left + left.T) / 2
    return Moments(min(part.n for part in moments), mean, second, one.names)

"""Conditional distributions of numbers and categories, from the second moments of their blocks.

Given other variables a number has the mean of least squares on their columns, and a normal
distribution of one variance. A category has the probabilities of linear discriminant analysis: the
other columns have in its states normal distributions of one covariance, whose means follow from the
products with the states' columns. Given one category alone its probabilities are shares of rows.

References
----------
Hastie, T., Tibshirani, R. & Friedman, J. (2009). The elements of statistical learning. Section 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import log_softmax

from flwr_causal.core.blocks.design import Category
from flwr_causal.core.linear.moments import columns_of
from flwr_causal.core.linear.regression import regress, solved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.linear.moments import SampleMoments

#: Rows that are added to each state, spread over the configurations of the cause.
PRIOR_ROWS = 1.0


class BlockConditional(NamedTuple):
    """The distribution of one variable given columns x of others.

    Parameters
    ----------
    offset : ndarray of shape (k,)
        Of a number its mean at x = 0, k = 1; of a category of k states the logarithms of their
        probabilities at x = 0, up to a constant.
    weights : ndarray of shape (m, k)
        What is added to it for each unit of x.
    deviation : float
        Of a number its standard deviation given x; of a category 0.
    """

    offset: FloatArray
    weights: FloatArray
    deviation: float

    def mean(self, columns: FloatArray) -> FloatArray:
        """Return the means of a number in rows x, shape (n,)."""
        return np.asarray(self.offset[0] + columns @ self.weights[:, 0])

    def log_probabilities(self, columns: FloatArray) -> FloatArray:
        """Return the logarithms of the probabilities of a category's states, shape (n, k)."""
        return np.asarray(log_softmax(self.offset + columns @ self.weights, axis=1))


def conditional(
    variables: Sequence[Variable],
    moments: SampleMoments,
    given: Sequence[int] | IntArray,
    target: int,
) -> BlockConditional:
    """Return the distribution of a variable given others.

    Parameters
    ----------
    variables : sequence of Number or Category
    moments : SampleMoments
        Of all columns; those of a variable lie side by side.
    given : sequence of int
        Places of the variables that are given.
    target : int
        The place of another variable. A number is in its unit: less the mean, over the scale.
    """
    columns = columns_of([one.width for one in variables])
    own = columns[target]
    others = np.concatenate([np.empty(0, dtype=np.intp), *[columns[k] for k in given]])
    if not isinstance(variables[target], Category):
        return _regression(moments, others, int(own[0]))
    if len(given) == 1 and isinstance(variables[int(given[0])], Category):
        return _shares(moments, others, own)
    return _discriminant(moments, others, own)


def _regression(moments: SampleMoments, others: IntArray, own: int) -> BlockConditional:
    weights, left = regress(moments.second, others, own)
    offset = moments.mean[own] - moments.mean[others] @ weights
    return BlockConditional(np.array([offset]), weights[:, None], float(np.sqrt(left)))


def _discriminant(moments: SampleMoments, others: IntArray, own: IntArray) -> BlockConditional:
    shares, cross = _states(moments, others, own)
    means = moments.mean[others][:, None] + cross / shares
    among = moments.second[np.ix_(others, others)]
    within = among - (cross / shares) @ cross.T
    weights = solved(within, means)
    return BlockConditional(np.log(shares) - 0.5 * (means * weights).sum(axis=0), weights, 0.0)


def _shares(moments: SampleMoments, others: IntArray, own: IntArray) -> BlockConditional:
    shares, cross = _states(moments, others, own)
    joint = cross + np.outer(moments.mean[others], shares)
    joint = np.vstack([joint, shares - joint.sum(axis=0)])
    joint = np.maximum(joint, 0.0) + PRIOR_ROWS / moments.n / joint.size
    logs = np.log(joint / joint.sum(axis=1, keepdims=True))
    return BlockConditional(logs[-1], logs[:-1] - logs[-1], 0.0)


def _states(
    moments: SampleMoments, others: IntArray, own: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return the states' shares, shape (k,), and covariances of the others with them, (m, k)."""
    shares = moments.mean[own]
    shares = np.append(shares, 1.0 - shares.sum())
    shares = np.maximum(shares, 0.0) + PRIOR_ROWS / moments.n / len(shares)
    cross = moments.second[np.ix_(others, own)]
    return shares / shares.sum(), np.column_stack([cross, -cross.sum(axis=1)])

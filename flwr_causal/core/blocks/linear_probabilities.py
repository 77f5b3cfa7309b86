"""Whether probabilities of states can be linear in numbers, from the moments of their columns.

An effect of a number on a category is estimated by a linear probability model. Where the
probabilities that it gives are below 0 or above 1 near the mean, it cannot be right: the true
probability is curved there, and the effect between two values differs from what the coefficient
says. Curved effects of numbers on numbers do not show in second moments of the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.blocks.design import Category
from flwr_causal.core.linear.moments import columns_of, moments_of_variables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.blocks.design import Variable
    from flwr_causal.core.linear.moments import SampleMoments

#: A probability is curved if its linear fit leaves 0 to 1 within so many of the fit's standard
#: deviations. Measured for logistic probabilities of one number (constants 0 to -3, slopes .3 to 4,
#: 1,500 rows): of 15 pairs whose intervals of level 95 % cover the change from -1 to 1 in fewer
#: than 90 % of samples all leave it within 2.5, and of the 9 other pairs 4 do.
NEAR = 2.5


def curved_probabilities(
    variables: Sequence[Variable],
    moments: SampleMoments | Sequence[SampleMoments],
    edges: BoolArray,
) -> dict[int, list[int]]:
    """Return the categories whose probabilities are not linear in their causes that are numbers.

    Parameters
    ----------
    variables : sequence of Number or Category
        m of them: d, and with lags their past.
    moments : SampleMoments or sequence of SampleMoments
        Of all columns; or for each variable those of the rows that inform about its causes.
    edges : ndarray of bool, shape (m, d)
        The causes of the first d variables.

    Returns
    -------
    dict of int to list of int
        By category its causes that are numbers.
    """
    from flwr_causal.core.linear.regression import solved

    columns = columns_of([one.width for one in variables])
    own = moments_of_variables(moments, edges.shape[1])
    found: dict[int, list[int]] = {}
    for j in range(edges.shape[1]):
        causes = np.flatnonzero(edges[:, j]).tolist()
        numbers = [k for k in causes if not isinstance(variables[k], Category)]
        if not numbers or not isinstance(variables[j], Category):
            continue
        regressors: Any = np.concatenate([columns[k] for k in causes])
        second, mean = own[j].second, own[j].mean[columns[j]]
        slopes = solved(
            second[np.ix_(regressors, regressors)], second[np.ix_(regressors, columns[j])]
        )
        of_numbers = np.isin(regressors, np.concatenate([columns[k] for k in numbers]))
        part = slopes * of_numbers[:, None]
        linear = part.T @ second[np.ix_(regressors, regressors)] @ part
        # The state without a column is 1 less all others.
        spread = np.append(np.diagonal(linear), linear.sum())
        share = np.append(mean, 1.0 - mean.sum())
        if (np.minimum(share, 1.0 - share) < NEAR * np.sqrt(np.maximum(spread, 0.0))).any():
            found[j] = numbers
    return found

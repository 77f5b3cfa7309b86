"""Expectation-maximisation for rows with missing cells under known interventions.

An intervention replaces the mechanism of its target (:mod:`core.interventions.moments`), so that
rows of different sets of targets have different moments. What they share are the regressions of
each variable on those before it in an order of the variables. A step therefore

- takes the expected sums of each set of targets, by the moments of this set;
- regresses each variable on all variables before it, over the expected sums of the sets in which it
  is no target; in each of the others it has a mean and a covariance of its own, and no cause;
- composes the moments of each set of these.

Regressions on all predecessors leave the moments of rows without an intervention unrestricted: the
estimate does not favour the edges of a graph. The order is that of the best graph of the expected
sums. It is found anew in each step until the graph agrees with the order of the step before. The
first step begins with the moments of all rows, whatever the targets, which favour no order either.

Measured on linear systems of 20 variables with ten targets, 3,000 rows and 30 % missing cells, mean
errors of the class (12 systems): 0.0, as of complete rows; begun with an order that follows from
the pairs of cells that are seen together 7.3; if the targets are not stated 0.3, and the errors of
the weights three times as large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.blocks.missing import MomentEstimate, completed
from flwr_causal.core.blocks.search import BlockProblem
from flwr_causal.core.graphs.acyclicity import topological_order
from flwr_causal.core.interventions.moments import distinguished_pairs, moments_by_variable
from flwr_causal.core.linear.moments import columns_of, mean_and_second
from flwr_causal.core.linear.order_search import LEAST_EFFECT
from flwr_causal.core.linear.regression import solved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.blocks.missing import SeenSums
    from flwr_causal.core.graphs.knowledge import EdgeMasks

#: Added to the variances of a target, in units of those of all rows: an intervention may set a
#: column to one value.
LEAST_VARIANCE = 1e-6


def implied_by_targets(
    products: FloatArray,
    acted: BoolArray,
    widths: Sequence[int],
    order: Sequence[int],
    names: Sequence[str],
    unseen: SeenSums | None = None,
) -> MomentEstimate:
    """Return the moments of each set of targets, by the regressions that the sets share.

    Parameters
    ----------
    products : ndarray of shape (sets, 1 + w, 1 + w)
        Of the rows [1, x], summed over each set and divided by any number above 0.
    acted : ndarray of bool, shape (sets, m)
        The targets of each set.
    widths : sequence of int
        Columns of each of the m variables.
    order : sequence of int
        Of the m variables.
    names : sequence of str
        Of the m variables.
    unseen : SeenSums, optional
        Over all rows. Covariances of pairs of columns that no row has are those of
        :func:`~core.blocks.missing.completed`.

    Raises
    ------
    DataError
        If a variable is a target in all rows.
    """
    columns, (sets, w) = columns_of(widths), (len(products), products.shape[1] - 1)
    shares = products / products[:, 0, 0].sum()
    # The number of rows has no part in it.
    own_rows = moments_by_variable(shares, acted, 1, [str(k) for k in range(w)], names)
    mean, second = np.zeros((sets, w)), np.zeros((sets, w, w))
    before = columns[0][:0]
    for j in order:
        own, part = columns[j], MomentEstimate(own_rows[j].mean, own_rows[j].second)
        if unseen is not None:
            part = completed(part, unseen)
        shared = part.second[np.ix_(before, own)]
        weights = solved(part.second[np.ix_(before, before)], shared)
        left = part.second[np.ix_(own, own)] - weights.T @ shared
        for k in range(sets):
            if acted[k, j]:
                told = products[k, 0, 0] > 0
                level, spread = mean_and_second(products[k]) if told else part
                mean[k, own] = level[own]
                among = spread[np.ix_(own, own)] + LEAST_VARIANCE * np.eye(len(own))
            else:
                mean[k, own] = part.mean[own] + (mean[k, before] - part.mean[before]) @ weights
                across = second[k][np.ix_(before, before)] @ weights
                second[k][np.ix_(before, own)], second[k][np.ix_(own, before)] = across, across.T
                among = left + weights.T @ across
            second[k][np.ix_(own, own)] = (among + among.T) / 2
        before = np.concatenate([before, own])
    return MomentEstimate(mean, second)


class UnderTargets:
    """Sets of rows of different targets, which share the mechanisms of all other variables.

    Parameters
    ----------
    acted : ndarray of bool, shape (sets, d)
        The targets of each set.
    widths : sequence of int
        Columns of each of the m = d (1 + p) variables and lags.
    names : tuple of str
        Of the d variables.
    masks : EdgeMasks
        Background knowledge over the m variables and lags.
    num_rows : int
        By which edges are judged.
    seen : SeenSums
        Over the rows of all parties.
    """

    def __init__(
        self,
        acted: BoolArray,
        widths: Sequence[int],
        names: tuple[str, ...],
        masks: EdgeMasks,
        num_rows: int,
        seen: SeenSums,
    ) -> None:
        self._acted, self._widths, self._names = acted, widths, names
        self._masks, self._num_rows = masks, num_rows
        self._unseen = None if (seen.counts > 0).all() else seen
        # Lags are no targets: they come first, and are those of all rows.
        self._with_lags = np.pad(acted, ((0, 0), (0, len(widths) - len(names))))
        self._all_names = names * (len(widths) // len(names))
        self._rows: FloatArray = np.ones(len(acted))
        self._order: list[int] = []
        self._settled = False
        self.began = False

    def step(self, products: FloatArray) -> MomentEstimate:
        """Return the estimate after a step, for each set of targets."""
        self._rows, self.began = products[:, 0, 0], False
        if not self._settled:
            dag = self._graph(products)
            place = np.argsort(self._order)
            self._settled = bool(self._order) and all(
                place[i] < place[j] for i, j in np.argwhere(dag)
            )
            if not self._settled:
                d = len(self._names)
                now = [j for j in topological_order(dag) if j < d]
                self._order, self.began = [*range(d, len(dag)), *now], True
        return self._implied(products)

    def restricted(self, estimate: MomentEstimate) -> MomentEstimate:
        """Return the moments by the regressions that the sets share."""
        rows = np.pad(estimate.mean, ((0, 0), (1, 0)), constant_values=1.0)
        products = rows[:, :, None] * rows[:, None] + np.pad(
            estimate.second, ((0, 0), *[(1, 0)] * 2)
        )
        return self._implied(self._rows[:, None, None] * products)

    def _implied(self, products: FloatArray) -> MomentEstimate:
        return implied_by_targets(
            products, self._with_lags, self._widths, self._order, self._all_names, self._unseen
        )

    def _graph(self, products: FloatArray) -> BoolArray:
        """Return a DAG of the best class of the expected sums."""
        shares = products / products[:, 0, 0].sum()
        columns = [f"{k:06d}" for k in range(sum(self._widths))]
        own = moments_by_variable(shares, self._acted, self._num_rows, columns, self._names)
        apart = distinguished_pairs(self._acted)
        problem = BlockProblem.of(
            own,
            self._widths,
            self._names,
            self._masks,
            distinguished=apart,
            least_effect=LEAST_EFFECT,
        )
        return problem.best().dag

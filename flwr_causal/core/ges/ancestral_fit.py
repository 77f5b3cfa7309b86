"""The likelihood of linear Gaussian systems with hidden common causes, from second moments.

In a maximal ancestral graph i -> j is an effect of i on j, and i <-> j a covariance of their noise
terms, which a hidden common cause brings about. The likelihood is a product of one factor for each
district, the variables that such covariances connect; each is maximised apart.

References
----------
Drton, M., Eichler, M. & Richardson, T. (2009). Computing maximum likelihood estimates in recursive
linear models with correlated errors. JMLR 10.

Triantafillou, S. & Tsamardinos, I. (2016). Score-based vs constraint-based causal learning in the
presence of confounders. UAI workshop on causation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.pag.marks import ARROW, NONE, directed_edges
from flwr_causal.core.limits import least_eigenvalue
from flwr_causal.core.ties import LEAST_SHARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IndexArray, IntArray

# The fit of a district ends when its log likelihood for one row changes by less, or after so many
# sweeps.
TOLERANCE = 5e-7
MOST_SWEEPS = 200
# Scores of graphs are equal if they differ by less, for each row: fits that end so are no more
# exact.
FIT_TIE = TOLERANCE / 2


class AncestralScore:
    """The Gaussian BIC of maximal ancestral graphs of the same variables; lower is better.

    It is, up to a constant, the negative log likelihood plus the cost of the edges. Graphs with the
    same independences have the same.

    Parameters
    ----------
    correlations : ndarray of shape (m, m)
        Of all columns. Eigenvalues below :data:`~flwr_causal.core.ties.LEAST_SHARE` are raised to
        it, so that each graph has a score, of columns that others determine too.
    n : int
        Number of rows.
    edge_cost : float, or ndarray of shape (d, d)
        Symmetric where it is an array.
    widths : sequence of int, optional
        Number of columns of each of the d variables, side by side; an edge then joins all columns
        of both. Default: one each.

    Attributes
    ----------
    owner : ndarray of int, shape (m,)
        The variable of each column.
    """

    def __init__(
        self,
        correlations: FloatArray,
        n: int,
        edge_cost: float | FloatArray,
        widths: Sequence[int] | None = None,
    ) -> None:
        if np.linalg.eigvalsh(correlations).min(initial=1.0) < LEAST_SHARE:
            correlations = least_eigenvalue(correlations, LEAST_SHARE)
        self.correlations, self.n, self.edge_cost = correlations, n, edge_cost
        each = np.ones(len(correlations), dtype=np.intp) if widths is None else np.asarray(widths)
        self.owner = np.repeat(np.arange(len(each)), each)
        self._alike = self.owner[:, None] == self.owner
        np.fill_diagonal(self._alike, False)
        self._known: dict[tuple[bytes, ...], float] = {}

    def __call__(self, marks: IntArray) -> float:
        """Return the score of a graph of tails and arrowheads, ``(d, d)``."""
        directed, both = directed_edges(marks), (marks == ARROW) & (marks.T == ARROW)
        places = np.ix_(self.owner, self.owner)
        of_columns = directed[places], both[places] | self._alike
        total = 0.0
        for district in _districts(both):
            key = (district.tobytes(), directed[:, district].tobytes(), both[district].tobytes())
            if key not in self._known:
                columns = np.flatnonzero(np.isin(self.owner, district))
                self._known[key] = _deviance(self.correlations, *of_columns, columns)
            total += self._known[key]
        costs = np.broadcast_to(self.edge_cost, marks.shape)[marks != NONE]
        return 0.5 * self.n * total + 0.5 * float(costs.sum())


def _districts(both: BoolArray) -> list[IndexArray]:
    """Return the sets of variables that edges i <-> j connect."""
    if not both.any():
        return [np.array([k], dtype=np.intp) for k in range(len(both))]
    linked = ancestors(both | np.eye(len(both), dtype=np.bool_))
    return [np.flatnonzero(row) for k, row in enumerate(linked) if not row[:k].any()]


def _deviance(
    correlations: FloatArray, directed: BoolArray, both: BoolArray, district: IndexArray
) -> float:
    """Return -2 log likelihood of a district for one row, up to a constant; inf if it has none.

    Iterative conditional fitting: each variable is regressed on its causes and on what the noise
    terms of the other variables of its district predict of its own.
    """
    if len(district) == 1:
        (column,) = district
        return _deviance_of_one(correlations, np.flatnonzero(directed[:, column]), column)
    used = np.union1d(district, np.flatnonzero(directed[:, district].any(axis=1)))
    own = np.searchsorted(used, district)
    second = correlations[np.ix_(used, used)]
    causes = [np.flatnonzero(column) for column in directed[np.ix_(used, district)].T]
    partners = both[np.ix_(district, district)]
    # The noise terms as combinations of the variables, one a column, and their covariance.
    noise = np.zeros((len(used), len(district)))
    covariance = np.zeros((len(district), len(district)))
    before = np.inf
    try:
        for k, parents in enumerate(causes):
            noise[own[k], k] = 1
            noise[parents, k] = -_solved(second, parents, own[k])
            covariance[k, k] = noise[:, k] @ second @ noise[:, k]
        # Where all have the same causes and no covariance is 0, regression is the maximum.
        alike = all(np.array_equal(parents, causes[0]) for parents in causes)
        saturated = alike and int(partners.sum()) == len(district) * (len(district) - 1)
        if saturated:
            covariance = noise.T @ second @ noise
        for _ in range(0 if saturated else MOST_SWEEPS):
            for k, parents in enumerate(causes):
                _refit(second, noise, covariance, (k, own[k]), parents, partners[k])
            now = _value(second, noise, covariance)
            if before - now < TOLERANCE:
                break
            before = now
        return _value(second, noise, covariance)
    except np.linalg.LinAlgError:
        return np.inf


def _deviance_of_one(second: FloatArray, causes: IndexArray, column: int) -> float:
    """Return the deviance of one column, as :func:`_deviance`: that of a regression."""
    try:
        effects = _solved(second, causes, column)
    except np.linalg.LinAlgError:
        return np.inf
    left = float(second[column, column] - second[causes, column] @ effects)
    return float(np.log(left)) + 1.0 if left > 0 else np.inf


def _solved(second: FloatArray, parents: IndexArray, child: int) -> FloatArray:
    return np.linalg.solve(second[np.ix_(parents, parents)], second[parents, child])


def _refit(
    second: FloatArray,
    noise: FloatArray,
    covariance: FloatArray,
    place: tuple[int, int],
    parents: IndexArray,
    partners: BoolArray,
) -> None:
    """Fit one variable's effects and covariances of noise, the others fixed, in place.

    Parameters
    ----------
    second, noise, covariance
        As in :func:`_deviance`.
    place : (int, int)
        The variable among those of the district, and among those used.
    parents : ndarray of int
        Its causes among those used.
    partners : ndarray of bool
        Those of the district with a covariance.
    """
    k, child = place
    others = np.arange(len(covariance)) != k
    inverse = np.linalg.inv(covariance[np.ix_(others, others)])
    shared = partners[others]
    design = np.concatenate(
        [np.eye(len(second))[:, parents], (noise[:, others] @ inverse)[:, shared]], axis=1
    )
    reached = design.T @ second
    found = np.linalg.solve(reached @ design, reached[:, child])
    noise[parents, k] = -found[: len(parents)]
    own = np.zeros(len(covariance) - 1)
    own[shared] = found[len(parents) :]
    covariance[k, others] = covariance[others, k] = own
    left = second[child, child] - reached[:, child] @ found
    covariance[k, k] = left + own @ inverse @ own


def _value(second: FloatArray, noise: FloatArray, covariance: FloatArray) -> float:
    sign, logarithm = np.linalg.slogdet(covariance)
    if sign <= 0:
        return np.inf
    return float(logarithm + np.trace(np.linalg.solve(covariance, noise.T @ second @ noise)))

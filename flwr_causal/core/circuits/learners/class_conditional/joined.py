"""Class-conditional circuits of joined rows, of which only some parties know the class.

Parties with different columns compute products of their columns over common rows. Here these are:

- each number, in the coordinates of `learner` (a power transform, mean 0 and variance 1);
- an indicator of each class, at the parties that hold the target;
- each *labelled* number, one that all these parties hold, times each indicator.

From the sums of products follow, as from the joined rows, the means of all numbers in each class,
their covariance W within classes, and in each class the covariances S of the labelled numbers and X
of these with the other numbers. The covariance of the others in a single class is not among them.
Either all classes share W (linear discriminant analysis, Fisher 1936), or each has S and X of its
own, and all share the covariance R of the others given the labelled numbers::

    [[S, X], [X', R + X' S^-1 X]],    R = W_others - mean over rows of X' S^-1 X.

The likelihood with the penalty of Schwarz (1978) chooses. Correlations are shrunk by the share that
is best for normal variables (Schafer & Strimmer 2005), which needs no held-out rows.

References
----------
Fisher: The use of multiple measurements in taxonomic problems, Annals of Eugenics 1936.
Schafer & Strimmer: A shrinkage approach to large-scale covariance matrix estimation, Statistical
Applications in Genetics and Molecular Biology 2005.
Schwarz: Estimating the dimension of a model, Annals of Statistics 1978.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.learners.class_conditional.learner import ClassConditionalTrained
from flwr_causal.core.circuits.learners.class_conditional.moments import (
    FLOOR,
    BlockChoice,
    ClassMoments,
)
from flwr_causal.core.limits import least_eigenvalue
from flwr_causal.core.linear.moments import pairwise
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.learners.class_conditional.moments import Coordinates
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan


def labelled_numbers(plan: TrainingPlan, presence: BoolArray) -> list[int]:
    """Return the places, among the numbers, of those that all parties with the target hold.

    Parameters
    ----------
    plan : TrainingPlan
        With a target.
    presence : ndarray of bool, shape (parties, variables of the joint domain)
    """
    with_target = presence[presence[:, plan.target]]
    return np.flatnonzero(with_target[:, list(plan.numbers)].all(axis=0)).tolist()


@dataclass(frozen=True, eq=False)
class ClassColumns:
    """The D columns that are multiplied: d numbers, C classes, m labelled numbers of each class.

    Parameters
    ----------
    plan : TrainingPlan
        Of the joint domain, with the target.
    coordinates : Coordinates
        Of the d numbers.
    labelled : sequence of int
        Places of the m labelled numbers among the d.
    """

    plan: TrainingPlan
    coordinates: Coordinates
    labelled: Sequence[int]

    @property
    def owners(self) -> IntArray:
        """The variable whose holders hold each column, shape (D,)."""
        of_target = self.plan.num_classes * (1 + len(self.labelled))
        return np.array([*self.plan.numbers, *[self.plan.target] * of_target], dtype=np.int64)

    @property
    def wanted(self) -> BoolArray:
        """Which columns are multiplied, (D, D): all with numbers, and each with itself."""
        numbers = np.arange(len(self.owners)) < len(self.plan.numbers)
        return (numbers[:, None] | numbers) | np.eye(len(numbers), dtype=np.bool_)

    def values(self, rows: FloatArray, patterns: IntArray) -> FloatArray:
        """Return a party's columns, shape (n, D); 0 where it does not hold them.

        Parameters
        ----------
        rows : ndarray of float64, shape (n, variables of the joint domain)
            NaN in columns that the party does not hold.
        patterns : ndarray of int64, shape (n,)
            The pattern of each row, see `TrainingPlan.indicators`.
        """
        plan = self.plan
        z = np.nan_to_num(self.coordinates.apply(rows[:, list(plan.numbers)]))
        if np.isnan(rows[:, plan.target]).all():
            return np.pad(z, ((0, 0), (0, len(self.owners) - z.shape[1])))
        within = plan.indicators(plan.classes_of(rows), patterns)
        products = within[:, :, None] * z[:, None, list(self.labelled)]
        return np.hstack([z, within, products.reshape(len(z), -1)])

    def trained(
        self, products: FloatArray, sums: FloatArray, counts: IntArray
    ) -> ClassConditionalTrained:
        """Return the circuits.

        Parameters
        ----------
        products, sums : ndarray of float64, shape (D, D)
            Sums of products of columns i and j, and of column i, over the rows that know both.
        counts : ndarray of int64, shape (D, D)
            Numbers of these rows.

        Raises
        ------
        DataError
            If no class has two rows, or a class has no row that knows one of the numbers.
        """
        plan, d = self.plan, len(self.plan.numbers)
        classes = slice(d, d + plan.num_classes)
        rows = np.diagonal(products)[classes].copy()
        if not (rows >= 2).any():
            raise DataError(
                f"no class of {plan.names[plan.target or 0]!r} has two rows that count: nothing is "
                "known of how rows of a class differ; name another target or none"
            )
        known = sums[classes, :d]  # rows of each class that know a number
        few = (rows > 0)[:, None] & (known < 1)
        if few.any():
            c, j = np.argwhere(few)[0]
            raise DataError(
                f"the parties have no common row of class {c} of {plan.names[plan.target or 0]!r} "
                f"that knows {plan.names[plan.numbers[j]]!r}: join rare classes to others"
            )
        shares = rows / rows.sum()
        mean, total = pairwise(products[:d, :d], sums[:d, :d], counts[:d, :d])
        means = np.where(known > 0, products[classes, :d] / np.maximum(known, 1), mean)
        about = means - shares @ means
        within = _positive_definite(total - np.einsum("c,ci,cj->ij", shares, about, about))
        shape = plan.num_classes, len(self.labelled)
        of_class = products[d + plan.num_classes :, :d].reshape(*shape, d)
        own_sums = sums[d + plan.num_classes :, :d].reshape(*shape, d)
        number = np.maximum(known, 1)[:, None]
        of_class = of_class / number - own_sums / number * means[:, None]
        covariances = _covariances(within, of_class, rows, np.array(self.labelled, dtype=np.int64))
        choice = BlockChoice(np.inf, np.inf, np.zeros(d, dtype=np.int64))
        tables = np.zeros((plan.num_classes, 0))
        moments = ClassMoments(means, covariances)
        return ClassConditionalTrained(plan, rows, self.coordinates, moments, tables, choice)


class _Fit(NamedTuple):
    """Covariances (C, d, d), and the sum over rows of their log determinants."""

    covariances: FloatArray
    log_dets: float


def _covariances(
    within: FloatArray, of_class: FloatArray, rows: FloatArray, labelled: IntArray
) -> FloatArray:
    """Return the covariance of each class, shape (C, d, d).

    Parameters
    ----------
    within : ndarray of float64, shape (d, d)
        Of all classes.
    of_class : ndarray of float64, shape (C, m, d)
        Of labelled numbers with all numbers, in each class.
    rows : ndarray of float64, shape (C,)
    labelled : ndarray of int64, shape (m,)
    """
    shared, classes, m = _shared(within, rows), int((rows > 0).sum()), len(labelled)
    if classes == 1 or not m:
        return shared.covariances
    separate = _separate(within, of_class, rows, labelled)
    more = (classes - 1) * (m * (m + 1) / 2 + m * (len(within) - m))
    gain = shared.log_dets - separate.log_dets - more * np.log(rows.sum())
    return separate.covariances if gain > 0 else shared.covariances


def _shared(within: FloatArray, rows: FloatArray) -> _Fit:
    """Return one covariance for all classes."""
    shrunk = _shrunk(within, np.diagonal(within), rows.sum())
    return _Fit(np.repeat(shrunk[None], len(rows), axis=0), rows.sum() * _log_det(shrunk))


def _separate(
    within: FloatArray, of_class: FloatArray, rows: FloatArray, labelled: IntArray
) -> _Fit:
    """Return covariances of which those of labelled numbers are each class's own.

    The shared covariance counts as one row of each class, which may have too few of its own, and is
    that of a class without rows.
    """
    variances, d, n = np.diagonal(within), len(within), rows.sum()
    others = np.setdiff1d(np.arange(d), labelled)
    result, explained = np.zeros((len(rows), d, d)), np.zeros((len(others), len(others)))
    log_dets, present = 0.0, rows > 0
    for c in np.flatnonzero(present):
        block = (rows[c] * of_class[c] + within[labelled]) / (rows[c] + 1.0)
        block = _shrunk(block, variances, rows[c], labelled)
        inner = _positive_definite(block[:, labelled])
        cross = block[:, others]
        slopes = np.linalg.solve(inner, cross)
        result[c][np.ix_(labelled, labelled)] = inner
        result[c][np.ix_(labelled, others)] = cross
        result[c][np.ix_(others, labelled)] = cross.T
        result[c][np.ix_(others, others)] = cross.T @ slopes
        explained += rows[c] / n * result[c][np.ix_(others, others)]
        log_dets += rows[c] * _log_det(inner)
    rest = _positive_definite(within[np.ix_(others, others)] - explained)
    rest = _shrunk(rest, np.diagonal(rest), n)
    result[:, others[:, None], others] += rest
    result[~present] = within
    return _Fit(result, log_dets + n * _log_det(rest))


def _shrunk(
    block: FloatArray, variances: FloatArray, n: float, rows: IntArray | None = None
) -> FloatArray:
    """Return some rows of a covariance matrix with smaller correlations; default: all rows.

    The share by which they are reduced has the least mean square error where correlations r have
    the variance (1 - r^2)^2 / (n - 1), as those of normal variables (Schafer & Strimmer 2005).
    """
    places = np.arange(len(block)) if rows is None else rows
    diagonal = np.equal.outer(places, np.arange(block.shape[1]))
    squares = np.minimum(block**2 / np.outer(variances[places], variances), 1.0)[~diagonal]
    noise = ((1.0 - squares) ** 2).sum() / max(n - 1.0, 1.0)
    share = min(1.0, noise / squares.sum()) if squares.sum() > 0 else 1.0
    return np.where(diagonal, block, (1.0 - share) * block)


def _positive_definite(matrix: FloatArray) -> FloatArray:
    """Return a covariance with eigenvalues of at least `FLOOR`; moments may be of other rows."""
    even = (matrix + matrix.T) / 2
    return least_eigenvalue(even, FLOOR) if len(even) else even


def _log_det(matrix: FloatArray) -> float:
    return float(np.linalg.slogdet(matrix)[1])

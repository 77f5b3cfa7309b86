"""Dependence between columns that no party holds together, from random projections of shared rows.

Parties with ids of their rows can measure how their columns depend without showing rows. A row's id
and a secret of the parties determine `DRAWS` standard normal numbers, the same at every party. A
party multiplies each of its columns by these numbers and adds up over the rows that all parties
have. The inner product of the projections of two columns, divided by `DRAWS`, estimates the inner
product of the columns, whoever holds them (Johnson & Lindenstrauss 1984): the error of a
correlation is at most 1 / sqrt(DRAWS), .02. To those who do not know the secret, the projections of
all columns together are draws from a normal distribution whose covariance is that of the columns:
they disclose second moments and nothing else.

Columns enter as scores within classes: normal scores of the ranks of a number or an interval, and
the indicators of a category's states. Two things follow from the projections.

- `Dependence.coherence`: correlations within classes between columns of different parties, which
  class-conditional circuits lack if their exchanges align no rows (`class_conditional.pattern`).
  `with_dependence` puts them in.
- `Dependence.strongest_nonlinear`: dependence that no covariance expresses (y = x^2), from the
  correlations of the second and third Hermite polynomials of normal scores. Of normal variables
  with correlation r these are r^2 and r^3, and 0 between different degrees.

References
----------
Gavish & Donoho: Optimal shrinkage of singular values, IEEE Transactions on Information Theory 2017.
Johnson & Lindenstrauss: Extensions of Lipschitz mappings into a Hilbert space, 1984.
Miller: Note on the bias of information estimates, Information Theory in Psychology 1955.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from flwr_causal.core.circuits.learners.class_conditional.joint_moments import (
    completed,
    known_groups,
)
from flwr_causal.core.ties import first_largest, first_smallest
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.class_conditional.learner import ClassConditionalTrained

#: Random numbers of a row, and projections of a column.
DRAWS = 2048
#: Correlations of a class are shrunk to those of all classes by this many rows for each score.
POOLED_ROWS = 2.0
#: Least eigenvalue of correlations: two parties may hold copies of one column.
LEAST_EIGENVALUE = 1e-4
#: Correlation of polynomials above which the dependence of two columns counts as nonlinear. Linear
#: systems of four to twelve columns and 300 to 2,000 rows have at most .24; y = x^2 has .8, sines
#: and products .5, columns of four clusters of rows .4, breast cancer .4.
NONLINEAR = 0.35
#: Above this a single pair is reported, however strong the linear dependence of all columns.
CLEARLY_NONLINEAR = 0.5
#: Nonlinear dependence is reported above this share of the mutual information of the coherence.
NONLINEAR_SHARE = 0.1
#: So many standard errors of a correlation are chance: thousands of pairs are looked at.
CHANCE = 6.0
#: A polynomial of which less than this share is left after regression on the lower ones counts as
#: 0.
LEAST_SHARE = 1e-3
#: Scores of one column at two parties that correlate less than this are not of the same rows.
ALIKE = 0.9
#: Mutual information below this many nats a row is not reported.
NOTABLE_NATS = 0.05


# -- a party's scores and their projections --------------------------------------------------------


def score_columns(domain: Domain, target: str | None) -> IntArray:
    """Return the column of each score: a number or an interval has one, k states have k - 1."""
    columns: list[int] = []
    for j, variable in enumerate(domain.variables):
        if variable.name != target:
            columns += [j] * (1 if variable.states is None else max(variable.num_states - 1, 1))
    return np.array(columns, dtype=np.int64)


def scores_of(
    domain: Domain, values: FloatArray, classes: IntArray, target: str | None
) -> FloatArray:
    """Return the scores of rows, with mean 0 and variance 1 within each class.

    Parameters
    ----------
    domain : Domain
        Of the party's columns.
    values : ndarray of float64, shape (n, number of variables)
    classes : ndarray of int64, shape (n,)
    target : str or None
        The class, which has no scores.

    Returns
    -------
    ndarray of float64, shape (n, scores)
        Of `score_columns`; 0 where a value is missing or a column is constant in the class.
    """
    parts = []
    for j, variable in enumerate(domain.variables):
        if variable.name == target:
            continue
        if variable.states is None:
            parts.append(values[:, [j]])
        else:
            states = np.arange(1, max(variable.num_states, 2))
            indicators = (values[:, [j]] == states).astype(np.float64)
            parts.append(np.where(np.isnan(values[:, [j]]), np.nan, indicators))
    scores = np.concatenate(parts, axis=1) if parts else np.zeros((len(values), 0))
    for c in np.unique(classes):
        of_class = classes == c
        for k in range(scores.shape[1]):
            scores[of_class, k] = _normal_scores(scores[of_class, k])
    return scores


def polynomials(scores: FloatArray) -> FloatArray:
    """Return the second and third Hermite polynomials of scores (n, k), shape (2, n, k).

    They are made uncorrelated with each other and with the scores, and have mean 0 and variance 1;
    of a column of two different values they are 0.
    """
    size = np.maximum((scores**2).sum(axis=0), 1.0)
    known = [scores / np.sqrt(size)]
    for raw in (scores**2 - 1.0, scores**3 - 3.0 * scores):
        rest = raw - raw.mean(axis=0)
        length = np.sqrt((rest**2).sum(axis=0))
        for one in known:
            rest = rest - one * (one * rest).sum(axis=0)
        left = np.sqrt((rest**2).sum(axis=0))
        there = left > LEAST_SHARE * length
        known.append(np.where(there, rest / np.where(there, left, 1.0), 0.0))
    return np.asarray(np.stack(known[1:]) * np.sqrt(len(scores)))


class Projections(NamedTuple):
    """Random projections of a party's scores: sums over rows.

    Parameters
    ----------
    counts : ndarray of int64, shape (classes,)
        Rows of each class.
    linear : ndarray of float64, shape (classes, DRAWS, scores)
    nonlinear : ndarray of float64, shape (2, DRAWS, scores)
        Of `polynomials`, over all classes.
    """

    counts: IntArray
    linear: FloatArray
    nonlinear: FloatArray


def projected(
    scores: FloatArray,
    classes: IntArray,
    num_classes: int,
    draws: Iterable[FloatArray],
    min_rows: int = 1,
) -> Projections:
    """Project scores.

    Parameters
    ----------
    scores : ndarray of float64, shape (n, k)
        Of `scores_of`.
    classes : ndarray of int64, shape (n,)
    num_classes : int
    draws : iterable of ndarray of float64, shape (rows, DRAWS)
        The rows' random numbers, some rows at a time.
    min_rows : int, default 1
        A class of fewer rows is left out.
    """
    counts = np.bincount(classes, minlength=num_classes)
    counts = np.where(counts >= min_rows, counts, 0)
    kept = (counts > 0)[classes].astype(np.float64)[:, None]
    nonlinear = polynomials(scores) * kept
    result = Projections(
        counts.astype(np.int64),
        np.zeros((num_classes, DRAWS, scores.shape[1])),
        np.zeros((2, DRAWS, scores.shape[1])),
    )
    start = 0
    for numbers in draws:
        rows = slice(start, start + len(numbers))
        for c in np.flatnonzero(counts):
            of_class = classes[rows] == c
            result.linear[c] += numbers[of_class].T @ scores[rows][of_class]
        result.nonlinear[:] += numbers.T @ nonlinear[:, rows]
        start += len(numbers)
    return result


def _normal_scores(column: FloatArray) -> FloatArray:
    """Return normal scores of the ranks of known values, standardised; 0 where one is missing."""
    result, known = np.zeros(len(column)), ~np.isnan(column)
    if known.any():
        ranks = rankdata(column[known])
        scores = ndtri((ranks - 0.5) / len(ranks))
        deviation = scores.std()
        if deviation > 0:
            result[known] = (scores - scores.mean()) / deviation
    return result


# -- what follows at the server --------------------------------------------------------------------


class DependentPair(NamedTuple):
    """Two columns and how strongly they depend: a correlation of scores, or of polynomials."""

    first: int
    second: int
    correlation: float


class Copies(NamedTuple):
    """A column at two parties, and the correlation of its scores in the common rows."""

    column: int
    first: int
    second: int
    correlation: float


@dataclass(frozen=True, eq=False)
class Dependence:
    """Dependence between columns that no party holds together, within classes.

    Parameters
    ----------
    columns : ndarray of int64, shape (scores,)
        Column of the joint domain of each score.
    groups : ndarray of int64, shape (scores,)
        Which scores belong to columns that the same parties hold, the group of most holders first:
        each group is regressed on those before it.
    coherence : ndarray of float64, shape (classes, scores, scores)
        Correlations of the scores after all dependence is taken out that follows from columns held
        together: the identity where that is all there is.
    shares : ndarray of float64, shape (classes,)
        Of the rows.
    strongest : DependentPair
        The pair of columns apart with the largest correlation within classes.
    strongest_nonlinear : DependentPair
        The pair of columns apart whose polynomials differ most from those of normal variables.
    enough : bool
        Whether there are enough rows for an estimate; if not, the coherence is the identity.
    nonlinear_nats : float
        Mutual information of the pairs with nonlinear dependence, in nats a row, added up.
    least_alike : Copies
        The column that two parties hold with the most different values in the common rows.
    """

    columns: IntArray
    groups: IntArray
    coherence: FloatArray
    shares: FloatArray
    strongest: DependentPair
    strongest_nonlinear: DependentPair
    enough: bool
    nonlinear_nats: float
    least_alike: Copies

    @property
    def nats(self) -> float:
        """Mutual information of normal variables with this coherence, in nats a row."""
        _, log_dets = np.linalg.slogdet(self.coherence)
        return float(-0.5 * self.shares @ log_dets)

    @property
    def notable(self) -> bool:
        """Whether the linear dependence is worth a report."""
        return self.nats >= NOTABLE_NATS

    @property
    def mostly_nonlinear(self) -> bool:
        """Whether a good part of the dependence is one that no covariance expresses."""
        return self.nonlinear_nats > max(NOTABLE_NATS, NONLINEAR_SHARE * self.nats)

    @property
    def nonlinear(self) -> bool:
        """Whether dependence that no covariance expresses is worth a report."""
        strong = (
            self.nonlinear_nats > 0
            and abs(self.strongest_nonlinear.correlation) > CLEARLY_NONLINEAR
        )
        return strong or self.mostly_nonlinear


def measured(
    domain: Domain, presence: BoolArray, target: str | None, given: Sequence[Projections]
) -> Dependence:
    """Return the dependence that projections of the same rows show.

    Parameters
    ----------
    domain : Domain
        The joint one.
    presence : ndarray of bool, shape (parties, columns)
    target : str or None
    given : sequence of Projections
        Of each party: the scores of its columns, in the joint order.

    Raises
    ------
    DataError
        If a party has projected other scores than its columns have, or counts other rows.
    """
    columns = score_columns(domain, target)
    counts = given[0].counts
    for party, (held, one) in enumerate(zip(presence, given, strict=True)):
        size = int(held[columns].sum())
        expected = (len(counts), DRAWS, size), (2, DRAWS, size)
        if (one.linear.shape, one.nonlinear.shape) != expected or not np.array_equal(
            one.counts, counts
        ):
            raise DataError(
                f"party {party} has projected {one.linear.shape} and {one.nonlinear.shape} scores "
                f"of {one.counts.tolist()} rows by class, expected {expected[0]} and "
                f"{expected[1]} of {counts.tolist()}: parties differ in the classes of "
                "their common rows, or in the version of flwr-causal"
            )
    linear = _scores_of_first_holders(columns, presence, [one.linear for one in given])
    nonlinear = _scores_of_first_holders(columns, presence, [one.nonlinear for one in given])
    held = presence[:, columns].astype(np.int64)
    apart = held.T @ held == 0
    total = max(int(counts.sum()), 1)
    correlations = np.stack([_correlations(one) for one in linear])
    pooled = np.einsum("c,cij->ij", counts / total, correlations)
    size = len(columns)
    np.fill_diagonal(pooled, 1.0)
    extra = POOLED_ROWS * size
    holders, place = np.unique(held, axis=1, return_inverse=True)
    groups = np.argsort(np.argsort(-holders.sum(axis=0), kind="stable"))[place.reshape(-1)]
    others = np.sqrt(apart.sum(axis=1))
    spread = (others.max() + others[others > 0].min()) ** 2
    enough = bool(spread < total)
    coherence = np.tile(np.eye(size), (len(counts), 1, 1))
    for c in range(len(counts) if enough else 0):
        shrunk = (counts[c] * correlations[c] + extra * pooled) / (counts[c] + extra)
        chance = spread * (1.0 / (counts[c] + extra) + 1.0 / DRAWS)
        coherence[c] = _coherence(shrunk, apart, groups, chance)
    every = np.concatenate([linear.sum(axis=0, keepdims=True), nonlinear])
    unexplained = np.where(apart, _excess_correlations(every, pooled), 0.0)
    bound = max(NONLINEAR, CHANCE * float(np.sqrt(1.0 / total + 1.0 / DRAWS)))
    found = unexplained[np.abs(unexplained) > bound]
    return Dependence(
        columns,
        groups.astype(np.int64),
        coherence,
        counts / total,
        _strongest_pair(columns, np.where(apart, pooled, 0.0)),
        _strongest_pair(columns, unexplained),
        enough,
        # Each pair is there twice.
        float(0.25 * np.log(1.0 / np.maximum(1.0 - found**2, LEAST_EIGENVALUE)).sum()),
        _least_alike(columns, presence, given),
    )


def _least_alike(columns: IntArray, presence: BoolArray, given: Sequence[Projections]) -> Copies:
    """Return the column whose projections at two parties differ most; 1 where none is shared.

    The same values in the same rows have the same projections.
    """
    found = Copies(0, 0, 0, 1.0)
    places = np.arange(len(columns))
    for one, other in combinations(range(len(given)), 2):
        both = presence[one, columns] & presence[other, columns]
        first, second = (
            given[k].linear.sum(axis=0)[
                :, np.searchsorted(places[presence[k, columns]], places[both])
            ]
            for k in (one, other)
        )
        lengths = np.sqrt((first**2).sum(axis=0) * (second**2).sum(axis=0))
        products = (first * second).sum(axis=0)
        alike = np.where(lengths > 0, products / np.where(lengths > 0, lengths, 1.0), 1.0)
        if both.any() and alike.min() < found.correlation:
            worst = int(first_smallest(alike))
            found = Copies(int(columns[places[both][worst]]), one, other, float(alike[worst]))
    return found


def with_dependence(
    trained: ClassConditionalTrained, dependence: Dependence
) -> ClassConditionalTrained:
    """Return class-conditional circuits with the dependence in their covariances.

    The covariance L L' of a class, without dependence between columns apart, becomes L T L' with
    the coherence T. The covariances of columns held together stay as they are where each column is
    held by one party or by all.
    """
    moments = trained.moments
    at = np.flatnonzero(np.isin(dependence.columns, trained.plan.numbers))
    covariances = []
    for covariance, added in zip(moments.covariances, dependence.coherence, strict=True):
        deviations = np.sqrt(np.diagonal(covariance))
        root = _block_root(covariance / np.outer(deviations, deviations), dependence.groups[at])
        root = root * deviations[:, None]
        covariances.append(root @ added[np.ix_(at, at)] @ root.T)
    return replace(trained, moments=moments._replace(covariances=np.stack(covariances)))


def _scores_of_first_holders(
    columns: IntArray, presence: BoolArray, arrays: Sequence[FloatArray]
) -> FloatArray:
    """Return the scores of all columns, each from the first party that holds it."""
    result = np.zeros((*arrays[0].shape[:-1], len(columns)))
    for held, array in reversed(list(zip(presence, arrays, strict=True))):
        result[..., held[columns]] = array
    return result


def _correlations(projections: FloatArray) -> FloatArray:
    """Return the correlations of scores from their projections (DRAWS, k); 0 where one is 0."""
    lengths = np.sqrt((projections**2).sum(axis=0))
    unit = projections / np.where(lengths > 0, lengths, 1.0)
    result = unit.T @ unit
    np.fill_diagonal(result, 1.0)
    return np.asarray(result)


def _coherence(
    correlations: FloatArray, apart: BoolArray, groups: IntArray, chance: float
) -> FloatArray:
    """Return the correlations after those that follow from columns held together.

    Eigenvalues are shrunk by the largest that chance alone gives (Gavish & Donoho 2017): of
    independent columns nothing is left, and strong dependence stays.

    Parameters
    ----------
    correlations : ndarray of float64, shape (k, k)
    apart : ndarray of bool, shape (k, k)
    groups : ndarray of int64, shape (k,)
    chance : float
        Square of the largest eigenvalue of independent columns.
    """
    known = known_groups(~apart)
    root = np.linalg.inv(_block_root(completed(correlations, *known), groups))
    values, vectors = np.linalg.eigh(root @ correlations @ root.T)
    excess = (values - 1.0) ** 2
    left = np.maximum(excess - chance * np.maximum(1.0 - excess, 0.0), 0.0)
    values = np.maximum(1.0 + np.copysign(np.sqrt(left), values - 1.0), LEAST_EIGENVALUE)
    coherence = np.asarray((vectors * values) @ vectors.T)
    root = np.linalg.inv(_block_root(completed(coherence, *known), groups))
    return np.asarray(root @ coherence @ root.T)


def _block_root(matrix: FloatArray, groups: IntArray) -> FloatArray:
    """Return F with F F' = matrix, block triangular in the order of the groups.

    A group's own block is symmetric: of all roots, it changes the group's scores least.
    """
    values, vectors = np.linalg.eigh(matrix)
    positive = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
    order = np.argsort(groups, kind="stable")
    factor = np.linalg.cholesky(positive[np.ix_(order, order)])
    for group in np.unique(groups):
        of_group = np.flatnonzero(groups[order] == group)
        left, _, right = np.linalg.svd(factor[np.ix_(of_group, of_group)])
        factor[:, of_group] = factor[:, of_group] @ (right.T @ left.T)
    result = np.zeros_like(matrix)
    result[np.ix_(order, order)] = factor
    return result


def _excess_correlations(projections: FloatArray, correlations: FloatArray) -> FloatArray:
    """Return by how much polynomials correlate more than those of normal variables, (k, k).

    Parameters
    ----------
    projections : ndarray of float64, shape (3, DRAWS, k)
        Of the scores and of their polynomials.
    correlations : ndarray of float64, shape (k, k)
        Of the scores.

    Returns
    -------
    ndarray of float64
        Of all pairs of degrees but (1, 1) the difference of the largest size.
    """
    size = len(correlations)
    there = (projections != 0).any(axis=1)
    every = _correlations(np.concatenate(list(projections), axis=1))
    blocks = every.reshape(3, size, 3, size).transpose(0, 2, 1, 3).copy()
    for degree in range(3):
        both = np.outer(there[degree], there[degree])
        blocks[degree, degree] -= np.where(both, correlations ** (degree + 1), 0.0)
    differences = blocks.reshape(9, size, size)[1:]
    best = first_largest(np.abs(differences), axis=0)
    return np.asarray(np.take_along_axis(differences, best[None], axis=0)[0])


def _strongest_pair(columns: IntArray, correlations: FloatArray) -> DependentPair:
    i, j = np.unravel_index(int(first_largest(np.abs(correlations))), correlations.shape)
    first, second = sorted((int(columns[i]), int(columns[j])))
    return DependentPair(first, second, float(correlations[i, j]))

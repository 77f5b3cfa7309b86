"""Moments of rows with missing cells: expectation-maximisation by sums over rows (Dempster 1977).

A party's sums of one step are those of its rows with each missing cell replaced by its conditional
expectation given the seen cells of its row, plus the conditional covariances. They have the form of
the second moments of complete rows, so that the steps over all parties' sums are those over the
pooled rows. The estimate is that of maximum likelihood for Gaussian rows where cells are missing at
random: whether a cell is missing may depend on the seen cells of its row, not on its own value.

The first estimate is made of the pairs of cells that are seen together, and the steps are
accelerated (Anderson 1965; Walker & Ni 2011), since each of them is an exchange.

References
----------
Dempster, A. P., Laird, N. M. & Rubin, D. B. (1977). Maximum likelihood from incomplete data via the
EM algorithm. JRSS B 39.

Walker, H. F. & Ni, P. (2011). Anderson acceleration for fixed-point iterations. SIAM J. Numer.
Anal. 49.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from scipy.special import ndtri

from flwr_causal.core.arrays import symmetric, upper_triangles
from flwr_causal.core.limits import least_eigenvalue
from flwr_causal.core.linear.determined import RIDGE
from flwr_causal.core.linear.moments import mean_and_second, pairwise
from flwr_causal.core.ties import as_ranked, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

#: Conditional covariances of so many entries are computed at a time.
CHUNK = 2**22
#: Least eigenvalue of the first estimate's correlations. With .002 the steps diverged where parties
#: lack a fifth of the columns (d = 20, 3,000 rows).
LEAST_EIGENVALUE = 0.02
#: Fewer rows that have two columns, or half of the mean over all pairs, show no edge between them:
#: a partial correlation of .5 among 20 variables pays for an edge from about 40 rows on.
FEWEST_TOGETHER = 30
#: An estimate stands once no moment, in units of the columns, changes by more in a step; it is then
#: within 1e-3 of the estimate of the pooled rows (tests/strategies/test_moments_missing.py).
TOLERANCE = 2e-4
#: Most steps, and how many of them the acceleration looks back.
MOST_STEPS, MEMORY = 50, 5
#: A party of fewer rows for each of its columns takes one step from the common estimate.
ROWS_FOR_OWN = 5
#: Most steps of a party by itself, and the change after which it stops.
MOST_OWN, OWN_TOLERANCE = 50, 1e-4
#: The change of a party's own means, in standard deviations, after which they stand.
LEVEL_TOLERANCE = 1e-6
#: Most cycles over the pairs that no row has together.
MOST_CYCLES = 30
#: Probability, over all pairs of columns, of a warning though cells are missing completely at
#: random.
CHANCE = 1e-3


class SeenSums(NamedTuple):
    """Sums over the rows in which two cells are seen, each of shape (d, d).

    Parameters
    ----------
    counts
        At [i, j] the rows in which i and j are seen.
    sums
        Of the column i over these rows.
    products
        Of the columns i and j over these rows.
    """

    counts: FloatArray
    sums: FloatArray
    products: FloatArray


class MomentEstimate(NamedTuple):
    """Means and central second moments of all columns, or those of each of several sets of rows.

    Parameters
    ----------
    mean : ndarray of shape (d,) or (sets, d)
    second : ndarray of shape (d, d) or (sets, d, d)
        Positive definite.
    """

    mean: FloatArray
    second: FloatArray

    def of_set(self, number: int) -> MomentEstimate:
        """Return the estimate of one set of rows."""
        return MomentEstimate(self.mean[number], self.second[number])

    def without(self, alone: BoolArray) -> MomentEstimate:
        """Return this estimate of one set without the covariances of some columns with others."""
        joined = ~(alone[:, None] | alone)
        second = np.where(joined | np.eye(len(alone), dtype=np.bool_), self.second, 0.0)
        return MomentEstimate(self.mean, second)

    def for_sets(self, count: int) -> MomentEstimate:
        """Return this estimate for each of several sets of rows."""
        shape = (count, *self.mean.shape)
        mean = np.broadcast_to(self.mean, shape)
        return MomentEstimate(mean, np.broadcast_to(self.second, (*shape, shape[-1])))


def seen_sums(rows: FloatArray, weights: FloatArray | None = None) -> SeenSums:
    """Return the sums of rows, shape (n, d), in which missing cells are NaN.

    Each row counts as its weight, shape (n,); default: once.
    """
    seen = ~np.isnan(rows)
    filled, marks = np.where(seen, rows, 0.0), seen.astype(np.float64)
    by_filled, by_marks = _times(weights, filled), _times(weights, marks)
    return SeenSums(marks.T @ by_marks, filled.T @ by_marks, filled.T @ by_filled)


def _times(weights: FloatArray | None, rows: FloatArray) -> FloatArray:
    """Return rows times their weights, if there are any."""
    return rows if weights is None else weights[:, None] * rows


def effective_rows(counts: FloatArray) -> int:
    """Return the mean number of rows that have two columns, from those of each pair, (d, d)."""
    d = len(counts)
    pairs = ~np.eye(d, dtype=np.bool_) if d > 1 else np.ones((d, d), dtype=np.bool_)
    return max(whole(float(counts[pairs].mean())), 1)


def few_together(seen: SeenSums) -> BoolArray:
    """Return the mask of pairs of columns in fewer than :data:`FEWEST_TOGETHER` rows, (d, d)."""
    found = seen.counts < min(FEWEST_TOGETHER, seen.counts.mean() / 2)
    np.fill_diagonal(found, val=False)
    return np.asarray(found)


def first_estimate(seen: SeenSums) -> MomentEstimate:
    """Return the estimate with which the steps begin.

    Correlations are those of the rows in which both cells are seen. Pairs that few rows have
    together get those of two columns that are independent given all others, which leave the least
    trace of an edge between them (Dempster 1972). Eigenvalues below :data:`LEAST_EIGENVALUE` are
    raised.

    Parameters
    ----------
    seen : SeenSums
        Over the rows of all parties; each column is seen in some row and varies.
    """
    known = ~few_together(seen)
    mean, second = pairwise(seen.products, seen.sums, np.where(known, seen.counts, 1.0))
    scale = np.sqrt(np.diagonal(second))
    correlations = np.clip(np.where(known, second / np.outer(scale, scale), 0.0), -1.0, 1.0)
    raised = least_eigenvalue(correlations, LEAST_EIGENVALUE)
    own = np.sqrt(np.diagonal(raised))
    found = _completed(raised / np.outer(own, own), known)
    return MomentEstimate(mean, found * np.outer(scale, scale))


def completed(estimate: MomentEstimate, seen: SeenSums) -> MomentEstimate:
    """Return an estimate with the covariances of pairs that no row has as in the first estimate.

    The likelihood does not depend on them.
    """
    if (seen.counts > 0).all():
        return estimate
    scale = np.sqrt(np.diagonal(estimate.second))
    found = _completed(estimate.second / np.outer(scale, scale), seen.counts > 0)
    return MomentEstimate(estimate.mean, found * np.outer(scale, scale))


def _completed(correlations: FloatArray, known: BoolArray) -> FloatArray:
    """Fill in the correlations of unknown pairs, so that the precision of each pair is 0.

    Each cycle sets one pair after the other (Speed & Kiiveri 1986), until none changes by 1e-4: the
    covariance of the two given all others, which is that of the block of the precisions, becomes 0.
    """
    found = correlations.copy()
    pairs = np.argwhere(np.triu(~known, 1))
    for _ in range(MOST_CYCLES if len(pairs) else 0):
        precisions, largest = np.linalg.inv(found), 0.0
        for pair in pairs:
            i, j = pair
            own = precisions[np.ix_(pair, pair)]
            by = own[0, 1] / (own[0, 0] * own[1, 1] - own[0, 1] ** 2)
            if by == 0:
                continue
            found[i, j] = found[j, i] = found[i, j] + by
            largest = max(largest, abs(by))
            # The inverse after a change of rank two.
            middle = np.linalg.inv(own + np.array([[0.0, 1 / by], [1 / by, 0.0]]))
            precisions -= precisions[:, pair] @ middle @ precisions[pair]
        if largest < 1e-4:
            break
    return found


class Completed(NamedTuple):
    """Rows that lack equally many cells, as expected from their seen cells.

    Parameters
    ----------
    numbers : ndarray of int64, shape (n,)
        Which of the given rows they are.
    rows : ndarray of shape (n, d)
        Missing cells are their conditional means.
    places : ndarray of int64, shape (n, count)
        The columns of the missing cells, ascending.
    covariances : ndarray of shape (n, count, count)
        Of the missing cells given the seen ones.
    """

    numbers: IntArray
    rows: FloatArray
    places: IntArray
    covariances: FloatArray


def completions(rows: FloatArray, estimate: MomentEstimate) -> Iterator[Completed]:
    """Yield the rows of which a cell is seen with what is expected of the others.

    By the precision K of all columns the missing cells m of a row have the conditional covariance
    inv(K_mm), and their deviations the conditional mean -inv(K_mm) K_ms x_s of the seen ones s.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Missing cells are NaN.
    estimate : MomentEstimate
    """
    precision: FloatArray = np.asarray(np.linalg.inv(estimate.second), dtype=np.float64)
    missing = np.isnan(rows).sum(axis=1)
    for count in np.unique(missing[missing < rows.shape[1]]):
        of_count = np.flatnonzero(missing == count)
        size = max(CHUNK // max(count, 1) ** 2, 1)
        for start in range(0, len(of_count), size):
            part = of_count[start : start + size]
            found = _completion(rows[part], int(count), estimate.mean, precision)
            yield Completed(part, *found)


def _completion(
    rows: FloatArray, count: int, mean: FloatArray, precision: FloatArray
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return what is expected of rows that lack ``count`` cells each, see :class:`Completed`."""
    n, lacking = len(rows), np.isnan(rows)
    places, own = np.nonzero(lacking)[1].reshape(n, count), np.arange(n)[:, None]
    deviations = np.where(lacking, 0.0, rows - mean)
    covariances = np.linalg.inv(precision[places[:, :, None], places[:, None, :]])
    if count:
        pull = (deviations @ precision)[own, places]
        deviations[own, places] = -np.einsum("nab,nb->na", covariances, pull)
    return mean + deviations, places, np.asarray(covariances, dtype=np.float64)


def expected_sums(
    rows: FloatArray, estimate: MomentEstimate, weights: FloatArray | None = None
) -> FloatArray:
    """Return the sums of one step, over the rows of which a cell is seen.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Missing cells are NaN.
    estimate : MomentEstimate
    weights : ndarray of shape (n,), optional
        As what each row counts; default: once. What is expected does not depend on them.

    Returns
    -------
    ndarray of shape (1 + d, 1 + d)
        Expected products of the rows [1, x] given their seen cells.
    """
    d = rows.shape[1]
    products: FloatArray = np.zeros((1 + d, 1 + d))
    for part in completions(rows, estimate):
        full = np.column_stack([np.ones(len(part.rows)), part.rows])
        own = None if weights is None else weights[part.numbers]
        products += full.T @ _times(own, full)
        if part.places.size:
            pairs = (part.places[:, :, None] * d + part.places[:, None, :]).ravel()
            left = _times(own, part.covariances.reshape(len(full), -1))
            added = np.bincount(pairs, left.ravel(), d * d).reshape(d, d)
            products[1:, 1:] += (added + added.T) / 2
    return products


def at_own_level(rows: FloatArray, estimate: MomentEstimate) -> MomentEstimate:
    """Return the estimate with the mean that is most likely of these rows.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Missing cells are NaN. Of a column without a cell the mean follows from the others'.
    estimate : MomentEstimate
        Whose second moments are those about the level of each party.
    """
    scale = np.sqrt(np.diagonal(estimate.second))
    for _ in range(MOST_OWN):
        sums = expected_sums(rows, estimate)
        if not sums[0, 0]:
            break
        mean = sums[0, 1:] / sums[0, 0]
        moved = float((np.abs(mean - estimate.mean) / scale).max())
        estimate = estimate._replace(mean=mean)
        if moved < LEVEL_TOLERANCE:
            break
    return estimate


def levels_of_seen(seen: SeenSums) -> FloatArray:
    """Return what one party's sums say of its levels: arrays as of the sums, shape (3, d, d).

    At [i, i] of the first whether the party has cells of the column, of the last the square of
    their sum by their number; 0 elsewhere.
    """
    counts, sums = np.diagonal(seen.counts), np.diagonal(seen.sums)
    squares = np.divide(sums**2, counts, out=np.zeros_like(sums), where=counts > 0)
    return np.array([np.diag(counts > 0), np.zeros_like(seen.counts), np.diag(squares)])


class Maximisation(Protocol):
    """What follows from expected sums: the estimate of a step."""

    @property
    def began(self) -> bool:
        """Whether the latest step was the first under other restrictions than the one before."""

    def step(self, products: FloatArray) -> MomentEstimate:
        """Return the estimate after a step, for each set of rows.

        Parameters
        ----------
        products : ndarray of shape (sets, 1 + d, 1 + d)
            Over all parties, :func:`expected_sums` of each set of rows.
        """

    def restricted(self, estimate: MomentEstimate) -> MomentEstimate:
        """Return the estimate nearby that satisfies the restrictions, for each set of rows."""


class Unrestricted(NamedTuple):
    """One set of rows, of any moments.

    Parameters
    ----------
    seen : SeenSums
        Over the rows of all parties.
    """

    seen: SeenSums
    began: bool = False

    def step(self, products: FloatArray) -> MomentEstimate:
        """Return the estimate after a step."""
        return completed(stepped(products[0]), self.seen).for_sets(1)

    def restricted(self, estimate: MomentEstimate) -> MomentEstimate:
        """Return the estimate."""
        return estimate


def stepped(products: FloatArray) -> MomentEstimate:
    """Return the estimate after a step, from the sums of :func:`expected_sums` over all parties."""
    return regular(MomentEstimate(*mean_and_second(products)))


def regular(estimate: MomentEstimate) -> MomentEstimate:
    """Return an estimate of one set, or of several, of symmetric, positive definite moments.

    Of columns that others determine, and of fewer rows than columns, an eigenvalue of the
    correlations is 0 up to rounding. Eigenvalues below :data:`~core.linear.determined.RIDGE` are
    raised to it. Columns that are constant are left aside.
    """
    second = (estimate.second + estimate.second.swapaxes(-1, -2)) / 2
    for own in second.reshape(-1, *second.shape[-2:]):
        varying = np.flatnonzero(np.diagonal(own) > 0)
        units = np.sqrt(np.diagonal(own)[varying])
        scale = np.outer(units, units)
        correlations = own[np.ix_(varying, varying)] / scale
        if len(varying) and np.linalg.eigvalsh(correlations)[0] < RIDGE:
            own[np.ix_(varying, varying)] = least_eigenvalue(correlations, RIDGE) * scale
    return MomentEstimate(estimate.mean, second)


def change(before: MomentEstimate, after: MomentEstimate) -> float:
    """Return the largest change of a moment, in standard deviations of the columns.

    Of several sets these are the root mean squares of those within the sets: interventions may set
    a column to one value.
    """
    d = after.mean.shape[-1]
    variances = np.diagonal(after.second, axis1=-2, axis2=-1).reshape(-1, d)
    scale = np.sqrt(variances.mean(axis=0))
    means = np.abs(after.mean - before.mean) / scale
    seconds = np.abs(after.second - before.second) / np.outer(scale, scale)
    return float(max(means.max(), seconds.max()))


def narrowing(before: MomentEstimate, after: MomentEstimate) -> bool:
    """Whether a step took more than a quarter of what others leave of some column, of little.

    What is left of a column that others determine falls in each step by the share of the cells that
    are missing, down to :data:`~core.linear.determined.RIDGE`; no moment changes by much then.
    """
    least, led = (_least_left(one) for one in (before, after))
    return bool(((led < LEAST_EIGENVALUE) & (led < 0.75 * least)).any())


def _least_left(estimate: MomentEstimate) -> FloatArray:
    """Return the least eigenvalue of the correlations of each set; 1 where a column is constant."""
    variances = np.diagonal(estimate.second, axis1=-2, axis2=-1)
    varying = (variances > 0).all(axis=-1)
    scale = np.sqrt(np.where(variances > 0, variances, 1.0))
    correlations = estimate.second / (scale[..., :, None] * scale[..., None, :])
    return np.where(varying, np.linalg.eigvalsh(correlations)[..., 0], 1.0)


def accelerated(steps: Sequence[tuple[MomentEstimate, MomentEstimate]]) -> MomentEstimate:
    """Return the estimate with which to go on, by Anderson's acceleration.

    Parameters
    ----------
    steps : sequence of pairs of MomentEstimate
        What each step began with and led to, the latest last.

    Returns
    -------
    MomentEstimate
        What the last step led to where the accelerated one is not positive definite.
    """
    last = steps[-1][1]
    recent = steps[-1 - MEMORY :]
    if len(recent) < 2:
        return last
    led = np.array([_flat(after) for _, after in recent])
    moved = led - np.array([_flat(before) for before, _ in recent])
    weights = np.linalg.lstsq(np.diff(moved, axis=0).T, moved[-1], rcond=1e-6)[0]
    further = -weights @ np.diff(led, axis=0)
    for part in (1.0, 0.5, 0.25):
        found = _unflat(led[-1] + part * further, last.mean.shape)
        least = np.linalg.eigvalsh(found.second)[..., 0]
        if (least > 1e-6 * np.diagonal(last.second, axis1=-2, axis2=-1).min(axis=-1)).all():
            return found
    return last


def _flat(estimate: MomentEstimate) -> FloatArray:
    return np.concatenate([estimate.mean.ravel(), upper_triangles(estimate.second).ravel()])


def _unflat(values: FloatArray, shape: tuple[int, ...]) -> MomentEstimate:
    size, d = math.prod(shape), shape[-1]
    triangles = values[size:].reshape(*shape[:-1], -1)
    return MomentEstimate(values[:size].reshape(shape), symmetric(triangles, d))


def depends_on(seen: SeenSums) -> IntArray:
    """Return the pairs (i, j) of which whether j is missing depends on i, the clearest first.

    The mean of i in the rows in which j is seen is compared with that in the others in which i is
    seen, by the normal distribution, at :data:`CHANCE` over all pairs (Bonferroni).

    Parameters
    ----------
    seen : SeenSums
        Over the rows of all parties.

    Returns
    -------
    ndarray of int64, shape (pairs, 2)
    """
    rows, d = np.diagonal(seen.counts)[:, None], len(seen.counts)
    total = np.diagonal(seen.sums)[:, None]
    variance = np.diagonal(seen.products)[:, None] / rows - (total / rows) ** 2
    others = rows - seen.counts
    both = (seen.counts >= 2) & (others >= 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = seen.sums / seen.counts - (total - seen.sums) / others
        z = np.abs(gap) / np.sqrt(variance * (1 / seen.counts + 1 / others))
    z = np.where(both & (variance > 0), z, 0.0)
    limit = -ndtri(CHANCE / 2 / max(d * (d - 1), 1))
    found = np.argwhere(z > limit)
    return found[np.argsort(-as_ranked(z[tuple(found.T)]), kind="stable")]


def own_sums(
    rows: FloatArray, start: MomentEstimate, weights: FloatArray | None = None
) -> FloatArray:
    """Return the expected sums of a party's rows by the party's own estimate.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Missing cells are NaN.
    start : MomentEstimate
        Of all columns, with which the party's steps begin.
    weights : ndarray of shape (n,), optional
        As of :func:`expected_sums`.

    Returns
    -------
    ndarray of shape (1 + d, 1 + d)
        As of :func:`expected_sums`; 0 at columns without a cell.
    """
    products = np.zeros((1 + rows.shape[1],) * 2)
    held = np.flatnonzero(~np.isnan(rows).all(axis=0))
    if not len(held):
        return products
    own = rows[:, held]
    steps: list[tuple[MomentEstimate, MomentEstimate]] = []
    estimate = MomentEstimate(start.mean[held], start.second[np.ix_(held, held)])
    # A column that is constant at the party.
    hardly = RIDGE * np.diagonal(estimate.second)
    for _ in range(MOST_OWN if len(own) >= ROWS_FOR_OWN * len(held) else 1):
        found = expected_sums(own, estimate, weights)
        steps = [*steps[-1 - MEMORY :], (estimate, stepped(found))]
        constant = (np.diagonal(steps[-1][1].second) <= hardly).any()
        if constant or change(*steps[-1]) < OWN_TOLERANCE:
            break
        estimate = accelerated(steps)
    # What is constant 0 at the party, such as a state that it does not have, is no column without
    # a cell: it varies a little.
    left = np.maximum(hardly - np.diagonal(stepped(found).second), 0.0)
    found = found + np.diag(np.append(0.0, found[0, 0] * left))
    places = np.append(0, 1 + held)
    products[np.ix_(places, places)] = found
    return products

"""The hyperparameters of class-conditional circuits, chosen from sums over rows.

Powers: each column has the power of the Yeo-Johnson transform with the largest Gaussian likelihood
within the classes. For a grid of powers the likelihood is a function of the sums of the transformed
column and of its squares, and of one sum of the logarithms of the slopes, which are linear in the
power.

Shrinkage: a covariance of d columns may have more entries than a class has rows. ``diagonal``
shrinks it towards its own diagonal, ``pooled`` towards the covariance within classes that all
classes share (Friedman 1989). The Gaussian log-likelihood of held-out rows is a function of their
sums, so both are chosen without another exchange.

Blocks and tails: a circuit with one leaf over all columns has the better density, but the worse
posterior of the class, as a few hundred rows do not determine hundreds of weak correlations. Leaves
over blocks of strongly correlated columns have fewer correlations, and the same sums determine
them. The blocks and the degrees of freedom (tails) of the leaves are chosen on held-out rows.

References
----------
Friedman: Regularized discriminant analysis, Journal of the American Statistical Association 1989.
Yeo & Johnson: A new family of power transformations, Biometrika 2000.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import cophenet, linkage
from scipy.spatial.distance import squareform
from scipy.special import logsumexp

from flwr_causal.core.circuits.leaves.elliptical import (
    squared_norms,
    standard_log_density,
    transformed_moments,
    whitened,
)
from flwr_causal.core.circuits.leaves.yeo_johnson import expm1_over, of_signed_log, signed_log
from flwr_causal.core.ties import first_largest, first_smallest
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray


# Least ratio of a transformed column's standard deviation to its values: with a smaller one the
# density would lose most of its digits. Such powers are not chosen.
LEAST_RELATIVE_SLOPE = 1e-9
# Bound at which transformed values are clipped, so that the sums of squares that are sent are
# finite. A power under which a value reaches it is not chosen.
LARGEST = 1e140
# A power is not chosen if normal distributions of the transformed column miss the column's mean by
# more than this share of its standard deviation, or have more than so many times its variance: of
# columns in which many rows share a value, the likeliest transform has too long a tail.
MISSED_MEAN, MOST_VARIANCE = 0.1, 2.0
# Rows transformed at once with all powers.
POWER_ROWS = 4096


class Coordinates(NamedTuple):
    """The transform of numbers before second moments are taken; all arrays have the shape (d,).

    Parameters
    ----------
    scale : ndarray of float
        Standard deviation of a column; ``u = x / scale``.
    middle : ndarray of float
        Mean of u.
    reach : ndarray of float
        ``|u|`` beyond which the transform continues as a straight line.
    powers : ndarray of float
        Powers of the Yeo-Johnson transform; 1 leaves a column as it is.
    center, unit : ndarray of float
        Mean and standard deviation of the `relative_transform` of u.
    """

    scale: FloatArray
    middle: FloatArray
    reach: FloatArray
    powers: FloatArray
    center: FloatArray
    unit: FloatArray

    def apply(self, numbers: FloatArray) -> FloatArray:
        """Return transformed numbers (n, d), of mean 0 and variance 1 over all parties' rows."""
        t = relative_transform(numbers / self.scale, self.middle, self.powers, self.reach)
        return np.asarray((t - self.center) / self.unit)


def relative_transform(
    u: ArrayLike, middle: ArrayLike, power: ArrayLike, reach: ArrayLike
) -> FloatArray:
    """Return ``(transform(u) - transform(middle)) / slope(middle)`` without cancellation.

    Near the middle this is about ``u - middle`` for every power, so that sums of it and of its
    square keep digits that sums of the transformed values would lose.

    Parameters
    ----------
    u, middle, power, reach : array_like
        They broadcast; ``reach`` exceeds ``|middle|``.
    """
    values, center = np.asarray(u, dtype=np.float64), np.asarray(middle, dtype=np.float64)
    powers, limit = np.asarray(power, dtype=np.float64), np.asarray(reach, dtype=np.float64)
    inside = np.clip(values, -limit, limit)
    logs, start = signed_log(inside), signed_log(center)
    # Away from zero, in the direction of the middle: log(1 + |u|) less that of the middle. On the
    # other side of zero: log(1 + |u|), and the power is 2 minus that of this side.
    sign = np.where(center < 0, -1.0, 1.0)
    side = np.where(center < 0, 2.0 - powers, powers)
    same = sign * logs >= 0
    rates = np.where(same, side, 2.0 - side)
    lengths = np.where(same, sign * (logs - start), np.abs(logs))
    grown = expm1_over(rates, lengths)
    scale = sign * np.exp(np.abs(start))
    outside = -of_signed_log(start, powers) * np.exp((1.0 - powers) * start)
    opposite = -sign * np.exp((1.0 - powers) * start)
    relative = np.where(same, scale, opposite) * grown + np.where(same, 0.0, outside)
    beyond = values - inside
    if beyond.any():
        relative += beyond * np.exp((powers - 1.0) * (logs - start))
    return np.where(powers == 1.0, values - center, relative)


def power_sums(
    u: FloatArray, middle: FloatArray, powers: FloatArray, reach: FloatArray
) -> FloatArray:
    """Return sums over rows of the relative transform and of its square, for every power.

    Parameters
    ----------
    u : ndarray of float, shape (n, d)
    middle : ndarray of float, shape (d,)
    powers : ndarray of float, shape (p,)
    reach : ndarray of float, shape (d,)

    Returns
    -------
    ndarray of float, shape (2, p, d)
        For a power that overflows the sum of squares is at least ``LARGEST**2``, and
        :func:`choose_powers` does not choose it.
    """
    sums = np.zeros((2, len(powers), u.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(u), POWER_ROWS):
            rows = u[start : start + POWER_ROWS, None]
            t = relative_transform(rows, middle, powers[:, None], reach)
            t = np.clip(np.nan_to_num(t, nan=LARGEST), -LARGEST, LARGEST)
            sums[0] += t.sum(axis=0)
            sums[1] += (t**2).sum(axis=0)
    return sums


def log_sums(u: FloatArray, reach: FloatArray) -> FloatArray:
    """Return the sums of the log slopes over rows, divided by (power - 1), shape (d,).

    The log slope at u is ``(power - 1) sign(u) log(1 + |u|)``.
    """
    return np.asarray(signed_log(np.clip(u, -reach, reach)).sum(axis=0))


def choose_powers(
    counts: FloatArray,
    logs: FloatArray,
    sums: FloatArray,
    middle: FloatArray,
    powers: FloatArray,
    reach: FloatArray | None = None,
) -> IntArray:
    """Return the power with the largest likelihood for every column.

    Parameters
    ----------
    counts : ndarray of float, shape (C, 1) or (C, d)
        Rows of each class, of all columns or of each one.
    logs : ndarray of float, shape (C, d)
        :func:`log_sums` of each class.
    sums : ndarray of float, shape (C, 2, p, d)
        :func:`power_sums` of each class.
    middle : ndarray of float, shape (d,)
        As in `power_sums`.
    powers : ndarray of float, shape (p,)
    reach : ndarray of float, shape (d,), optional
        As in `power_sums`. If it is given, powers that miss a column's mean or variance are not
        chosen.

    Returns
    -------
    ndarray of int, shape (d,)
        Index of the power. The variance of each class has one pseudo row of the total variance.
    """
    n = counts.sum(axis=0)
    first, second = sums[:, 0], sums[:, 1]
    each, power = counts[:, None], powers[:, None]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        total = second.sum(axis=0) / n - (first.sum(axis=0) / n) ** 2
        scatter = np.maximum(second - first**2 / np.maximum(each, 1.0), 0.0)
        variances = (scatter + total) / (each + 1.0)
        likelihood = -0.5 * (each * np.log(variances)).sum(axis=0)
        # The slope at the middle was divided out of the transformed values.
        start = signed_log(middle)
        likelihood += (power - 1.0) * (logs.sum(axis=0) - n * start)
        size = np.abs(of_signed_log(start, power))
        precise = (power - 1.0) * start >= np.log(LEAST_RELATIVE_SLOPE * size)
        bounded = second.sum(axis=0) < LARGEST**2
    usable = np.isfinite(likelihood) & bounded & precise & (total > 0)
    # If no power is usable: the one nearest to the identity.
    identity = int(np.abs(powers - 1.0).argmin())
    for _ in powers:
        best = first_largest(np.where(usable, likelihood, -np.inf), axis=0)
        chosen = np.where(usable.any(axis=0), best, identity)
        if reach is None or powers[identity] != 1.0:
            break
        missed = _missed_moments(counts, sums, middle, powers, reach, chosen) & (chosen != identity)
        if not missed.any():
            break
        usable[chosen[missed], missed] = False
    return chosen


def _missed_moments(
    counts: FloatArray,
    sums: FloatArray,
    middle: FloatArray,
    powers: FloatArray,
    reach: FloatArray,
    chosen: IntArray,
) -> BoolArray:
    """Return whether normal leaves with these powers miss mean or variance of each column, (d,)."""
    shares = counts / counts.sum(axis=0)
    columns, identity = np.arange(len(chosen)), int(np.flatnonzero(powers == 1.0)[0])
    first, second = np.moveaxis(sums / np.maximum(counts, 1.0)[:, None, None], 1, 0)
    mean = (shares * first[:, identity]).sum(axis=0)
    variance = np.maximum((shares * second[:, identity]).sum(axis=0) - mean**2, 0.0)
    own, start = powers[chosen], signed_log(middle)
    slope = np.exp((own - 1.0) * start)
    means, squares = first[:, chosen, columns], second[:, chosen, columns]
    deviations = np.sqrt(np.maximum(squares - means**2, FLOOR))
    at = of_signed_log(start, own) + slope * means
    centres, squares = transformed_moments(at, slope * deviations, np.inf, own, reach)
    centre, square = (shares * centres).sum(axis=0), (shares * squares).sum(axis=0)
    off = np.abs(centre - middle - mean) > MISSED_MEAN * np.sqrt(variance)
    return np.asarray(off | (square - centre**2 > MOST_VARIANCE * variance))


# Added to variances, in units of the columns' variance, as a column may be constant in a class.
FLOOR = 1e-6


class Shrinkage(NamedTuple):
    """Shares by which covariances are shrunk, both from 0 to 1.

    Parameters
    ----------
    diagonal : float
        Share by which correlations are reduced.
    pooled : float
        Share of the pooled covariance in the covariance of a class of mean size. The pooled
        covariance counts as a fixed number of pseudo rows, so its share is larger in smaller
        classes.
    """

    diagonal: float
    pooled: float


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Sums over the rows of each class; leading axes may hold folds.

    Parameters
    ----------
    counts : ndarray of float, shape (..., C)
        Numbers of rows.
    first : ndarray of float, shape (..., C, d)
        Of ``z - offset of the class``.
    second : ndarray of float, shape (..., C, d, d)
        Of their outer products.
    offsets : ndarray of float, shape (C, d)
        Points close to the means of the classes, so that the sums keep their digits.
    """

    counts: FloatArray
    first: FloatArray
    second: FloatArray
    offsets: FloatArray

    def total(self) -> ClassSums:
        """Return sums over all folds, the first axis."""
        return ClassSums(
            self.counts.sum(axis=0), self.first.sum(axis=0), self.second.sum(axis=0), self.offsets
        )

    def without_each(self) -> ClassSums:
        """Return the sums over all folds but one, for each fold."""
        everything = self.total()
        return ClassSums(
            everything.counts - self.counts,
            everything.first - self.first,
            everything.second - self.second,
            self.offsets,
        )


class ClassMoments(NamedTuple):
    """Means (..., C, d) and covariances (..., C, d, d) of the classes."""

    means: FloatArray
    covariances: FloatArray


def pooled_covariance(sums: ClassSums) -> FloatArray:
    """Return the covariance within classes, averaged over all rows, shape (..., d, d)."""
    _, scatter = _centered(sums)
    rows = np.maximum(sums.counts.sum(axis=-1), 1.0)
    pooled = scatter.sum(axis=-3) / rows[..., None, None]
    return np.asarray(pooled + FLOOR * np.eye(pooled.shape[-1]))


def shrunk_moments(sums: ClassSums, shrinkage: Shrinkage) -> ClassMoments:
    """Return the shrunk moments of the classes (Friedman 1989).

    The covariance of a class of n_c rows with scatter W_c is ``(W_c + k P) / (n_c + k)``. P is the
    pooled covariance; k is ``pooled / (1 - pooled)`` times the classes' mean number of rows, and at
    least 1, as a class of one row has no scatter. Its correlations are then multiplied by
    ``1 - diagonal``. A class without rows has the mean of all rows and the pooled covariance.
    """
    means, covariances = _towards_pooled(sums, shrinkage.pooled)
    off = (1.0 - shrinkage.diagonal) * covariances
    index = np.arange(covariances.shape[-1])
    off[..., index, index] = covariances[..., index, index]
    return ClassMoments(means, off)


def held_out_likelihoods(
    folds: ClassSums, diagonals: Sequence[float], pooled: Sequence[float]
) -> FloatArray:
    """Return the Gaussian log-likelihood of each fold under the other folds' moments, summed.

    Parameters
    ----------
    folds : ClassSums
        With one leading axis of folds.
    diagonals, pooled : sequences of float
        The shrinkages to try.

    Returns
    -------
    ndarray of float, shape (diagonals, pooled)
        In nats, of all rows given their classes. A fold is left out if the others have no rows.
    """
    training = folds.without_each()
    judged = training.counts.sum(axis=-1) > 0
    n = folds.counts[judged]
    d = folds.first.shape[-1]
    likelihoods = np.zeros((len(diagonals), len(pooled)))
    for k, share in enumerate(pooled):
        means, covariances = _towards_pooled(training, share)
        mean = (means - folds.offsets)[judged]
        first = folds.first[judged]
        cross = first[..., :, None] * mean[..., None, :]
        spread = folds.second[judged] - cross - np.swapaxes(cross, -1, -2)
        spread += n[..., None, None] * mean[..., :, None] * mean[..., None, :]
        variances = np.diagonal(covariances[judged], axis1=-2, axis2=-1)
        if (variances < 0).any():
            raise DataError(
                "The parties' sums contradict each other: the variance of a column in a class is "
                "negative. The sums of a party are wrong: leave out one party after the other."
            )
        deviations = np.sqrt(variances)
        outer = deviations[..., :, None] * deviations[..., None, :]
        # In the eigenvectors of the correlations, shrinking to the diagonal is a step to 1.
        eigenvalues, vectors = np.linalg.eigh(covariances[judged] / outer)
        squares = np.einsum("...ij,...ij->...j", vectors, (spread / outer) @ vectors)
        log_scale = d * np.log(2.0 * np.pi) + 2.0 * np.log(deviations).sum(axis=-1)
        for i, diagonal in enumerate(diagonals):
            shrunk = np.maximum((1.0 - diagonal) * eigenvalues + diagonal, FLOOR)
            log_det = log_scale + np.log(shrunk).sum(axis=-1)
            likelihoods[i, k] = -0.5 * (n * log_det + (squares / shrunk).sum(axis=-1)).sum()
    return likelihoods


def choose_shrinkage(
    folds: ClassSums, diagonals: Sequence[float], pooled: Sequence[float]
) -> Shrinkage:
    """Return the shrinkage of the largest held-out log-likelihood; of equal ones the first."""
    if folds.counts.shape[-1] == 1:
        pooled = (0.0,)  # one class is its own pooled covariance
    likelihoods = held_out_likelihoods(folds, diagonals, pooled)
    i, k = map(int, np.unravel_index(int(first_largest(likelihoods)), likelihoods.shape))
    return Shrinkage(float(diagonals[i]), float(pooled[k]))


def _centered(sums: ClassSums) -> tuple[FloatArray, FloatArray]:
    """Return means minus offsets (..., C, d), 0 without rows, and scatters about the means."""
    n = np.maximum(sums.counts, 1.0)
    mean = sums.first / n[..., None]
    scatter = sums.second - n[..., None, None] * mean[..., :, None] * mean[..., None, :]
    return mean, scatter


def _towards_pooled(sums: ClassSums, share: float) -> tuple[FloatArray, FloatArray]:
    """Return the means and the covariances that are shrunk towards the pooled one."""
    mean, scatter = _centered(sums)
    means = sums.offsets + mean
    rows = np.maximum(sums.counts.sum(axis=-1), 1.0)
    overall = np.einsum("...c,...cj->...j", sums.counts, means) / rows[..., None]
    means = np.where(sums.counts[..., None] > 0, means, overall[..., None, :])
    pooled = (scatter.sum(axis=-3) / rows[..., None, None])[..., None, :, :]
    if share >= 1.0:
        covariances = np.broadcast_to(pooled, scatter.shape).copy()
    else:
        present = np.maximum((sums.counts > 0).sum(axis=-1), 1)
        extra = np.maximum(share / (1.0 - share) * rows / present, 1.0)[..., None, None, None]
        covariances = (scatter + extra * pooled) / (sums.counts[..., None, None] + extra)
    return means, covariances + FLOOR * np.eye(scatter.shape[-1])


# Rows evaluated at once.
JUDGED_ROWS = 8192


def correlation_blocks(covariance: FloatArray, cuts: Sequence[float]) -> IntArray:
    """Cluster columns by average linkage on ``1 - |correlation|``.

    Parameters
    ----------
    covariance : ndarray of float, shape (d, d)
    cuts : sequence of float
        Clusters are merged while their mean distance is at most the cut. From 1 on all columns are
        one block; below 0 each column is a block.

    Returns
    -------
    ndarray of int, shape (cuts, d)
        Blocks 0, 1, ... in the order of their first columns.
    """
    d = len(covariance)
    if d == 1 or min(cuts) >= 1.0:
        return np.zeros((len(cuts), d), dtype=np.int64)
    deviations = np.sqrt(np.diagonal(covariance))
    distance = 1.0 - np.abs(covariance / np.outer(deviations, deviations))
    tree = linkage(np.clip(distance[np.triu_indices(d, 1)], 0.0, 1.0), "average")
    joined = squareform(cophenet(tree))
    alone = np.eye(d, dtype=bool)
    return np.stack([_renumbered(np.argmax(alone | (joined <= cut), axis=1)) for cut in cuts])


def members(labels: IntArray) -> list[IntArray]:
    """Return the columns of each block."""
    return [np.flatnonzero(labels == block) for block in np.unique(labels)]


def pieces(blocks: IntArray) -> list[IntArray]:
    """Return the columns of each feature of a head: every column alone, then the larger blocks."""
    alone = [np.array([j]) for j in range(len(blocks))]
    return alone + [block for block in members(blocks) if len(block) > 1]


class BlockChoice(NamedTuple):
    """The blocks and degrees of freedom that are best on held-out rows.

    Parameters
    ----------
    dof : float
        Degrees of freedom of the leaf over all columns.
    block_dof : float
        Degrees of freedom of the leaves over blocks.
    blocks : ndarray of int, shape (d,)
        Block of each column.
    """

    dof: float
    block_dof: float
    blocks: IntArray


def chosen_of(
    likelihoods: FloatArray, log_losses: FloatArray, blocks: IntArray, dof: Sequence[float]
) -> BlockChoice:
    """Return the blocks and degrees of freedom that are best on held-out rows.

    Parameters
    ----------
    likelihoods : ndarray of float, shape (p,)
    log_losses : ndarray of float, shape (cuts, p)
        All 0 if there is one class; the middle cut is then taken.
    blocks : ndarray of int, shape (cuts, d)
    dof : sequence of float, length p
    """
    best = block_dof = int(first_largest(likelihoods))
    cut = len(blocks) // 2
    if log_losses.any():
        cut, block_dof = map(
            int, np.unravel_index(int(first_smallest(log_losses)), log_losses.shape)
        )
    return BlockChoice(dof[best], dof[block_dof], blocks[cut])


class Judgement(NamedTuple):
    """Sums over held-out rows.

    Parameters
    ----------
    likelihoods : ndarray of float, shape (p,)
        Log-likelihood of the rows given their classes, with one leaf over all columns, for each
        number of degrees of freedom; without the Jacobian of the transform, which is the same.
    log_losses : ndarray of float, shape (partitions, p)
        Minus the log posterior of the class, with a leaf for each block of a partition.
    """

    likelihoods: FloatArray
    log_losses: FloatArray


def judge(
    z: FloatArray,
    classes: IntArray,
    moments: ClassMoments,
    log_priors: FloatArray,
    blocks: IntArray,
    dof: FloatArray,
) -> Judgement:
    """Evaluate moments on rows from which they were not computed.

    Parameters
    ----------
    z : ndarray of float, shape (n, d)
    classes : ndarray of int, shape (n,)
    moments : ClassMoments
        Means (C, d) and covariances (C, d, d).
    log_priors : ndarray of float, shape (n, C)
        Log weights of the classes plus the log probabilities of the row's categories; -inf for a
        class without rows.
    blocks : ndarray of int, shape (partitions, d)
        Block of each column in each partition.
    dof : ndarray of float, shape (p,)
    """
    partitions = [members(labels) for labels in blocks]
    everything = np.arange(z.shape[1])
    likelihoods = np.zeros(len(dof))
    log_losses = np.zeros((len(blocks), len(dof)))
    present = np.flatnonzero((log_priors > -np.inf).all(axis=0))
    place = np.zeros(log_priors.shape[1], dtype=np.int64)
    place[present] = np.arange(len(present))
    for start in range(0, len(z), JUDGED_ROWS):
        rows, labels = z[start : start + JUDGED_ROWS], place[classes[start : start + JUDGED_ROWS]]
        priors = log_priors[start : start + JUDGED_ROWS, present].T[:, :, None]
        index = np.arange(len(rows))
        known: dict[bytes, FloatArray] = {}

        def densities(
            columns: IntArray, rows: FloatArray = rows, known: dict[bytes, FloatArray] = known
        ) -> FloatArray:
            """Return the log densities (C, n, p) of a leaf; partitions share leaves."""
            key = columns.tobytes()
            if key not in known:
                known[key] = np.stack(
                    [leaf_log_density(rows, columns, moments, int(c), dof) for c in present]
                )
            return known[key]

        likelihoods += densities(everything)[labels, index].sum(axis=0)
        if len(present) == 1:
            continue
        for partition, parts in enumerate(partitions):
            joint = priors + sum(densities(part) for part in parts)
            log_losses[partition] += (logsumexp(joint, axis=0) - joint[labels, index]).sum(axis=0)
    return Judgement(likelihoods, log_losses)


def leaf_log_density(
    rows: FloatArray, columns: IntArray, moments: ClassMoments, which: int, dof: FloatArray
) -> FloatArray:
    """Return the log density of some columns of rows (n, d) in one class, for each dof, (n, p)."""
    whitening, log_det = whitened(moments.covariances[which][np.ix_(columns, columns)])
    squares = squared_norms((rows[:, columns] - moments.means[which, columns]) @ whitening.T)
    return np.stack(
        [standard_log_density(squares, log_det, len(columns), float(nu)) for nu in dof], axis=1
    )


def _renumbered(labels: NDArray[Any]) -> IntArray:
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def tails_of(dof: ArrayLike) -> FloatArray:
    """Return the inverse degrees of freedom, which are finite; 0 for a Gaussian."""
    return np.asarray(1.0 / np.asarray(dof, dtype=np.float64))


def dof_of(tails: FloatArray) -> FloatArray:
    """Return the degrees of freedom of :func:`tails_of`."""
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / tails)

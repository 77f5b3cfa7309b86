"""Blocks of correlated columns, and the choice of blocks and tails by held-out rows.

A circuit with one leaf over all columns has the better density, but the worse posterior of the
class: a few hundred rows do not determine hundreds of weak correlations. Leaves over blocks of
strongly correlated columns have fewer, from the same sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.special import logsumexp

from flwr_causal.core.circuits.leaves.elliptical import (
    squared_norms,
    standard_log_density,
    whitened,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.learners.class_conditional.shrinkage import ClassMoments


# Rows judged at once.
CHUNK = 8192


def correlation_blocks(covariance: FloatArray, cuts: Sequence[float]) -> IntArray:
    """Cluster columns by average linkage on ``1 - |correlation|``.

    Parameters
    ----------
    covariance : ndarray of float, shape (d, d)
    cuts : sequence of float
        Clusters join while their mean distance is at most the cut: at 1 or more all columns are one
        block, below 0 each is its own.

    Returns
    -------
    ndarray of int, shape (cuts, d)
        Blocks 0, 1, ... in the order of their first columns.
    """
    d = len(covariance)
    if d == 1:
        return np.zeros((len(cuts), 1), dtype=np.int64)
    deviations = np.sqrt(np.diagonal(covariance))
    distance = 1.0 - np.abs(covariance / np.outer(deviations, deviations))
    tree = linkage(np.clip(distance[np.triu_indices(d, 1)], 0.0, 1.0), "average")
    return np.stack([_in_order(fcluster(tree, cut, "distance")) for cut in cuts])


def members(labels: IntArray) -> list[IntArray]:
    """Columns of each block."""
    return [np.flatnonzero(labels == block) for block in range(int(labels.max()) + 1)]


class Choice(NamedTuple):
    """What held-out rows preferred.

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
) -> Choice:
    """Return what held-out rows preferred.

    Parameters
    ----------
    likelihoods : ndarray of float, shape (p,)
    log_losses : ndarray of float, shape (cuts, p)
        All 0 where there is one class: the middle cut will do.
    blocks : ndarray of int, shape (cuts, d)
    dof : sequence of float
        p.
    """
    best = block_dof = int(likelihoods.argmax())
    cut = len(blocks) // 2
    if log_losses.any():
        cut, block_dof = map(int, np.unravel_index(int(log_losses.argmin()), log_losses.shape))
    return Choice(dof[best], dof[block_dof], blocks[cut])


class Judgement(NamedTuple):
    """Sums over held-out rows.

    Parameters
    ----------
    likelihoods : ndarray of float, shape (p,)
        Log-likelihood of the rows given their classes, one leaf over all columns, by degrees of
        freedom; without the Jacobian, which is the same for all.
    log_losses : ndarray of float, shape (blocks, p)
        Of the class given the row: minus the log posterior of the leaves over blocks.
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
    """Judge moments by rows that they were not made of.

    Parameters
    ----------
    z : ndarray of float, shape (n, d)
    classes : ndarray of int, shape (n,)
    moments : ClassMoments
        Means (C, d) and covariances (C, d, d).
    log_priors : ndarray of float, shape (n, C)
        Log weights of the classes times what the row's categories say; -inf of a class without
        rows.
    blocks : ndarray of int, shape (blocks, d)
    dof : ndarray of float, shape (p,)
    """
    leaves = [(block, members(labels)) for block, labels in enumerate(blocks)]
    everything = np.arange(z.shape[1])
    likelihoods = np.zeros(len(dof))
    log_losses = np.zeros((len(blocks), len(dof)))
    present = np.flatnonzero((log_priors > -np.inf).all(axis=0))
    place = np.zeros(log_priors.shape[1], dtype=np.int64)
    place[present] = np.arange(len(present))
    for start in range(0, len(z), CHUNK):
        rows, labels = z[start : start + CHUNK], place[classes[start : start + CHUNK]]
        priors = log_priors[start : start + CHUNK, present].T[:, :, None]
        index = np.arange(len(rows))
        known: dict[bytes, FloatArray] = {}

        def densities(
            columns: IntArray, rows: FloatArray = rows, known: dict[bytes, FloatArray] = known
        ) -> FloatArray:
            """Log densities (C, n, p) of one leaf; many partitions share it."""
            key = columns.tobytes()
            if key not in known:
                known[key] = np.stack(
                    [leaf_log_density(rows, columns, moments, int(c), dof) for c in present]
                )
            return known[key]

        likelihoods += densities(everything)[labels, index].sum(axis=0)
        if len(present) == 1:
            continue
        for block, parts in leaves:
            joint = priors + sum(densities(part) for part in parts)
            log_losses[block] += (logsumexp(joint, axis=0) - joint[labels, index]).sum(axis=0)
    return Judgement(likelihoods, log_losses)


def leaf_log_density(
    rows: FloatArray, columns: IntArray, moments: ClassMoments, which: int, dof: FloatArray
) -> FloatArray:
    """Log density of some columns of rows (n, d) in one class, for each dof, (n, p)."""
    whitening, log_det = whitened(moments.covariances[which][np.ix_(columns, columns)])
    squares = squared_norms((rows[:, columns] - moments.means[which, columns]) @ whitening.T)
    return np.stack(
        [standard_log_density(squares, log_det, len(columns), float(nu)) for nu in dof], axis=1
    )


def _in_order(labels: NDArray[Any]) -> IntArray:
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def tails_of(dof: ArrayLike) -> FloatArray:
    """Inverse degrees of freedom, which are finite: 0 is a Gaussian."""
    return np.asarray(1.0 / np.asarray(dof, dtype=np.float64))


def dof_of(tails: FloatArray) -> FloatArray:
    """Opposite of :func:`tails_of`."""
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / tails)

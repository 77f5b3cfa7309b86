"""What the server makes of the sums of each exchange; see :mod:`class_first`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.class_first.blocks import Choice, correlation_blocks
from flwr_causal.core.circuits.class_first.coordinates import Coordinates, unpacked
from flwr_causal.core.circuits.class_first.head import pieces
from flwr_causal.core.circuits.class_first.power_sums import choose_powers
from flwr_causal.core.circuits.class_first.shrinkage import (
    ClassSums,
    choose_shrinkage,
    pooled_covariance,
    shrunk_moments,
)
from flwr_causal.core.circuits.decision_threshold import best_threshold
from flwr_causal.core.circuits.logistic_head import head_step, init_head
from flwr_causal.core.linear.moments import CONSTANT_TOLERANCE
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr_causal.core.circuits.class_first.training import State

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Squares about an origin that lies so many deviations from the mean have lost four digits.
FAR = 100.0


def scaled(state: State, summed: Mapping[str, FloatArray]) -> State:
    """Take in counts, sums and squares of the classes: scales, or a better origin for them."""
    counts, first, second = summed["counts"], summed["first"], summed["second"]
    n = counts.sum()
    if n < 2:
        raise DataError(f"the parties have {int(n)} rows that count: at least 2 are needed")
    shift = first.sum(axis=0) / n
    variance = second.sum(axis=0) / n - shift**2
    mean = state.origin + shift
    if (np.abs(shift) > FAR * np.sqrt(np.maximum(variance, 0.0))).any() and not state.origin.any():
        return replace(state, origin=mean)
    constant = variance <= (CONSTANT_TOLERANCE * np.abs(mean)) ** 2
    if constant.any():
        listed = ", ".join(state.plan.names[j] for j in np.flatnonzero(constant))
        raise DataError(f"these columns are constant: {listed}; leave them out")
    scale = np.sqrt(variance)
    middle = mean / scale
    ones, zeros = np.ones_like(scale), np.zeros_like(scale)
    plain = tuple(state.options.powers) == (1.0,)
    return replace(
        state,
        counts=counts,
        coordinates=Coordinates(
            scale, middle, np.abs(middle) + state.options.reach, ones, zeros, ones
        ),
        offsets=_class_means(counts, first) / scale
        - np.where(counts > 0, 1.0, 0.0)[:, None] * (shift / scale),
        powers_chosen=plain,
    )


def with_powers(state: State, summed: Mapping[str, FloatArray]) -> State:
    """Take in the sums on the grid of powers: the powers, and the classes' means under them."""
    counts, known = state.counts, state.coordinates
    assert counts is not None
    assert known is not None
    grid = np.array(state.options.powers)
    chosen = choose_powers(
        counts, summed["logs"], summed["powers"], known.middle, grid, state.options.power_penalty
    )
    first, second = np.moveaxis(
        np.take_along_axis(summed["powers"], chosen[None, None, :, None], axis=-1)[..., 0], 1, 0
    )
    center = first.sum(axis=0) / counts.sum()
    unit = np.sqrt(second.sum(axis=0) / counts.sum() - center**2)
    present = np.where(counts > 0, 1.0, 0.0)[:, None]
    return replace(
        state,
        coordinates=known._replace(powers=grid[chosen], center=center, unit=unit),
        offsets=(_class_means(counts, first) - present * center) / unit,
        powers_chosen=True,
    )


def with_moments(state: State, summed: Mapping[str, FloatArray]) -> State:
    """Take in the moments by class and fold: the shrinkage; the choice if there is none to make."""
    assert state.offsets is not None
    d = len(state.plan.columns)
    second = unpacked(summed["second"], d)
    folds = ClassSums(summed["counts"], summed["first"], second, state.offsets)
    counts = folds.counts.sum(axis=0)
    if counts.sum() <= (counts > 0).sum():
        raise DataError(
            "no class has two rows: nothing is known of how rows of a class differ; "
            "name another target or none"
        )
    options = state.options
    shrinkage = choose_shrinkage(folds, options.diagonals, options.pooled)
    state = replace(
        state,
        folds=folds,
        tables=summed["tables"],
        shrinkage=shrinkage,
        moments=shrunk_moments(folds.total(), shrinkage),
    )
    one_class = (counts > 0).sum() == 1
    if len(options.dof) > 1 or (len(options.cuts) > 1 and not one_class):
        return state
    return with_choice(state, {"likelihoods": np.zeros(1), "log_losses": np.zeros((1, 1))})


def with_choice(state: State, summed: Mapping[str, FloatArray]) -> State:
    """Take in what held-out rows say: tails and blocks; the head begins with weights of 0."""
    folds, options = state.folds, state.options
    assert folds is not None
    blocks = cut_blocks(folds.total(), options.cuts)
    choice = chosen_of(summed["likelihoods"], summed["log_losses"], blocks, options.dof)
    state = replace(state, choice=choice)
    if not options.head:
        return state
    num_features = len(pieces(choice.blocks)) + len(state.plan.categories)
    counts = folds.counts.sum(axis=0)
    return replace(state, head=init_head(counts, num_features, options.head_penalty))


def with_head(state: State, summed: Mapping[str, FloatArray]) -> State:
    """Take in loss, gradient and Hessian of the head."""
    assert state.head is not None
    return replace(state, head=head_step(state.head, summed))


def with_threshold(state: State, summed: Mapping[str, FloatArray]) -> State:
    """Take in the counts of rows by class and log odds."""
    return replace(state, threshold=best_threshold(summed["log_odds"])[0])


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


def cut_blocks(of: ClassSums, cuts: Sequence[float]) -> IntArray:
    """Blocks (..., cuts, d) of the columns by their correlations within classes."""
    covariances = pooled_covariance(of)
    d = covariances.shape[-1]
    found = [correlation_blocks(one, cuts) for one in covariances.reshape(-1, d, d)]
    return np.stack(found).reshape(*covariances.shape[:-2], len(cuts), d)


def _class_means(counts: FloatArray, first: FloatArray) -> FloatArray:
    return np.asarray(first / np.maximum(counts, 1.0)[:, None])

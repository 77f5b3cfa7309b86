"""Leaves over several numbers, judged by held-out rows.

Numbers that depend on each other in every part of a table are said by few circuits of leaves over
one column. A block says them: one elliptical leaf over all of them, or one for each state of a
category (see `class_first`, which chooses transforms, shrinkage and tails by held-out likelihood).
The other columns are independent of the block, given the state; they are learned by LearnSPN. What
a fifth of the rows, learned without them, finds more likely is learned again from all rows.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.circuits.class_first.learner import ClassFirstLearner
from flwr_causal.core.circuits.class_first.rows import row_folds
from flwr_causal.core.circuits.class_first.training import Options
from flwr_causal.core.circuits.composed.composition import joined
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.layers import Layers
from flwr_causal.core.circuits.spn.independence import (
    indicators,
    joint_counts,
    largest_correlations,
    likelihood_ratios,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from flwr_causal.core.circuits.nodes import FloatArray, Node
    from flwr_causal.core.circuits.spn.growth import Growth

    IntArray = NDArray[np.int64]
    Candidate = Callable[[Growth, Options], Node]

#: What is tried for a block: no parts of it. Candidates are judged on a coarser grid.
FINE = Options(cuts=(1.0,))
COARSE = Options(cuts=(1.0,), powers=tuple((np.arange(-8, 5) / 2).tolist()), dof=(np.inf, 10.0))
#: A block holds the numbers of which some function is so correlated with one of another number.
LEAST_CORRELATION = 0.4
#: Rows for each column of a block that every state of its category must have; it takes no more
#: states than `MOST_STATES`.
ROWS_PER_COLUMN = 2
MOST_STATES = 10
#: Categories that are tried.
MOST_CATEGORIES = 3
#: Held-out rows are one fold of these.
FOLDS = 5
#: Fewer rows judge nothing.
LEAST_ROWS = 50


def best_root(growth: Growth, target: int | None) -> Node:
    """Return the root that is learned with the best block, or without any.

    There are no blocks of numbers with missing values, nor of rows whose weights are no whole
    numbers.

    Parameters
    ----------
    growth : Growth
    target : int or None
        As of ``Growth.root``; a block is then conditional on it. Else a block is tried without, and
        with the categories that depend on it most.
    """

    def without(rows: Growth, _: Options) -> Node:
        return rows.root(target)

    if len(growth.values) < LEAST_ROWS or (growth.row_weights % 1 != 0).any():
        return growth.root(target)
    held_out = row_folds(np.nan_to_num(growth.values), FOLDS, growth.seed) == 0
    if np.isnan(growth.values[~held_out]).all(axis=0).any():
        return growth.root(target)
    training = growth.part(~held_out)
    block = dependent_numbers(training)
    if len(block) == 0:
        return growth.root(target)
    givens = [target] if target is not None else [None, *_categories(training, block)]
    candidates: list[Candidate] = [
        without,
        *(partial(_with_block, block=block, given=given) for given in givens),
    ]
    weights, values = growth.row_weights[held_out], growth.values[held_out]
    scores = [
        weights @ Layers.of(candidate(training, COARSE)).log_densities(values)
        for candidate in candidates
    ]
    return candidates[int(np.argmax(scores))](growth, FINE)


def dependent_numbers(growth: Growth) -> IntArray:
    """Return the numbers that depend strongly on another one, ascending."""
    values, weights = growth.values, growth.row_weights
    numbers = np.flatnonzero((growth.domain.num_states == 0) & ~np.isnan(values).any(axis=0))
    if len(numbers) < 2:
        return numbers[:0]
    coded = indicators(values[:, numbers], np.zeros_like(numbers), weights, growth.options.bins)
    largest = largest_correlations(joint_counts(coded, weights), coded.starts)
    return np.asarray(numbers[(largest > LEAST_CORRELATION).any(axis=1)])


def _categories(growth: Growth, block: IntArray) -> list[int]:
    """Return the categories with enough rows that depend on a block most."""
    values, weights, states = growth.values, growth.row_weights, growth.domain.num_states
    fit = [
        j
        for j in np.flatnonzero((states > 0) & (states <= MOST_STATES)).tolist()
        if not np.isnan(values[:, j]).any()
        and _smallest_state(values[:, j], weights) >= ROWS_PER_COLUMN * len(block)
    ]
    if not fit:
        return []
    columns = [*fit, *block.tolist()]
    coded = indicators(values[:, columns], states[columns], weights, growth.options.bins)
    ratios, _ = likelihood_ratios(joint_counts(coded, weights), coded.starts)
    order = np.argsort(-ratios[: len(fit), len(fit) :].sum(axis=1), kind="stable")
    return [fit[k] for k in order[:MOST_CATEGORIES]]


def _smallest_state(column: FloatArray, weights: FloatArray) -> float:
    counts = np.bincount(column.astype(np.int64), weights)
    return float(counts[counts > 0].min())


def _with_block(growth: Growth, options: Options, *, block: IntArray, given: int | None) -> Node:
    """Return a root with one leaf over the block, or one for each state of a category."""
    domain = growth.domain
    inside = sorted({*block.tolist(), given} - {None})
    rest = [column for column in range(len(domain.variables)) if column not in inside]
    rows = np.repeat(growth.values[:, inside], growth.row_weights.astype(np.int64), axis=0)
    target = None if given is None else domain.names[given]
    own_domain = Domain(tuple(domain.variables[column] for column in inside))
    learned = ClassFirstLearner(target, options).learn(own_domain, rows, growth.seed)

    def factors(own: IntArray, leaf: Node) -> list[Node]:
        return [leaf, *([growth.node(own, rest)] if rest else [])]

    if given is None or target is None:
        return joined(factors(np.arange(len(growth.values)), learned.root_in(domain)))
    labels = learned.classes(target)
    return growth.by_state(
        given,
        lambda own, state: factors(
            own, learned.conditional({target: labels[state]}).root_in(domain)
        ),
    )

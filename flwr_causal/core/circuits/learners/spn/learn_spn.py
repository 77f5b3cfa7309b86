"""LearnSPN: the structure of a circuit is learned from the rows of a mixed table, top down.

At each node (Gens & Domingos 2013, Algorithm 1): if the columns fall into independent groups, the
node is a product of the groups; else it is a sum over clusters of similar rows; for few rows or a
single column it is a product of leaves. As in MSPN (Molina et al. 2018) the columns may be numbers
and categories. Here one test serves all pairs of columns, and leaves are smoothed by the
distribution of the whole table.

Blocks: leaves over one column are a bad model of numbers that are correlated within every cluster
of rows. A *block* of strongly correlated numbers has one elliptical leaf, or one for each state of
a category (see `class_conditional`, which chooses transforms, shrinkage and degrees of freedom by
held-out likelihood). The other columns are independent of the block, given the state, and are
learned by the recursion. The candidates, with different blocks and without, are learned from four
fifths of the rows. The one with the largest likelihood on the other rows is learned again from all
rows.

References
----------
Gens & Domingos: Learning the structure of sum-product networks, ICML 2013.
Molina et al.: Mixed sum-product networks, AAAI 2018.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.layers import Layers
from flwr_causal.core.circuits.learners.class_conditional.learner import ClassConditional
from flwr_causal.core.circuits.learners.options import NumericLeaf, SpnOptions
from flwr_causal.core.circuits.learners.spn.em import checked_weights, expectation_maximisation
from flwr_causal.core.circuits.learners.spn.leaves import LeafFit
from flwr_causal.core.circuits.learners.spn.splits import (
    cluster_rows,
    dependent_pairs,
    groups_of,
    indicators,
    joint_counts,
    largest_correlations,
    likelihood_ratios,
)
from flwr_causal.core.circuits.learners.training_by_sums import row_folds
from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.nodes import Product, Sum, joined
from flwr_causal.core.options import check_bounds
from flwr_causal.core.threads import single_threaded
from flwr_causal.core.ties import as_ranked, first_largest
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.circuits.learners.spn.splits import Indicators
    from flwr_causal.core.circuits.nodes import Node

    Factors = Callable[[IntArray, int], Sequence[Node]]
    Grids = dict[str, Any]
    Candidate = Callable[["SpnGrowth", Grids], Node]

#: Number of folds for which the fold of a row serves as its hash.
HASHES = 2**62
#: If a cluster has a smaller share of the rows, the node is a product of leaves.
LEAST_SHARE = 0.01
#: Largest number of sums on a path from the root.
MOST_SUMS = 60
#: Grids of the class-conditional learner for a block, which is one leaf; and coarser grids, with
#: which candidates are compared.
FINE = {"cuts": (1.0,)}
COARSE = {
    "cuts": (1.0,),
    "powers": (-2.0, -1.0, 0.0, 0.5, 1.0),
    "pooled": (0.1, 0.35, 0.9),
    "dof": (np.inf, 10.0),
}
#: A block contains the numbers whose maximal correlation with another number is larger.
LEAST_CORRELATION = 0.4
#: Fewest rows of every state of a block's category, for each column of the block; and its largest
#: number of states.
ROWS_PER_COLUMN = 2
MOST_STATES = 10
#: Number of categories that are tried for a block.
MOST_CATEGORIES = 3
#: Folds, of which one is held out.
FOLDS = 5
#: Fewest rows of a table for blocks.
LEAST_ROWS = 50


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnSPN(SpnOptions):
    """Learner of circuits from mixed tables.

    Parameters
    ----------
    blocks, correlation, split_rows, class_root, leaves, least_deviation
        See :class:`~flwr_causal.core.circuits.learners.options.SpnOptions`.
    clusters : int, default 2
        Number of children of a sum.
    significance : float, default 1e-4
        Level of the test of independence: probability that independent columns are taken for
        dependent; see `splits`.
    bins : int, default 6
        Bins of a number, for the test and the clusters.
    smoothing : float, default 2
        Pseudo rows of each leaf; see `leaves`.
    target : str, optional
        A category. The root is then a sum over its states, and rows in which it is missing are left
        out, unless ``class_root`` is False.
    em_steps : int, default 0
        Steps of EM on the learned circuit; see `em`.

    Raises
    ------
    ConfigError
        If a value is out of range.
    """

    clusters: int = 2
    significance: float = 1e-4
    bins: int = 6
    smoothing: float = 2.0
    target: str | None = None
    em_steps: int = 0

    def __post_init__(self) -> None:
        kinds = get_args(NumericLeaf)
        if self.leaves not in kinds:
            raise ConfigError(f"leaves must be one of {', '.join(kinds)}, got {self.leaves!r}")
        for name, least in (("clusters", 2), ("bins", 2), ("em_steps", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not self.smoothing > 0:
            raise ConfigError(f"smoothing must be above 0, got {self.smoothing}")
        if not 0 < self.significance < 1:
            raise ConfigError(f"significance must lie between 0 and 1, got {self.significance}")
        check_bounds(self)
        self.check_leaves()
        if self.least_deviation and self.em_steps:
            raise ConfigError("least_deviation does not hold in EM: leave em_steps at 0")

    def learn(
        self,
        domain: Domain,
        values: FloatArray,
        seed: int = 0,
        row_weights: ArrayLike | None = None,
    ) -> Circuit:
        """Return a circuit of rows.

        Parameters
        ----------
        domain : Domain
        values : ndarray of float64, shape (n, d)
            As `Domain.encode` makes them; a missing value is NaN.
        seed : int, default 0
            Seed of the clusters. The result does not depend on the order of the rows.
        row_weights : array_like, shape (n,), optional
            How often each row counts, as if it were repeated. Default 1.

        Raises
        ------
        DataError
            If there are no rows, or a number is missing in all of them.
        ConfigError
            If the target is no category.
        """
        weights = checked_weights(row_weights, len(values))
        values, weights = distinct_rows(values, weights, seed)
        by_class = self.target is not None and self.class_root
        target = domain.index(str(self.target)) if by_class else None
        if target is not None:
            if domain.num_states[target] == 0:
                raise ConfigError(f"the target {self.target!r} is a number: make it a category")
            known = ~np.isnan(values[:, target])
            if not known.any():
                raise DataError(f"the target {self.target!r} is missing in every row")
            values, weights = values[known], weights[known]
        with single_threaded():
            growth = SpnGrowth(self, domain, values, weights, seed)
            root = best_root(growth, target) if self.blocks else growth.root(target)
        circuit = Circuit(domain, root)
        if not self.em_steps:
            return circuit
        return expectation_maximisation(
            circuit,
            values,
            steps=self.em_steps,
            row_weights=weights,
            smoothing=self.smoothing,
        ).circuit


def learn_spn(
    frame: Any,
    *,
    categorical: Sequence[str] = (),
    domain: Domain | None = None,
    seed: int = 0,
    row_weights: ArrayLike | None = None,
    **options: Any,
) -> Circuit:
    """Learn a circuit from a table.

    Parameters
    ----------
    frame : DataFrame, or array of shape (n, d)
        Texts, booleans and pandas categories are categories; other columns are numbers. Missing
        values are integrated out. The columns of an array are numbers named x0, x1, ...
    categorical : sequence of str, optional
        Further columns that are categories.
    domain : Domain, optional
        The variables. Default: those of the frame. With a domain, an array must hold values as
        ``domain.encode`` returns them.
    seed : int, default 0
        The same seed gives the same circuit.
    row_weights : array_like, shape (n,), optional
        How often each row counts. Default 1.
    **options
        Options of `LearnSPN`, e.g. ``target="income"`` or ``em_steps=10``.

    Returns
    -------
    Circuit

    Raises
    ------
    DataError
        If there are no rows, a column has no value, or a value cannot be read.
    ConfigError
        If an option is unknown or out of range.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal.solvers import learn_spn
    >>> table = pd.DataFrame({"rain": ["no", "yes"] * 20, "wet": ["no", "yes"] * 20})
    >>> learn_spn(table).log_likelihood(table).shape
    (40,)
    """
    names = [field.name for field in fields(LearnSPN)]
    unknown = [name for name in options if name not in names]
    if unknown:
        raise ConfigError(f"learn_spn has no option {unknown[0]!r}: expected {', '.join(names)}")
    learner = LearnSPN(**options)
    if domain is None:
        frame = _frame_of(frame)
        domain = Domain.from_frame(frame, categorical)
    elif categorical:
        raise ConfigError("give either a domain or categorical columns: a domain says which are")
    return learner.learn(domain, domain.encode(frame), seed, row_weights)


def distinct_rows(
    values: FloatArray, row_weights: FloatArray, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return the distinct rows of positive weight, ordered by their values, and their weights.

    The order is pseudo-random; only rows whose hashes are equal are in ascending order.
    """
    counted = row_weights > 0
    values, row_weights = values[counted], row_weights[counted]
    hashes = row_folds(np.where(np.isnan(values), np.nan, values), HASHES, seed)
    order = np.lexsort((*values.T, hashes))
    values, row_weights = values[order], row_weights[order]
    above, below = values[:-1], values[1:]
    equal = ((above == below) | (np.isnan(above) & np.isnan(below))).all(axis=1)
    first = np.flatnonzero(np.append(True, ~equal)[: len(values)])
    return values[first], np.add.reduceat(row_weights, first) if len(first) else row_weights


def _frame_of(data: Any) -> Any:
    """Return a frame; the columns of an array are called x0, x1, ..."""
    if hasattr(data, "columns"):
        return data
    import pandas as pd

    array = np.asarray(data)
    if array.ndim != 2:
        raise DataError(f"a table has the shape (rows, columns), got {array.shape}")
    return pd.DataFrame(array, columns=[f"x{j}" for j in range(array.shape[1])])


# -- the recursion --------------------------------------------------------------------------------


class SpnGrowth:
    """A table from which nodes are learned.

    Parameters
    ----------
    options : LearnSPN
    domain : Domain
    values : ndarray of float64, shape (n, d)
    row_weights : ndarray of float64, shape (n,)
    seed : int
        Seed of the clusters.
    """

    def __init__(
        self,
        options: LearnSPN,
        domain: Domain,
        values: FloatArray,
        row_weights: FloatArray,
        seed: int,
    ) -> None:
        self.options = options
        self.domain = domain
        self.values = values
        self.row_weights = row_weights
        self.seed = seed
        self._rng = np.random.default_rng(seed)

    @cached_property
    def _fit(self) -> LeafFit:
        """The fit of leaves over one column; a block over all columns needs none."""
        options = self.options
        return LeafFit(
            self.domain,
            self.values,
            self.row_weights,
            options.smoothing,
            options.leaves,
            options.least_deviation,
        )

    def part(self, rows: BoolArray) -> SpnGrowth:
        """Return the growth of a part of the rows."""
        return SpnGrowth(
            self.options, self.domain, self.values[rows], self.row_weights[rows], self.seed
        )

    def root(self, target: int | None) -> Node:
        """Return the root over all columns; with a target, a sum over its states."""
        columns = list(range(self.values.shape[1]))
        if target is None:
            return self.node(np.arange(len(self.values)), columns)
        others = [column for column in columns if column != target]
        return self.by_state(target, lambda rows, _: [self.node(rows, others)] if others else [])

    def by_state(self, column: int, factors: Factors) -> Node:
        """Return a sum over the states of a category, with the factors learned for each.

        Parameters
        ----------
        column : int
            Not missing in any row.
        factors : callable
            Takes the rows of a state and the state; returns nodes over other columns.
        """
        states = self.values[:, column].astype(np.int64)
        num_states = int(self.domain.num_states[column])
        sizes = np.bincount(states, self.row_weights, minlength=num_states)
        present = np.flatnonzero(sizes)
        children: list[Node] = [
            joined(
                [
                    Categorical(column, np.eye(num_states)[state]),
                    *factors(np.flatnonzero(states == state), int(state)),
                ]
            )
            for state in present
        ]
        return Sum(children, sizes[present] / sizes.sum())

    def node(self, rows: IntArray, scope: Sequence[int]) -> Node:
        """Return the node over a scope (ascending) that is learned from some rows."""
        coded = indicators(
            self.values[np.ix_(rows, np.array(scope))],
            self._fit.columns.num_states[scope],
            self.row_weights[rows],
            self.options.bins,
        )
        return self._node(rows, list(scope), coded, 0, True)

    def _node(
        self, rows: IntArray, scope: list[int], coded: Indicators, depth: int, split_columns: bool
    ) -> Node:
        options = self.options
        weights = self.row_weights[rows]
        if len(scope) == 1 or weights.sum() < options.split_rows or depth > MOST_SUMS:
            return self._leaves(rows, scope)
        everything = np.arange(len(rows))
        if split_columns:
            pairs = dependent_pairs(coded, weights, options.significance, options.correlation)
            groups = groups_of(pairs)
            if len(groups) > 1:
                return Product(
                    [
                        self._node(
                            rows,
                            [scope[k] for k in group],
                            coded.part(everything, group),
                            depth,
                            False,
                        )
                        for group in groups
                    ]
                )
        labels = cluster_rows(coded, weights, options.clusters, self._rng)
        sizes = np.bincount(labels, weights)
        present = np.flatnonzero(sizes)
        if len(present) < 2 or sizes[present].min() < LEAST_SHARE * sizes.sum():
            return self._leaves(rows, scope)
        children = []
        for label in present:
            members = np.flatnonzero(labels == label)
            inside = coded.part(members, np.arange(len(scope)))
            children.append(self._node(rows[members], scope, inside, depth + 1, True))
        return Sum(children, sizes[present] / sizes.sum())

    def _leaves(self, rows: IntArray, scope: list[int]) -> Node:
        return joined(self._fit.leaves(rows, scope))


# -- blocks of numbers ----------------------------------------------------------------------------


def best_root(growth: SpnGrowth, target: int | None) -> Node:
    """Return the root with the best block, or without a block if that is better.

    Numbers with missing values are in no block. If weights of rows are not whole numbers there is
    no block.

    Parameters
    ----------
    growth : SpnGrowth
    target : int or None
        As in ``SpnGrowth.root``; a block is conditional on it. Without a target a block is tried
        alone and conditional on each of the categories that depend on it most.
    """

    def without(rows: SpnGrowth, _: Grids) -> Node:
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
    return candidates[int(first_largest(scores))](growth, FINE)


def dependent_numbers(growth: SpnGrowth) -> IntArray:
    """Return the numbers that depend strongly on another number, ascending."""
    values, weights = growth.values, growth.row_weights
    numbers = np.flatnonzero((growth.domain.num_states == 0) & ~np.isnan(values).any(axis=0))
    if len(numbers) < 2:
        return numbers[:0]
    coded = indicators(values[:, numbers], np.zeros_like(numbers), weights, growth.options.bins)
    largest = largest_correlations(joint_counts(coded, weights), coded.starts)
    return np.asarray(numbers[(largest > LEAST_CORRELATION).any(axis=1)])


def _categories(growth: SpnGrowth, block: IntArray) -> list[int]:
    """Return the categories that depend most on a block, of those with enough rows."""
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
    order = np.argsort(as_ranked(-ratios[: len(fit), len(fit) :].sum(axis=1)), kind="stable")
    return [fit[k] for k in order[:MOST_CATEGORIES]]


def _smallest_state(column: FloatArray, weights: FloatArray) -> float:
    counts = np.bincount(column.astype(np.int64), weights)
    return float(counts[counts > 0].min())


def _with_block(growth: SpnGrowth, grids: Grids, *, block: IntArray, given: int | None) -> Node:
    """Return a root with one leaf over the block, or one for each state of a category."""
    domain = growth.domain
    inside = sorted({*block.tolist(), given} - {None})
    rest = [column for column in range(len(domain.variables)) if column not in inside]
    rows = np.repeat(growth.values[:, inside], growth.row_weights.astype(np.int64), axis=0)
    target = None if given is None else domain.names[given]
    own_domain = Domain(tuple(domain.variables[column] for column in inside))
    learned = ClassConditional(target=target, **grids).learn(own_domain, rows, growth.seed)

    def factors(members: IntArray, leaf: Node) -> list[Node]:
        return [leaf, *([growth.node(members, rest)] if rest else [])]

    if given is None or target is None:
        return joined(factors(np.arange(len(growth.values)), learned.root_in(domain)))
    labels = learned.classes(target)
    return growth.by_state(
        given,
        lambda members, state: factors(
            members, learned.conditional({target: labels[state]}).root_in(domain)
        ),
    )

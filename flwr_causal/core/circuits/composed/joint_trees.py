"""Mixtures of Chow-Liu trees over parties that hold different columns of the same rows.

A component is a product of one tree for each party, over the party's own columns. Trees stay inside
the parties; what a party sends is K numbers a row, in an order of rows that all agree on: the log
densities of its columns in the K components. The server adds them up and returns the K
responsibilities of each row, of which every party makes its part of new components. That is EM on
the joint density. On new rows,
`responsibilities` of the log densities tells the log-likelihood. E mixtures, which start from
other rows, share the exchanges, and their mean is the result.

The party that holds the class makes every component one of a single class: the class that most of
its rows have. Since responsibilities follow from densities, the rows of a component then are of its
class, and what the parties train is a mixture for each class. On Income (27,000 rows of 16-bin
columns, one mixture of 14 components, 3 splits between 2 parties) accuracy was .836 and macro F1
.764, against .825 and .731 with the class as a column of the trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import logsumexp

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.composed.composition import Composition, Output
from flwr_causal.core.circuits.learners.trees import trees as tree_mixtures
from flwr_causal.core.circuits.learners.trees.learner import STRENGTHS, tree_leaves
from flwr_causal.core.circuits.learners.trees.pair_sums import (
    Layout,
    encode,
    row_sums,
)
from flwr_causal.core.circuits.learners.trees.trees import (
    independent,
    prior_cells,
    products,
    shrunk_trees,
)
from flwr_causal.core.circuits.leaves.univariate import Categorical
from flwr_causal.core.circuits.nodes import joined, mixed
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.trees.pair_sums import Codes
    from flwr_causal.core.circuits.learners.trees.trees import Trees
    from flwr_causal.core.circuits.nodes import Node


#: Share of an anchor's own states in the component that starts from it.
OWN_SHARE = 0.5
#: Steps with products before that with trees: five cost .03 nats on plants. A second step with
#: trees cost .01 nats there.
PRODUCT_STEPS = 8
#: Mixtures side by side, whose mean is taken: .1 to .4 nats better than one on Income, plants and
#: jester between 2 and 3 parties, and .006 of accuracy on Income.
ENSEMBLES = 3
#: Rows of every class that are given beforehand where a class has no component.
CLASS_SMOOTHING = 0.1


@dataclass(frozen=True, eq=False)
class Table:
    """A party's columns.

    Parameters
    ----------
    codes : ndarray of int32, shape (d, n)
        States; -1 is missing.
    layout : Layout
    cells : ndarray, shape (total, total)
        The party's table of pairs of states, towards which its trees are shrunk.
    """

    codes: Codes
    layout: Layout
    cells: FloatArray

    @classmethod
    def of(cls, values: FloatArray, num_states: Sequence[int]) -> Table:
        """Read values ``(n, d)`` of columns with so many states each; NaN is a missing value."""
        codes = encode(values, num_states)
        layout = Layout(tuple(int(count) for count in num_states), bool((codes >= 0).all()))
        ones = np.ones((len(values), 1))
        sums = row_sums(layout, codes, 1, ones.__getitem__, pairs=True)
        counts = layout.pair_counts(sums[0])
        return cls(codes, layout, prior_cells(layout, counts, counts))

    def start(self, anchors: IntArray) -> Trees:
        """Return the party's part of the components that start from rows ``(E, K)``."""
        rows = self.codes[:, anchors.ravel()]
        own = Layout(self.layout.num_states, complete=False).design(rows)[:, 1:]
        means = np.diagonal(self.cells)
        added = np.broadcast_to((1.0 - OWN_SHARE) * means, own.shape)
        return independent(self.layout, OWN_SHARE * own.astype(np.float64), added)

    def products(self, shared: FloatArray) -> Trees:
        """Return the party's part of components of independent columns.

        Parameters
        ----------
        shared : ndarray of float, shape (n, E K)
            Responsibilities.
        """
        counts = self._sums(shared, pairs=False)
        return products(self.layout, self.layout.state_counts(counts), self.cells)

    def trees(self, shared: FloatArray) -> Trees:
        """Return the party's trees; see `priors.shrunk_trees`."""
        return shrunk_trees(self.layout, self._sums(shared, pairs=True), self.cells, STRENGTHS)

    def _sums(self, weights: FloatArray, *, pairs: bool) -> FloatArray:
        size = weights.shape[1]
        return row_sums(self.layout, self.codes, size, weights.__getitem__, pairs=pairs)


class Shared(NamedTuple):
    """What the server knows after an exchange.

    Parameters
    ----------
    responsibilities : ndarray of float, shape (n, E K)
        What it returns to the parties; multiples of ``pair_sums.UNIT``.
    log_weights : ndarray of float, shape (E, K)
        Of the components that are made of them, in each mixture.
    log_likelihood : ndarray of float, shape (n,)
        Of each row before that.
    """

    responsibilities: FloatArray
    log_weights: FloatArray
    log_likelihood: FloatArray


def equal_weights(components: int, ensembles: int = ENSEMBLES) -> FloatArray:
    """Return the log weights of the start, ``(E, K)``."""
    return np.full((ensembles, components), -np.log(components))


def anchor_rows(num_rows: int, components: int, seed: int, ensembles: int = ENSEMBLES) -> IntArray:
    """Draw the rows that components start from, the same for all parties, ``(E, K)``.

    Raises
    ------
    DataError
        If there are fewer rows than components.
    """
    if not 1 <= components <= num_rows:
        raise DataError(f"{num_rows} rows do not do for {components} components: take fewer")
    rng = np.random.default_rng(seed)
    return np.stack([rng.choice(num_rows, components, replace=False) for _ in range(ensembles)])


def responsibilities(given: Sequence[FloatArray], log_weights: FloatArray) -> Shared:
    """Return the responsibilities that follow from the parties' log densities.

    Parameters
    ----------
    given : sequence of arrays (n, E K)
        Log densities from each party.
    log_weights : ndarray of float, shape (E, K)
    """
    joint = np.sum(given, axis=0).reshape(-1, *log_weights.shape) + log_weights
    result = tree_mixtures.responsibilities(joint)
    rows = tree_mixtures.log_weights(result.sum(axis=0))
    densities = logsumexp(joint, axis=(1, 2)) - np.log(len(log_weights))
    return Shared(result.reshape(len(joint), -1), rows, np.asarray(densities))


def composed(domain: Domain, columns: Sequence[Sequence[int]], shared: Shared) -> Composition:
    """Return the mixture as a composition of the parties' trees, tree k being their output k.

    Parameters
    ----------
    domain : Domain
    columns : sequence of sequences of int
        Ascending columns of the domain that each party holds.
    shared : Shared
        What the trees were made of.
    """
    rows = np.maximum(np.rint(shared.responsibilities.sum(axis=0)), 1).astype(int).tolist()
    children = [
        joined([Output(tuple(own), party, k, count) for party, own in enumerate(columns)])
        for k, count in enumerate(rows)
    ]
    root = mixed(children, np.exp(shared.log_weights).ravel())
    return Composition(domain, root, (len(rows),) * len(columns))


# -- a party with the class among its columns -----------------------------------------------------


@dataclass(frozen=True, eq=False)
class PartyRows:
    """A party's columns of the common rows.

    Parameters
    ----------
    domain : Domain
        The party's own, of variables with states.
    target : int or None
        The class, if the party holds it.
    columns : tuple of int
        The others.
    table : Table or None
        Of the others; None where there are none.
    classes : ndarray of int64, shape (n,)
        Of the rows; -1 where it is missing, or not held.
    """

    domain: Domain
    target: int | None
    columns: tuple[int, ...]
    table: Table | None
    classes: IntArray

    @classmethod
    def of(cls, domain: Domain, values: FloatArray, target: str | None) -> PartyRows:
        """Read values ``(n, d)`` of the party's domain; NaN is a missing value."""
        place = domain.index(target) if target in domain.names else None
        columns = tuple(j for j in range(len(domain.names)) if j != place)
        own = list(columns)
        table = Table.of(values[:, own], domain.num_states[own].tolist()) if own else None
        classes = np.full(len(values), -1, dtype=np.int64)
        if place is not None:
            classes = np.where(np.isnan(values[:, place]), -1, values[:, place]).astype(np.int64)
        return cls(domain, place, columns, table, classes)


@dataclass(frozen=True, eq=False)
class Part:
    """A party's part of the K components of each of E mixtures.

    Parameters
    ----------
    rows : PartyRows
        What it is made of.
    trees : Trees or None
        Over the columns but the class.
    shares : ndarray of float64, shape (E K, classes), or None
        Probability of each class.
    """

    rows: PartyRows
    trees: Trees | None
    shares: FloatArray | None

    @classmethod
    def started(cls, rows: PartyRows, anchors: IntArray) -> Part:
        """Return components that start from rows ``(E, K)``."""
        trees = None if rows.table is None else rows.table.start(anchors)
        if rows.target is None:
            return cls(rows, trees, None)
        every = np.unique(rows.classes[rows.classes >= 0])
        own = np.concatenate([_all_classes(rows.classes[one], every) for one in anchors])
        return cls(rows, trees, _class_shares(rows, own))

    @classmethod
    def made(
        cls, rows: PartyRows, shared: FloatArray, *, trees: bool, minimum_count: int = 1
    ) -> Part:
        """Return components of responsibilities.

        Parameters
        ----------
        rows : PartyRows
        shared : ndarray of float64, shape (n, E K)
        trees : bool
            Else columns are independent within a component.
        minimum_count : int
            Components of fewer rows are those of all rows together.
        """
        enough = np.where(shared.sum(axis=0) >= minimum_count, shared, 0.0)
        made = None
        if rows.table is not None:
            made = rows.table.trees(enough) if trees else rows.table.products(enough)
        if rows.target is None:
            return cls(rows, made, None)
        states = range(int(rows.domain.num_states[rows.target]))
        counts = [enough[rows.classes == c].sum(axis=0) for c in states]
        return cls(rows, made, _class_shares(rows, np.argmax(counts, axis=0)))

    def log_densities(self) -> FloatArray:
        """Return the log density of the party's columns of each row, ``(n, E K)``."""
        classes = self.rows.classes
        result = 0.0 if self.shares is None else _log_class(self.shares, classes)
        if self.trees is not None and self.rows.table is not None:
            result = result + self.trees.log_densities(self.rows.table.codes)
        return np.asarray(result)

    def circuits(self) -> list[Circuit]:
        """Return a circuit for each component, over the party's domain."""
        factors: list[list[Node]] = []
        if self.trees is not None:
            factors.append(list(tree_leaves(self.trees, self.rows.columns)))
        if self.shares is not None and self.rows.target is not None:
            factors.append([Categorical(self.rows.target, own) for own in self.shares])
        return [Circuit(self.rows.domain, joined(own)) for own in zip(*factors, strict=True)]


def _all_classes(own: IntArray, classes: IntArray) -> IntArray:
    """Return the classes of a mixture's components, ``(K,)``, so that every class has one.

    A rare class may be that of no row that starts a component. It gets one of those whose class has
    the most: where a component starts is soon forgotten.
    """
    own = np.where(own >= 0, own, classes[0] if len(classes) else 0)
    for c in np.setdiff1d(classes, own):
        most = np.bincount(own).argmax()
        own[np.flatnonzero(own == most)[-1]] = c
    return own


def _class_shares(rows: PartyRows, own: IntArray) -> FloatArray:
    """Return the probability of each class in components of these classes, ``(E K, classes)``.

    It is 1 for the component's own class. A class that is that of no component, since it has no
    row, is equally frequent in all.
    """
    assert rows.target is not None
    number = int(rows.domain.num_states[rows.target])
    seen = np.bincount(rows.classes[rows.classes >= 0], minlength=number) + CLASS_SMOOTHING
    without = np.where(np.isin(np.arange(number), own), 0.0, seen / seen.sum())
    shares = np.tile(without, (len(own), 1))
    shares[np.arange(len(own)), own] = 1.0 - without.sum()
    return shares


def _log_class(shares: FloatArray, classes: IntArray) -> FloatArray:
    """Return the log probability of each row's class, ``(n, K)``; 0 where it is missing."""
    with np.errstate(divide="ignore"):
        known = np.log(shares).T[np.maximum(classes, 0)]
    return np.where(classes[:, None] >= 0, known, 0.0)

"""One party's side of joint EM (`vertical`): its rows, and its part of the components.

The party that holds the class makes every component one of a single class: the class that most of
its rows have. Since responsibilities follow from densities, the rows of a component then are of its
class, and what the parties train is a mixture for each class. On Income (27,000 rows of 16-bin
columns, one mixture of 14 components, 3 splits between 2 parties) accuracy was .836 and macro F1
.764, against .825 and .731 with the class as a column of the trees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.composed.composition import joined
from flwr_causal.core.circuits.leaves.categorical import Categorical
from flwr_causal.core.circuits.trees.model import tree_leaves
from flwr_causal.core.circuits.trees.vertical import (
    Table,
    party_log_densities,
    party_products,
    party_start,
    party_trees,
)

if TYPE_CHECKING:
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.nodes import Node
    from flwr_causal.core.circuits.trees.tables import Trees

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Rows of every class that are given beforehand where a class has no component.
CLASS_SMOOTHING = 0.1


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
        trees = None if rows.table is None else party_start(rows.table, anchors)
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
            make = party_trees if trees else party_products
            made = make(rows.table, enough)
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
            result = result + party_log_densities(self.trees, self.rows.table.codes)
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

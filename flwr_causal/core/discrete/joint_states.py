"""Contingency tables of columns that two parties hold: each marks the joint states of its part.

A set of variables is divided into two parts, of which one may be empty. A column of marks is 1
where a row has a joint state of a part. The sum over rows of the product of two such columns counts
the rows of a cell of the set's contingency table.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.discrete.contingency_tables import ContingencyCounts, Sets, sets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

    Members = tuple[int, ...]
    Split = tuple[Members, Members]


class Parts(NamedTuple):
    """Parts of sets of variables, and which of them are multiplied.

    Attributes
    ----------
    sets : Sets
        The members of each part.
    pairs : ndarray of int64, shape (m, 2)
        By set, its parts; twice the same where it has one.
    """

    sets: Sets
    pairs: IntArray

    @classmethod
    def of(cls, splits: Sequence[Split]) -> Parts:
        """Give each part of some sets one number."""
        numbers: dict[Members, int] = {}
        pairs = [
            [numbers.setdefault(part, len(numbers)) for part in (one, other or one)]
            for one, other in splits
        ]
        return cls(sets_of(list(numbers)), np.array(pairs, dtype=np.int64).reshape(-1, 2))

    def members(self) -> list[NDArray[np.int64]]:
        """Return the ascending variables of each set that is multiplied."""
        lists = self.sets.lists()
        return [np.unique([*lists[one], *lists[other]]) for one, other in self.pairs.tolist()]

    def columns(self, cardinalities: IntArray) -> list[NDArray[np.int64]]:
        """Return the numbers of the columns of marks of each part."""
        sizes = [int(np.prod(cardinalities[own])) for own in self.sets.lists()]
        ends = np.cumsum(sizes, dtype=np.int64)
        return [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]

    def wanted(self, cardinalities: IntArray) -> BoolArray:
        """Return which columns of marks are multiplied, symmetric."""
        columns = self.columns(cardinalities)
        total = sum(map(len, columns))
        found = np.zeros((total, total), dtype=np.bool_)
        for one, other in self.pairs.tolist():
            if one == other:
                found[columns[one], columns[one]] = True
            else:
                found[columns[one][:, None], columns[other]] = True
        return found | found.T

    def marks(
        self, codes: NDArray[np.uint8], cardinalities: IntArray, held: BoolArray
    ) -> FloatArray:
        """Return 1 where a row has a joint state, shape (n, columns); 0 in parts not held.

        Parameters
        ----------
        codes : ndarray of uint8, shape (d, n)
        cardinalities : ndarray of int64, shape (d,)
        held : ndarray of bool, shape (d,)
            The variables whose codes are known.
        """
        columns, n = self.columns(cardinalities), codes.shape[1]
        found = np.zeros((n, sum(map(len, columns))))
        for members, own in zip(self.sets.lists(), columns, strict=True):
            if held[members].all():
                cells = np.ravel_multi_index(
                    tuple(codes[members].astype(np.int64)), tuple(cardinalities[members])
                )
                found[np.arange(n), own[0] + cells] = 1.0
        return found

    def tables(self, products: FloatArray, cardinalities: IntArray) -> list[IntArray]:
        """Return the contingency table of each set, its axes in the order of the variables.

        Parameters
        ----------
        products : ndarray of shape (columns, columns)
            Of the marks, summed over rows.
        cardinalities : ndarray of int64, shape (d,)
        """
        columns, members, tables = self.columns(cardinalities), self.sets.lists(), []
        for one, other in self.pairs.tolist():
            if one == other:
                axes = members[one]
                cells = products[columns[one], columns[one]]
            else:
                axes = np.concatenate([members[one], members[other]])
                cells = products[columns[one][:, None], columns[other]]
            table = np.rint(cells).astype(np.int64).reshape(cardinalities[axes])
            tables.append(table.transpose(np.argsort(axes)))
        return tables


def split(
    members: Members, cardinalities: IntArray, possible: Callable[[Members, Members], bool]
) -> Split | None:
    """Return the division of a set into two parts with the fewest joint states together.

    Parameters
    ----------
    members : tuple of int
        Ascending.
    cardinalities : ndarray of int64, shape (d,)
    possible : callable
        Whether two parts can be multiplied.

    Returns
    -------
    tuple of two tuples of int, or None
        The second one may be empty. None if no division is possible.
    """

    def size(parts: Split) -> float:
        return sum(float(np.prod(cardinalities[list(part)])) for part in parts if part)

    return min((own for own in _divisions(members) if possible(*own)), key=size, default=None)


def _divisions(members: Members) -> Iterable[Split]:
    """Yield each division of a set into two parts once; the first part has the first member."""
    first, others = members[0], members[1:]
    for count in range(len(others), -1, -1):
        for kept in combinations(others, count):
            yield (first, *kept), tuple(k for k in others if k not in kept)


def counts_of(tables: Sequence[IntArray], sets: Sets, cardinalities: IntArray) -> ContingencyCounts:
    """Return contingency tables as :func:`contingency_tables.tabulate` does."""
    cells = [np.zeros(0, dtype=np.int64), *(table.ravel() for table in tables)]
    return ContingencyCounts.of_whole(np.concatenate(cells), sets, cardinalities)

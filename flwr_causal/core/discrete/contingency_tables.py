"""Contingency tables of sets of variables: counted by a party, and summed over parties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.compiled import compiled_in_place
from flwr_causal.core.discrete.small_counts import are_small, is_total, withheld
from flwr_causal.core.limits import require_room
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.discrete.discrete import DiscreteTable

Indices = NDArray[np.uint16]

#: Tables with more cells than this are sent as a list of the cells that are not empty.
DENSE_CELLS = 4096
# The number of a cell must fit into an int64.
MOST_CELLS = 2.0**62


class Sets(NamedTuple):
    """Sets of variables, as they are sent.

    Attributes
    ----------
    sizes : ndarray of uint16, shape (m,)
    members : ndarray of uint16, shape (sum of sizes,)
        Ascending within each set.
    """

    sizes: Indices
    members: Indices

    def lists(self) -> list[NDArray[np.int64]]:
        """Return the members of each set."""
        ends = np.cumsum(self.sizes, dtype=np.int64)
        return [
            self.members[end - size : end].astype(np.int64)
            for end, size in zip(ends, self.sizes, strict=True)
        ]


class ContingencyCounts(NamedTuple):
    """Contingency tables of several sets, one after the other.

    Attributes
    ----------
    dense : ndarray of unsigned integers
        All cells of the tables with at most DENSE_CELLS cells, the last variable fastest.
    cells, values : ndarray of int64, of unsigned integers
        Of the other tables: the numbers and counts of the cells that are not empty.
    lengths : ndarray of int64
        How many cells each of the other tables has in ``cells``.
    """

    dense: NDArray[np.unsignedinteger]
    cells: IntArray
    values: NDArray[np.unsignedinteger]
    lengths: IntArray

    def num_small(self, minimum: int) -> int:
        """Return how many cells count some rows, but fewer than the minimum."""
        return sum(int(are_small(one, minimum).sum()) for one in (self.dense, self.values))

    @property
    def num_filled(self) -> int:
        """How many cells count some rows."""
        return sum(int(np.count_nonzero(one)) for one in (self.dense, self.values))

    def without_small(self, sets: Sets, cardinalities: IntArray, minimum: int) -> ContingencyCounts:
        """Return the tables without the counts that :func:`small_counts.withheld` withholds.

        Parameters
        ----------
        sets : Sets
            Of the tables.
        cardinalities : ndarray of int64, shape (d,)
        minimum : int
        """
        size = num_cells(sets, cardinalities)
        dense = size[size <= DENSE_CELLS].astype(np.int64)
        left_out = withheld(self.dense, minimum, np.repeat(np.arange(len(dense)), dense))
        owners = np.repeat(np.arange(len(self.lengths)), self.lengths)
        kept = ~withheld(self.values, minimum, owners)
        return ContingencyCounts(
            np.where(left_out, 0, self.dense).astype(self.dense.dtype),
            self.cells[kept],
            self.values[kept],
            np.bincount(owners[kept], minlength=len(self.lengths)).astype(np.int64),
        )

    def scaled(self, sets: Sets, cardinalities: IntArray, rows: int) -> ContingencyCounts:
        """Return the tables as of so many rows each, rounded; those without rows as they are.

        Parameters
        ----------
        sets : Sets
            Of the tables.
        cardinalities : ndarray of int64, shape (d,)
        rows : int
        """
        size = num_cells(sets, cardinalities)
        parts = (size[size <= DENSE_CELLS].astype(np.int64), self.lengths.astype(np.int64))
        found = []
        for values, lengths in zip((self.dense, self.values), parts, strict=True):
            owners = np.repeat(np.arange(len(lengths)), lengths)
            totals = np.bincount(owners, weights=values, minlength=len(lengths))
            found.append(np.rint(values * (rows / np.maximum(totals, 1))[owners]).astype(np.uint64))
        return self._replace(dense=found[0], values=found[1])

    def whole(self, sets: Sets, cardinalities: IntArray) -> IntArray:
        """Return all cells of all tables, those that are empty too."""
        if not len(self.lengths):
            return self.dense.astype(np.int64)
        require_room("the contingency tables", num_cells(sets, cardinalities).sum())
        tables = tables_of(sets, self, cardinalities)
        return np.concatenate([table.ravel() for table in tables])

    @classmethod
    def of_whole(cls, whole: IntArray, sets: Sets, cardinalities: IntArray) -> ContingencyCounts:
        """Return the tables of which :meth:`whole` returns all cells."""
        size = num_cells(sets, cardinalities).astype(np.int64)
        narrow = size <= DENSE_CELLS
        dense = np.repeat(narrow, size)
        large, owners = whole[~dense], np.repeat(np.arange(len(size)), size)[~dense]
        places = (np.arange(len(whole)) - np.repeat(np.cumsum(size) - size, size))[~dense]
        filled = large > 0
        lengths = np.bincount(owners[filled], minlength=len(size))[~narrow]
        return cls(
            whole[dense].astype(np.uint64),
            places[filled],
            large[filled].astype(np.uint64),
            lengths.astype(np.int64),
        )

    @classmethod
    def summed(cls, dense: IntArray, sparse: Sequence[Sequence[NDArray[Any]]]) -> ContingencyCounts:
        """Return the tables of the rows of several parties together.

        Parameters
        ----------
        dense : ndarray of integers
            The sum of the parties' dense tables.
        sparse : sequence of (cells, values, lengths)
            Of each party.
        """
        owners = np.concatenate([np.repeat(np.arange(len(n)), n) for _, _, n in sparse])
        cells = np.concatenate([cells for cells, _, _ in sparse])
        values = np.concatenate([values for _, values, _ in sparse]).astype(np.int64)
        order = np.lexsort((cells, owners))
        owners, cells, values = owners[order], cells[order], values[order]
        first = np.ones(len(cells), dtype=np.bool_)
        first[1:] = (np.diff(owners) != 0) | (np.diff(cells) != 0)
        begins = np.flatnonzero(first)
        totals = np.add.reduceat(values, begins) if len(begins) else values
        lengths = np.bincount(owners[begins], minlength=len(sparse[0][2]))
        return cls(
            dense.astype(np.uint64),
            cells[begins],
            totals.astype(np.uint64),
            lengths.astype(np.int64),
        )


def sets_of(lists: Sequence[Sequence[int]]) -> Sets:
    """Return sets as they are sent."""
    sizes = np.array([len(members) for members in lists], dtype=np.uint16)
    flat = [np.sort(np.asarray(members, dtype=np.uint16)) for members in lists]
    return Sets(sizes, np.concatenate([np.zeros(0, dtype=np.uint16), *flat]))


def num_cells(sets: Sets, cardinalities: IntArray) -> FloatArray:
    """Return the number of cells of each table, shape (m,)."""
    logs = np.zeros(len(sets.sizes) + 1)
    np.add.at(
        logs,
        np.repeat(np.arange(len(sets.sizes)), sets.sizes),
        np.log(cardinalities[sets.members].astype(np.float64)),
    )
    return np.rint(np.exp(logs[:-1]))


def contradiction(
    counts: ContingencyCounts, sets: Sets, cardinalities: IntArray, rows: int, minimum: int = 0
) -> str:
    """Return why a party's counts are impossible, in words; "" if they are possible.

    Parameters
    ----------
    counts : ContingencyCounts
        As the party sent them.
    sets : Sets
        The sets whose tables were requested.
    cardinalities : ndarray of int64, shape (d,)
        Numbers of states.
    rows : int
        The party's number of rows; each table counts every row once.
    minimum : int, default 0
        The fewest rows that a party withholds from a table; 0: it withholds none.
    """
    size = num_cells(sets, cardinalities)
    narrow = size <= DENSE_CELLS
    dense = size[narrow].astype(np.int64)
    lengths = counts.lengths.astype(np.int64)
    if len(counts.dense) != dense.sum() or len(lengths) != (~narrow).sum():
        return "the contingency tables have other sizes than the requested ones"
    if len(counts.cells) != lengths.sum():
        return "the large contingency tables have other numbers of cells than 'lengths' says"
    if (counts.cells >= np.repeat(size[~narrow], lengths)).any():
        return "a large contingency table names a cell that it does not have"
    for values, parts in ((counts.dense, dense), (counts.values, lengths)):
        owners = np.repeat(np.arange(len(parts)), parts)
        totals = np.bincount(owners, weights=values, minlength=len(parts))
        wrong = [total for total in totals.tolist() if not is_total(total, rows, minimum)]
        if wrong:
            return (
                f"a contingency table counts {wrong[0]:g} rows, but the party reported {rows}; "
                "its table may have changed since"
            )
    return ""


def tabulate(table: DiscreteTable, sets: Sets) -> ContingencyCounts:
    """Count the rows of a table by the states of each set of variables.

    Returns
    -------
    Counts
        In the narrowest type that can hold the table's number of rows.

    Raises
    ------
    DataError
        If a table has more than 2^62 cells, or the small ones have too many together.
    """
    cards = table.cardinalities
    size = num_cells(sets, cards)
    if len(size) and size.max() > MOST_CELLS:
        raise DataError(
            f"a contingency table of {sets.sizes[np.argmax(size)]} variables has more than 2^62 "
            "cells: limit the families with the option 'max_parents'"
        )
    narrow = size <= DENSE_CELLS
    kind = np.min_scalar_type(max(table.num_rows, 1))
    weights = np.ones(table.codes.shape[1], np.int64) if table.weights is None else table.weights
    require_room("the contingency tables", size[narrow].sum())
    dense = np.zeros(int(size[narrow].sum()), dtype=np.int64)
    cell = np.empty(table.codes.shape[1], dtype=np.int64)
    if narrow.any():
        _tabulate(table.codes, weights, cards, sets.sizes, sets.members, narrow, dense, cell)
    cells, values, lengths = [], [], []
    members = sets.lists() if not narrow.all() else []
    for index in np.flatnonzero(~narrow):
        cell[:] = 0
        for member in members[index]:
            cell = cell * cards[member] + table.codes[member]
        distinct, inverse = np.unique(cell, return_inverse=True)
        cells.append(distinct)
        values.append(np.bincount(inverse, weights=table.weights))
        lengths.append(len(distinct))
    return ContingencyCounts(
        dense.astype(kind),
        np.concatenate([np.zeros(0, dtype=np.int64), *cells]),
        np.concatenate([np.zeros(0), *values]).astype(kind),
        np.array(lengths, dtype=np.int64),
    )


@compiled_in_place
def _tabulate(
    codes: NDArray[np.uint8],
    weights: IntArray,
    cards: IntArray,
    sizes: Indices,
    members: Indices,
    narrow: BoolArray,
    dense: IntArray,
    cell: IntArray,
) -> None:
    """Count the tables of few cells, one after the other; ``cell``, (n,), is scratch space."""
    n = len(cell)
    first, offset = 0, 0
    for index in range(len(sizes)):
        end = first + sizes[index]
        if narrow[index]:
            for i in range(n):
                cell[i] = 0
            num = 1
            for k in range(first, end):
                variable = members[k]
                for i in range(n):
                    cell[i] = cell[i] * cards[variable] + codes[variable, i]
                num *= cards[variable]
            for i in range(n):
                dense[offset + cell[i]] += weights[i]
            offset += num
        first = end


def tables_of(sets: Sets, counts: ContingencyCounts, cardinalities: IntArray) -> list[IntArray]:
    """Return the whole tables, each with one axis for each member of its set."""
    narrow = num_cells(sets, cardinalities) <= DENSE_CELLS
    dense, rest, which = 0, 0, 0
    tables = []
    for members, whole in zip(sets.lists(), narrow, strict=True):
        table = np.zeros(int(np.prod(cardinalities[members])), dtype=np.int64)
        if whole:
            table[:] = counts.dense[dense : dense + len(table)]
            dense += len(table)
        else:
            both = slice(rest, rest + int(counts.lengths[which]))
            table[counts.cells[both]] = counts.values[both]
            rest, which = both.stop, which + 1
        tables.append(table.reshape(cardinalities[members]))
    return tables

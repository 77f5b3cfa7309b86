"""Gains from summed contingency tables: the search then equals that on the pooled rows.

A score is ``s(y | S) = F(S + y) - F(S)``, where ``F(B)`` is a sum over the cells of the contingency
table of B. The table of a set A gives ``F(B)`` for every subset B of A, and so the gain of x as a
parent of y given S for every split of A into x, y and S. The sums over the cells of A, and of A
without one or two of its members, are kept.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.compiled import compiled_in_place, compiled_inside
from flwr_causal.core.discrete.contingency_tables import (
    DENSE_CELLS,
    ContingencyCounts,
    Sets,
    num_cells,
)
from flwr_causal.core.discrete.families import (
    FULL,
    Families,
    empty_families,
    enlarged,
    enter,
    find,
    row_of,
)
from flwr_causal.core.discrete.scores import (
    ScoreTerms,
    more_tables,
    penalty_gain,
    sum_of_terms,
    table_for,
    term,
)
from flwr_causal.core.ges.speculative_search import SpeculativeGains
from flwr_causal.core.limits import check_deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, IntArray, Integer

DONE, NO_TABLE, WIDE = 0, 1, 2
#: A table has fewer members.
MOST_MEMBERS = 64


class CountedGains(SpeculativeGains):
    """Gains from the contingency tables that a server knows, estimates of the others.

    Parameters
    ----------
    cardinalities : ndarray of int64, shape (d,)
    terms : ScoreTerms
        The score of the pooled rows.
    price : float
        See :class:`SpeculativeGains`.
    edge_cost : float, default 0.0
        Subtracted from the gain of every further parent.
    own_margins : bool, default False
        Whether each gain follows from one table and its own margins, as it must where tables count
        different rows.
    """

    def __init__(
        self,
        cardinalities: IntArray,
        terms: ScoreTerms,
        price: float,
        edge_cost: float = 0.0,
        own_margins: bool = False,
    ) -> None:
        super().__init__(cardinalities, price)
        self.own_margins = own_margins
        self.terms = terms
        self.edge_cost = edge_cost
        # F of each set, in a table of families with one column: owner 0, the set as members. With
        # own margins the members are those of the table, and the owner says which the margin lacks.
        self.sums = empty_families(1)

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Compute the gains whose tables are known; estimate and ask for the others."""
        work = np.empty((2, families.members.shape[1] + 2), dtype=np.int64)
        _compute(
            families,
            rows,
            wanted,
            self.sums,
            self.terms,
            self.cardinalities,
            float(self.edge_cost),
            self.own_margins,
            work,
        )
        super().fill(families, rows, wanted)

    def learn_counts(self, sets: Sets, counts: ContingencyCounts) -> None:
        """Store the sums over the cells of the tables of sets, and of their margins."""
        narrow = num_cells(sets, self.cardinalities) <= DENSE_CELLS
        members = sets.lists()
        work = np.zeros((5, DENSE_CELLS), dtype=np.int64)
        dense = np.asarray(counts.dense).astype(np.int64)
        flat = np.concatenate([np.zeros(0, dtype=np.int64), *members])
        index, begin, first = 0, 0, 0
        ends = np.cumsum(counts.lengths)
        wide = iter(zip(ends - counts.lengths, ends, strict=True))
        which = narrow.astype(np.int64)
        while index < len(members):
            check_deadline()
            index, first, begin, problem = _take_tables(
                self.sums,
                self.terms,
                self.cardinalities,
                (sets.sizes.astype(np.int64), flat, which),
                dense,
                (index, first, begin),
                self.own_margins,
                work,
            )
            if problem == FULL:
                broad = len(members[index]) > self.sums.members.shape[1]
                self.sums = enlarged(self.sums, 2 * len(members[index]) if broad else 0)
            elif problem == NO_TABLE:
                self.terms = more_tables(self.terms)
            elif problem == WIDE:
                part = slice(*next(wide))
                self._take_wide(members[index], counts.cells[part], counts.values[part])
                first += len(members[index])
                index += 1

    def _take_wide(self, members: IntArray, cells: IntArray, values: NDArray[Any]) -> None:
        """Store the sums over the cells of a table of many cells, and of its margins."""
        cards = self.cardinalities[members]
        codes = np.stack(np.unravel_index(cells, cards))
        places = range(len(members))
        for left_out in ((), *((i,) for i in places), *combinations(places, 2)):
            kept = [k for k in places if k not in left_out]
            owner = int(_margin(np.int64(left_out[0]), np.int64(left_out[-1]))) if left_out else 0
            if self.own_margins:
                self.sums, row = row_of(self.sums, owner, members)
            else:
                self.sums, row = row_of(self.sums, 0, members[kept])
            if not math.isnan(self.sums.gains[row, 0]):
                continue
            shape = cards[kept]
            cell = np.ravel_multi_index(codes[kept], shape) if kept else np.zeros_like(cells)
            _, inverse = np.unique(cell, return_inverse=True)
            margin = np.bincount(inverse, weights=values)
            total = float(np.prod(shape, dtype=np.float64))
            self.sums.gains[row, 0] = sum_of_terms(self.terms, total, margin)


def lacking_sets(sources: Sequence[SpeculativeGains]) -> Sets:
    """Return the sets (S, x and y) whose gains the last runs of some sources lacked, each once."""
    num_variables = len(sources[0].cardinalities)
    width = max(2 + int(own.families.sizes[own.asked[:, 0]].max(initial=0)) for own in sources)
    # Each set as an ascending row, padded with a number that is no variable's.
    rows = [np.zeros((0, width), dtype=np.int64)]
    for source in sources:
        families, asked = source.families, source.asked
        members = families.members[asked[:, 0], : width - 2]
        inside = np.arange(members.shape[1]) < families.sizes[asked[:, 0], None]
        own = np.full((len(asked), width), num_variables)
        own[:, : members.shape[1]] = np.where(inside, members, num_variables)
        own[:, -2], own[:, -1] = families.owners[asked[:, 0]], asked[:, 1]
        rows.append(own)
    distinct = np.unique(np.sort(np.concatenate(rows), axis=1), axis=0)
    inside = distinct < num_variables
    return Sets(inside.sum(axis=1).astype(np.uint16), distinct[inside].astype(np.uint16))


@compiled_in_place
def _take_tables(
    sums: Families,
    terms: ScoreTerms,
    cards: IntArray,
    sets: tuple[IntArray, IntArray, IntArray],
    dense: IntArray,
    start: tuple[int, int, int],
    own: bool,
    work: IntArray,
) -> tuple[int, int, int, int]:
    """Store the sums over the cells of tables, and of their margins without one or two variables.

    Parameters
    ----------
    sets : tuple of ndarray of int64
        Size of each set, all members, and whether the table is among the dense ones.
    dense : ndarray of int64
        The cells of the dense tables.
    start : tuple of int
        The set to begin with, its first member, the first cell of its table.
    own : bool
        Whether the margins of each table are kept apart.
    work : ndarray of int64, shape (5, DENSE_CELLS)
        Scratch space; row 2 is zero before and after.

    Returns
    -------
    index, first, begin : int
        The first set that was not processed, as in ``start``.
    problem : int
        DONE; FULL if ``sums`` has no room; NO_TABLE if ``terms`` has none; WIDE if the table is not
        a dense one.
    """
    sizes, members, narrow = sets
    index, first, begin = start
    cells, values, counts, left, steps = work[0], work[1], work[2], work[3], work[4]
    # To numba a literal 0 is a type of its own, for which callees are compiled again.
    zero = np.int64(0)
    while index < len(sizes):
        if not narrow[index]:
            return index, first, begin, WIDE
        size = sizes[index]
        length = 1
        for k in range(size - 1, -1, -1):
            steps[k] = length
            length *= cards[members[first + k]]
        filled = 0
        for cell in range(length):
            if dense[begin + cell] > 0:
                cells[filled] = cell
                values[filled] = dense[begin + cell]
                filled += 1
        for i in range(-1, size):
            # The whole set (i = j = -1), the set without i (j = i), the set without i and j.
            for j in range(i, size if i >= 0 else 0):
                count = zero
                total = 1.0
                for k in range(size):
                    if k != i and k != j:
                        left[count] = members[first + k]
                        total *= cards[left[count]]
                        count += 1
                owner, key, width = zero, left, count
                if own:
                    owner = zero if i < 0 else np.int64(_margin(i, j))
                    key, width = members[first : first + size], np.int64(size)
                row = find(sums, owner, key, width)
                if row >= 0 and not math.isnan(sums.gains[row, 0]):
                    continue
                number = table_for(terms, total)
                if number < 0:
                    return index, first, begin, NO_TABLE
                row = enter(sums, owner, key, width)
                if row == FULL:
                    return index, first, begin, FULL
                for k in range(filled):
                    cell = cells[k]
                    reduced = cell
                    if i >= 0:
                        step = steps[i]
                        reduced -= cell // step % cards[members[first + i]] * step
                        if j != i:
                            step = steps[j]
                            reduced -= cell // step % cards[members[first + j]] * step
                    counts[reduced] += values[k]
                result = 0.0
                for cell in range(length):
                    if counts[cell] > 0:
                        result += term(terms, number, total, counts[cell])
                        counts[cell] = 0
                sums.gains[row, 0] = result
        first += size
        begin += length
        index += 1
    return index, first, begin, DONE


@compiled_in_place
def _compute(
    families: Families,
    rows: IntArray,
    wanted: BoolArray,
    sums: Families,
    terms: ScoreTerms,
    cards: IntArray,
    edge_cost: float,
    own: bool,
    work: IntArray,
) -> None:
    """Write the wanted gains whose four sums are known; ``work``, (2, W + 2), is scratch space."""
    values = sums.gains
    with_y, further, zero = work[0], work[1], np.int64(0)
    for k in range(len(rows)):
        row = rows[k]
        y, size, members = families.owners[row], families.sizes[row], families.members[row]
        _with(members, size, y, with_y)
        known_s: Integer = zero
        known_y: Integer = zero
        if not own:
            known_s, known_y = find(sums, zero, members, size), find(sums, zero, with_y, size + 1)
        if known_s < 0 or known_y < 0:
            continue
        cells = 1.0
        for m in range(size):
            cells *= cards[members[m]]
        for x in range(len(cards)):
            if not wanted[k, x] or not math.isnan(families.gains[row, x]):
                continue
            _with(with_y, size + 1, x, further)
            both = find(sums, zero, further, size + 2)
            if both < 0:
                continue
            if own:
                i, j = zero, zero  # the places of x and y in the table
                for m in range(size + 2):
                    if further[m] == x:
                        i = np.int64(m)
                    elif further[m] == y:
                        j = np.int64(m)
                without_x, without_y = _margin(i, i), _margin(j, j)
                known_x = find(sums, without_y, further, size + 2)
                known_y = find(sums, without_x, further, size + 2)
                known_s = find(sums, _margin(min(i, j), max(i, j)), further, size + 2)
            else:
                _with(members, size, x, further)
                known_x = find(sums, zero, further, size + 1)
            if known_x < 0:
                continue
            gain = values[both, 0] - values[known_x, 0] - values[known_y, 0] + values[known_s, 0]
            penalty = penalty_gain(terms, cells, float(cards[x]), float(cards[y]))
            families.gains[row, x] = gain - penalty - edge_cost


@compiled_in_place
def _margin(i: Integer, j: Integer) -> Integer:
    """Return the number of a table's margin without the members at the places i <= j."""
    return np.int64(1 + MOST_MEMBERS * i + j)


@compiled_inside
def _with(members: IntArray, size: int, node: int, result: IntArray) -> None:
    """Write an ascending set with one more member."""
    place = size
    while place > 0 and members[place - 1] > node:
        result[place] = members[place - 1]
        place -= 1
    result[place] = node
    for k in range(place):
        result[k] = members[k]

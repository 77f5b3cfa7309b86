"""Gains from summed contingency tables: a search on counts alone, equal to one on pooled rows.

The table of a set A tells ``F(B)`` for A and all its subsets B, hence the gain of x as a parent of
y given S for every split of A into x, y and S: one table answers many questions. What has to be
kept of it are the sums over the cells of A and of A without one or two of its members.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.compiled import compiled
from flwr_causal.core.discrete.contingency_tables import DENSE_CELLS, Counts, Sets, num_cells
from flwr_causal.core.discrete.families import (
    FULL,
    Families,
    Members,
    empty_families,
    enlarged,
    enter,
    find,
)
from flwr_causal.core.discrete.scores import Terms, more_tables, penalty_gain, table_for, term
from flwr_causal.core.ges.speculative_search import SpeculativeGains

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

DONE, NO_TABLE = 0, 1


class CountedGains(SpeculativeGains):
    """Gains from the contingency tables that a server knows, estimates of the others.

    Parameters
    ----------
    cardinalities : ndarray of int64, shape (d,)
    terms : Terms
        The score of the pooled rows.
    price, depth
        See :class:`SpeculativeGains`.
    """

    def __init__(
        self, cardinalities: IntArray, terms: Terms, price: float, depth: int | None = None
    ) -> None:
        super().__init__(cardinalities, price, depth)
        self.terms = terms
        # The sum over the cells of each set: a "family" of nobody, with one number.
        self.sums = empty_families(1)

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Compute the gains whose tables are known; estimate and ask for the others."""
        _compute(families, rows, wanted, self.sums, self.terms, self.cardinalities)
        super().fill(families, rows, wanted)

    def sets(self) -> Sets:
        """Return the sets whose tables the last run lacked, each once."""
        asked = self.asked
        width = int(self.families.sizes[asked[:, 0]].max(initial=0)) + 2
        distinct = empty_families(1, rows=max(len(asked), 1), width=width)
        _distinct_sets(self.families, asked, distinct)
        count = int(distinct.used[0])
        sizes, members = distinct.sizes[:count], distinct.members[:count]
        inside = np.arange(width) < sizes[:, None]
        return Sets(sizes.astype(np.uint16), members[inside].astype(np.uint16))

    def learn_counts(self, sets: Sets, counts: Counts) -> None:
        """Take the summed tables of :meth:`sets`."""
        size = num_cells(sets, self.cardinalities)
        narrow = size <= DENSE_CELLS
        lengths = np.empty(len(size), dtype=np.int64)
        lengths[narrow] = size[narrow]
        lengths[~narrow] = counts.lengths
        cells = np.empty(int(lengths.sum()), dtype=np.int64)
        values = np.empty(len(cells), dtype=np.int64)
        begins = np.cumsum(lengths) - lengths
        whole = np.repeat(narrow, lengths)
        values[whole], values[~whole] = counts.dense, counts.values
        cells[whole] = (np.arange(len(cells)) - np.repeat(begins, lengths))[whole]
        cells[~whole] = counts.cells
        first_members = np.cumsum(sets.sizes, dtype=np.int64) - sets.sizes
        members = sets.members.astype(np.int32)
        index = 0
        while index < len(size):
            index, problem = _take_tables(
                self.sums,
                self.terms,
                self.cardinalities,
                (sets.sizes.astype(np.int64), first_members, members),
                (lengths, begins, cells, values),
                index,
            )
            if problem == FULL:
                wide = int(sets.sizes[index]) > self.sums.members.shape[1]
                self.sums = enlarged(self.sums, 2 * int(sets.sizes[index]) if wide else 0)
            elif problem == NO_TABLE:
                self.terms = more_tables(self.terms)


@compiled
def _distinct_sets(families: Families, asked: IntArray, distinct: Families) -> None:
    """Enter the set of each question (row, x) into a table, each set once."""
    for k in range(len(asked)):
        row = asked[k, 0]
        members = families.members[row, : families.sizes[row]]
        joined = _with(_with(members, families.owners[row]), asked[k, 1])
        enter(distinct, 0, joined, len(joined))


@compiled
def _take_tables(
    sums: Families,
    terms: Terms,
    cards: IntArray,
    sets: tuple[IntArray, IntArray, Members],
    tables: tuple[IntArray, IntArray, IntArray, IntArray],
    start: int,
) -> tuple[int, int]:
    """Take tables one after the other; return how far it went, and why it stopped."""
    sizes, first_members, members = sets
    lengths, begins, cells, values = tables
    for index in range(start, len(sizes)):
        chosen = members[first_members[index] : first_members[index] + sizes[index]]
        begin, length = begins[index], lengths[index]
        filled = np.empty(length, dtype=np.int64)
        counts = np.empty(length, dtype=np.int64)
        count = 0
        for k in range(begin, begin + length):
            if values[k] > 0:
                filled[count], counts[count] = cells[k], values[k]
                count += 1
        problem = _take_table(sums, terms, cards, chosen, filled[:count], counts[:count])
        if problem != DONE:
            return index, problem
    return len(sizes), DONE


@compiled
def _compute(
    families: Families,
    rows: IntArray,
    wanted: BoolArray,
    sums: Families,
    terms: Terms,
    cards: IntArray,
) -> None:
    """Write the wanted gains whose four sums are known."""
    for k in range(len(rows)):
        row = rows[k]
        y, size = families.owners[row], families.sizes[row]
        members = families.members[row, :size]
        with_y = _with(members, y)
        known_s, known_y = find(sums, 0, members, size), find(sums, 0, with_y, size + 1)
        if known_s < 0 or known_y < 0:
            continue
        cells = 1.0
        for m in members:
            cells *= cards[m]
        for x in range(len(cards)):
            if not wanted[k, x] or not math.isnan(families.gains[row, x]):
                continue
            both = find(sums, 0, _with(with_y, x), size + 2)
            if both < 0:
                continue
            known_x = find(sums, 0, _with(members, x), size + 1)
            if known_x < 0:
                continue
            values = sums.gains
            gain = values[both, 0] - values[known_x, 0] - values[known_y, 0] + values[known_s, 0]
            families.gains[row, x] = gain - penalty_gain(
                terms, cells, float(cards[x]), float(cards[y])
            )


@compiled
def _with(members: Members, node: int) -> Members:
    """Return an ascending set with one more member."""
    result = np.empty(len(members) + 1, dtype=np.int32)
    k = 0
    while k < len(members) and members[k] < node:
        result[k] = members[k]
        k += 1
    result[k] = node
    result[k + 1 :] = members[k:]
    return result


@compiled
def _take_table(
    sums: Families,
    terms: Terms,
    cards: IntArray,
    members: Members,
    cells: IntArray,
    values: IntArray,
) -> int:
    """Enter the sums of a table and of its margins without one or two of the variables.

    Parameters
    ----------
    cells, values : ndarray of int64
        The cells that are not empty, the last variable fastest, and their counts.

    Returns
    -------
    int
        DONE; FULL if ``sums`` has no room; NO_TABLE if ``terms`` has none.
    """
    size = len(members)
    steps = np.empty(size, dtype=np.int64)
    step = 1
    for k in range(size - 1, -1, -1):
        steps[k] = step
        step *= cards[members[k]]
    left = np.empty(size, dtype=np.int32)
    for i in range(-1, size):
        for j in range(i, size):
            if i == -1 and j >= 0:
                break
            count = 0
            total = 1.0
            for k in range(size):
                if k not in (i, j):
                    left[count] = members[k]
                    total *= cards[members[k]]
                    count += 1
            row = find(sums, 0, left, count)
            if row >= 0 and not math.isnan(sums.gains[row, 0]):
                continue
            number = table_for(terms, total)
            if number < 0:
                return NO_TABLE
            row = enter(sums, 0, left, count)
            if row == FULL:
                return FULL
            sums.gains[row, 0] = _sum_of_margin(
                terms, terms.tables[number], total, cells, values, steps, cards, members, i, j
            )
    return DONE


@compiled
def _sum_of_margin(
    terms: Terms,
    table: FloatArray,
    total: float,
    cells: IntArray,
    values: IntArray,
    steps: IntArray,
    cards: IntArray,
    members: Members,
    i: int,
    j: int,
) -> float:
    """Return the sum of the terms over a table without its variables i and j (-1: with all)."""
    reduced = cells.copy()
    for k in range(len(cells)):
        if i >= 0:
            reduced[k] -= cells[k] // steps[i] % cards[members[i]] * steps[i]
        if j >= 0 and j != i:
            reduced[k] -= cells[k] // steps[j] % cards[members[j]] * steps[j]
    result = 0.0
    largest = steps[0] * cards[members[0]] if len(members) > 0 else 1
    if largest <= DENSE_CELLS:
        counts = np.zeros(largest, dtype=np.int64)
        for k in range(len(cells)):
            counts[reduced[k]] += values[k]
        for k in range(len(cells)):
            result += term(terms, table, total, counts[reduced[k]])
            counts[reduced[k]] = 0
        return result
    order = np.argsort(reduced)
    count = 0
    for k in range(len(order)):
        if k > 0 and reduced[order[k]] != reduced[order[k - 1]]:
            result += term(terms, table, total, count)
            count = 0
        count += values[order[k]]
    return result + term(terms, table, total, count)

"""Counting rows by the states of a few variables, compiled; see `score_terms` for what is summed.

The gain of x as a further parent of y given S needs the contingency table of S, y and x. Two ways
of counting share the work: with a bit for every row, state and variable a cell is an ``and`` and a
popcount of 64 rows at a time; row by row every row costs one step, whatever the number of cells.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from flwr_causal.core.compiled import compiled
from flwr_causal.core.discrete.families import Families, find
from flwr_causal.core.discrete.score_terms import Terms, penalty, penalty_gain, table_for, term

if TYPE_CHECKING:
    from flwr_causal.core.discrete.discrete import DiscreteTable

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Words = NDArray[np.uint64]
Floats = NDArray[np.float64]


class Rows(NamedTuple):
    """A discrete table in the forms that the kernels read.

    Attributes
    ----------
    codes : ndarray of uint8, shape (d, n)
    weights : ndarray of int64, shape (n,) or (0,)
        How often each row stands; empty: once each.
    cards : ndarray of int64, shape (d,)
        Number of states.
    bits : ndarray of uint64, shape (sum of cards, n / 64)
        For each state of each variable one bit a row; empty where rows have weights.
    first_bits : ndarray of int64, shape (d,)
        Where a variable's states begin in ``bits``.
    """

    codes: NDArray[np.uint8]
    weights: Ints
    cards: Ints
    bits: Words
    first_bits: Ints


def rows_of(table: DiscreteTable) -> Rows:
    """Prepare a table for the kernels."""
    d, n = table.codes.shape
    cards = table.cardinalities
    first = np.concatenate([[0], np.cumsum(cards)[:-1]]).astype(np.int64)
    if table.weights is not None:
        return Rows(table.codes, table.weights, cards, np.zeros((0, 0), np.uint64), first)
    num_words = -(-n // 64)
    padded = np.zeros(num_words * 64, dtype=np.uint8)
    bits = np.zeros((int(cards.sum()), num_words), dtype=np.uint64)
    for j in range(d):
        for state in range(cards[j]):
            padded[:n] = table.codes[j] == state
            packed = np.packbits(padded, bitorder="little")
            bits[first[j] + state] = packed.view(np.uint64)
    return Rows(table.codes, np.zeros(0, np.int64), cards, bits, first)


@intrinsic
def _num_bits(typing_context: Any, word: Any) -> Any:
    """Count the bits of a word by the processor's own instruction."""
    signature = types.int64(types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.ctpop", [ir.IntType(64)])
        return builder.call(function, arguments)

    return signature, generate


@compiled
def configurations(rows: Rows, members: Small, size: int, codes: Small) -> int:
    """Write into ``codes`` for each row which configuration of some variables it has.

    Returns
    -------
    int
        How many configurations occur; they are numbered by first occurrence.
    """
    n = rows.codes.shape[1]
    codes[:] = 0
    num = 1
    for k in range(size):
        column = rows.codes[members[k]]
        card = rows.cards[members[k]]
        if card == 1:
            continue
        seen = np.full(num * card, -1, dtype=np.int32)
        num = 0
        for i in range(n):
            cell = codes[i] * card + column[i]
            if seen[cell] < 0:
                seen[cell] = num
                num += 1
            codes[i] = seen[cell]
    return num


@compiled
def fill_row(
    rows: Rows, terms: Terms, families: Families, row: int, wanted: NDArray[np.bool_]
) -> bool:
    """Compute the wanted gains of one family that are not known; False where tables lack room."""
    y, size = families.owners[row], families.sizes[row]
    members, gains = families.members[row], families.gains[row]
    n = rows.codes.shape[1]
    cards = rows.cards
    r = cards[y]
    q = 1.0
    for k in range(size):
        q *= cards[members[k]]
    codes = np.empty(n, dtype=np.int32)
    num = configurations(rows, members, size, codes)
    groups = codes * r + rows.codes[y]
    weighted = len(rows.weights) > 0
    sizes = np.zeros(num * r, dtype=np.int64)
    for i in range(n):
        sizes[groups[i]] += rows.weights[i] if weighted else 1
    number_s, number_sy = table_for(terms, q), table_for(terms, q * r)
    if number_s < 0 or number_sy < 0:
        return False
    base = 0.0
    for s in range(num):
        total = 0
        for v in range(r):
            count = sizes[s * r + v]
            base -= term(terms, terms.tables[number_sy], q * r, count)
            total += count
        base += term(terms, terms.tables[number_s], q, total)
    masks = np.empty((0, 0), dtype=np.uint64)
    counts = np.zeros(0, dtype=np.int32)
    for x in range(len(cards)):
        if not wanted[x] or not math.isnan(gains[x]):
            continue
        card = cards[x]
        if card == 1 or r == 1:
            gains[x] = 0.0
            continue
        number_x, number_xy = table_for(terms, q * card), table_for(terms, q * r * card)
        if number_x < 0 or number_xy < 0:
            return False
        # By bits a cell costs n / 64 words, by rows every row costs one step.
        if not weighted and num * r * (card - 1) * rows.bits.shape[1] < 8 * n:
            if masks.shape[0] == 0:
                masks = np.zeros((num * r, rows.bits.shape[1]), dtype=np.uint64)
                for i in range(n):
                    masks[groups[i], i >> 6] |= np.uint64(1) << np.uint64(i & 63)
            value = _by_bits(rows, terms, masks, sizes, num, x, (number_x, number_xy), q)
        else:
            if len(counts) < num * card * (r + 1):
                counts = np.zeros(num * card * (r + 1), dtype=np.int32)
            value = _by_rows(rows, terms, codes, num, y, x, (number_x, number_xy), q, counts)
        gains[x] = base + value - penalty_gain(terms, q, float(card), float(r))
        # The gain is symmetric: the empty set's rows are halved by this.
        if size == 0:
            other = find(families, x, members, 0)
            if other >= 0:
                families.gains[other, y] = gains[x]
    return True


@compiled
def _by_bits(
    rows: Rows,
    terms: Terms,
    masks: Words,
    sizes: Ints,
    num: int,
    x: int,
    tables: tuple[int, int],
    q: float,
) -> float:
    """Return sum t(n_sxy) - sum t(n_sx), counting the rows of each cell by ``and`` and popcount."""
    card, first, r = rows.cards[x], rows.first_bits[x], len(sizes) // num
    table_x, table_xy = terms.tables[tables[0]], terms.tables[tables[1]]
    words = masks.shape[1]
    cells_x, cells_xy = q * card, q * card * r
    by_state = np.empty(card, dtype=np.int64)
    value = 0.0
    for s in range(num):
        by_state[:] = 0
        for v in range(r):
            left = sizes[s * r + v]
            if left == 0:
                continue
            mask = masks[s * r + v]
            for state in range(card - 1):
                bits = rows.bits[first + state]
                count = 0
                for w in range(words):
                    count += _num_bits(mask[w] & bits[w])  # type: ignore[call-arg]
                left -= count
                by_state[state] += count
                value += term(terms, table_xy, cells_xy, count)
            by_state[card - 1] += left
            value += term(terms, table_xy, cells_xy, left)
        for state in range(card):
            value -= term(terms, table_x, cells_x, by_state[state])
    return value


@compiled
def _by_rows(
    rows: Rows,
    terms: Terms,
    codes: Small,
    num: int,
    y: int,
    x: int,
    tables: tuple[int, int],
    q: float,
    counts: Small,
) -> float:
    """Return sum t(n_sxy) - sum t(n_sx), counting row by row.

    ``counts`` is zero before and after.
    """
    of_x, of_y, card, r = rows.codes[x], rows.codes[y], rows.cards[x], rows.cards[y]
    table_x, table_xy = terms.tables[tables[0]], terms.tables[tables[1]]
    cells_x, cells_xy = q * card, q * card * r
    n, weighted = len(of_x), len(rows.weights) > 0
    width = r + 1
    for i in range(n):
        # Each cell (s, x) has its total first, then one count for each state of y.
        cell = (codes[i] * card + of_x[i]) * width
        weight = rows.weights[i] if weighted else 1
        counts[cell] += weight
        counts[cell + 1 + of_y[i]] += weight
    value = 0.0
    if num * card * width <= 2 * n:
        for outer in range(0, num * card * width, width):
            if counts[outer] == 0:
                continue
            value -= term(terms, table_x, cells_x, counts[outer])
            counts[outer] = 0
            for cell in range(outer + 1, outer + width):
                if counts[cell] > 0:
                    value += term(terms, table_xy, cells_xy, counts[cell])
                    counts[cell] = 0
        return value
    # Most cells are empty: visit those of the rows.
    for i in range(n):
        outer = (codes[i] * card + of_x[i]) * width
        if counts[outer] > 0:
            value -= term(terms, table_x, cells_x, counts[outer])
            counts[outer] = 0
        cell = outer + 1 + of_y[i]
        if counts[cell] > 0:
            value += term(terms, table_xy, cells_xy, counts[cell])
            counts[cell] = 0
    return value


@compiled
def fill_gains(
    rows: Rows, terms: Terms, families: Families, which: Ints, wanted: NDArray[np.bool_]
) -> int:
    """Compute the wanted gains of some families.

    Parameters
    ----------
    which : ndarray of int64, shape (m,)
        Rows of ``families``.
    wanted : ndarray of bool, shape (m, d)

    Returns
    -------
    int
        -1: done. Otherwise the first of ``which`` that needs more room in ``terms``.
    """
    for k in range(len(which)):
        if not fill_row(rows, terms, families, which[k], wanted[k]):
            return k
    return -1


@compiled
def family_score(rows: Rows, terms: Terms, y: int, parents: Small) -> float:
    """Return s(y | parents); NaN where tables lack room."""
    n, r = rows.codes.shape[1], rows.cards[y]
    q = 1.0
    for parent in parents:
        q *= rows.cards[parent]
    codes = np.empty(n, dtype=np.int32)
    size: int = len(parents)
    num = configurations(rows, parents, size, codes)
    number_s, number_sy = table_for(terms, q), table_for(terms, q * r)
    if number_s < 0 or number_sy < 0:
        return math.nan
    totals, counts = np.zeros(num, dtype=np.int64), np.zeros(num * r, dtype=np.int64)
    for i in range(n):
        weight = rows.weights[i] if len(rows.weights) > 0 else 1
        totals[codes[i]] += weight
        counts[codes[i] * r + rows.codes[y, i]] += weight
    score = penalty(terms, q) - penalty(terms, q * r)
    for count in counts:
        score += term(terms, terms.tables[number_sy], q * r, count)
    for total in totals:
        score -= term(terms, terms.tables[number_s], q, int(total))
    return score

"""Scores of DAGs of categories, and the gains of further parents, computed from rows.

The score of a DAG is the sum over its families, ``sum_y s(y | Pa_y)``. All scores are
log-probabilities or penalised log-likelihoods in nats: higher is better.

The discrete scores are sums over the cells of contingency tables. For a set A of variables with
``q_A`` cells, ``n_c`` rows in cell c and n rows in total,
``F(A) = sum_c t(n_c; q_A) - penalty(q_A)``, and ``s(y | S) = F(S + y) - F(S)``:

- **BDeu** (Heckerman, Geiger & Chickering 1995) with equivalent sample size e:
  ``t(k; q) = log Gamma(k + e/q) - log Gamma(e/q)``, no penalty;
- **BIC** (Schwarz 1978): ``t(k) = k log k``, ``penalty(q) = q log(n) / 2``;
- **qNML** (Silander, Leppa-aho, Jaasaari & Roos 2018): ``t(k) = k log k``,
  ``penalty(q) = log C(n, q)``, the regret of a multinomial with q cells.

The gain of x as a further parent of y given S needs the contingency table of S, y and x. It is
counted in the faster of two ways. With one bit for every row, state and variable, the count of a
cell is an ``and`` and a popcount of 64 rows at a time. Row by row, every row costs one step,
whatever the number of cells.
"""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from scipy.special import gammaln, xlogy

from flwr_causal.core.compiled import compiled_in_place, compiled_inside, count_ones, lowest_one
from flwr_causal.core.discrete.discrete import DiscreteTable, as_discrete
from flwr_causal.core.discrete.likelihood_gains import log_factorials, mean_of_terms
from flwr_causal.core.graphs.edge_lists import families_of
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray, Integer
    from flwr_causal.core.discrete.families import Families
    from flwr_causal.core.graphs.graph import CausalGraph

    Words = NDArray[np.uint64]
    CellCounts = NDArray[np.int32]

BDEU, BIC, QNML, LIKELIHOOD = 0, 1, 2, 3

# Terms of counts below this are looked up in a table; others are computed by Stirling's series.
TABLE_LENGTH = 2048


class ScoreTerms(NamedTuple):
    """A discrete score: its kind, and lookup tables of its terms t(k; q).

    Attributes
    ----------
    kind : int
        BDEU, BIC, QNML, or LIKELIHOOD: BIC's terms without a penalty.
    sample_size : float
        Equivalent sample size of BDeu.
    num_rows : float
        n.
    keys : ndarray of float64, shape (H,)
        Hash table of the numbers of cells q that have a lookup table; 0: free. Terms of BIC and the
        likelihood do not depend on q: theirs is 1.
    numbers : ndarray of int64, shape (H,)
        The index in ``tables`` of each key.
    tables : ndarray of float64, shape (T, L)
        ``tables[i, k]`` is the term of count k.
    missing : ndarray of float64, shape (1,)
        The key that :func:`table_for` has not found.
    """

    kind: int
    sample_size: float
    num_rows: float
    keys: FloatArray
    numbers: IntArray
    tables: FloatArray
    missing: FloatArray


def terms_of(kind: int, sample_size: float, num_rows: int, tables: int = 16) -> ScoreTerms:
    """Return the terms of a score, with room for lookup tables; but for BDeu with the only one."""
    if kind != BDEU:
        tables = 1
    terms = ScoreTerms(
        kind,
        float(sample_size),
        float(num_rows),
        np.zeros(4 * tables + 1),
        np.zeros(4 * tables + 1, dtype=np.int64),
        np.zeros((tables, min(num_rows + 1, TABLE_LENGTH))),
        np.ones(1),
    )
    return terms if kind == BDEU else with_table(terms)


def with_table(terms: ScoreTerms) -> ScoreTerms:
    """Return the terms with the lookup table that was missing; alone, where there is no room."""
    key, number = float(terms.missing[0]), int((terms.keys > 0).sum())
    if number == len(terms.tables):
        kind, size, rows = terms.kind, terms.sample_size, int(terms.num_rows)
        terms, number = terms_of(kind, size, rows, 2 * number), 0
    slot = int(key % len(terms.keys))
    while terms.keys[slot] != 0.0:
        slot = (slot + 1) % len(terms.keys)
    terms.keys[slot], terms.numbers[slot] = key, number
    counts = np.arange(terms.tables.shape[1], dtype=np.float64)
    if terms.kind == BDEU:
        # log Gamma(k + a) - log Gamma(a) as a running sum, which is accurate for tiny a too.
        terms.tables[number, 1:] = np.cumsum(np.log(terms.sample_size / key + counts[:-1]))
    else:
        terms.tables[number] = xlogy(counts, counts)
    return terms


@compiled_inside
def table_for(terms: ScoreTerms, cells: float) -> int:
    """Return the index of the lookup table for a number of cells; -1 where there is none."""
    keys = terms.keys
    key = cells if terms.kind == BDEU else 1.0
    slot = int(key % len(keys))
    while keys[slot] != key:
        if keys[slot] == 0.0:
            terms.missing[0] = key
            return -1
        slot = (slot + 1) % len(keys)
    return terms.numbers[slot]


@compiled_inside
def term(table: FloatArray, prior: float, count: Integer) -> float:
    """Return t(count; q), given its lookup table and e/q of BDeu; 0 for the other scores."""
    last = len(table) - 1
    if count <= last:
        return table[count]
    if prior == 0.0:
        return count * math.log(count)
    # A table is shorter than a count only if it has TABLE_LENGTH entries; Stirling's series is
    # exact in float64 from z = 64 on.
    return table[last] + _stirling(count + prior) - _stirling(last + prior)


@compiled_inside
def _stirling(z: float) -> float:
    """Return Stirling's series of log Gamma(z), without its constant."""
    return (z - 0.5) * math.log(z) - z + 1.0 / (12.0 * z) - 1.0 / (360.0 * (z * z * z))


def terms_of_counts(terms: ScoreTerms, cells: Any, counts: NDArray[Any]) -> FloatArray:
    """Return t(count; cells) of each count, 0 where it is 0; ``cells`` is a number or an array."""
    if terms.kind == BDEU:
        prior = terms.sample_size / cells
        return np.asarray(gammaln(counts + prior) - gammaln(prior))
    return np.asarray(xlogy(counts, counts))


def regret(num_rows: float, cells: Any) -> FloatArray:
    """Return the log regret of a multinomial with ``cells`` cells (Szpankowski & Weinberger 2012).

    Silander et al. (2018) use this approximation for qNML. Its error is below 0.1 nats for all
    numbers of rows and cells.
    """
    a = np.maximum(cells, 1.0) / max(num_rows, 1.0)
    # c = 1/2 + sqrt(1 + 4/a) / 2 is computed from c - 1, which is tiny if there are many cells.
    beyond = (2.0 / a) / (1.0 + np.sqrt(1.0 + 4.0 / a))
    c = 1.0 + beyond
    value = num_rows * (np.log(a) + (a + 2.0) * np.log1p(beyond) - 1.0 / c)
    return np.where(np.asarray(cells) > 1.0, value - 0.5 * np.log(c + 2.0 / a), 0.0)


def penalty(terms: ScoreTerms, cells: Any) -> Any:
    """Return the penalty of tables with so many cells."""
    if terms.kind == BIC:
        return 0.5 * math.log(max(terms.num_rows, 1.0)) * cells
    return regret(terms.num_rows, cells) if terms.kind == QNML else 0.0


def penalty_gains(
    terms: ScoreTerms, families: Families, rows: IntArray, others: IntArray, cards: IntArray
) -> Any:
    """Return the increases of the penalty with a further parent of families.

    Parameters
    ----------
    terms : ScoreTerms
        The score.
    families : Families
    rows, others : ndarray of int64, shape (m,)
        Of each gain the row of the family (y, S), and x.
    cards : ndarray of int64, shape (d,)
        Numbers of states.

    Returns
    -------
    ndarray of float64, shape (m,), or 0.0
    """
    if terms.kind not in (BIC, QNML):
        return 0.0
    inside = np.arange(families.members.shape[1]) < families.sizes[rows, None]
    q = np.where(inside, cards[families.members[rows]], 1.0).prod(axis=1)
    x, y = cards[others], cards[families.owners[rows]]
    if terms.kind == BIC:
        return penalty(terms, q * (x - 1.0) * (y - 1.0))
    # In this order the result is exactly 0 where x or y has one state.
    with_x = penalty(terms, q * x * y) - penalty(terms, q * y)
    return with_x - (penalty(terms, q * x) - penalty(terms, q))


class TableRows(NamedTuple):
    """A `DiscreteTable` in the form that compiled functions read.

    Attributes
    ----------
    codes : ndarray of uint8, shape (d, n)
        As in `DiscreteTable`.
    weights : ndarray of int32, shape (n,)
        How many equal rows each row represents.
    cards : ndarray of int64, shape (d,)
        Number of states of each variable.
    bits : ndarray of uint64, shape (sum of cards, n / 64)
        For each state of each variable one bit for each row; shape (0, 0) if rows have weights.
    first_bits : ndarray of int64, shape (d,)
        Row of ``bits`` of each variable's first state.
    """

    codes: NDArray[np.uint8]
    weights: NDArray[np.int32]
    cards: IntArray
    bits: Words
    first_bits: IntArray


def rows_of(table: DiscreteTable) -> TableRows:
    """Return a table in the form that compiled functions read."""
    d, n = table.codes.shape
    cards = table.cardinalities
    first = np.concatenate([[0], np.cumsum(cards)[:-1]]).astype(np.int64)
    if table.weights is not None:
        weights = table.weights.astype(np.int32)
        return TableRows(table.codes, weights, cards, np.zeros((0, 0), np.uint64), first)
    num_words = -(-n // 64)
    padded = np.zeros(num_words * 64, dtype=np.uint8)
    bits = np.zeros((int(cards.sum()), num_words), dtype=np.uint64)
    for j in range(d):
        for state in range(cards[j]):
            padded[:n] = table.codes[j] == state
            packed = np.packbits(padded, bitorder="little")
            bits[first[j] + state] = packed.view(np.uint64)
    return TableRows(table.codes, np.ones(n, dtype=np.int32), cards, bits, first)


class ScoreRoom(NamedTuple):
    """Working memory of :func:`fill_gains`.

    Attributes
    ----------
    codes : ndarray of int32, shape (n,)
        Of each row, the configuration of the parents.
    cells : ndarray of int32, shape (C,)
        One number for each configuration, or configuration and state of y.
    counts : ndarray of int32, shape (C,)
        Zero before and after each call.
    masks : ndarray of uint64, shape (8 n,)
        One bit a row for each configuration and state of y; empty if rows have weights.
    """

    codes: CellCounts
    cells: CellCounts
    counts: CellCounts
    masks: Words


def room_for(rows: TableRows, cells: int) -> ScoreRoom:
    """Return working memory for tables of ``cells`` cells."""
    n = len(rows.weights)
    return ScoreRoom(
        np.empty(n, np.int32),
        np.empty(cells, np.int32),
        np.zeros(cells, np.int32),
        np.empty(8 * n if rows.bits.size else 0, np.uint64),
    )


@compiled_inside
def configurations(
    rows: TableRows, members: IntArray, size: int, codes: CellCounts, seen: CellCounts
) -> int:
    """Write the number of each row's configuration of the first ``size`` members into ``codes``.

    Configurations are numbered from 0 in the order in which they first occur. ``seen`` is working
    memory.

    Returns
    -------
    int
        Number of configurations that occur; -m if ``seen`` is too short and must have length m.
    """
    n = len(codes)
    for i in range(n):
        codes[i] = 0
    num = 1
    for k in range(size):
        member = members[k]
        card = rows.cards[member]
        if card == 1:
            continue
        if num * card > len(seen):
            return -num * card
        for cell in range(num * card):
            seen[cell] = -1
        num = 0
        for i in range(n):
            cell = codes[i] * card + rows.codes[member, i]
            if seen[cell] < 0:
                seen[cell] = num
                num += 1
            codes[i] = seen[cell]
    return num


@compiled_in_place
def fill_gains(
    rows: TableRows,
    terms: ScoreTerms,
    families: Families,
    which: IntArray,
    wanted: BoolArray,
    room: ScoreRoom,
    factorials: FloatArray,
) -> tuple[int, int]:
    """Compute gains without their penalties, and store them in ``families``.

    Parameters
    ----------
    rows : TableRows
        The data.
    terms : ScoreTerms
        The score.
    families : Families
        The gains of families; changed in place.
    which : ndarray of int64, shape (m,)
        Indices of rows of ``families``.
    wanted : ndarray of bool, shape (m, d)
        The further parents whose gains are wanted, for each of ``which``.
    room : ScoreRoom
        Working memory.
    factorials : ndarray of float64
        Of the likelihood, :func:`log_factorials`: the means under independence are computed in
        place of the gains. Empty: the gains are.

    Returns
    -------
    done : int
        How many of ``which`` are computed: m, or fewer if something has no room. Then call again
        for the rest.
    cells : int
        Number of cells that ``room`` must have; 0 if a lookup table is missing, see `with_table`.
    """
    n, words, gains = len(rows.weights), rows.bits.shape[1], families.gains
    codes, sizes, masks, tables = room.codes, room.cells, room.masks, terms.tables
    prior = terms.sample_size if terms.kind == BDEU else 0.0
    for index in range(len(which)):
        row = which[index]
        y, size, members = families.owners[row], families.sizes[row], families.members[row]
        r = rows.cards[y]
        q = 1.0
        for k in range(size):
            q *= rows.cards[members[k]]
        num = _groups(rows, members, size, y, room) if words > 0 else 0
        by_bits, coded = num > 0, num == 0
        if not by_bits:
            num = configurations(rows, members, size, codes, room.cells)
            if num < 0 or num * r > len(sizes):
                return index, max(-num, num * r)
            for group in range(num * r):
                sizes[group] = 0
            for i in range(n):
                sizes[codes[i] * r + rows.codes[y, i]] += rows.weights[i]
        table, table_y = table_for(terms, q), table_for(terms, q * r)
        if table < 0 or table_y < 0:
            return index, 0
        base = 0.0
        for s in range(num):
            total = np.int64(0)
            for group in range(s * r, (s + 1) * r):
                base -= term(tables[table_y], prior / (q * r), np.int64(sizes[group]))
                total += sizes[group]
            base += term(tables[table], prior / q, total)
        for x in range(len(rows.cards)):
            if not wanted[index, x]:
                continue
            card = rows.cards[x]
            if card == 1 or r == 1:
                gains[row, x] = 0.0
                continue
            table_x, table_xy = table_for(terms, q * card), table_for(terms, q * r * card)
            if table_x < 0 or table_xy < 0:
                return index, 0
            # By bits a cell costs n / 64 operations on words, by rows each row costs one step.
            if by_bits and num * r * (card - 1) * words < 8 * n:
                value, mean = _by_bits(
                    rows,
                    masks,
                    sizes,
                    num,
                    r,
                    x,
                    tables[table_x],
                    tables[table_xy],
                    prior / (q * card),
                    room.counts,
                    factorials,
                )
            else:
                if num * card * (r + 1) > len(room.counts):
                    return index, num * card * (r + 1)
                if not coded:
                    coded = True
                    _codes_of_groups(masks, words, num, r, codes)
                value, mean = _by_rows(
                    rows,
                    codes,
                    sizes,
                    num,
                    y,
                    x,
                    tables[table_x],
                    tables[table_xy],
                    prior / (q * card),
                    room.counts,
                    factorials,
                )
            gains[row, x] = mean if len(factorials) > 0 else base + value
    return len(which), 0


@compiled_inside
def _groups(rows: TableRows, members: IntArray, size: int, y: int, room: ScoreRoom) -> int:
    """Write one bit a row for each configuration of the members and state of y; count the rows.

    The bits are the first of ``room.masks``, the numbers of rows the first of ``room.cells``.

    Returns
    -------
    int
        Number of configurations that occur; 0 if ``room.masks`` is too short.
    """
    masks, bits, words, r = room.masks, rows.bits, rows.bits.shape[1], rows.cards[y]
    # Configuration s has the words that end at len(masks) - s * words.
    num, end = 1, len(masks)
    for w in range(words):
        masks[end - words + w] = ~np.uint64(0)
    for k in range(size):
        card, first = rows.cards[members[k]], rows.first_bits[members[k]]
        for s in range(num if card > 1 else 0):
            own = end - (s + 1) * words
            for state in range(card - 1, -1, -1):
                # The first state takes the place of the configuration, others come at the end.
                new = end - (num + 1) * words if state > 0 else own
                if new < 0:
                    return 0
                seen = np.uint64(0)
                for w in range(words):
                    word = masks[own + w] & bits[first + state, w]
                    masks[new + w] = word
                    seen |= word
                if state > 0 and seen != 0:
                    num += 1
                elif state == 0 and seen == 0:
                    for w in range(words):
                        masks[own + w] = masks[end - num * words + w]
                    num -= 1
    if num * (r + 1) * words > len(masks):
        return 0
    for group in range(num * r):
        own, new, count = end - (group // r + 1) * words, group * words, 0
        for w in range(words):
            word = masks[own + w] & bits[rows.first_bits[y] + group % r, w]
            masks[new + w] = word
            count += count_ones(word)
        room.cells[group] = count
    return num


@compiled_inside
def _codes_of_groups(masks: Words, words: int, num: int, r: int, codes: CellCounts) -> None:
    """Write the number of each row's configuration into ``codes``, from the bits of `_groups`."""
    for group in range(num * r):
        for w in range(words):
            word = masks[group * words + w]
            while word != 0:
                codes[64 * w + lowest_one(word)] = group // r
                word &= word - np.uint64(1)


@compiled_inside
def _by_bits(
    rows: TableRows,
    masks: Words,
    sizes: CellCounts,
    num: int,
    r: int,
    x: int,
    table_x: FloatArray,
    table_xy: FloatArray,
    prior: float,
    left: CellCounts,
    factorials: FloatArray,
) -> tuple[float, float]:
    """Return sum t(n_sxy) - sum t(n_sx), and the mean, counting cells by ``and`` and popcount.

    ``left`` is working memory; its first r entries are zero before and after the call.
    """
    card, first, words = rows.cards[x], rows.first_bits[x], rows.bits.shape[1]
    value, mean = 0.0, 0.0
    for s in range(num):
        for k in range(r):
            left[k] = sizes[s * r + k]
        for state in range(card):
            by_state: Integer = np.int64(0)
            for k in range(r):
                count: Integer = np.int64(left[k])
                if count > 0:
                    # The rows of a group that are in no other state are in the last one.
                    if state < card - 1:
                        begin = (s * r + k) * words
                        count = _common(masks[begin : begin + words], rows.bits[first + state])
                    left[k] -= count
                    value += term(table_xy, prior / r, count)
                by_state += count
            value -= term(table_x, prior, by_state)
            if len(factorials) > 0 and by_state > 0:
                mean += mean_of_terms(by_state, sizes[s * r : s * r + r], factorials)
    return value, mean


@compiled_inside
def _common(one: Words, other: Words) -> int:
    """Return how many bits are 1 in both."""
    count = 0
    for w in range(len(one)):
        count += count_ones(one[w] & other[w])
    return count


@compiled_inside
def _by_rows(
    rows: TableRows,
    codes: CellCounts,
    sizes: CellCounts,
    num: int,
    y: int,
    x: int,
    table_x: FloatArray,
    table_xy: FloatArray,
    prior: float,
    counts: CellCounts,
    factorials: FloatArray,
) -> tuple[float, float]:
    """Return sum t(n_sxy) - sum t(n_sx), and the mean, counting row by row.

    ``counts`` is working memory; all its entries are zero before and after the call.
    """
    card, width, n = rows.cards[x], rows.cards[y] + 1, len(codes)
    for i in range(n):
        # For each configuration (s, x): first the total, then the count of each state of y.
        cell = (codes[i] * card + rows.codes[x, i]) * width
        counts[cell] += rows.weights[i]
        counts[cell + 1 + rows.codes[y, i]] += rows.weights[i]
    value, mean = 0.0, 0.0
    # If most cells are empty, only the cells of the rows are visited.
    sparse = num * card * width > 2 * n
    for step in range(n if sparse else num * card):
        first = step * width
        if sparse:
            first = (codes[step] * card + rows.codes[x, step]) * width
        if counts[first] == 0:
            continue
        by_state = np.int64(counts[first])
        value -= term(table_x, prior, by_state)
        if len(factorials) > 0:
            group = first // (card * width) * (width - 1)
            mean += mean_of_terms(by_state, sizes[group : group + width - 1], factorials)
        counts[first] = 0
        for cell in range(first + 1, first + width):
            if counts[cell] > 0:
                value += term(table_xy, prior / (width - 1), np.int64(counts[cell]))
                counts[cell] = 0
    return value, mean


DiscreteScore = Literal["bdeu", "bic", "qnml"]

KINDS: dict[str, int] = {
    "bdeu": BDEU,
    "bic": BIC,
    "qnml": QNML,
}

#: Largest number of rows: counts of cells are 32-bit integers.
MOST_ROWS = 2**31 - 1


def check_score(score: str, equivalent_sample_size: float) -> None:
    """Raise a ConfigError for an unknown score or an impossible sample size."""
    if score not in KINDS:
        raise ConfigError(f"score is {score!r}: choose one of {', '.join(get_args(DiscreteScore))}")
    if not (np.isfinite(equivalent_sample_size) and equivalent_sample_size > 0):
        raise ConfigError(
            f"equivalent_sample_size is {equivalent_sample_size}: give a number above 0"
        )


class TableGains:
    """Gains of a discrete score, counted from the rows of a table.

    Parameters
    ----------
    table : DiscreteTable
        The data.
    score : {"bdeu", "bic", "qnml"}, default "bdeu"
        See the module.
    equivalent_sample_size : float, default 1.0
        Used by BDeu only. The default is that of the program of Torrijos et al. (2024).

    Raises
    ------
    ConfigError
        If the score is unknown, or the sample size is not a positive number.
    DataError
        If the table has more than 2^31 - 1 rows.
    """

    def __init__(
        self, table: DiscreteTable, score: str = "bdeu", equivalent_sample_size: float = 1.0
    ) -> None:
        check_score(score, equivalent_sample_size)
        if table.num_rows > MOST_ROWS:
            raise DataError(
                f"the table has {table.num_rows} rows: at most {MOST_ROWS} can be counted, use "
                "fewer rows"
            )
        self.rows = rows_of(table.compressed())
        self._cells = 1024
        self._factorials: FloatArray = np.zeros(0)
        self.terms = terms_of(KINDS[score], equivalent_sample_size, table.num_rows)

    def likelihoods(self) -> TableGains:
        """Return the gains of the log-likelihood on the same rows, without a penalty."""
        other = copy(self)
        other.terms = terms_of(LIKELIHOOD, 1.0, int(self.terms.num_rows))
        return other

    def means(self) -> TableGains:
        """Return what the gains of the log-likelihood are on average under independence."""
        other = self.likelihoods()
        other._factorials = log_factorials(int(self.terms.num_rows))
        return other

    def on(self, codes: NDArray[np.uint8], columns: Sequence[int]) -> Self:
        """Return the same gains of other rows; penalties stay those of this number of rows.

        Parameters
        ----------
        codes : ndarray of uint8, shape (m, n)
            Each row once.
        columns : sequence of int
            The variables that they are of.
        """
        other = copy(self)
        none = np.zeros((0, 0), dtype=np.uint64)
        weights, cards = np.ones(codes.shape[1], np.int32), self.rows.cards[columns]
        other.rows = TableRows(codes, weights, cards, none, np.zeros(len(columns), np.int64))
        return other

    def must_stop(self) -> bool:
        """Return False: every gain can be computed here."""
        return False

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Compute the wanted gains of some rows of ``families`` that are not known yet."""
        gains = families.gains
        wanted = wanted & np.isnan(gains[rows])
        # The gain is symmetric in x and y, which saves half the work for empty S.
        alone = families.sizes[rows] == 0
        symmetric = np.count_nonzero(alone) > 1
        if symmetric:
            empty, nodes = rows[alone], families.owners[rows[alone]]
            pairs = np.ix_(alone, nodes)
            twice = np.tril(wanted[pairs] & wanted[pairs].T)
            wanted[pairs] &= ~twice
        self._fill(families, rows, wanted)
        if self.terms.kind in (BIC, QNML):
            which, others = np.nonzero(wanted)
            penalties = penalty_gains(self.terms, families, rows[which], others, self.rows.cards)
            gains[rows[which], others] -= penalties
        if symmetric:
            one, other = np.nonzero(twice)
            gains[empty[one], nodes[other]] = gains[empty[other], nodes[one]]

    def _fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        room = room_for(self.rows, self._cells)
        while len(rows):
            done, cells = fill_gains(
                self.rows, self.terms, families, rows, wanted, room, self._factorials
            )
            if cells:
                self._cells = 2 * cells
                room = room_for(self.rows, self._cells)
            elif done < len(rows):
                self.terms = with_table(self.terms)
            rows, wanted = rows[done:], wanted[done:]

    @property
    def nbytes(self) -> int:
        """Memory of codes, bits and lookup tables in bytes."""
        return self.rows.codes.nbytes + self.rows.bits.nbytes + self.terms.tables.nbytes

    def family_score(self, y: int, parents: Sequence[int]) -> float:
        """Return the local score s(y | parents) in nats."""
        rows, cards = self.rows, self.rows.cards.tolist()
        weights = None if rows.bits.shape[1] else rows.weights
        cell = np.zeros(rows.codes.shape[1], dtype=np.int64)
        num, cells, score = 1, 1.0, 0.0
        for place, member in enumerate([*parents, y]):
            if place == len(parents):
                score -= self._of_cells(np.bincount(cell, weights), cells)
            cell = cell * cards[member] + rows.codes[member]
            num *= cards[member]
            cells *= cards[member]
            if num > 4 * len(cell):
                # Number only the cells that occur.
                distinct, cell = np.unique(cell, return_inverse=True)
                num = len(distinct)
        return score + self._of_cells(np.bincount(cell, weights), cells)

    def _of_cells(self, counts: NDArray[Any], cells: float) -> float:
        """Return F(A) from the counts of the cells of A."""
        value = terms_of_counts(self.terms, cells, counts).sum()
        return float(value - penalty(self.terms, cells))

    def graph_score(self, adjacency: BoolArray) -> float:
        """Return the score of a DAG, shape (d, d), in nats."""
        return sum(self.family_score(y, parents) for y, parents in families_of(adjacency))


def score_graph(
    graph: CausalGraph,
    table: Any,
    score: DiscreteScore = "bdeu",
    equivalent_sample_size: float = 1.0,
) -> float:
    """Return the score of a graph on a table of categories, in nats; higher is better.

    Parameters
    ----------
    graph : CausalGraph
        A DAG, or a CPDAG: all members of a class have the same score.
    table : DiscreteTable, array of shape (n, d), or object with ``.columns``
        The data; columns are matched by name.
    score : {"bdeu", "bic", "qnml"}, default "bdeu"
        See the module.
    equivalent_sample_size : float, default 1.0
        Used by BDeu only.

    Raises
    ------
    ConfigError
        If the score is unknown, or the sample size is not a positive number.
    DataError
        If the table lacks a variable of the graph or has a missing value, or the graph has a cycle.
    """
    if not graph.is_acyclic():
        raise DataError("a graph with a cycle has no score: call threshold() to remove cycles")
    discrete = as_discrete(table)
    missing = [name for name in graph.names if name not in discrete.names]
    if missing:
        raise DataError(f"the table has no column {missing[0]!r}, which the graph has")
    order = [discrete.names.index(name) for name in graph.names]
    gains = TableGains(discrete.reordered(order), score, equivalent_sample_size)
    return gains.graph_score(graph.to_dag().adjacency)

"""Scores of structures, and the gains that a search asks for: from rows or from moments.

A score of a DAG is a sum over its families, ``sum_y s(y | Pa_y)``; all are log-probabilities or
penalised log-likelihoods in nats: higher is better.

The discrete scores are sums over the cells of contingency tables. For a set A of variables with
``q_A`` cells, ``n_c`` rows in cell c and n rows in all,
``F(A) = sum_c t(n_c; q_A) - penalty(q_A)``, and ``s(y | S) = F(S + y) - F(S)``:

- **BDeu** (Heckerman, Geiger & Chickering 1995) with equivalent sample size e:
  ``t(k; q) = log Gamma(k + e/q) - log Gamma(e/q)``, no penalty;
- **BIC** (Schwarz 1978): ``t(k) = k log k``, ``penalty(q) = q log(n) / 2``;
- **qNML** (Silander, Leppa-aho, Jaasaari & Roos 2018): ``t(k) = k log k``,
  ``penalty(q) = log C(n, q)``, the regret of a multinomial with q cells.

The gain of x as a further parent of y given S needs the contingency table of S, y and x. Two ways
of counting it share the work: with a bit for every row, state and variable a cell is an ``and`` and
a popcount of 64 rows at a time; row by row every row costs one step, whatever the number of cells.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from flwr_causal.core.compiled import compiled
from flwr_causal.core.discrete.discrete import DiscreteTable, as_discrete
from flwr_causal.core.discrete.families import Families, Members, find
from flwr_causal.core.graphs.edge_lists import families_of
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.linear.moments import Moments

BDEU, BIC, QNML = 0, 1, 2

# Terms of counts below this are looked up; above, they are computed by Stirling's series.
TABLE_LENGTH = 2048


class Terms(NamedTuple):
    """The score: its kind and the looked-up terms.

    Attributes
    ----------
    kind : int
        BDEU, BIC or QNML.
    sample_size : float
        Equivalent sample size of BDeu.
    num_rows : float
        n.
    keys : ndarray of float64, shape (H,)
        Hash table of the numbers of cells that have a table; 0: free.
    numbers : ndarray of int64, shape (H,)
        The table of each key.
    tables : ndarray of float64, shape (T, L)
        ``tables[i, k]`` is the term of count k.
    used : ndarray of int64, shape (1,)
        Number of tables in use.
    """

    kind: int
    sample_size: float
    num_rows: float
    keys: FloatArray
    numbers: IntArray
    tables: FloatArray
    used: IntArray


def terms_of(kind: int, sample_size: float, num_rows: int) -> Terms:
    """Prepare the terms of a score."""
    length = min(num_rows + 1, TABLE_LENGTH)
    return Terms(
        kind,
        float(sample_size),
        float(num_rows),
        np.zeros(64),
        np.zeros(64, dtype=np.int64),
        np.zeros((16, length)),
        np.zeros(1, dtype=np.int64),
    )


def more_tables(terms: Terms) -> Terms:
    """Return the terms with room for twice as many tables."""
    used = int(terms.used[0])
    larger = terms._replace(
        keys=np.zeros(2 * len(terms.keys)),
        numbers=np.zeros(2 * len(terms.numbers), dtype=np.int64),
        tables=np.zeros((2 * len(terms.tables), terms.tables.shape[1])),
    )
    larger.tables[:used] = terms.tables[:used]
    for key, number in zip(terms.keys, terms.numbers, strict=True):
        if key != 0.0:
            slot = int(_slot(larger.keys, key))
            larger.keys[slot], larger.numbers[slot] = key, number
    return larger


@compiled
def _slot(keys: FloatArray, cells: float) -> int:
    mantissa, exponent = math.frexp(cells)
    slot = (int(mantissa * 9007199254740992.0) * 40503 + exponent * 2654435761) % len(keys)
    while keys[slot] != 0.0 and keys[slot] != cells:
        slot = (slot + 1) % len(keys)
    return slot


@compiled
def table_for(terms: Terms, cells: float) -> int:
    """Return the number of the table for so many cells, made where it is new; -1: no room."""
    key = cells if terms.kind == BDEU else 1.0
    slot = _slot(terms.keys, key)
    if terms.keys[slot] != 0.0:
        return terms.numbers[slot]
    number = terms.used[0]
    if number == len(terms.tables):
        return -1
    terms.keys[slot] = key
    terms.numbers[slot] = number
    terms.used[0] += 1
    values = terms.tables[number]
    if terms.kind == BDEU:
        # log Gamma(k + a) - log Gamma(a) as a running sum: exact for tiny a too.
        prior = terms.sample_size / cells
        total = 0.0
        for k in range(len(values)):
            values[k] = total
            total += math.log(prior + k)
    else:
        for k in range(2, len(values)):
            values[k] = k * math.log(k)
    return number


@compiled
def term(terms: Terms, table: FloatArray, cells: float, count: int) -> float:
    """Return t(count; cells)."""
    if count < len(table):
        return table[count]
    if terms.kind != BDEU:
        return count * math.log(count)
    prior = terms.sample_size / cells
    last = len(table) - 1
    return table[last] + _log_gamma(count + prior) - _log_gamma(last + prior)


@compiled
def _log_gamma(z: float) -> float:
    """Return log Gamma(z) by Stirling's series; for z >= 64 exact to float64."""
    if z < 64.0:
        return math.lgamma(z)
    return (
        (z - 0.5) * math.log(z) - z + 0.9189385332046727 + 1.0 / (12.0 * z) - 1.0 / (360.0 * z**3)
    )


@compiled
def regret(num_rows: float, cells: float) -> float:
    """Return the log regret of a multinomial with so many cells (Szpankowski & Weinberger 2012).

    The approximation that Silander et al. (2018) use for qNML: within 0.1 nats for all sizes.
    """
    if cells <= 1.0 or num_rows <= 0.0:
        return 0.0
    a = cells / num_rows
    # c = 1/2 + sqrt(1 + 4/a) / 2 from c - 1, which is tiny where there are many cells.
    beyond = (2.0 / a) / (1.0 + math.sqrt(1.0 + 4.0 / a))
    c = 1.0 + beyond
    return num_rows * (math.log(a) + (a + 2.0) * math.log1p(beyond) - 1.0 / c) - 0.5 * math.log(
        c + 2.0 / a
    )


@compiled
def penalty_gain(terms: Terms, q: float, x: float, y: float) -> float:
    """Return the growth of the penalty when x (states) becomes a parent of y beside S (q cells)."""
    if terms.kind == BIC:
        return 0.5 * math.log(terms.num_rows) * q * (x - 1.0) * (y - 1.0)
    if terms.kind == QNML:
        n = terms.num_rows
        return regret(n, q * x * y) - regret(n, q * x) - regret(n, q * y) + regret(n, q)
    return 0.0


@compiled
def penalty(terms: Terms, q: float) -> float:
    """Return the penalty of a table with q cells."""
    if terms.kind == BIC:
        return 0.5 * math.log(terms.num_rows) * q
    if terms.kind == QNML:
        return regret(terms.num_rows, q)
    return 0.0


Words = NDArray[np.uint64]


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
    weights: IntArray
    cards: IntArray
    bits: Words
    first_bits: IntArray


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
def configurations(rows: Rows, members: Members, size: int, codes: Members) -> int:
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
    sizes: IntArray,
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
    codes: Members,
    num: int,
    y: int,
    x: int,
    tables: tuple[int, int],
    q: float,
    counts: Members,
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
    rows: Rows, terms: Terms, families: Families, which: IntArray, wanted: NDArray[np.bool_]
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
def family_score(rows: Rows, terms: Terms, y: int, parents: Members) -> float:
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


DiscreteScore = Literal["bdeu", "bic", "qnml"]

KINDS: dict[str, int] = {
    "bdeu": BDEU,
    "bic": BIC,
    "qnml": QNML,
}

#: Cells are counted in 32 bits.
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
    """Gains counted from the rows of a discrete table.

    Parameters
    ----------
    table : DiscreteTable
    score : {"bdeu", "bic", "qnml"}
    equivalent_sample_size : float, default 1.0
        Of BDeu only (the default of the authors' program, Torrijos et al. 2024).

    Raises
    ------
    ConfigError
        For an unknown score or an impossible sample size.
    DataError
        For more rows than cells can count.
    """

    def __init__(
        self, table: DiscreteTable, score: str = "bdeu", equivalent_sample_size: float = 1.0
    ) -> None:
        check_score(score, equivalent_sample_size)
        if table.num_rows > MOST_ROWS:
            raise DataError(
                f"the table has {table.num_rows} rows, repeated ones counted: at most {MOST_ROWS} "
                "can be counted"
            )
        compressed = table.compressed()
        self.rows = rows_of(compressed)
        self.terms = terms_of(KINDS[score], equivalent_sample_size, table.num_rows)

    @property
    def nbytes(self) -> int:
        """Memory of rows and bits."""
        return self.rows.codes.nbytes + self.rows.bits.nbytes + self.terms.tables.nbytes

    def enough(self, num_operators: int) -> bool:
        """Return False: rows answer everything."""
        return False

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Count the wanted gains."""
        while (done := fill_gains(self.rows, self.terms, families, rows, wanted)) >= 0:
            self.terms = more_tables(self.terms)
            rows, wanted = rows[done:], wanted[done:]

    def family_score(self, y: int, parents: Sequence[int]) -> float:
        """Return the local score s(y | parents) in nats."""
        members = np.asarray(parents, dtype=np.int32)
        while np.isnan(score := family_score(self.rows, self.terms, y, members)):
            self.terms = more_tables(self.terms)
        return float(score)

    def graph_score(self, adjacency: BoolArray) -> float:
        """Return the score of a DAG, shape (d, d), in nats."""
        return sum(self.family_score(y, parents) for y, parents in families_of(adjacency))


class MomentGains:
    """Gains of the Gaussian BIC from second moments.

    ``s(y | S) = -n/2 log var(y | S) - |S| log(n) / 2``, so that the gain of x is
    ``-n/2 log(1 - r^2) - log(n) / 2`` with r the partial correlation of x and y given S.

    Parameters
    ----------
    moments : Moments
        n and the covariances of all variables.
    """

    def __init__(self, moments: Moments) -> None:
        self.n = moments.n
        # Correlations: what counts as linearly dependent must not depend on the units.
        spread = np.sqrt(np.diag(moments.second))
        spread[spread == 0.0] = 1.0
        self.correlation = moments.second / np.outer(spread, spread)

    def enough(self, num_operators: int) -> bool:
        """Return False: moments answer everything."""
        return False

    def fill(self, families: Families, rows: IntArray, wanted: BoolArray) -> None:
        """Compute the wanted gains."""
        for row, mask in zip(rows, wanted, strict=True):
            y, size = int(families.owners[row]), int(families.sizes[row])
            gains = self._gains(y, families.members[row, :size])
            families.gains[row, mask] = gains[mask]

    def _gains(self, y: int, given: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the gain of every variable as a further parent of y, shape (d,)."""
        C = self.correlation
        if len(given):
            # lstsq, since parents may be linearly dependent.
            coefficients = np.linalg.lstsq(C[np.ix_(given, given)], C[given], rcond=None)[0]
            with_y = C[y] - C[y, given] @ coefficients
            variances = np.diag(C) - np.einsum("sj,sj->j", C[given], coefficients)
        else:
            with_y, variances = C[y], np.diag(C).copy()
        # What S determines already adds nothing.
        known = variances <= 1e-10 * np.diag(C)
        variances = np.where(known, 1.0, variances)
        squared = np.where(known | known[y], 0.0, with_y**2 / (variances * variances[y]))
        # A variable that determines y gains a lot, not without bound.
        squared = np.clip(squared, 0.0, 1.0 - 1e-12)
        return np.asarray(-0.5 * self.n * np.log1p(-squared) - 0.5 * np.log(self.n))


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
    table : DiscreteTable, array of shape (n, d), or anything with ``.columns``
        Its columns are found by name.
    score : {"bdeu", "bic", "qnml"}, default "bdeu"
    equivalent_sample_size : float, default 1.0
        Of BDeu.

    Raises
    ------
    DataError
        If the table lacks a variable of the graph, or the graph has a cycle.
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

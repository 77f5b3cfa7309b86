"""The discrete scores as sums over the cells of contingency tables, compiled.

For a set A of variables with ``q_A`` cells, ``n_c`` rows in cell c and n rows in all,
``F(A) = sum_c t(n_c; q_A) - penalty(q_A)``, and ``s(y | S) = F(S + y) - F(S)``:

- **BDeu** (Heckerman, Geiger & Chickering 1995) with equivalent sample size e:
  ``t(k; q) = log Gamma(k + e/q) - log Gamma(e/q)``, no penalty;
- **BIC** (Schwarz 1978): ``t(k) = k log k``, ``penalty(q) = q log(n) / 2``;
- **qNML** (Silander, Leppa-aho, Jaasaari & Roos 2018): ``t(k) = k log k``,
  ``penalty(q) = log C(n, q)``, the regret of a multinomial with q cells.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.compiled import compiled

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

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
    keys: Floats
    numbers: Ints
    tables: Floats
    used: Ints


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
def _slot(keys: Floats, cells: float) -> int:
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
def term(terms: Terms, table: Floats, cells: float, count: int) -> float:
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

"""Values far outside all others of a column, such as -999 for a missing one, from a party's rows.

Values count as far in two cases. Distances are from the middle of the column's different values.

- They are written as codes of missing values are (-99, 999, 9999), and lie more than
  :data:`BEYOND` times as far out as the farthest other value, or are the only negative ones.
- The tails of the column do not explain them: in a tail like that of a Pareto distribution with
  index a the distance of a value is r times that of the next one with probability r^-a (Rényi
  1953), and a is estimated from the other values (Hill 1975).

**Cells apart, and skewed columns.** Both are found by the party in its own rows, and a report has
one flag of each.

- Cells lie apart where a few of them, at most one in twenty, are far out and hardly any are between
  them and the rest: of mistyped cells, or those in other units, and not of heavy tails. Distances
  are from the median, in units of the one that a twentieth of the rows exceed.
- A column is skewed as amounts are where its values are positive and their logarithms are far less
  skewed: of concentrations, incomes, counts of cells.

The limits were chosen on simulated systems, by party and column: with one cell in a hundred moved
by 6 to 12 standard deviations 6 in 10 columns have cells apart, with normal, exponential, Laplace,
gamma, uniform and t noise of 5 degrees of freedom 3 of 12,000.

References
----------
Hill, B. M. (1975). A simple general approach to inference about the tail of a distribution. Annals
of Statistics 3.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.data.check.columns import as_numbers, kind_of
from flwr_causal.data.read.pieces import pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.data.read.pieces import Table

#: Different values that are kept at each end of a column.
ENDS = 40
#: Values of a piece that are sorted to find its ends, twice as many at most.
SAMPLE = 4096
#: Most different values that are far, and most rows of them where they are not few values.
MOST_VALUES, MOST_ROWS = 5, 5
#: How much farther out a code of missing values is than all other values, at least.
BEYOND = 2.0
#: A number as codes of missing values are written: nines, with another last digit perhaps, or one
#: digit repeated; and those of two digits that count in two rows or more.
CODE = re.compile(r"-?(?:99+[789]|88{2,}|77{2,}|9{2,}\.9+)|-9{1,2}")
SHORT_CODE = re.compile(r"9[789]|88|77")
#: No code is nearer to zero.
LEAST_CODE = 9.0
#: How probable a step to far values is by chance, at most. The index of a tail is estimated from so
#: many values, and is at most as large as that of Gaussian tails.
CHANCE, LEAST_TAIL, OF_TAIL, LARGEST_INDEX = 1e-5, 10, 20, 6.0


class FarValues(NamedTuple):
    """The values of a column that lie far outside all others.

    Attributes
    ----------
    values : tuple of float
        Ascending.
    rows : int
        In how many rows they are.
    """

    values: tuple[float, ...]
    rows: int

    def __str__(self) -> str:
        listed = ", ".join(f"{value:.15g}" for value in self.values)
        return f"{listed} ({self.rows} row{'s' * (self.rows != 1)})"


class Ends:
    """The values at both ends of a column, over pieces of its rows.

    The values and counts are those of all rows at once. The middle is the median of the pieces',
    each of some thousand values of its piece, which any column of numbers has near that of all.
    """

    def __init__(self) -> None:
        self._values: FloatArray = np.empty(0)
        self._counts: IntArray = np.empty(0, dtype=np.int64)
        self._middles: list[float] = []

    def add(self, column: FloatArray) -> None:
        """Add the values of further rows, shape (n,); those that are not finite do not count."""
        sample = None
        if len(column) >= SAMPLE:
            sample = np.unique(column[:: 1 + len(column) // SAMPLE])
            sample = sample[np.isfinite(sample)]
            if len(sample) > 4 * ENDS:
                # Beyond these are enough different values, and few rows to sort.
                column = column[(column <= sample[ENDS]) | (column >= sample[-ENDS])]
        values, counts = np.unique(column[np.isfinite(column)], return_counts=True)
        if not len(values):
            return
        self._add_distinct(
            values, counts, _median(values if sample is None or not len(sample) else sample)
        )

    def _add_distinct(self, values: FloatArray, counts: IntArray, middle: float) -> None:
        """Add different finite values, ascending, at least one, and in how many rows each is."""
        self._middles.append(middle)
        if len(self._values):
            values, inverse = np.unique(np.append(self._values, values), return_inverse=True)
            counts = np.bincount(inverse, np.append(self._counts, counts)).astype(np.int64)
        if len(values) > 2 * ENDS:
            values = np.concatenate((values[:ENDS], values[-ENDS:]))
            counts = np.concatenate((counts[:ENDS], counts[-ENDS:]))
        self._values, self._counts = values, counts

    def far(self) -> FarValues | None:
        """Return the values far outside all others; None if there are none."""
        if not len(self._values) or self._cannot_be_far():
            return None
        middle = _median(sorted(self._middles))
        if not self._may_be_far(middle):
            return None
        distances = np.abs(self._values - middle)
        outward = np.argsort(-distances, kind="stable")
        values, counts, distances = self._values[outward], self._counts[outward], distances[outward]
        negative = values < 0
        far = negative & (_is_code(values[negative], int(counts[negative].sum())))
        others = np.flatnonzero(~far)
        farthest = distances[others[: MOST_VALUES + 1]].tolist()
        for number in range(min(MOST_VALUES, len(others) - 2), 0, -1):
            step = farthest[number - 1] / farthest[number] if farthest[number] > 0 else 0.0
            if step <= BEYOND:
                continue
            chosen, rest = others[:number], distances[others[number:]]
            rows = int(counts[chosen].sum())
            few = number <= 2 or rows <= MOST_ROWS
            if _is_code(values[chosen], rows) or (few and _is_beyond_tail(step, rest)):
                far[chosen] = True
                break
        if not far.any() or (~far).sum() < 2:
            return None
        return FarValues(tuple(np.sort(values[far]).tolist()), int(counts[far].sum()))

    def _cannot_be_far(self) -> bool:
        """Whether there are too few values for a tail, and none that is written as a code."""
        largest = max(-self._values[0], self._values[-1])
        return len(self._values) <= 2 * LEAST_TAIL and bool(largest < LEAST_CODE)

    def _may_be_far(self, middle: float) -> bool:
        """Whether a step is large or few values are negative, as of few columns."""
        ascending, most = self._values.tolist(), MOST_VALUES + 1
        outer = ascending
        if len(ascending) > 2 * most:
            outer = ascending[:most] + ascending[-most:]
        distances = sorted([abs(value - middle) for value in outer], reverse=True)
        steps = pairwise(distances[:most])
        if any(far > 0 and (near <= 0 or far / near > BEYOND) for far, near in steps):
            return True
        return 0 < bisect_left(ascending, 0.0) <= MOST_VALUES


def add_rows(ends: Sequence[Ends], rows: FloatArray) -> None:
    """Add further rows, shape (n, d), to the ends of their d columns.

    Columns of few rows, all of them finite and different, are sorted together.
    """
    alone = np.zeros(len(ends), dtype=np.bool_)
    ordered = rows
    if 0 < len(rows) < SAMPLE:
        ordered = np.sort(rows, axis=0)
        alone[:] = np.isfinite(ordered[[0, -1]]).all(axis=0)
        alone &= (ordered[1:] != ordered[:-1]).all(axis=0)
    ones = np.ones(len(rows), dtype=np.int64)
    for one, quick, column, values in zip(ends, alone.tolist(), rows.T, ordered.T, strict=True):
        if quick:
            one._add_distinct(values, ones, _median(values))
        else:
            one.add(column)


def _median(ascending: FloatArray | list[float]) -> float:
    """Return the median of sorted values; numpy's own sorts again."""
    last = len(ascending) - 1
    return float((ascending[last // 2] + ascending[last - last // 2]) / 2)


def _is_code(values: FloatArray, rows: int) -> bool:
    """Whether these are few values, all written as codes of missing values are."""
    if len(values) > MOST_VALUES:
        return False
    several = rows >= 2 * len(values)
    written = [f"{value:.15g}" for value in values]
    return all(CODE.fullmatch(text) or (several and SHORT_CODE.fullmatch(text)) for text in written)


def _is_beyond_tail(step: float, rest: FloatArray) -> bool:
    """Whether a step is improbable in the tail of these distances, descending."""
    if len(rest) < 2 * LEAST_TAIL:
        return False
    tail = rest[: min(max(len(rest) // 4, LEAST_TAIL), OF_TAIL)]
    logs = float(np.log(tail / tail[-1]).sum()) if tail[-1] > 0 else np.inf
    index = min((len(tail) - 1) / logs, LARGEST_INDEX) if logs > 0 else LARGEST_INDEX
    return bool(-index * np.log(step) < np.log(CHANCE))


def far_values(table: Table) -> dict[str, FarValues]:
    """Return the far values of a table's columns of numbers, by column.

    For those who hold the table: a report has only the number of their rows.
    """
    ends: dict[str, Ends] = {}
    for piece in pieces(table):
        for position, name in enumerate(piece.columns):
            column = piece.iloc[:, position]
            if kind_of(column) == "numeric":
                ends.setdefault(str(name), Ends()).add(as_numbers(column))
    found = {name: one.far() for name, one in ends.items()}
    return {name: one for name, one in found.items() if one is not None}


#: Rows of a table that are looked at, from the first one; of fewer than FEWEST nothing is said.
LOOKED_AT, FEWEST = 4096, 50
#: The share of the rows beyond the unit of distances.
TAIL = 0.05
#: So many units are far, and fewer cells than half of those that are far lie from BETWEEN to FAR.
FAR, BETWEEN, TIMES = 2.5, 1.5, 2
#: Fewest different distances of cells that lie apart: one or two may be chance.
FEWEST_APART = 3
#: Least skewness of an amount, and most of its logarithms', as a share of it.
SKEWED, OF_LOGARITHMS = 0.8, 0.35


def cells_apart(rows: FloatArray) -> BoolArray:
    """Return which columns have a few cells that lie apart from all others, shape (d,).

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Cells that are not finite do not count.
    """
    return _by_column(_are_apart, rows)


def skewed_as_amounts(rows: FloatArray) -> BoolArray:
    """Return which columns are positive, and far less skewed in logarithms, shape (d,).

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        Cells that are not finite do not count.
    """
    return _by_column(_are_skewed, rows)


def _by_column(judge: Callable[[FloatArray], BoolArray], rows: FloatArray) -> BoolArray:
    """Return what is found of each column's finite cells, of complete columns at once.

    ``judge`` is given columns as rows, (d', n), of FEWEST cells or more each.
    """
    columns, found = np.ascontiguousarray(rows.T), np.zeros(rows.shape[1], dtype=np.bool_)
    if len(rows) < FEWEST:
        return found
    finite = np.isfinite(columns)
    complete = finite.all(axis=1)
    found[complete] = judge(columns[complete])
    for j in np.flatnonzero(~complete & (finite.sum(axis=1) >= FEWEST)):
        found[j] = judge(columns[j, finite[j]][None])[0]
    return found


def _are_apart(columns: FloatArray) -> BoolArray:
    middle, outer = columns.shape[1] // 2, int((1 - TAIL) * columns.shape[1])
    medians = np.partition(columns, middle, axis=1)[:, middle, None]
    distances = np.abs(columns - medians)
    ordered = np.partition(distances, (middle, outer), axis=1)
    # Where most rows have one value, all others are far from it.
    varies, unit = ordered[:, middle] > 0, ordered[:, outer, None]
    tails = ordered[:, outer:]
    far = tails > FAR * unit
    counts, beside = far.sum(axis=1), (tails > BETWEEN * unit).sum(axis=1)
    found = varies & (counts >= FEWEST_APART) & (counts >= TIMES * (beside - counts))
    # A rare state of few is one value.
    for j in np.flatnonzero(found):
        found[j] = len(np.unique(tails[j, far[j]])) >= FEWEST_APART
    return np.asarray(found)


def _are_skewed(columns: FloatArray) -> BoolArray:
    found = columns.min(axis=1) > 0
    own = _skewness(columns[found])
    of_logarithms = np.abs(_skewness(np.log(columns[found])))
    found[found] = (own > SKEWED) & (of_logarithms < OF_LOGARITHMS * own)
    return np.asarray(found)


def _skewness(columns: FloatArray) -> FloatArray:
    # Powers of numbers near the largest ones of float64 would be infinite.
    scale = np.abs(columns).max(axis=1, keepdims=True)
    centred = columns / np.where(scale > 0, scale, 1.0)
    centred -= centred.mean(axis=1, keepdims=True)
    squares = centred * centred
    spread = np.sqrt(squares.mean(axis=1))
    return np.asarray((squares * centred).mean(axis=1) / np.where(spread > 0, spread**3, 1.0))

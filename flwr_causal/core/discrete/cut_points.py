"""Cut points that divide columns into bins of equal frequency, from counts summed over parties.

The server sends thresholds, the parties count their rows up to each threshold, and the server
narrows a bracket around every wanted quantile and sends new thresholds. Only sums over all parties
are used, so the result does not depend on how the rows are distributed over the parties, and no
party sends a value of its data.

Equal frequency is defined by ranks: a bracket is narrow enough when one of its ends cuts off the
wanted share of the rows, whatever the distance between the ends. Two or three exchanges suffice for
most columns; columns with few distant outliers need more.

If many rows share one value, bins of equal frequency over all rows leave few cut points for the
other values: for a column that is 0 in nine of ten rows, nine of ten wanted quantiles are 0. The
function `second_search` then keeps the bins that hold far more rows than their share, and divides
the remaining rows by the remaining cut points. With ``apart`` the search also finds such values
exactly, by brackets that end beside them, and gives each a bin of its own.

`inside` returns what is known of the numbers in each bin: the value, where there is only one, else
mean and standard deviation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

#: Largest number of exchanges, for all columns together.
MAX_EXCHANGES = 8

#: A cut point may miss the wanted number of rows by this share of a bin (or by half a row).
TOLERANCE = 0.01

#: A bracket is not divided further once its width is this share of the range of the cut points.
RESOLUTION = 1e-4

#: Number of new thresholds within a bracket, besides two that test for a value of many rows.
REFINEMENT = 32

#: Thresholds of the first exchange: UNIFORM at equal distances, and GEOMETRIC on either side of the
#: mean at distances that grow over DECADES powers of ten. The latter find most rows if outliers
#: dominate the standard deviation.
UNIFORM, GEOMETRIC, DECADES = 32, 16, 8.0

#: `second_search` keeps bins that hold more than this many times their equal share of the rows.
LARGE = 2.0


#: With ``apart``, a value is found exactly if it has at least this share of a bin's rows, and
#: `FEWEST` rows: what fewer rows hold is not pinned down.
SHARED, FEWEST = 0.75, 5

#: A tail beside a bin of less than this share of the width of the bin beside the other tail is
#: short: an error of the bins between them would change it more than it is long.
NARROW = 0.25


class SharedValue(NamedTuple):
    """A value that many rows share, the number before it, and the rows up to each of the two."""

    value: float
    before: float
    below: int
    up_to: int


@dataclass(frozen=True, eq=False)
class CutState:
    """The brackets of the B - 1 wanted quantiles of each of d columns.

    Parameters
    ----------
    num_bins : int
        B, the number of bins of each column.
    num_rows : int64 array of shape (d,)
        Number of rows of all parties that have a value of each column.
    exchange : int
        Number of exchanges so far.
    centre, scale : float64 arrays of shape (d,)
        Rounded mean and rounded standard deviation, which determine the first thresholds.
    whole : bool array of shape (d,)
        Columns of whole numbers. Their cut points are whole numbers too, and can be found exactly.
    targets : float64 array of shape (d, B - 1)
        The wanted numbers of rows up to each cut point, ascending.
    lower, upper : float64 arrays of shape (d, B - 1)
        The ends of the bracket of each quantile; infinite if not known yet.
    below, up_to : int64 arrays of shape (d, B - 1)
        Number of rows up to ``lower`` (fewer than wanted) and up to ``upper`` (at least as many as
        wanted).
    apart : bool
        Whether a value that many rows share is found exactly.
    shared : tuple of tuple of SharedValue
        Such values of each column, as far as they are known, ascending.
    """

    num_bins: int
    num_rows: IntArray
    exchange: int
    centre: FloatArray
    scale: FloatArray
    whole: BoolArray
    targets: FloatArray
    lower: FloatArray
    upper: FloatArray
    below: IntArray
    up_to: IntArray
    apart: bool
    shared: tuple[tuple[SharedValue, ...], ...]


def init(
    mean: FloatArray,
    variance: FloatArray,
    num_bins: int,
    num_rows: int | IntArray,
    whole: BoolArray | None = None,
    *,
    apart: bool = False,
) -> CutState:
    """Return the state before the first exchange.

    Parameters
    ----------
    mean, variance : float64 arrays of shape (d,)
        Mean and variance (sum of squares divided by n) of each column over all parties.
    num_bins : int
        B, the number of bins of each column, at least 2.
    num_rows : int or int array of shape (d,)
        Number of rows of all parties that have a value of each column, at least 1; or one number
        for all columns.
    whole : bool array of shape (d,), optional
        Columns of whole numbers only. Default: none.
    apart : bool, default False
        Whether a value that many rows share is found exactly and gets a bin of its own, for which
        :func:`second_search` is needed.

    Raises
    ------
    DataError
        If a mean or a variance is not finite, there are fewer than two bins, or no rows.
    """
    mean, variance = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
        raise DataError("cut points need the mean and variance of each column: report the sums")
    rows = np.broadcast_to(np.asarray(num_rows, dtype=np.int64), mean.shape)
    if num_bins < 2 or (rows < 1).any():
        raise DataError(
            f"{num_rows} rows cannot be cut into {num_bins} bins: at least 1 row and 2 bins are "
            "needed"
        )
    centre, scale = rounded_units(mean, variance)
    shape = (len(mean), num_bins - 1)
    return CutState(
        num_bins=num_bins,
        num_rows=rows,
        exchange=0,
        centre=centre,
        scale=scale,
        whole=np.zeros(len(mean), dtype=np.bool_) if whole is None else whole,
        targets=_even(rows, num_bins),
        lower=np.full(shape, -np.inf),
        upper=np.full(shape, np.inf),
        below=np.zeros(shape, dtype=np.int64),
        up_to=np.tile(rows[:, None], num_bins - 1),
        apart=apart,
        shared=((),) * len(mean),
    )


def rounded_units(mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return means and standard deviations, rounded, for points that are the same at all parties.

    The last digits of a pooled mean depend on how the rows are distributed over the parties; the
    rounded values do not.

    Parameters
    ----------
    mean, variance : ndarray of shape (d,)
    """
    # The offsets 0.1 and 0.6 keep common values away from the points where the rounding jumps.
    deviation = np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny))
    scale = 2.0 ** (np.ceil(4.0 * np.log2(deviation) + 0.1) / 4.0)
    return np.floor(64.0 * (mean / scale) + 0.6) / 64.0 * scale, scale


def thresholds(state: CutState) -> FloatArray:
    """Return the thresholds of the next exchange, shape (d, m), ascending in each row.

    A row may hold a threshold twice. Between the ends of a bracket the thresholds have equal
    distances, rounded to the decimal digit of their distance, so that cut points are short numbers.
    Two more thresholds enclose the shortest number in the bracket: a value that many rows share (0,
    100, 9.5) is usually such a number, and equal distances would not hit it exactly. With ``apart``
    the open brackets of a column share the thresholds of all of its brackets.
    """
    if state.exchange == 0:
        grid = _first_multiples(state.num_bins)
        points = [c + s * grid for c, s in zip(state.centre, state.scale, strict=True)]
        rounded = [_rounded(p, w) for p, w in zip(points, state.whole, strict=True)]
        return np.array(rounded).reshape(len(points), len(grid))
    size = (state.num_bins - 1) * (REFINEMENT + 2)
    asked = np.empty((len(state.centre), size))
    closed = _closed(state)
    for j, scale in enumerate(state.scale):
        brackets = list(zip(state.lower[j], state.upper[j], closed[j], strict=True))
        if state.apart:
            brackets = sorted({one for one in brackets if not one[2]}) or brackets[:1]
        sizes = np.full(len(brackets), size // len(brackets))
        sizes[0] += size - sizes.sum()
        points = [
            _within(low, high, scale, state.whole[j], done, number)
            for (low, high, done), number in zip(brackets, sizes.tolist(), strict=True)
        ]
        asked[j] = np.sort(np.concatenate(points))
    return asked


def most_thresholds(num_bins: int) -> int:
    """Return the most thresholds of a column in an exchange, see :func:`thresholds`."""
    return max(1 + UNIFORM + 2 * GEOMETRIC, (num_bins - 1) * (REFINEMENT + 2))


def count_up_to(rows: FloatArray, asked: FloatArray) -> IntArray:
    """Return a party's number of rows up to each threshold.

    Parameters
    ----------
    rows : float64 array of shape (n_k, d)
        The columns that are discretised, in the order of the thresholds.
    asked : float64 array of shape (d, m)
        See :func:`thresholds`.

    Returns
    -------
    int64 array of shape (d, m)
        The counts, to be summed over the parties.
    """
    counts = np.zeros(asked.shape, dtype=np.int64)
    for j, points in enumerate(asked):
        counts[j] = np.searchsorted(np.sort(rows[:, j]), points, side="right")
    return counts


def apply_cuts(values: FloatArray, cuts: FloatArray) -> NDArray[np.uint8]:
    """Return the interval of each value: the number of cut points below it.

    Parameters
    ----------
    values : float64 array of shape (n,)
        Finite numbers.
    cuts : float64 array of shape (k,)
        Ascending, k at most 255.

    Returns
    -------
    uint8 array of shape (n,)
    """
    return np.searchsorted(cuts, values, side="left").astype(np.uint8)


def step(state: CutState, counts: IntArray, num_rows: int | IntArray | None = None) -> CutState:
    """Return the state with brackets narrowed by the counts for :func:`thresholds`.

    Parameters
    ----------
    state : CutState
        The state before the exchange; not changed.
    counts : int64 array of shape (d, m)
        Sum of the parties' results of :func:`count_up_to`.
    num_rows : int or int array of shape (d,), optional
        Number of rows of the parties that answered, see :func:`init`. Default: as before. If the
        number has changed, so have the parties, and the brackets from earlier counts are dropped.

    Raises
    ------
    DataError
        If the counts have the wrong shape, descend, or are not between 0 and the number of rows.
    """
    asked = thresholds(state)
    counts = np.asarray(counts, dtype=np.int64)
    wanted = state.num_rows if num_rows is None else np.asarray(num_rows, dtype=np.int64)
    total = np.broadcast_to(wanted, state.num_rows.shape)
    if counts.shape != asked.shape:
        raise DataError(
            f"counts have shape {counts.shape}, but the thresholds have shape {asked.shape}"
        )
    if (np.diff(counts, axis=1) < 0).any() or (counts < 0).any() or (total < counts.T).any():
        raise DataError(
            "counts of rows up to ascending thresholds must not descend, and must lie between 0 "
            f"and {total.max()}"
        )
    if (total != state.num_rows).any():
        nothing = ((),) * len(total)
        state = _restarted(state, total, _even(total, state.num_bins), nothing)
    lower, upper = state.lower.copy(), state.upper.copy()
    below, up_to = state.below.copy(), state.up_to.copy()
    shared = list(state.shared)
    for j in range(len(asked)):
        # The counts up to -inf and inf are known: 0 and all rows.
        points = np.concatenate([[-np.inf], asked[j], [np.inf]])
        known = np.concatenate([[0], counts[j], [total[j]]])
        high = np.searchsorted(known, state.targets[j], side="left")
        nearer = points[high] < upper[j]
        upper[j] = np.where(nearer, points[high], upper[j])
        up_to[j] = np.where(nearer, known[high], up_to[j])
        nearer = points[high - 1] > lower[j]
        lower[j] = np.where(nearer, points[high - 1], lower[j])
        below[j] = np.where(nearer, known[high - 1], below[j])
        if state.apart:
            brackets = zip(lower[j], upper[j], below[j], up_to[j], strict=True)
            last = state.exchange + 1 == MAX_EXCHANGES
            # A later one of the same rows replaces an earlier, wider one.
            found = {
                (one.below, one.up_to): one
                for one in (
                    *shared[j],
                    *_nearly_enclosed(brackets, None if last else shared[j]),
                    *_enclosed(points, known, bool(state.whole[j])),
                )
            }
            many = max(SHARED * total[j] / state.num_bins, FEWEST)
            shared[j] = tuple(
                sorted(one for one in found.values() if one.up_to - one.below >= many)
            )
    return replace(
        state,
        exchange=state.exchange + 1,
        lower=lower,
        upper=upper,
        below=below,
        up_to=up_to,
        shared=tuple(shared),
    )


def _enclosed(points: FloatArray, counts: IntArray, whole: bool) -> Iterator[SharedValue]:
    """Yield the values that two of the ascending thresholds enclose."""
    before = points[1:] - 1.0 if whole else np.nextafter(points[1:], -np.inf)
    for k in np.flatnonzero((points[:-1] >= before) & (np.diff(counts) > 0)):
        yield SharedValue(
            float(points[k + 1]), float(points[k]), int(counts[k]), int(counts[k + 1])
        )


def _nearly_enclosed(
    brackets: Iterable[tuple[float, float, int, int]], known: Collection[SharedValue] | None
) -> Iterator[SharedValue]:
    """Yield the value in each narrow bracket, or only in brackets with the rows of known values."""
    rows = None if known is None else {(one.below, one.up_to) for one in known}
    for low, high, below, up_to in brackets:
        narrow = high - low <= RESOLUTION * abs(high) < math.inf
        if narrow and (rows is None or (below, up_to) in rows):
            yield SharedValue(float(high), float(low), int(below), int(up_to))


def finished(state: CutState) -> bool:
    """Whether all brackets are narrow enough, or :data:`MAX_EXCHANGES` have been made."""
    return state.exchange >= MAX_EXCHANGES or bool(state.exchange and _closed(state).all())


def cut_points(state: CutState) -> tuple[FloatArray, ...]:
    """Return the cut points of each column, ascending, each of shape (at most B - 1,).

    The cut point is the end of the bracket whose number of rows is nearer to the wanted number.
    Cut points that would leave a bin empty are left out, so columns with many ties get fewer bins.
    """
    return tuple(points for points, _ in _chosen(state))


def _chosen(state: CutState) -> Iterator[tuple[FloatArray, IntArray]]:
    """Yield the cut points of each column, and how many rows are up to each."""
    use_upper = state.up_to - state.targets <= state.targets - state.below
    chosen = np.where(use_upper, state.upper, state.lower)
    counts = np.where(use_upper, state.up_to, state.below)
    for points, reached, total in zip(chosen, counts, state.num_rows, strict=True):
        distinct, first = np.unique(reached, return_index=True)
        kept = (distinct > 0) & (distinct < total)
        yield points[first[kept]], distinct[kept]


def inside(
    state: CutState, mean: FloatArray, variance: FloatArray
) -> tuple[tuple[tuple[float, float], ...], ...]:
    """Return mean and standard deviation of the numbers in each bin of each column.

    The deviation of a bin of one value is 0. Between two cut points numbers are evenly distributed;
    those below the first and above the last one have the means and deviations with which the column
    has its mean and variance. They are taken to be exponentially distributed where this is
    possible. If the bins beside one tail are much narrower than those beside the other, the tail is
    taken to be as narrow as they are, and the mean determines the other one. Of standard normal
    values in 16 bins the mean of the tail is found within .03.

    Parameters
    ----------
    state : CutState
        After the last exchange.
    mean, variance : ndarray of shape (d,)
        Of each column over all parties.

    Returns
    -------
    tuple of tuple of (float, float)
        By column and bin.
    """
    return tuple(
        _inside(state, j, points, reached, float(mean[j]), float(variance[j]))
        for j, (points, reached) in enumerate(_chosen(state))
    )


def _inside(
    state: CutState, j: int, points: FloatArray, reached: IntArray, mean: float, variance: float
) -> tuple[tuple[float, float], ...]:
    """Return mean and standard deviation of the numbers in each bin of one column.

    The middle of a tail is its cut point less s, or plus t. With the shares p and q of the rows in
    the tails, and a common squared coefficient of variation c of the distances from the cut points
    a and b,

        q t - p s = r,    p ((1 + c) s^2 - 2 a s) + q ((1 + c) t^2 + 2 b t) = v,

    r and v being what the rest of the rows leaves of mean and variance.
    """
    total, whole = int(state.num_rows[j]), bool(state.whole[j])
    ranks = np.concatenate(([0], reached, [total]))
    shares = np.diff(ranks) / total
    if not len(points):
        return ((mean, math.sqrt(variance)),)
    cuts = points - mean
    # The bin between two cut points; where they are neighbours among whole numbers, the upper one.
    steps = np.diff(points)  # of whole numbers exact, so that none is below 1
    middles = np.concatenate(([cuts[0]], (cuts[1:] + cuts[:-1] + whole) / 2, [cuts[-1]]))
    spreads = np.concatenate(([0.0], np.sqrt((steps**2 - whole) / 12), [0.0]))
    shared = {(one.below, one.up_to): one.value for one in state.shared[j]}
    spans = list(pairwise(ranks.tolist()))
    for k, span in enumerate(spans):
        if span in shared:
            middles[k], spreads[k] = shared[span] - mean, 0.0
    r, v = -float(shares @ middles), variance - float(shares @ (middles**2 + spreads**2))
    between = [k for k in range(1, len(cuts)) if spans[k] not in shared]
    usual = steps[[between[0] - 1, between[-1] - 1]] / 2 if between else np.sqrt([variance] * 2) / 2
    tails = [side for side, k in ((0, 0), (-1, len(cuts))) if spans[k] not in shared]
    if tails:
        weights = (shares[0] * (0 in tails), shares[-1] * (-1 in tails))
        lengths, c = _tails((cuts[0], cuts[-1]), weights, usual, r, v)
        # The last digits of mean and variance depend on how rows are divided.
        unit = RESOLUTION * float(state.scale[j])
        for side in tails:
            length = max(round(lengths[side] / unit), 1) * unit
            middles[side] += length if side else -length
            spreads[side] = max(round(length * math.sqrt(c) / unit), 1) * unit
    values = [
        shared.get(span, mean + one) for span, one in zip(spans, middles.tolist(), strict=True)
    ]
    # Bins beside a shared value may be as narrow as the numbers can be, and sums are rounded.
    lowest = np.nextafter(np.append(-np.inf, points), np.inf)
    values = np.clip(values, lowest, np.append(points, np.inf)).tolist()
    return tuple(zip(values, spreads.tolist(), strict=True))


def _tails(
    cuts: tuple[float, float],
    shares: tuple[float, float],
    usual: FloatArray,
    r: float,
    v: float,
) -> tuple[tuple[float, float], float]:
    """Return s, t and c, see :func:`_inside`; a share is 0 where a bin of one value is the last.

    Parameters
    ----------
    cuts, shares : tuple of float
        a and b about the column's mean, p and q.
    usual : ndarray of shape (2,)
        s and t of tails that are like the bins beside them.
    r, v : float
    """
    (first, last), (p, q), (s, t) = cuts, shares, usual.tolist()
    narrow = NARROW * max(s, t) > min(s, t)
    if p and q and not narrow and (both := _exponential(cuts, shares, r, v)):
        return both, 1.0
    # The mean determines the tail that is not narrow, else the one on whose side the mean is.
    upper = q > 0 and (r > 0 or not p)
    if p and q and narrow:
        upper = r + p * s > 0 if s < t else q * t - r <= 0
    if upper:
        t = (r + p * s) / q if r + p * s > 0 else t
    else:
        s = (q * t - r) / p if q * t - r > 0 else s
    squares = p * s * s + q * t * t
    c = (v + 2 * first * p * s - 2 * last * q * t) / squares - 1
    return (s, t), max(c, 0.0)


def _exponential(
    cuts: tuple[float, float], shares: tuple[float, float], r: float, v: float
) -> tuple[float, float] | None:
    """Return s and t of exponential tails; None where there are none, as with far outliers."""
    (first, last), (p, q) = cuts, shares
    # t = (r + p s) / q, and so a s^2 + b s + c = 0.
    a, b = p + p * p / q, p * (last - first) + 2 * r * p / q
    c = r * r / q + r * last - v / 2
    within = b * b - 4 * a * c
    if within <= 0:
        return None
    s = (-b + math.sqrt(within)) / (2 * a)
    t = (r + p * s) / q
    return (s, t) if min(s, t) > 0 and max(s, t) <= last - first else None


def _closed(state: CutState) -> BoolArray:
    """Return which brackets are narrow enough, shape (d, B - 1)."""
    miss = np.minimum(state.up_to - state.targets, state.targets - state.below)
    allowed = np.maximum(0.5, TOLERANCE * state.num_rows / state.num_bins)[:, None]
    width = state.upper - state.lower
    total_width = state.upper[:, -1:] - state.lower[:, :1]
    narrow = np.isfinite(total_width) & (width <= RESOLUTION * total_width)
    # Between neighbours, as floats or as whole numbers, is one value.
    neighbours = np.nextafter(state.lower, np.inf) >= state.upper
    one_value = neighbours | (state.whole[:, None] & (width <= 1.0))
    ended = (miss <= allowed) | (narrow & ~state.whole[:, None])
    if state.apart:  # until the value that many rows share is known
        many = np.maximum(SHARED * state.num_rows / state.num_bins, FEWEST)
        ended &= state.up_to - state.below < many[:, None]
    return ended | one_value


def _even(num_rows: IntArray, num_bins: int) -> FloatArray:
    """Return the number of rows up to each end of bins of equal frequency, shape (d, B - 1)."""
    return np.arange(1.0, num_bins) * (num_rows / num_bins)[:, None]


def _restarted(
    state: CutState,
    num_rows: IntArray,
    targets: FloatArray,
    shared: tuple[tuple[SharedValue, ...], ...],
) -> CutState:
    """Return the state with other rows or targets, and brackets that only known values bound."""
    state = replace(
        state,
        num_rows=num_rows,
        targets=targets,
        lower=np.full_like(state.lower, -np.inf),
        upper=np.full_like(state.upper, np.inf),
        below=np.zeros_like(state.below),
        up_to=np.tile(num_rows[:, None], state.num_bins - 1),
        shared=shared,
    )
    for j, known in enumerate(shared):
        for value, before, below, up_to in known:
            for point, count in ((before, below), (value, up_to)):
                reached = count >= targets[j]
                nearer = reached & (point < state.upper[j])
                state.upper[j, nearer], state.up_to[j, nearer] = point, count
                nearer = ~reached & (point > state.lower[j])
                state.lower[j, nearer], state.below[j, nearer] = point, count
    return state


def _first_multiples(num_bins: int) -> FloatArray:
    """Return the first thresholds, in standard deviations from the mean.

    By Cantelli's inequality fewer than n / B rows lie sqrt(B) or more standard deviations below the
    mean, and fewer than n / B above: the outermost thresholds bracket all wanted quantiles.
    """
    end = math.sqrt(num_bins)
    growing = end * 10.0 ** np.linspace(-DECADES, 0.0, GEOMETRIC, endpoint=False)
    uniform = np.linspace(-end, end, UNIFORM + 1)
    return np.sort(np.concatenate([-growing, uniform, growing]))


def _within(
    low: float, high: float, scale: float, whole: bool, done: bool, size: int
) -> FloatArray:
    """Return the new thresholds of one bracket, shape (size,), in any order.

    If one end of the bracket is infinite, the thresholds lie beyond the other end.
    """
    if done:
        return np.full(size, high if math.isfinite(high) else low)
    if math.isfinite(low) and math.isfinite(high):
        points = np.linspace(low, high, size)[1:-1]
        shared = _shortest(low, high)
    else:
        # At distances from 4^-7 to 4^24 standard deviations.
        away = scale * np.logspace(-7, 24, size - 2, base=4)
        points = low + away if math.isfinite(low) else high - away[::-1]
        shared = float(points[0])
    before = shared - 1.0 if whole else math.nextafter(shared, -math.inf)
    points = np.append(_rounded(points, whole), [before, shared])
    return np.clip(points, low, high)


def _rounded(points: FloatArray, whole: bool) -> FloatArray:
    """Round ascending points to whole numbers, or to the decimal digit of their distance."""
    if whole:
        return np.floor(points)
    gaps = np.diff(points)
    digits = np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf))
    return np.array(
        [_short(x, gap) for x, gap in zip(points.tolist(), digits.tolist(), strict=True)]
    )


def _shortest(low: float, high: float) -> float:
    """Return the number with the fewest digits that is above ``low`` and at most ``high``."""
    if low < 0.0 <= high:
        return 0.0
    most = math.floor(math.log10(max(abs(low), abs(high))))
    for digit in range(most, math.floor(math.log10(high - low)) - 1, -1):
        number = float(f"{math.floor(high / 10.0**digit)}e{digit}")
        if low < number <= high:
            return number
    return high


def _short(number: float, gap: float) -> float:
    """Return the number rounded to the largest power of ten that is at most ``gap``."""
    if number == 0.0 or gap <= 0.0:
        return number
    significant = math.floor(math.log10(abs(number))) - math.floor(math.log10(gap))
    return float(f"{number:.{min(significant, 16)}e}") if significant >= 0 else 0.0


def second_search(state: CutState) -> CutState | None:
    """Return the state at the start of a search that keeps large bins and divides the other rows.

    Parameters
    ----------
    state : CutState
        The state after the last exchange of the first search.

    Returns
    -------
    CutState or None
        None if no bin holds more than :data:`LARGE` times its equal share of the rows.
    """
    targets = state.targets.copy()
    for j, ((_, reached), total) in enumerate(zip(_chosen(state), state.num_rows, strict=True)):
        alone = {(one.below, one.up_to) for one in state.shared[j]}
        ranks = sorted({0, *reached.tolist(), *(end for span in alone for end in span), int(total)})
        large = LARGE * total / state.num_bins
        full = [span for span in pairwise(ranks) if span[1] - span[0] > large or span in alone]
        # If all rows are in large bins, each bin holds one of few values already.
        if full and (alone or sum(high - low for low, high in full) < total):
            targets[j] = _around(full, int(total), len(targets[j]))
    if (targets == state.targets).all():
        return None
    return replace(_restarted(state, state.num_rows, targets, state.shared), exchange=0)


def _around(full: list[tuple[int, int]], total: int, size: int) -> FloatArray:
    """Return wanted numbers of rows that keep large bins and divide the other rows equally.

    Parameters
    ----------
    full : list of (int, int)
        The large bins: the number of rows up to the lower and the upper end of each.
    total : int
        Number of rows.
    size : int
        Number of cut points.

    Returns
    -------
    float64 array of shape (size,)
        Ascending.
    """
    edges = sorted({end for pair in full for end in pair} - {0, total})[:size]
    rest = total - sum(high - low for low, high in full)
    parts = size - len(edges) + 1
    ranks: FloatArray = np.arange(1.0, parts) * (rest / parts)
    for low, high in full:
        ranks = np.where(ranks >= low, ranks + (high - low), ranks)
    return np.sort(np.concatenate([np.array(edges, dtype=np.float64), ranks]))

"""Cut points that divide columns into equally full bins, from counts that parties add up.

The server asks how many rows are at most each of a few thresholds, narrows a bracket around every
wanted quantile, and asks again. Only sums over all parties enter, so the result is the same however
the rows are spread over them, and no party's value need ever be named.

Equal frequency is a statement about ranks: a bracket is narrow enough when one of its ends cuts off
the wanted share of the rows, not when its ends are near each other. Two or three exchanges do for
most columns; more are used for columns whose spread is ruled by few far outliers.

Where many rows share a value (:func:`spread`), equally full bins of all rows spend most of their
cut points on that value, where none can be: of a gain that is 0 in nine of ten rows hardly a bin is
left for the gains. Once the cut points are known, so are the bins that hold far more than their
share. They keep their ends, and the other cut points divide the other rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
from flwr_causal.errors import DataError

__all__ = [
    "CutState",
    "FloatArray",
    "count_up_to",
    "cut_points",
    "finished",
    "init",
    "step",
    "thresholds",
]

#: Most exchanges for all columns together.
MAX_EXCHANGES = 8

#: A cut point may miss the wanted number of rows by this share of a bin (or by half a row).
TOLERANCE = 0.01

#: Rows within this share of the spread between the outermost cut points are not told apart.
RESOLUTION = 1e-4

#: New thresholds within a bracket, beside the two that look for a number that many rows share.
REFINEMENT = 32

#: Thresholds of the first exchange: at equal distances, and on either side at growing distances
#: from the mean, which finds the bulk of the rows where outliers rule the standard deviation.
UNIFORM, GEOMETRIC, DECADES = 32, 16, 8.0


@dataclass(frozen=True, eq=False)
class CutState:
    """What is known about the wanted quantiles of d columns, B - 1 of each.

    Parameters
    ----------
    num_bins : int
        B, bins of each column.
    num_rows : int64 array of shape (d,)
        Rows of all parties that have a value of each column.
    exchange : int
        Exchanges so far.
    centre, scale : float64 arrays of shape (d,)
        Where the first thresholds lie: a rounded mean, and a rounded standard deviation.
    whole : bool array of shape (d,)
        Columns of whole numbers: their cut points are whole too, and can be found exactly.
    targets : float64 array of shape (d, B - 1)
        The wanted numbers of rows at most each cut point, ascending.
    lower, upper : float64 arrays of shape (d, B - 1)
        The bracket of each quantile; infinite where no end is known.
    below, up_to : int64 arrays of shape (d, B - 1)
        Rows at most ``lower`` (fewer than wanted), and at most ``upper`` (at least those wanted).
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


def init(
    mean: FloatArray,
    variance: FloatArray,
    num_bins: int,
    num_rows: int | IntArray,
    whole: BoolArray | None = None,
) -> CutState:
    """Return the state before the first exchange.

    Parameters
    ----------
    mean, variance : float64 arrays of shape (d,)
        Of the rows of all parties together, the variance divided by n.
    num_bins : int
        Bins of each column, B, at least 2.
    num_rows : int or int array of shape (d,)
        Rows of all parties that have a value, at least 1; one number for all columns or each its
        own.
    whole : bool array of shape (d,), optional
        Which columns hold whole numbers only. Default: none.

    Raises
    ------
    DataError
        For moments that are unknown or infinite, or fewer than two bins.
    """
    mean, variance = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
        raise DataError("cut points need the mean and variance of each column: report the sums")
    rows = np.broadcast_to(np.asarray(num_rows, dtype=np.int64), mean.shape)
    if num_bins < 2 or (rows < 1).any():
        raise DataError(
            f"{num_rows} rows cannot be cut into {num_bins} bins: at least 1 and 2 are needed"
        )
    # The last digits of a pooled mean depend on how rows are spread over the parties; after this
    # rounding nothing does. The odd offsets keep round numbers away from where it jumps.
    deviation = np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny))
    scale = 2.0 ** (np.ceil(4.0 * np.log2(deviation) + 0.1) / 4.0)
    centre = np.floor(64.0 * (mean / scale) + 0.6) / 64.0 * scale
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
    )


def thresholds(state: CutState) -> FloatArray:
    """Return what the parties are asked: shape (d, m), ascending in each row, some perhaps twice.

    Between the ends of a bracket the thresholds have equal distances. They are rounded to the
    digits that their distances warrant, so that cut points are short numbers. Two more enclose the
    shortest number in the bracket: what many rows share (0, 100, 9.5) is most often such a number,
    and no narrowing would ever end on it.
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
        brackets = zip(state.lower[j], state.upper[j], closed[j], strict=True)
        points = [_within(low, high, scale, state.whole[j], done) for low, high, done in brackets]
        asked[j] = np.sort(np.concatenate(points))
    return asked


def count_up_to(rows: FloatArray, asked: FloatArray) -> IntArray:
    """Return a party's answer: how many of its rows are at most each threshold.

    Parameters
    ----------
    rows : float64 array of shape (n_k, d)
        The columns that are discretised, in the order of the thresholds.
    asked : float64 array of shape (d, m)
        See :func:`thresholds`.

    Returns
    -------
    int64 array of shape (d, m)
        To be added over the parties.
    """
    counts = np.zeros(asked.shape, dtype=np.int64)
    for j, points in enumerate(asked):
        counts[j] = np.searchsorted(np.sort(rows[:, j]), points, side="right")
    return counts


def step(state: CutState, counts: IntArray, num_rows: int | IntArray | None = None) -> CutState:
    """Narrow the brackets by the parties' answers to :func:`thresholds`.

    Parameters
    ----------
    state : CutState
        Not changed.
    counts : int64 array of shape (d, m)
        Sum of the answers.
    num_rows : int or int array of shape (d,), optional
        Rows of the parties that answered, see :func:`init`. Default: as before. Where it differs a
        party has been lost or found, so that what earlier counts said is forgotten.

    Raises
    ------
    DataError
        The counts cannot be the answer to these thresholds.
    """
    asked = thresholds(state)
    counts = np.asarray(counts, dtype=np.int64)
    wanted = state.num_rows if num_rows is None else np.asarray(num_rows, dtype=np.int64)
    total = np.broadcast_to(wanted, state.num_rows.shape)
    if counts.shape != asked.shape:
        raise DataError(f"counts of shape {counts.shape} answer thresholds of shape {asked.shape}")
    if (np.diff(counts, axis=1) < 0).any() or (counts < 0).any() or (total < counts.T).any():
        raise DataError(
            f"counts up to ascending thresholds must ascend from 0 to {total.max()} rows"
        )
    if (total != state.num_rows).any():
        state = _forgotten(state, total)
    lower, upper = state.lower.copy(), state.upper.copy()
    below, up_to = state.below.copy(), state.up_to.copy()
    for j in range(len(asked)):
        # The infinite ends are always known: no row and all rows.
        points = np.concatenate([[-np.inf], asked[j], [np.inf]])
        known = np.concatenate([[0], counts[j], [total[j]]])
        high = np.searchsorted(known, state.targets[j], side="left")
        nearer = points[high] < upper[j]
        upper[j] = np.where(nearer, points[high], upper[j])
        up_to[j] = np.where(nearer, known[high], up_to[j])
        nearer = points[high - 1] > lower[j]
        lower[j] = np.where(nearer, points[high - 1], lower[j])
        below[j] = np.where(nearer, known[high - 1], below[j])
    return replace(
        state, exchange=state.exchange + 1, lower=lower, upper=upper, below=below, up_to=up_to
    )


def finished(state: CutState) -> bool:
    """Say whether every cut point is good enough, or :data:`MAX_EXCHANGES` are used up."""
    return state.exchange >= MAX_EXCHANGES or bool(state.exchange and _closed(state).all())


def cut_points(state: CutState) -> tuple[FloatArray, ...]:
    """Return the cut points of each column, ascending, each of shape (at most B - 1,).

    Of a bracket's ends that one is taken which cuts off nearest to the wanted number of rows: a
    value that many rows share goes where the bins stay evenest. Cut points that would leave a bin
    empty are left out, so that heavily tied columns get fewer bins, and no bin is empty.
    """
    use_upper = state.up_to - state.targets <= state.targets - state.below
    chosen = np.where(use_upper, state.upper, state.lower)
    counts = np.where(use_upper, state.up_to, state.below)
    cuts = []
    for points, reached, total in zip(chosen, counts, state.num_rows, strict=True):
        distinct, first = np.unique(reached, return_index=True)
        cuts.append(points[first[(distinct > 0) & (distinct < total)]])
    return tuple(cuts)


def _closed(state: CutState) -> BoolArray:
    """Return which brackets need no more thresholds, shape (d, B - 1)."""
    miss = np.minimum(state.up_to - state.targets, state.targets - state.below)
    allowed = np.maximum(0.5, TOLERANCE * state.num_rows / state.num_bins)[:, None]
    width = state.upper - state.lower
    adjacent = np.nextafter(state.lower, np.inf) >= state.upper
    spread = state.upper[:, -1:] - state.lower[:, :1]
    least = np.where(state.whole[:, None], 1.0, RESOLUTION * spread)
    return (miss <= allowed) | adjacent | (np.isfinite(spread) & (width <= least))


def _even(num_rows: IntArray, num_bins: int) -> FloatArray:
    """Return the numbers of rows at most each end of equally full bins, shape (d, B - 1)."""
    return np.arange(1.0, num_bins) * (num_rows / num_bins)[:, None]


def _forgotten(state: CutState, num_rows: IntArray) -> CutState:
    return replace(
        state,
        num_rows=num_rows,
        targets=_even(num_rows, state.num_bins),
        lower=np.full_like(state.lower, -np.inf),
        upper=np.full_like(state.upper, np.inf),
        below=np.zeros_like(state.below),
        up_to=np.tile(num_rows[:, None], state.num_bins - 1),
    )


def _first_multiples(num_bins: int) -> FloatArray:
    """Return the first thresholds in standard deviations from the mean.

    By Cantelli's inequality fewer than n / B rows lie sqrt(B) deviations or more below the mean,
    and as few above it: these ends bracket every wanted quantile of any column.
    """
    end = math.sqrt(num_bins)
    growing = end * 10.0 ** np.linspace(-DECADES, 0.0, GEOMETRIC, endpoint=False)
    uniform = np.linspace(-end, end, UNIFORM + 1)
    return np.sort(np.concatenate([-growing, uniform, growing]))


def _within(low: float, high: float, scale: float, whole: bool, done: bool) -> FloatArray:
    """Return new thresholds of one bracket, shape (REFINEMENT + 2,); outside it if it is open."""
    if done:
        return np.full(REFINEMENT + 2, high if math.isfinite(high) else low)
    if math.isfinite(low) and math.isfinite(high):
        points = np.linspace(low, high, REFINEMENT + 2)[1:-1]
        shared = _shortest(low, high)
    else:
        # From a small part of the deviation to any number of them.
        away = scale * np.logspace(-7, 24, REFINEMENT, base=4)
        points = low + away if math.isfinite(low) else high - away[::-1]
        shared = float(points[0])
    before = shared - 1.0 if whole else math.nextafter(shared, -math.inf)
    points = np.append(_rounded(points, whole), [before, shared])
    return np.clip(points, low, high)


def _rounded(points: FloatArray, whole: bool) -> FloatArray:
    """Round ascending points to whole numbers, or to the decimal digit of their distances."""
    if whole:
        return np.floor(points)
    gaps = np.diff(points)
    digits = np.minimum(np.append(gaps, np.inf), np.insert(gaps, 0, np.inf))
    return np.array(
        [_short(x, gap) for x, gap in zip(points.tolist(), digits.tolist(), strict=True)]
    )


def _shortest(low: float, high: float) -> float:
    """Return a number of fewest decimal digits that is above ``low`` and at most ``high``."""
    if low < 0.0 <= high:
        return 0.0
    most = math.floor(math.log10(max(abs(low), abs(high))))
    for digit in range(most, math.floor(math.log10(high - low)) - 1, -1):
        number = float(f"{math.floor(high / 10.0**digit)}e{digit}")
        if low < number <= high:
            return number
    return high


def _short(number: float, gap: float) -> float:
    """Return the number rounded to the decimal digit that is at most ``gap``."""
    if number == 0.0 or gap <= 0.0:
        return number
    significant = math.floor(math.log10(abs(number))) - math.floor(math.log10(gap))
    return float(f"{number:.{min(significant, 16)}e}") if significant >= 0 else 0.0


#: Shares of the rows, in equal ones, from which on a bin is one value's.
LARGE = 2.0


def spread(state: CutState) -> CutState | None:
    """Return the state at the start of a second search; None where no bin is too full.

    Parameters
    ----------
    state : CutState
        After its last exchange.
    """
    targets = state.targets.copy()
    for j, total in enumerate(state.num_rows.tolist()):
        nearer = state.up_to[j] - state.targets[j] <= state.targets[j] - state.below[j]
        reached = np.unique(np.where(nearer, state.up_to[j], state.below[j]))
        ends = [0, *reached[(reached > 0) & (reached < total)].tolist(), total]
        full = [
            (low, high)
            for low, high in pairwise(ends)
            if high - low > LARGE * total / state.num_bins
        ]
        # Where nearly all bins are full there are few values, each of which has its bin.
        if full and sum(high - low for low, high in full) < total:
            targets[j] = _around(full, total, len(targets[j]))
    if (targets == state.targets).all():
        return None
    return replace(
        state,
        exchange=0,
        targets=targets,
        lower=np.full_like(state.lower, -np.inf),
        upper=np.full_like(state.upper, np.inf),
        below=np.zeros_like(state.below),
        up_to=np.tile(state.num_rows[:, None], state.num_bins - 1),
    )


def _around(full: list[tuple[int, int]], total: int, size: int) -> FloatArray:
    """Return the ends of full bins, and equal parts of the rows between them, shape (size,)."""
    edges = sorted({end for pair in full for end in pair} - {0, total})[:size]
    rest = total - sum(high - low for low, high in full)
    parts = size - len(edges) + 1
    ranks: FloatArray = np.arange(1.0, parts) * (rest / parts)
    for low, high in full:
        ranks = np.where(ranks >= low, ranks + (high - low), ranks)
    return np.sort(np.concatenate([np.array(edges, dtype=np.float64), ranks]))

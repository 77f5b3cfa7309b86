"""Columns that are reversed, or that stand under each other's names, at one party.

A reversed column has correlations of the other sign. Columns under each other's names have each
other's correlations and standard deviations, and states of a category that are exchanged each
other's correlations. These are found without a graph: a party's correlations are brought as close
to the others' as reversing and exchanging its columns can, one step after the other. A
category has a column for each of its states here, the last one too.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from flwr_causal.core.blocks.design import Category
from flwr_causal.core.linear.parties import Compared, compared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.blocks.design import Variable

#: A party is looked at where a correlation differs by so much, as Fisher's z, or the logarithm of a
#: standard deviation, beyond chance at this level after correction for the number of all of them.
DIFFERS, LEVEL = 0.15, 0.01
#: Columns are named if of the squared differences beyond chance at most this share is left once all
#: are mended, of all columns and of these. On simulated parties (12 variables, 150 to 900 rows) at
#: most .02 is left where columns are false; at least .17 of all differences where all mechanisms
#: are other ones (40 worlds).
LEFT = 0.1
#: A difference of less than this root mean square is no matter.
LEAST_SIZE = 0.1
#: Of more columns than this nothing is searched for.
MOST_COLUMNS = 300
MOST_STEPS = 200


class FalseColumn(NamedTuple):
    """A column of one party that is not what it is elsewhere.

    Attributes
    ----------
    party
        Its place.
    what
        "reversed"; "exchanged": it holds what stands in another column elsewhere.
    other, column
        Names of columns: under the name ``column`` the party has what others call ``other``, which
        is empty where the column is reversed.
    size, left
        Root mean square of the differences of its correlations (Fisher's z) and of its standard
        deviation (logarithm) from the others': as they are, and once the columns are mended.
    z
        The largest of these differences in standard errors.
    p_value
        Of this one, after Bonferroni's correction for the number of all of them.
    """

    party: int
    what: str
    other: str
    column: str
    size: float
    left: float
    z: float
    p_value: float


class _Columns(NamedTuple):
    """The columns of all states, and the map to them from those of the moments.

    Attributes
    ----------
    lift
        ``(columns, s)``.
    names
        Of the columns.
    owner
        ``(columns,)``: of each the number of its variable.
    number
        ``(columns,)``: whether the variable is a number.
    alike
        ``(columns, columns)``: which single columns may stand under each other's names.
    twins
        The columns of each two categories of the same states.
    """

    lift: FloatArray
    names: list[str]
    owner: IntArray
    number: BoolArray
    alike: BoolArray
    twins: list[tuple[IntArray, IntArray]]

    @classmethod
    def of(cls, variables: Sequence[Variable]) -> _Columns:
        size = sum(one.width for one in variables)
        lift: list[FloatArray] = []
        names: list[str] = []
        owner: list[int] = []
        place = 0
        for k, one in enumerate(variables):
            own = np.eye(size)[place : place + one.width]
            place += one.width
            if isinstance(one, Category):
                lift += [*own, -own.sum(axis=0)]
                names += [f"{one.name}={state}" for state in one.states]
            else:
                lift.append(own[0])
                names.append(one.name)
            owner += [k] * (len(lift) - len(owner))
        of, number = np.array(owner), np.array([not isinstance(one, Category) for one in variables])
        same = of[:, None] == of
        is_number = number[of]
        alike = np.where(is_number, is_number[:, None], same) & ~np.eye(len(of), dtype=bool)
        states = [one.states if isinstance(one, Category) else () for one in variables]
        twins = [
            (np.flatnonzero(of == k), np.flatnonzero(of == other))
            for k, own in enumerate(states)
            for other in range(k)
            if own and own == states[other]
        ]
        return cls(np.array(lift), names, of, is_number, alike, twins)


def false_columns(
    variables: Sequence[Variable], second: FloatArray, rows: FloatArray
) -> list[FalseColumn]:
    """Return the columns of single parties that are reversed, or under another's name.

    Parameters
    ----------
    variables : sequence of Number or Category
        Of numbers with several functions only the first one, the number itself, is read.
    second : ndarray of shape (K, s, s)
        Central second moments of the columns at each party, K >= 2; rows and columns of variables
        that are constant there are 0.
    rows : ndarray of shape (K,)
        n_k.

    Moments that are unknown are NaN.
    """
    columns = _Columns.of(variables)
    count = len(columns.names)
    if not 2 <= count <= MOST_COLUMNS:
        return []
    known = np.isfinite(second)
    size = np.abs(columns.lift)
    lacks = size @ ~known @ size.T > 0
    second = columns.lift @ np.where(known, second, 0.0) @ columns.lift.T
    second[lacks] = np.nan
    variances = np.diagonal(second, axis1=1, axis2=2)
    scale = np.sqrt(np.where(variances > 0, variances, np.nan))
    fisher = np.arctanh(np.clip(second / (scale[:, :, None] * scale[:, None, :]), -0.999, 0.999))
    first, then = np.nonzero(np.triu(columns.owner[:, None] != columns.owner))
    pairs = fisher[:, first, then].T
    known, degrees = rows > 4, np.maximum(rows - 3, 1.0)
    apart = _compared(np.where(known, pairs, np.nan), 1 / degrees, degrees)
    logs = np.where(known[:, None] & columns.number, np.log(scale), np.nan).T
    spreads = _compared(logs, 0.5 / degrees, degrees)
    tests = np.isfinite(apart.z).sum() + np.isfinite(spreads.z).sum()
    limit = -float(ndtri(LEVEL / 2 / max(tests, 1)))
    unlike = (np.abs(apart.z) > limit) & (np.abs(pairs - apart.others) > DIFFERS)
    wider = (np.abs(spreads.z) > limit) & (np.abs(logs - spreads.others) > DIFFERS)
    found: list[FalseColumn] = []
    for k in np.flatnonzero(unlike.any(axis=0) | wider.any(axis=0)).tolist():
        party = np.zeros((4, count, count))
        for place, values in enumerate((pairs, apart.others, apart.error, apart.z)):
            party[place, first, then] = party[place, then, first] = values[:, k]
            party[place][np.diag_indices(count)] = (
                logs,
                spreads.others,
                spreads.error,
                spreads.z,
            )[place][:, k]
        found += _at(k, columns, *party, limit=limit, tests=int(tests))
    return found


def _compared(values: FloatArray, variances: FloatArray, degrees: FloatArray) -> Compared:
    """Compare values (R, K), of which those of a party have one variance."""
    every = (np.broadcast_to(one, values.shape) for one in (variances, degrees))
    return compared(values, *every)


def _at(
    k: int,
    columns: _Columns,
    own: FloatArray,
    others: FloatArray,
    error: FloatArray,
    z: FloatArray,
    *,
    limit: float,
    tests: int,
) -> Iterator[FalseColumn]:
    """Name the false columns of one party.

    Matrices have correlations, and on the diagonal logarithms of standard deviations.
    """
    usable = np.isfinite(own) & np.isfinite(others)
    own, others = np.where(usable, own, 0.0), np.where(usable, others, 0.0)
    # One error for all correlations, and one for all standard deviations.
    off = ~np.eye(len(own), dtype=bool)
    weights = np.zeros_like(own)
    for part in (off, ~off):
        errors = error[part & usable]
        # Of columns that hardly vary there may be none.
        errors = errors[errors > 0]
        if len(errors):
            weights[part & usable] = 1.0 / np.median(errors) ** 2
    order, sign = _mended(own, others, weights, columns)
    after = _as_read(own, order, sign)
    before_squares, after_squares = (own - others) ** 2, (after - others) ** 2
    if _share_left(before_squares, after_squares, weights, usable) > LEFT:
        return
    cycles = list(_cycles(order, sign))
    if sum(map(len, cycles)) > max(2, len(own) / 2):
        return  # rather another system
    for cycle in cycles:
        touched = np.zeros_like(usable)
        touched[cycle] = touched[:, cycle] = True
        touched &= usable
        # With all else mended, this cycle alone is undone.
        undone, signs = order.copy(), sign.copy()
        undone[cycle], signs[cycle] = cycle, 1.0
        without = (_as_read(own, undone, signs) - others) ** 2
        size = float(np.sqrt(before_squares[touched].mean()))
        largest = float(np.nanmax(np.abs(np.where(touched, z, 0.0))))
        left = _share_left(without, after_squares, weights, touched)
        if left > LEFT or size < LEAST_SIZE or largest < limit:
            continue
        remaining = float(np.sqrt(after_squares[touched].mean()))
        said = size, remaining, largest, min(1.0, 2 * tests * float(ndtr(-largest)))
        for column in cycle:
            own_name = columns.names[order[column]]
            if order[column] != column:
                yield FalseColumn(k, "exchanged", columns.names[column], own_name, *said)
            if sign[column] < 0:
                yield FalseColumn(k, "reversed", "", own_name, *said)


def _share_left(
    before: FloatArray, after: FloatArray, weights: FloatArray, chosen: BoolArray
) -> float:
    """Return the share of squared differences that is left, without what chance explains of both.

    ``chosen`` are pairs of columns.
    """
    one, other = ((weights * part)[chosen].sum() - chosen.sum() for part in (before, after))
    return float(other / one) if one > 0 else 1.0


def _as_read(own: FloatArray, order: IntArray, sign: FloatArray) -> FloatArray:
    """Return a party's matrix where column j is its column ``order[j]``, times ``sign[j]``."""
    signs = np.outer(sign, sign)
    np.fill_diagonal(signs, 1.0)
    return np.asarray(own[np.ix_(order, order)] * signs)


def _mended(
    own: FloatArray, others: FloatArray, weights: FloatArray, columns: _Columns
) -> tuple[IntArray, FloatArray]:
    """Return the order and the signs of a party's columns that fit the others' best.

    The best single exchange of two columns, or reversal of one, one after the other; also from the
    start where each column is the one with the most similar correlations whatever their order.
    """
    count = len(own)
    starts = [np.arange(count)]
    if columns.number.sum() > 3:
        starts.append(_by_profile(own, others, weights, columns))
    best, cost = (starts[0], np.ones(count)), np.inf
    for start in starts:
        order, sign = _descended(own, others, weights, columns, start)
        value = float((weights * (_as_read(own, order, sign) - others) ** 2).sum())
        if value < cost * (1 - 1e-9):
            best, cost = (order, sign), value
    return best


def _descended(
    own: FloatArray,
    others: FloatArray,
    weights: FloatArray,
    columns: _Columns,
    start: IntArray,
) -> tuple[IntArray, FloatArray]:
    order, sign = start.copy(), np.ones(len(own))
    off = ~np.eye(len(own), dtype=bool)
    weight = float(np.median(weights[off & (weights > 0)])) if (weights[off] > 0).any() else 0.0
    of_spread = np.diagonal(weights)
    for _ in range(MOST_STEPS):
        now = _as_read(own, order, sign)
        pairs, reference = np.where(off, now, 0.0), np.where(off, others, 0.0)
        # Of a column in another's place, without the two themselves.
        cross = (pairs**2).sum(axis=1)[None, :] + (reference**2).sum(axis=1)[:, None]
        cross -= 2 * reference @ pairs
        as_placed = np.diagonal(cross)[:, None] - (pairs - reference) ** 2
        change = weight * (cross - pairs**2 - reference**2 - as_placed)
        spread, usual = np.diagonal(now), np.diagonal(others)
        change += of_spread[:, None] * (spread - usual[:, None]) ** 2
        change -= (of_spread * (spread - usual) ** 2)[:, None]
        change = np.where(columns.alike, change + change.T, np.inf)
        turned = np.where(columns.number, 4 * weight * (pairs * reference).sum(axis=1), np.inf)
        i, j = np.unravel_index(int(change.argmin()), change.shape)
        steps = [(change[i, j], np.array([i]), np.array([j]))]
        for one, other in columns.twins:
            swapped = np.arange(len(own))
            swapped[one], swapped[other] = other, one
            after = pairs[np.ix_(swapped, swapped)]
            gain = ((after - reference) ** 2 - (pairs - reference) ** 2).sum() / 2
            steps.append((weight * gain, one, other))
        best, one, other = min(steps, key=itemgetter(0))
        if min(best, turned.min()) > -1e-6:
            break
        if best < turned.min():
            order[one], order[other] = order[other], order[one]
            sign[one], sign[other] = sign[other], sign[one]
        else:
            sign[int(turned.argmin())] *= -1
    return order, sign


def _by_profile(
    own: FloatArray, others: FloatArray, weights: FloatArray, columns: _Columns
) -> IntArray:
    """Return for each number the party's number of the most similar profile.

    A profile is the standard deviation and the absolute correlations by size.
    """
    from scipy.optimize import linear_sum_assignment

    chosen = np.flatnonzero(columns.number)
    off = ~np.eye(len(own), dtype=bool)
    own_profile, profile = (
        np.sort(np.abs(np.where(off, part, 0.0)), axis=1)[chosen] for part in (own, others)
    )
    weight = float(np.median(weights[off & (weights > 0)])) if (weights[off] > 0).any() else 0.0
    cost = weight * ((profile[:, None] - own_profile) ** 2).sum(axis=2)
    spread, usual = np.diagonal(own)[chosen], np.diagonal(others)[chosen]
    cost += np.diagonal(weights)[chosen][:, None] * (usual[:, None] - spread) ** 2
    order = np.arange(len(own))
    order[chosen] = chosen[linear_sum_assignment(cost)[1]]
    return order


def _cycles(order: IntArray, sign: FloatArray) -> Iterator[list[int]]:
    """Return the columns that are exchanged among each other, and single ones that are reversed."""
    seen: set[int] = set()
    for start in range(len(order)):
        cycle, place = [], start
        while place not in seen:
            seen.add(place)
            cycle.append(place)
            place = int(order[place])
        if len(cycle) > 1 or (cycle and sign[cycle[0]] < 0):
            yield cycle

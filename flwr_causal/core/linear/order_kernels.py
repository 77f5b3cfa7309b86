"""Compiled parts of the search over orders: a variable's parents, and moves in the order.

The functions create no arrays: those of :class:`OrderRoom` hold intermediate results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.compiled import compiled_in_place, compiled_inside, inlined
from flwr_causal.core.linear.regression import RESIDUAL_FLOOR
from flwr_causal.core.ties import SCORE_TIE

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray, Integer

# A candidate whose variance given the parents is below this share is a combination of them.
DEPENDENT = 1e-9
# Added candidates of a variable that :class:`Paths` has room for. They are seldom more than ten.
LONGEST_PATH = 48


class SearchTask(NamedTuple):
    """The arguments of a search that stay the same.

    A variable is a block of columns: a number is one column.

    Attributes
    ----------
    correlations
        ``(k, M, M)`` of all M columns; of pairs of variables that cannot be adjacent or share a
        neighbour, entries may be NaN.
    first
        ``(m + 1,)`` the first column of each variable; ``first[m]`` is M.
    own, rows
        ``(d,)`` for each variable which of the correlations inform about its causes, and their
        number of rows.
    log_variances
        ``(d,)`` logarithms of the variables' variances: of determinants of their covariances.
    possible, required
        ``(m, d)`` edges that may, and that must be in the graph.
    costs
        ``(d, m)`` cost of the edge to each variable from each.
    most
        Parents of a variable at most, besides the required ones.
    with_spread
        Whether the score has the term of the noise variances' spread.
    growth
        Share of its cost that an edge must be worth to be tried: below 1 more parents are chosen
        first than are kept, which finds causes whose effects cancel each other.
    """

    correlations: FloatArray
    first: IntArray
    own: IntArray
    rows: FloatArray
    log_variances: FloatArray
    possible: BoolArray
    required: BoolArray
    costs: FloatArray
    most: int
    with_spread: bool
    growth: float


class OrderRoom(NamedTuple):
    """Arrays for intermediate results of one choice of parents.

    The columns of the candidates lie one after the other; w is the largest number of columns of a
    variable. Covariances are given the columns that have been entered.

    Attributes
    ----------
    candidates
        ``(m,)`` variables among which parents are chosen.
    start
        ``(m + 1,)`` where the columns of each candidate begin.
    columns, lead
        ``(M,)`` the candidates' columns, and where those of the same candidate begin.
    parents
        ``(m,)`` positions of the chosen ones among the candidates.
    covariance
        ``(w, M)`` covariances of the variable's columns with the candidates'.
    within
        ``(w, M)`` covariances of the candidates' columns with those of the same candidate; negative
        for parents.
    left
        ``(w, w)`` covariance of the variable's columns.
    factor
        ``(rows, M)`` triangular factor of the candidates' correlations, one row for each column
        that was entered.
    entered, begin
        ``(rows,)`` the place of the column of each row among the candidates' columns; ``(m + 1,)``
        the first row of each parent.
    loads
        ``(rows, w)`` the factor's entries of the variable's columns.
    inverse
        ``(rows, rows)`` inverse of the factor among the entered columns.
    block, shared, rest
        ``(w, w)`` each, for determinants of one candidate or parent.
    near
        ``(m,)`` neighbours of a variable that is moved, in the order.
    """

    candidates: IntArray
    start: IntArray
    columns: IntArray
    lead: IntArray
    parents: IntArray
    covariance: FloatArray
    within: FloatArray
    left: FloatArray
    factor: FloatArray
    entered: IntArray
    begin: IntArray
    loads: FloatArray
    inverse: FloatArray
    block: FloatArray
    shared: FloatArray
    rest: FloatArray
    near: IntArray

    @classmethod
    def of(cls, widths: IntArray, most: int, most_columns: int) -> OrderRoom:
        """Return room for variables of these numbers of columns.

        Parameters
        ----------
        widths
            ``(m,)``.
        most, most_columns
            Parents of a variable at most, and their columns.
        """
        m, all_columns, w = len(widths), int(widths.sum()), int(widths.max(initial=1))
        square = (w, w)
        return cls(
            candidates=np.empty(m, dtype=np.int64),
            start=np.empty(m + 1, dtype=np.int64),
            columns=np.empty(all_columns, dtype=np.int64),
            lead=np.empty(all_columns, dtype=np.int64),
            parents=np.empty(m, dtype=np.int64),
            covariance=np.empty((w, all_columns)),
            within=np.empty((w, all_columns)),
            left=np.empty(square),
            factor=np.empty((most_columns, all_columns)),
            entered=np.empty(most_columns, dtype=np.int64),
            begin=np.empty(most + 1, dtype=np.int64),
            loads=np.empty((most_columns, w)),
            inverse=np.empty((most_columns, most_columns)),
            block=np.empty(square),
            shared=np.empty(square),
            rest=np.empty(square),
            near=np.empty(m, dtype=np.int64),
        )


class Paths(NamedTuple):
    """How each variable's parents were chosen, and where a further candidate changes it.

    Candidates are added one after the other, each time the best one. Without a candidate that was
    not added, or with one that would be added at no step, the same parents are chosen. A sweep asks
    this of nearly all pairs of variables, and chooses parents anew for few of them.

    The arrays have a row for each variable, and one more for a variable that is moved. Variables
    are numbers (of one column each); of others nothing is kept.

    Attributes
    ----------
    length
        ``(d + 1,)`` how many candidates were added, -1 where that is not kept.
    first, last
        ``(d + 1,)`` the first and the last step at which a candidate was looked for: as many had
        been added.
    added
        ``(d + 1, p)`` the candidates that were added.
    factor, loads
        ``(d + 1, p, p)`` and ``(d + 1, p)``: of :class:`OrderRoom`, among the added ones.
    left, least, lowest, price
        ``(d + 1, p + 1)`` at each step the variable's variance, and of the candidate that was
        added the change of the score, the variance that it leaves, and its cost.
    values
        ``(p,)`` room for the entries of one more column of the factor.
    """

    length: IntArray
    first: IntArray
    last: IntArray
    added: IntArray
    factor: FloatArray
    loads: FloatArray
    left: FloatArray
    least: FloatArray
    lowest: FloatArray
    price: FloatArray
    values: FloatArray

    @classmethod
    def of(cls, variables: int, most: int) -> Paths:
        """Return room for a number of variables, with so many parents at most.

        Paths of more than :data:`LONGEST_PATH` candidates are not kept.
        """
        rows, longest = variables + 1, min(most, LONGEST_PATH)
        steps = (rows, longest + 1)
        return cls(
            length=np.full(rows, -1),
            first=np.empty(rows, dtype=np.int64),
            last=np.empty(rows, dtype=np.int64),
            added=np.empty((rows, longest), dtype=np.int64),
            factor=np.empty((rows, longest, longest)),
            loads=np.empty((rows, longest)),
            left=np.empty(steps),
            least=np.empty(steps),
            lowest=np.empty(steps),
            price=np.empty(steps),
            values=np.empty(longest),
        )


@compiled_inside
def _keep_added(
    room: OrderRoom, paths: Paths, row: Integer, size: Integer, candidate: Integer
) -> None:
    """Keep the candidate that was added as number ``size``; of too many nothing is kept."""
    if row < 0 or paths.length[row] < 0:
        return
    if size >= len(paths.added[0]):
        paths.length[row] = -1
        return
    place = room.entered[size]
    for above in range(size + 1):
        paths.factor[row, size, above] = room.factor[above, place]
    paths.loads[row, size] = room.loads[size, 0]
    paths.added[row, size] = candidate
    paths.length[row] = size + 1


@compiled_inside
def _is_added(paths: Paths, row: Integer, candidate: Integer) -> bool:
    """Whether a candidate was added, as far as that is known."""
    if paths.length[row] < 0:
        return True
    found = False
    for step in range(paths.length[row]):
        found |= paths.added[row, step] == candidate
    return found


@compiled_inside
def _would_be_added(
    task: SearchTask, paths: Paths, row: Integer, child: Integer, candidate: Integer
) -> bool:
    """Whether a further candidate would be added at any step, as far as that is known."""
    if paths.length[row] < 0 or task.required[candidate, child]:
        return True
    own = task.own[child]
    origin, column = task.first[child], task.first[candidate]
    variance, shared = 1.0, task.correlations[own, origin, column]
    cost = task.growth * task.costs[child, candidate]
    for step in range(paths.last[row] + 1):
        if variance <= DEPENDENT:
            return False
        if step >= paths.first[row]:
            left = max(paths.left[row, step] - shared * shared / variance, RESIDUAL_FLOOR)
            if left < paths.lowest[row, step] or cost < paths.price[row, step]:
                now = max(paths.left[row, step], RESIDUAL_FLOOR)
                change = 0.5 * task.rows[child] * np.log(left / now) + cost
                if change < paths.least[row, step] - SCORE_TIE * task.rows[child]:
                    return True
        if step < paths.length[row]:
            value = task.correlations[own, task.first[paths.added[row, step]], column]
            for above in range(step):
                value -= paths.factor[row, step, above] * paths.values[above]
            value /= paths.factor[row, step, step]
            paths.values[step] = value
            variance -= value * value
            shared -= value * paths.loads[row, step]
    return False


@compiled_inside
def _copy_path(paths: Paths, source: Integer, target: Integer) -> None:
    """Copy the path of a variable to another row."""
    length = paths.length[source]
    paths.length[target] = length
    paths.first[target], paths.last[target] = paths.first[source], paths.last[source]
    if length < 0:
        return
    for step in range(length):
        paths.added[target, step] = paths.added[source, step]
        paths.loads[target, step] = paths.loads[source, step]
        for above in range(step + 1):
            paths.factor[target, step, above] = paths.factor[source, step, above]
    for step in range(paths.last[source] + 1):
        paths.left[target, step] = paths.left[source, step]
        paths.least[target, step] = paths.least[source, step]
        paths.lowest[target, step] = paths.lowest[source, step]
        paths.price[target, step] = paths.price[source, step]


@compiled_inside
def _log_determinant(matrix: FloatArray, size: int) -> float:
    """Return the logarithm of the determinant of a covariance; the matrix is overwritten."""
    result = 0.0
    for t in range(size):
        pivot = matrix[t, t]
        result += np.log(max(pivot, RESIDUAL_FLOOR))
        if pivot > RESIDUAL_FLOOR:
            for u in range(t + 1, size):
                share = matrix[u, t] / pivot
                for v in range(t + 1, size):
                    matrix[u, v] -= share * matrix[t, v]
    return result


@compiled_inside
def _lay_out(task: SearchTask, room: OrderRoom, count: int) -> None:
    """Write the columns of the candidates side by side."""
    at = 0
    for slot in range(count):
        room.start[slot] = at
        variable = room.candidates[slot]
        for column in range(task.first[variable], task.first[variable + 1]):
            room.columns[at], room.lead[at] = column, room.start[slot]
            at += 1
    room.start[count] = at


@compiled_inside
def _enter(
    task: SearchTask, room: OrderRoom, child: int, count: int, slot: Integer, size: Integer
) -> None:
    """Make the candidate at ``slot`` parent number ``size``."""
    own, origin = task.own[child], task.first[child]
    width = task.first[child + 1] - origin
    row, begin = room.begin[size], room.start[slot]
    for place in range(begin, room.start[slot + 1]):
        variance = room.within[place - begin, place]
        if variance <= DEPENDENT:
            continue
        root = np.sqrt(variance)
        for other in range(room.start[count]):
            room.factor[row, other] = task.correlations[
                own, room.columns[place], room.columns[other]
            ]
        for above in range(row):
            share = room.factor[above, place]
            for other in range(room.start[count]):
                room.factor[row, other] -= share * room.factor[above, other]
        for other in range(room.start[count]):
            room.factor[row, other] /= root
        for t in range(width):
            room.loads[row, t] = room.covariance[t, place] / root
            for other in range(room.start[count]):
                room.covariance[t, other] -= room.factor[row, other] * room.loads[row, t]
        for t in range(width):
            for u in range(width):
                room.left[t, u] -= room.loads[row, t] * room.loads[row, u]
        if len(room.within) == 1:
            for other in range(room.start[count]):
                room.within[0, other] -= room.factor[row, other] * room.factor[row, other]
        else:
            for t in range(len(room.within)):
                for other in range(room.start[count]):
                    beside = min(room.lead[other] + t, room.start[count] - 1)
                    room.within[t, other] -= room.factor[row, other] * room.factor[row, beside]
        room.entered[row] = place
        row += 1
    room.parents[size] = slot
    # A parent is no candidate any more.
    for place in range(begin, room.start[slot + 1]):
        room.within[:, place] = -1.0
    room.begin[size + 1] = row


@compiled_inside
def _residual(room: OrderRoom, slot: int, width: int) -> float:
    """Return the residual variance of a variable with one more parent, the candidate at ``slot``.

    Of a variable of one column it is the residual variance (no logarithm), of one of several
    columns the log determinant of their residual covariance.
    """
    begin = room.start[slot]
    size = room.start[slot + 1] - begin
    for t in range(width):
        for u in range(width):
            room.rest[t, u] = room.left[t, u]
    for c in range(size):
        for e in range(size):
            room.block[c, e] = room.within[e, begin + c]
        for t in range(width):
            room.shared[c, t] = room.covariance[t, begin + c]
    for c in range(size):
        pivot = room.block[c, c]
        if pivot <= DEPENDENT:
            continue
        for e in range(c + 1, size):
            share = room.block[e, c] / pivot
            for g in range(c + 1, size):
                room.block[e, g] -= share * room.block[c, g]
            for t in range(width):
                room.shared[e, t] -= share * room.shared[c, t]
        for t in range(width):
            for u in range(width):
                room.rest[t, u] -= room.shared[c, t] * room.shared[c, u] / pivot
    if width == 1:
        return max(room.rest[0, 0], RESIDUAL_FLOOR)  # type: ignore[no-any-return]
    return _log_determinant(room.rest, width)


@compiled_inside
def _varies(room: OrderRoom, slot: int) -> bool:
    """Whether any column of a candidate is no combination of the parents' columns."""
    begin = room.start[slot]
    for place in range(begin, room.start[slot + 1]):
        if room.within[place - begin, place] > DEPENDENT:
            return True
    return False


@inlined
def _grow(
    task: SearchTask, room: OrderRoom, child: int, count: int, paths: Paths, row: Integer
) -> tuple[Integer, float]:
    """Add parents while the score improves; return their number and the log determinant.

    How they are chosen is kept in a row of ``paths``, unless it is -1.
    """
    own, origin = task.own[child], task.first[child]
    size: Integer = np.int64(0)
    best: Integer
    width = task.first[child + 1] - origin
    _lay_out(task, room, count)
    for t in range(width):
        for u in range(width):
            room.left[t, u] = task.correlations[own, origin + t, origin + u]
    for place in range(room.start[count]):
        for t in range(width):
            room.covariance[t, place] = task.correlations[own, origin + t, room.columns[place]]
        room.within[0, place] = 1.0
    if len(room.within) > 1:
        for slot in range(count):
            lead = room.start[slot]
            for place in range(lead, room.start[slot + 1]):
                for t in range(room.start[slot + 1] - lead):
                    room.within[t, place] = task.correlations[
                        own, room.columns[lead + t], room.columns[place]
                    ]
    room.begin[0] = 0
    limit, plain = np.int64(task.most), len(room.within) == 1
    if row >= 0:
        paths.length[row] = 0 if plain else -1
    for slot in range(count):
        if task.required[room.candidates[slot], child] and _varies(room, slot):
            _enter(task, room, child, count, slot, size)
            _keep_added(room, paths, row, size, room.candidates[slot])
            size += 1
    now = _log_left_now(room, width)
    limit += size
    if row >= 0:
        paths.first[row], paths.last[row] = size, size - 1
    while size < limit:
        best, least, lowest, price = np.int64(-1), 0.0, np.inf, np.inf
        for slot in range(count):
            begin = slot if plain else room.start[slot]
            if width == 1 and (plain or room.start[slot + 1] == begin + 1):
                variance, shared = room.within[0, begin], room.covariance[0, begin]
                if variance <= DEPENDENT:
                    continue
                left = max(room.left[0, 0] - shared * shared / variance, RESIDUAL_FLOOR)
            elif _varies(room, slot):
                left = _residual(room, slot, width)
            else:
                continue
            cost = task.growth * task.costs[child, room.candidates[slot]]
            # What explains less at no less cost is not better.
            if left < lowest or cost < price:
                log_left = np.log(left) if width == 1 else left
                change = 0.5 * task.rows[child] * (log_left - now) + cost
                if change < least - SCORE_TIE * task.rows[child]:
                    best, least, lowest, price = slot, change, left, cost
        if row >= 0 and paths.length[row] == size:
            paths.left[row, size], paths.last[row] = room.left[0, 0], size
            paths.least[row, size], paths.lowest[row, size] = least, lowest
            paths.price[row, size] = price
        if best < 0:
            break
        _enter(task, room, child, count, best, size)
        _keep_added(room, paths, row, size, room.candidates[best])
        now = _log_left_now(room, width)
        size += 1
    return size, now


@compiled_inside
def _log_left_now(room: OrderRoom, width: int) -> float:
    """Return the log determinant of the variable's covariance given the parents."""
    if width == 1:
        return np.log(max(room.left[0, 0], RESIDUAL_FLOOR))  # type: ignore[no-any-return]
    for t in range(width):
        for u in range(width):
            room.rest[t, u] = room.left[t, u]
    return _log_determinant(room.rest, width)


@inlined
def _decompose(task: SearchTask, room: OrderRoom, child: int, size: Integer) -> float:
    """Decompose the correlations of the parents anew; return the log determinant."""
    own, origin, row = task.own[child], task.first[child], 0
    width = task.first[child + 1] - origin
    for t in range(width):
        for u in range(width):
            room.left[t, u] = task.correlations[own, origin + t, origin + u]
    for parent in range(size):
        room.begin[parent] = row
        slot = room.parents[parent]
        for place in range(room.start[slot], room.start[slot + 1]):
            # The entries above of all columns that are still to come, and then this one's.
            variance = task.correlations[own, room.columns[place], room.columns[place]]
            for above in range(row):
                variance -= room.factor[above, place] * room.factor[above, place]
            if variance <= DEPENDENT:
                continue
            root = np.sqrt(variance)
            for later in range(parent, size):
                near = room.parents[later]
                for other in range(room.start[near], room.start[near + 1]):
                    value = task.correlations[own, room.columns[place], room.columns[other]]
                    for above in range(row):
                        value -= room.factor[above, place] * room.factor[above, other]
                    room.factor[row, other] = value / root
            for t in range(width):
                load = task.correlations[own, room.columns[place], origin + t]
                for above in range(row):
                    load -= room.factor[above, place] * room.loads[above, t]
                room.loads[row, t] = load / root
            for t in range(width):
                for u in range(width):
                    room.left[t, u] -= room.loads[row, t] * room.loads[row, u]
            room.entered[row] = place
            row += 1
    room.begin[size] = row
    return _log_left_now(room, width)


@inlined
def _superfluous(task: SearchTask, room: OrderRoom, child: int, size: Integer, now: float) -> int:
    """Return the number of the parent without which the score is best, -1 for none."""
    width = task.first[child + 1] - task.first[child]
    for row in range(room.begin[size]):
        place = room.entered[row]
        room.inverse[row, row] = 1.0 / room.factor[row, place]
        for column in range(row):
            value = 0.0
            for between in range(column, row):
                value += room.factor[between, place] * room.inverse[between, column]
            room.inverse[row, column] = -value * room.inverse[row, row]
    worst, least = -1, 0.0
    for parent in range(size):
        variable = room.candidates[room.parents[parent]]
        if task.required[variable, child]:
            continue
        begin = room.begin[parent]
        if width == 1 and room.begin[parent + 1] == begin + 1:
            weight, variance = 0.0, 0.0
            for row in range(begin, room.begin[size]):
                weight += room.inverse[row, begin] * room.loads[row, 0]
                variance += room.inverse[row, begin] * room.inverse[row, begin]
            without = np.log(max(room.left[0, 0] + weight * weight / variance, RESIDUAL_FLOOR))
        else:
            without = _log_without(room, parent, size, width)
        gain = 0.5 * task.rows[child] * (without - now)
        change = gain - task.costs[child, variable]
        if change < least - SCORE_TIE * task.rows[child]:
            worst, least = parent, change
    return worst


@compiled_inside
def _log_without(room: OrderRoom, parent: int, size: Integer, width: int) -> float:
    """Return the log determinant of the variable's covariance without one of the parents.

    Without columns B the covariance grows by ``b' V^-1 b``: b are their coefficients, and V is
    their block of the inverse of the parents' correlations.
    """
    begin, end, last = room.begin[parent], room.begin[parent + 1], room.begin[size]
    for t in range(width):
        for u in range(width):
            room.rest[t, u] = room.left[t, u]
    for c in range(begin, end):
        for t in range(width):
            room.shared[c - begin, t] = 0.0
        for e in range(begin, end):
            room.block[c - begin, e - begin] = 0.0
        for row in range(c, last):
            for t in range(width):
                room.shared[c - begin, t] += room.inverse[row, c] * room.loads[row, t]
            for e in range(begin, min(end, row + 1)):
                room.block[c - begin, e - begin] += room.inverse[row, c] * room.inverse[row, e]
    for c in range(end - begin):
        pivot = room.block[c, c]
        for e in range(c + 1, end - begin):
            share = room.block[e, c] / pivot
            for g in range(c + 1, end - begin):
                room.block[e, g] -= share * room.block[c, g]
            for t in range(width):
                room.shared[e, t] -= share * room.shared[c, t]
        for t in range(width):
            for u in range(width):
                room.rest[t, u] += room.shared[c, t] * room.shared[c, u] / pivot
    return _log_determinant(room.rest, width)


@compiled_inside
def _select(
    task: SearchTask,
    room: OrderRoom,
    paths: Paths,
    row: Integer,
    child: int,
    order: IntArray,
    limit: Integer,
    left_out: Integer,
    further: Integer,
) -> tuple[Integer, float, float]:
    """Choose the child's parents: grow, then shrink.

    The candidates are lags, the variables before position ``limit`` but ``left_out``, and
    ``further`` unless it is -1. How they were added is kept in a row of ``paths``, unless it is -1.

    Returns
    -------
    size, log_variance, cost
        Number of parents, log determinant of the residual covariance, cost of the edges.
    """
    count = 0
    for column in range(len(order), len(task.possible)):
        if task.possible[column, child]:
            room.candidates[count] = column
            count += 1
    for at in range(limit):
        if order[at] != left_out and task.possible[order[at], child]:
            room.candidates[count] = order[at]
            count += 1
    if further >= 0:
        room.candidates[count] = further
        count += 1
    size, left = _grow(task, room, child, count, paths, row)
    while size > 0:
        worst = _superfluous(task, room, child, size, left)
        if worst < 0:
            break
        size -= 1
        for parent in range(worst, size):
            room.parents[parent] = room.parents[parent + 1]
        left = _decompose(task, room, child, size)
    cost = 0.0
    for parent in range(size):
        variable = room.candidates[room.parents[parent]]
        if not task.required[variable, child]:
            cost += task.costs[child, variable]
    return size, task.log_variances[child] + left, cost


@compiled_inside
def _score_of(
    task: SearchTask, fit: float, first: float, second: float, cost: float, n: float
) -> float:
    """Return the score from sums over the variables, and the mean number of rows.

    The sums are of n/2 log v, log v, (log v)^2, and the costs of the edges.
    """
    score = fit + cost
    if task.with_spread:
        d = len(task.rows)
        spread = max(second / d - (first / d) * (first / d), 0.0)
        score += 0.5 * d * np.log(spread + 2.0 / n)
    return score


@compiled_inside
def _neighbours(
    task: SearchTask, room: OrderRoom, x: int, order: IntArray, place: IntArray
) -> tuple[int, int]:
    """List the neighbours of x in the order; return their number, and of those before x."""
    count, before = 0, 0
    for at in range(len(order)):
        y = order[at]
        if y != x and (task.possible[y, x] or task.possible[x, y]):
            room.near[count] = y
            count += 1
            if at < place[x]:
                before += 1
    return count, before


@compiled_inside
def _move(x: int, target: int, order: IntArray, place: IntArray) -> None:
    """Move x in the order to a position."""
    step = 1 if target > place[x] else -1
    at = place[x]
    while at != target:
        order[at] = order[at + step]
        place[order[at]] = at
        at += step
    order[target] = x
    place[x] = target


@inlined
def _best_place(
    task: SearchTask,
    room: OrderRoom,
    paths: Paths,
    x: int,
    near: int,
    here: int,
    order: IntArray,
    place: IntArray,
    fits: FloatArray,
    others: FloatArray,
) -> tuple[int, float, float]:
    """Find the best place of x: behind how many of its neighbours.

    Returns
    -------
    goal, log_variance, cost
        The place, -1 for the present one, and what x itself has there.
    """
    none, d, n, fit, first, second, cost = (
        np.int64(-1),
        np.int64(len(order)),
        0.0,
        0.0,
        0.0,
        0.0,
        0.0,
    )
    for j in range(d):
        n += task.rows[j] / d
        fit += 0.5 * task.rows[j] * fits[0, j]
        first += fits[0, j]
        second += fits[0, j] * fits[0, j]
        cost += fits[1, j]
    best, least = _score_of(task, fit, first, second, cost, n), SCORE_TIE * n
    goal, log_there, cost_there = -1, 0.0, 0.0
    for step in (-1, 1):
        # Sums over all variables but x.
        logs, squares = first - fits[0, x], second - fits[0, x] * fits[0, x]
        fitted = fit - 0.5 * task.rows[x] * fits[0, x]
        spent, slot = cost - fits[1, x], here
        log_own, own = fits[0, x], fits[1, x]
        _copy_path(paths, x, d)
        while (slot > 0) if step < 0 else (slot < near):
            k = slot - 1 if step < 0 else slot
            y = room.near[k]
            if task.required[y, x] if step < 0 else task.required[x, y]:
                break
            slot += step
            fitted += 0.5 * task.rows[y] * (others[0, k] - fits[0, y])
            logs += others[0, k] - fits[0, y]
            squares += others[0, k] * others[0, k] - fits[0, y] * fits[0, y]
            spent += others[1, k] - fits[1, y]
            if task.possible[y, x] and (
                _is_added(paths, d, y) if step < 0 else _would_be_added(task, paths, d, x, y)
            ):
                limit = place[room.near[slot]] if slot < near else d
                _, log_own, own = _select(task, room, paths, d, x, order, limit, x, none)
            score = _score_of(
                task,
                fitted + 0.5 * task.rows[x] * log_own,
                logs + log_own,
                squares + log_own * log_own,
                spent + own,
                n,
            )
            if score < best - least:
                best, goal, log_there, cost_there = score, slot, log_own, own
    return goal, log_there, cost_there


@compiled_in_place
def choose_and_move(
    task: SearchTask,
    room: OrderRoom,
    paths: Paths,
    children: IntArray,
    scan: IntArray,
    order: IntArray,
    place: IntArray,
    parents: BoolArray,
    fits: FloatArray,
    others: FloatArray,
) -> bool:
    """Choose parents of variables, then move variables to their best places in the order.

    A move of x changes the predecessors of those variables alone that x passes, and only by x: for
    each neighbour y of x one more choice of parents is enough, with x on its other side. One
    function does both, since either compiles the whole choice of parents.

    Parameters
    ----------
    task, room, paths
    children
        The variables whose parents are chosen: all, if any is moved.
    scan
        ``(d,)`` the variables, in the order in which they are moved; ``(0,)`` moves none.
    order, place
        ``(d,)`` the order, causes first, and before which position the parents of every variable
        are: its own, if any is moved. Moves change both in place.
    parents
        ``(m, d)``; the columns of the children are changed in place. ``(0, d)``: none is wanted.
    fits
        ``(2, d)`` room for the logarithms of the residual variances, and the costs of the edges, of
        the children.
    others
        ``(2, d)`` room for the same of each neighbour with x on its other side.

    Returns
    -------
    bool
        Whether any variable moved.
    """
    moved, none = False, np.int64(-1)
    for child in children:
        row = child if len(scan) > 0 else none
        size, fits[0, child], fits[1, child] = _select(
            task, room, paths, row, child, order, place[child], child, none
        )
        for variable in range(len(parents)):
            parents[variable, child] = False
        for k in range(size if len(parents) > 0 else 0):
            parents[room.candidates[room.parents[k]], child] = True
    for x in scan:
        near, here = _neighbours(task, room, x, order, place)
        for k in range(near):
            y = room.near[k]
            others[0, k], others[1, k] = fits[0, y], fits[1, y]
            if task.possible[x, y] and (
                _would_be_added(task, paths, y, y, x) if k < here else _is_added(paths, y, x)
            ):
                further = x if k < here else none
                _, others[0, k], others[1, k] = _select(
                    task, room, paths, none, y, order, place[y], x, further
                )
        goal, log_there, cost_there = _best_place(
            task, room, paths, x, near, here, order, place, fits, others
        )
        if goal < 0:
            continue
        moved = True
        for k in range(min(goal, here), max(goal, here)):
            fits[0, room.near[k]], fits[1, room.near[k]] = others[0, k], others[1, k]
        fits[0, x], fits[1, x] = log_there, cost_there
        # Directly before, or after, the last neighbour that x passes.
        _move(x, place[room.near[goal if goal < here else goal - 1]], order, place)
        # How the parents of x, and of those that it passes, are chosen at the new place.
        _select(task, room, paths, x, x, order, place[x], x, none)
        for k in range(min(goal, here), max(goal, here)):
            y = room.near[k]
            if task.possible[x, y] and (
                _is_added(paths, y, x) if goal > here else _would_be_added(task, paths, y, y, x)
            ):
                _select(task, room, paths, y, y, order, place[y], y, none)
    return moved

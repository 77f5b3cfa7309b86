"""Compiled parts of the search over orders: a variable's parents, and moves in the order.

The functions create no arrays: those of :class:`OrderRoom` hold intermediate results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.compiled import compiled_in_place, compiled_inside
from flwr_causal.core.linear.regression import RESIDUAL_FLOOR
from flwr_causal.core.ties import SCORE_TIE

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# A candidate whose variance given the parents is below this share is a combination of them.
DEPENDENT = 1e-9


class SearchTask(NamedTuple):
    """The arguments of a search that stay the same.

    Attributes
    ----------
    correlations
        ``(k, m, m)``; of pairs that cannot be adjacent or share a neighbour, entries may be NaN.
    own, rows
        ``(d,)`` for each variable which of the correlations inform about its causes, and their
        number of rows.
    log_variances
        ``(d,)`` logarithms of the variables' variances.
    possible, required
        ``(m, d)`` edges that may, and that must be in the graph.
    costs
        ``(m,)`` cost of an edge from each column.
    most
        Parents of a variable at most, besides the required ones.
    with_spread
        Whether the score has the term of the noise variances' spread.
    """

    correlations: FloatArray
    own: IntArray
    rows: FloatArray
    log_variances: FloatArray
    possible: BoolArray
    required: BoolArray
    costs: FloatArray
    most: int
    with_spread: bool


class OrderRoom(NamedTuple):
    """Arrays for intermediate results of one choice of parents.

    Attributes
    ----------
    candidates
        ``(m,)`` columns among which parents are chosen.
    parents
        ``(m,)`` positions of the chosen ones among the candidates.
    covariance, variance
        ``(m,)`` covariances of the candidates with the variable, and their variances, given the
        parents; the variance is -1 for the parents.
    factor
        ``(parents, m)`` triangular factor of the candidates' correlations, one row for each parent.
    loads
        ``(m,)`` the factor's entries of the variable.
    inverse
        ``(parents, parents)`` inverse of the factor among the parents.
    near
        ``(m,)`` neighbours of a variable that is moved, in the order.
    """

    candidates: IntArray
    parents: IntArray
    covariance: FloatArray
    variance: FloatArray
    factor: FloatArray
    loads: FloatArray
    inverse: FloatArray
    near: IntArray


@compiled_inside
def _enter(
    task: SearchTask, room: OrderRoom, child: int, count: int, slot: int, size: int
) -> float:
    """Make the candidate at ``slot`` parent number ``size``; return the variance it explains."""
    own = task.own[child]
    root = np.sqrt(room.variance[slot])
    for other in range(count):
        value = task.correlations[own, room.candidates[slot], room.candidates[other]]
        for row in range(size):
            value -= room.factor[row, slot] * room.factor[row, other]
        room.factor[size, other] = value / root
    load = room.covariance[slot] / root
    for other in range(count):
        room.covariance[other] -= room.factor[size, other] * load
        room.variance[other] -= room.factor[size, other] * room.factor[size, other]
    room.parents[size] = slot
    room.variance[slot] = -1.0
    room.loads[size] = load
    return load * load  # type: ignore[no-any-return]


@compiled_inside
def _grow(task: SearchTask, room: OrderRoom, child: int, count: int) -> tuple[int, float]:
    """Add parents while the score improves; return their number and the residual variance."""
    own, size, residual = task.own[child], 0, 1.0
    for slot in range(count):
        room.covariance[slot] = task.correlations[own, room.candidates[slot], child]
        room.variance[slot] = 1.0
    for slot in range(count):
        if task.required[room.candidates[slot], child] and room.variance[slot] > DEPENDENT:
            residual -= _enter(task, room, child, count, slot, size)
            size += 1
    limit = size + task.most
    while size < limit:
        best, least, share, price = -1, 0.0, 0.0, np.inf
        for slot in range(count):
            if room.variance[slot] > DEPENDENT:
                explained = room.covariance[slot] * room.covariance[slot] / room.variance[slot]
                cost = task.costs[room.candidates[slot]]
                # What explains less at no less cost is not better.
                if explained > share or cost < price:
                    left = max(residual - explained, RESIDUAL_FLOOR) / residual
                    change = 0.5 * task.rows[child] * np.log(left) + cost
                    if change < least - SCORE_TIE:
                        best, least, share, price = slot, change, explained, cost
        if best < 0:
            break
        residual = max(residual - _enter(task, room, child, count, best, size), RESIDUAL_FLOOR)
        size += 1
    return size, max(residual, RESIDUAL_FLOOR)


@compiled_inside
def _decompose(task: SearchTask, room: OrderRoom, child: int, size: int) -> float:
    """Decompose the correlations of the parents anew; return the residual variance."""
    own, residual = task.own[child], 1.0
    for row in range(size):
        slot = room.parents[row]
        for column in range(row, size):
            other = room.parents[column]
            value = task.correlations[own, room.candidates[slot], room.candidates[other]]
            for above in range(row):
                value -= room.factor[above, slot] * room.factor[above, other]
            if column == row:
                room.factor[row, slot] = np.sqrt(max(value, DEPENDENT))
            else:
                room.factor[row, other] = value / room.factor[row, slot]
        load = task.correlations[own, room.candidates[slot], child]
        for above in range(row):
            load -= room.factor[above, slot] * room.loads[above]
        room.loads[row] = load / room.factor[row, slot]
        residual -= room.loads[row] * room.loads[row]
    return max(residual, RESIDUAL_FLOOR)


@compiled_inside
def _superfluous(task: SearchTask, room: OrderRoom, child: int, size: int, residual: float) -> int:
    """Return the number of the parent without which the score is best, -1 for none."""
    for row in range(size):
        slot = room.parents[row]
        room.inverse[row, row] = 1.0 / room.factor[row, slot]
        for column in range(row):
            value = 0.0
            for between in range(column, row):
                value += room.factor[between, slot] * room.inverse[between, column]
            room.inverse[row, column] = -value * room.inverse[row, row]
    worst, least = -1, 0.0
    for column in range(size):
        parent = room.candidates[room.parents[column]]
        if not task.required[parent, child]:
            weight, variance = 0.0, 0.0
            for row in range(column, size):
                weight += room.inverse[row, column] * room.loads[row]
                variance += room.inverse[row, column] * room.inverse[row, column]
            explained = weight * weight / variance
            gain = 0.5 * task.rows[child] * np.log1p(explained / residual)
            change = gain - task.costs[parent]
            if change < least - SCORE_TIE:
                worst, least = column, change
    return worst


@compiled_inside
def _select(task: SearchTask, room: OrderRoom, child: int, count: int) -> tuple[int, float, float]:
    """Choose the child's parents among the first ``count`` candidates: grow, then shrink.

    Returns
    -------
    size, log_variance, cost
        Number of parents, logarithm of the residual variance, cost of the edges.
    """
    size, residual = _grow(task, room, child, count)
    while size > 0:
        worst = _superfluous(task, room, child, size, residual)
        if worst < 0:
            break
        size -= 1
        for row in range(worst, size):
            room.parents[row] = room.parents[row + 1]
        residual = _decompose(task, room, child, size)
    cost = 0.0
    for row in range(size):
        parent = room.candidates[room.parents[row]]
        if not task.required[parent, child]:
            cost += task.costs[parent]
    return size, task.log_variances[child] + np.log(residual), cost


@compiled_inside
def _list_candidates(
    task: SearchTask, room: OrderRoom, child: int, order: IntArray, limit: int, skip: int
) -> int:
    """List the child's candidates: lags, and variables before position ``limit`` but ``skip``."""
    count = 0
    for column in range(len(order), len(task.possible)):
        if task.possible[column, child]:
            room.candidates[count] = column
            count += 1
    for at in range(limit):
        if order[at] != skip and task.possible[order[at], child]:
            room.candidates[count] = order[at]
            count += 1
    return count


@compiled_in_place
def select_all(
    task: SearchTask, room: OrderRoom, order: IntArray, limits: IntArray, parents: BoolArray
) -> None:
    """Mark the parents of every variable among those before its position of ``limits``."""
    for child in range(len(order)):
        count = _list_candidates(task, room, child, order, limits[child], child)
        size, _, _ = _select(task, room, child, count)
        for row in range(size):
            parents[room.candidates[room.parents[row]], child] = True


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


@compiled_inside
def _best_place(
    task: SearchTask,
    room: OrderRoom,
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
    d, n, fit, first, second, cost = len(order), 0.0, 0.0, 0.0, 0.0, 0.0
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
            limit = place[room.near[slot]] if slot < near else d
            count = _list_candidates(task, room, x, order, limit, x)
            _, log_own, own = _select(task, room, x, count)
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
def sweep(
    task: SearchTask,
    room: OrderRoom,
    scan: IntArray,
    order: IntArray,
    place: IntArray,
    fits: FloatArray,
    others: FloatArray,
) -> bool:
    """Move every variable, in the order of ``scan``, to its best place; return whether any moved.

    A move of x changes the predecessors of those variables alone that x passes, and only by x: for
    each neighbour y of x one more choice of parents is enough, with x on its other side.

    Parameters
    ----------
    task, room
    scan
        ``(d,)`` the variables, in the order in which they are moved.
    order, place
        ``(d,)`` the order, causes first, and the position of every variable; changed in place.
    fits
        ``(2, d)`` room for the logarithms of the residual variances, and the costs of the edges.
    others
        ``(2, d)`` room for the same of each neighbour with x on its other side.
    """
    d, moved = len(order), False
    for at in range(d):
        place[order[at]] = at
    for child in range(d):
        count = _list_candidates(task, room, child, order, place[child], -1)
        _, fits[0, child], fits[1, child] = _select(task, room, child, count)
    for x in scan:
        near, here = _neighbours(task, room, x, order, place)
        for k in range(near):
            y = room.near[k]
            others[0, k], others[1, k] = fits[0, y], fits[1, y]
            if task.possible[x, y]:
                count = _list_candidates(task, room, y, order, place[y], x)
                if k < here:
                    room.candidates[count] = x
                    count += 1
                _, others[0, k], others[1, k] = _select(task, room, y, count)
        goal, log_there, cost_there = _best_place(
            task, room, x, near, here, order, place, fits, others
        )
        if goal < 0:
            continue
        moved = True
        for k in range(min(goal, here), max(goal, here)):
            fits[0, room.near[k]], fits[1, room.near[k]] = others[0, k], others[1, k]
        fits[0, x], fits[1, x] = log_there, cost_there
        # Directly before, or after, the last neighbour that x passes.
        _move(x, place[room.near[goal if goal < here else goal - 1]], order, place)
    return moved

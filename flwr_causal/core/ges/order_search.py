"""Search for the causal order with the best score (Andrews et al. 2023).

Given an order, the parents of each variable are found among the variables before it: they are added
one by one while that improves the score, and then removed while that does. The search moves one
variable after the other to its best place, until no move improves the score. It leaves local
optima of the search among equivalence classes, above all those of dense graphs. As there, the gains
of families are kept in a table, so that each is computed once.

References
----------
Andrews, B., Ramsey, J., Sanchez-Romero, R., Camchong, J. & Kummerfeld, E. (2023). Fast scalable and
accurate discovery of DAGs using the best order score search and grow-shrink trees. NeurIPS.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.compiled import compiled_in_place, compiled_inside
from flwr_causal.core.discrete.families import FULL, Families, enlarged, enter
from flwr_causal.core.ges.operators import TOLERANCE
from flwr_causal.core.limits import check_deadline

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray, Integer
    from flwr_causal.core.ges.greedy_search import GainSource

#: Gains that are not known yet.
MISSING = -1
# So many families are asked for at a time.
ROOM = 4096


def best_order(
    source: GainSource,
    families: Families,
    order: IntArray,
    allowed: BoolArray,
    max_parents: int | None = None,
) -> tuple[BoolArray, float, Families]:
    """Improve a causal order until moving a single variable does not improve the score.

    Parameters
    ----------
    source : GainSource
        One that knows all gains.
    families : Families
        The gains that are known.
    order : ndarray of int64, shape (k,)
        The variables whose order is searched, causes first. All other variables precede them, and
        have no parents.
    allowed : ndarray of bool, shape (d, d)
        Edges that the graph may have.
    max_parents : int, optional
        Largest number of parents of a variable.

    Returns
    -------
    dag : ndarray of bool, shape (d, d)
    gain : float
        Its score, minus that of the graph without edges.
    families : Families
        With the gains that were computed.
    """
    d = len(allowed)
    limit = d if max_parents is None else max_parents
    order = np.array(order, dtype=np.int64)
    fixed = np.ones(d, dtype=np.bool_)
    fixed[order] = False
    scores, parents = np.zeros((3, len(order))), np.zeros((d, d), dtype=np.bool_)
    wanted, work = np.zeros(ROOM, dtype=np.int64), np.zeros((2, d), dtype=np.int64)
    moved = True
    while moved:
        moved = False
        for variable in np.sort(order):
            check_deadline()
            place = int(np.flatnonzero(order == variable)[0])
            others = np.delete(order, place)
            while True:
                number = _try_places(
                    families, others, variable, fixed, allowed, limit, scores, wanted, work
                )
                if number == 0:
                    break
                families = _known(source, families, number, wanted)
            own, without, with_it = scores[0], scores[1, :-1], scores[2, :-1]
            before = np.concatenate([[0.0], np.cumsum(without)])
            after = np.concatenate([np.cumsum(with_it[::-1])[::-1], [0.0]])
            totals = own + before + after
            best = int(np.argmax(totals))
            if totals[best] > totals[place] + TOLERANCE:
                order = np.insert(others, best, variable)
                moved = True
    while True:
        number, gain = _parents_along(families, order, fixed, allowed, limit, parents, wanted, work)
        if number == 0:
            return parents, float(gain), families
        families = _known(source, families, number, wanted)


def _known(source: GainSource, families: Families, number: Integer, wanted: IntArray) -> Families:
    """Compute the gains of the families that are wanted, or make room for more families."""
    if number == FULL:
        full = families.used[0] == len(families.owners)
        return enlarged(families, 0 if full else 2 * families.members.shape[1])
    rows = np.unique(wanted[:number])
    source.fill(families, rows, np.ones((len(rows), families.gains.shape[1]), dtype=np.bool_))
    return families


@compiled_in_place
def _try_places(
    families: Families,
    others: IntArray,
    variable: Integer,
    fixed: BoolArray,
    allowed: BoolArray,
    limit: Integer,
    scores: FloatArray,
    wanted: IntArray,
    work: IntArray,
) -> Integer:
    """Score all places of a variable among the others.

    Parameters
    ----------
    scores : ndarray of shape (3, k)
        Filled: the variable's own score at each of k places; the scores of the k - 1 others if it
        comes after them, and if it comes before them.
    wanted : ndarray of int64
        Filled: families whose gains are missing.
    work : ndarray of int64, shape (2, d)
        Scratch space.

    Returns
    -------
    int
        0; or the number of families in ``wanted``; or FULL, if the table has no room.
    """
    members, inside = work[0], work[1]
    for x in range(len(fixed)):
        inside[x] = fixed[x]
    count = np.int64(0)
    for place in range(len(others) + 1):
        for kind in range(3):
            if kind > 0 and place == len(others):
                break
            y = variable if kind == 0 else others[place]
            if kind == 2:
                inside[variable] = 1
            row, score, _ = _grow_and_shrink(families, y, inside, allowed, limit, members)
            inside[variable] = 0
            if row == FULL:
                return np.int64(FULL)
            if row >= 0:
                if count == len(wanted):
                    return count
                wanted[count] = row
                count += 1
            scores[kind, place] = score
        if place < len(others):
            inside[others[place]] = 1
    return count


@compiled_in_place
def _parents_along(
    families: Families,
    order: IntArray,
    fixed: BoolArray,
    allowed: BoolArray,
    limit: Integer,
    parents: BoolArray,
    wanted: IntArray,
    work: IntArray,
) -> tuple[Integer, float]:
    """Write the parents of all variables along an order; return as `_try_places`, and the score."""
    members, inside = work[0], work[1]
    for x in range(len(fixed)):
        inside[x] = fixed[x]
    count, total = np.int64(0), 0.0
    for y in order:
        row, score, size = _grow_and_shrink(families, y, inside, allowed, limit, members)
        if row == FULL:
            return np.int64(FULL), 0.0
        if row >= 0:
            if count == len(wanted):
                return count, 0.0
            wanted[count] = row
            count += 1
        parents[:, y] = False
        for k in range(size):
            parents[members[k], y] = True
        total += score
        inside[y] = 1
    return count, total


@compiled_inside
def _grow_and_shrink(
    families: Families,
    y: Integer,
    inside: IntArray,
    allowed: BoolArray,
    limit: Integer,
    members: IntArray,
) -> tuple[Integer, float, Integer]:
    """Find the parents of y among the variables ``inside``.

    Returns
    -------
    row : int
        MISSING if nothing is missing; else the family whose gains are missing, or FULL.
    score : float
        Score of y with these parents, minus that without parents.
    size : int
        Number of parents, which are in ``members``, ascending.
    """
    size, score = np.int64(0), 0.0
    while size < limit:
        row, best, gain = _best_addition(families, y, inside, allowed, members, size)
        if row != MISSING:
            return row, 0.0, size
        if best < 0:
            break
        place = size
        while place > 0 and members[place - 1] > best:
            members[place] = members[place - 1]
            place -= 1
        members[place] = best
        size += 1
        score += gain
    while size > 0:
        row, worst, gain = _best_removal(families, y, members, size)
        if row != MISSING:
            return row, 0.0, size
        if worst < 0:
            break
        for m in range(worst, size - 1):
            members[m] = members[m + 1]
        size -= 1
        score -= gain
    return np.int64(MISSING), score, size


@compiled_inside
def _best_addition(
    families: Families,
    y: Integer,
    inside: IntArray,
    allowed: BoolArray,
    members: IntArray,
    size: Integer,
) -> tuple[Integer, Integer, float]:
    """Return a missing family or MISSING, the best further parent (-1: none), and its gain."""
    best, highest, k = np.int64(-1), TOLERANCE, 0
    row = enter(families, y, members, size)
    if row == FULL:
        return np.int64(FULL), best, 0.0
    for x in range(len(inside)):
        if k < size and members[k] == x:
            k += 1
        elif x != y and inside[x] and allowed[x, y]:
            gain = families.gains[row, x]
            if math.isnan(gain):
                return row, best, 0.0
            if gain > highest:
                best, highest = np.int64(x), gain
    return np.int64(MISSING), best, highest


@compiled_inside
def _best_removal(
    families: Families, y: Integer, members: IntArray, size: Integer
) -> tuple[Integer, Integer, float]:
    """Return a missing family or MISSING, the position of the worst parent (-1), and its gain."""
    worst, lowest = np.int64(-1), -TOLERANCE
    for k in range(size):
        # The family without its k-th member.
        x = members[k]
        for m in range(k, size - 1):
            members[m] = members[m + 1]
        row = enter(families, y, members, size - 1)
        for m in range(size - 1, k, -1):
            members[m] = members[m - 1]
        members[k] = x
        if row == FULL:
            return np.int64(FULL), worst, 0.0
        gain = families.gains[row, x]
        if math.isnan(gain):
            return row, worst, 0.0
        if gain < lowest:
            worst, lowest = np.int64(k), gain
    return np.int64(MISSING), worst, lowest

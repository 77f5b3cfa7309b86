"""Compiled parts of the search for ancestral graphs: the likelihood, and changes of edges.

The likelihood is that of :class:`~flwr_causal.core.ges.ancestral_search.AncestralScore`. Marks are
those of :mod:`~flwr_causal.core.graphs.pag.marks`, without circles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.compiled import compiled_in_place, compiled_inside
from flwr_causal.core.graphs.pag.marks import ARROW, NONE, TAIL
from flwr_causal.core.graphs.pag.rule_kernels import fits
from flwr_causal.core.ties import LEAST_SHARE

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray, Integer

# The fit of a district ends when its log likelihood for one row changes by less, or after so many
# sweeps.
TOLERANCE = 5e-7
MOST_SWEEPS = 200
# Scores of graphs are equal if they differ by less, for each row: fits that end so are no more
# exact.
FIT_TIE = TOLERANCE / 2
# A pivot below this share of its diagonal element is 0: the columns are collinear.
LEAST_PIVOT = 1e-13
# A fit ends where the deviance is so many times its last change away from what is worth something.
HOPELESS = 50.0


class FitRoom(NamedTuple):
    """Arrays for intermediate results, of d variables with m columns.

    The q columns of a district are numbered from 0 on. The noise of a column is what its causes
    leave of it.

    Attributes
    ----------
    columns
        ``(m,)`` those of the district.
    causes, num_causes
        ``(m, m)`` and ``(m,)``: of each of them its causes among all columns.
    partners, num_partners
        ``(m, m)`` and ``(m,)``: of each of them those whose noise its own has a covariance with.
    effects
        ``(m, m)`` effects of the causes, one column of the district a row.
    reached
        ``(m, m)`` covariances of all columns with the noise of the district's.
    product, covariance
        ``(m, m)`` covariances of the noise, in the rows and in the model.
    factor, shared, far, near, inner, right
        ``(m, m)`` for a regression on causes and on others' noise; of the last ``(2 m, 2 m)`` and
        ``(2 m, 2)``.
    district, least, other, waiting, touched
        ``(d,)`` the variables of a district, the least one of the district of each variable in two
        graphs, and room to find them.
    above
        ``(d, d)`` ancestors.
    """

    columns: IntArray
    causes: IntArray
    num_causes: IntArray
    partners: IntArray
    num_partners: IntArray
    effects: FloatArray
    reached: FloatArray
    product: FloatArray
    covariance: FloatArray
    factor: FloatArray
    shared: FloatArray
    far: FloatArray
    near: FloatArray
    inner: FloatArray
    right: FloatArray
    district: BoolArray
    least: IntArray
    other: IntArray
    waiting: IntArray
    touched: BoolArray
    above: BoolArray

    @classmethod
    def of(cls, variables: int, columns: int) -> FitRoom:
        """Return room for so many variables and columns."""
        d, square = variables, (columns, columns)
        return cls(
            columns=np.empty(columns, dtype=np.int64),
            causes=np.empty(square, dtype=np.int64),
            num_causes=np.empty(columns, dtype=np.int64),
            partners=np.empty(square, dtype=np.int64),
            num_partners=np.empty(columns, dtype=np.int64),
            effects=np.empty(square),
            reached=np.empty(square),
            product=np.empty(square),
            covariance=np.empty(square),
            factor=np.empty(square),
            shared=np.empty(square),
            far=np.empty(square),
            near=np.empty(square),
            inner=np.empty((2 * columns, 2 * columns)),
            right=np.empty((2 * columns, 2)),
            district=np.empty(d, dtype=np.bool_),
            least=np.empty(d, dtype=np.int64),
            other=np.empty(d, dtype=np.int64),
            waiting=np.empty(d, dtype=np.int64),
            touched=np.empty(d, dtype=np.bool_),
            above=np.empty((d, d), dtype=np.bool_),
        )


class Scored(NamedTuple):
    """What the score of a graph of d variables depends on.

    Attributes
    ----------
    correlations
        ``(m, m)`` of all columns.
    owner
        ``(m,)`` the variable of each column.
    rows
        Number of rows.
    costs
        ``(d, d)`` cost of each edge, symmetric.
    room
        For intermediate results.
    """

    correlations: FloatArray
    owner: IntArray
    rows: float
    costs: FloatArray
    room: FitRoom

    @classmethod
    def of(
        cls, correlations: FloatArray, owner: IntArray, rows: float, costs: FloatArray
    ) -> Scored:
        """Return the arrays in the memory layout that the functions are compiled for."""
        return cls(
            np.array(correlations, dtype=np.float64, order="C"),
            np.array(owner, dtype=np.int64),
            float(rows),
            np.array(costs, dtype=np.float64, order="C"),
            FitRoom.of(len(costs), len(owner)),
        )


class AncestralBounds(NamedTuple):
    """Which graphs are possible; ``(d, d)`` each.

    Attributes
    ----------
    no_causes
        ``[i, j]``: i is no ancestor of j.
    required
        ``[i, j]``: i -> j is an edge.
    apart
        Pairs that may be joined by an edge where there is none.
    """

    no_causes: BoolArray
    required: BoolArray
    apart: BoolArray


@compiled_inside
def _factorise(matrix: FloatArray, size: Integer) -> bool:
    """Overwrite a symmetric matrix by its Cholesky factor; False if it is singular."""
    for j in range(size):
        pivot = matrix[j, j]
        for k in range(j):
            pivot -= matrix[j, k] * matrix[j, k]
        if not pivot > LEAST_PIVOT * matrix[j, j]:
            return False
        pivot = np.sqrt(pivot)
        matrix[j, j] = pivot
        for i in range(j + 1, size):
            left = matrix[i, j]
            for k in range(j):
                left -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = left / pivot
    return True


@compiled_inside
def _substitute(factor: FloatArray, size: Integer, right: FloatArray, column: Integer) -> None:
    """Overwrite a column by the solution of the equations whose matrix has the Cholesky factor."""
    for i in range(size):
        left = right[i, column]
        for k in range(i):
            left -= factor[i, k] * right[k, column]
        right[i, column] = left / factor[i, i]
    for i in range(size - 1, -1, -1):
        left = right[i, column]
        for k in range(i + 1, size):
            left -= factor[k, i] * right[k, column]
        right[i, column] = left / factor[i, i]


@compiled_in_place
def pair_correlations(
    correlations: FloatArray,
    i: Integer,
    j: Integer,
    sets: IntArray,
    factor: FloatArray,
    found: FloatArray,
) -> None:
    """Compute the partial correlation of two variables given each of some sets of one size.

    It is infinite where a set determines one of the two, or one of its own variables.

    Parameters
    ----------
    correlations
        ``(d, d)``.
    i, j
        The two variables.
    sets
        ``(sets, size)``.
    factor
        ``(size + 2, size + 2)`` room for Cholesky factors.
    found
        ``(sets,)``; overwritten.
    """
    size = sets.shape[1]
    for k in range(len(sets)):
        regular = True
        for a in range(size + 2):
            u = sets[k, a] if a < size else i if a == size else j
            for b in range(a + 1):
                v = sets[k, b] if b < size else i if b == size else j
                left = correlations[u, v]
                for c in range(min(b, size)):
                    left -= factor[a, c] * factor[b, c]
                if a == b:
                    regular &= left > LEAST_SHARE
                    left = np.sqrt(left) if a < size else left
                elif b < size:
                    left /= factor[b, b]
                factor[a, b] = left
        squares = factor[size, size] * factor[size + 1, size + 1]
        found[k] = factor[size + 1, size] / np.sqrt(squares) if regular else np.inf


@compiled_inside
def _lay_out(scored: Scored, marks: IntArray, district: BoolArray) -> int:
    """List the columns of a district, their causes and partners; return how many there are."""
    room, owner = scored.room, scored.owner
    q = 0
    for column in range(len(owner)):
        if district[owner[column]]:
            room.columns[q] = column
            q += 1
    for k in range(q):
        child, causes, partners = owner[room.columns[k]], 0, 0
        for column in range(len(owner)):
            v = owner[column]
            if marks[v, child] == ARROW and marks[child, v] == TAIL:
                room.causes[k, causes] = column
                causes += 1
        for b in range(q):
            v = owner[room.columns[b]]
            both = marks[v, child] == ARROW and marks[child, v] == ARROW
            if b != k and (v == child or both):
                room.partners[k, partners] = b
                partners += 1
        room.num_causes[k], room.num_partners[k] = causes, partners
    return q


@compiled_inside
def _regress(scored: Scored, k: Integer) -> bool:
    """Regress a column on its causes; False if that has no one solution."""
    room, second, p = scored.room, scored.correlations, scored.room.num_causes[k]
    for a in range(p):
        room.right[a, 0] = second[room.causes[k, a], room.columns[k]]
        for b in range(p):
            room.inner[a, b] = second[room.causes[k, a], room.causes[k, b]]
    if not _factorise(room.inner, p):
        return False
    _substitute(room.inner, p, room.right, np.int64(0))
    for a in range(p):
        room.effects[k, a] = room.right[a, 0]
    return True


@compiled_inside
def _reach(scored: Scored, k: Integer) -> None:
    """Compute the covariances of all columns with a column's noise."""
    room, second = scored.room, scored.correlations
    for column in range(len(second)):
        value = second[column, room.columns[k]]
        for a in range(room.num_causes[k]):
            value -= second[column, room.causes[k, a]] * room.effects[k, a]
        room.reached[column, k] = value


@compiled_inside
def _multiply(scored: Scored, k: Integer, q: Integer) -> None:
    """Compute the covariances of a column's noise with that of the first q of the district."""
    room = scored.room
    for b in range(q):
        value = room.reached[room.columns[k], b]
        for a in range(room.num_causes[k]):
            value -= room.effects[k, a] * room.reached[room.causes[k, a], b]
        room.product[k, b] = room.product[b, k] = value


@compiled_inside
def _value(room: FitRoom, q: Integer, covariance: FloatArray) -> float:
    """Return the deviance of noise terms for a covariance, inf if it is singular."""
    for a in range(q):
        for b in range(q):
            room.factor[a, b] = covariance[a, b]
    if not _factorise(room.factor, q):
        return np.inf
    total = 0.0
    for k in range(q):
        for a in range(q):
            room.right[a, 0] = room.product[a, k]
        _substitute(room.factor, q, room.right, np.int64(0))
        total += 2 * np.log(room.factor[k, k]) + room.right[k, 0]
    return total


@compiled_inside
def _predict(scored: Scored, k: Integer, q: Integer) -> bool:
    """Compute what the others' noise predicts of a column's; False if their covariance is singular.

    ``shared`` are the combinations of their noise, one for each partner, ``near`` their covariances
    with the noise of the others, and ``far`` those with the causes and, last, with the column.
    """
    room, p, rest = scored.room, scored.room.num_causes[k], q - 1
    for a in range(rest):
        for b in range(rest):
            room.factor[a, b] = room.covariance[a + (a >= k), b + (b >= k)]
    if not _factorise(room.factor, rest):
        return False
    for t in range(room.num_partners[k]):
        for a in range(rest):
            room.shared[a, t] = 1.0 if a + (a >= k) == room.partners[k, t] else 0.0
        _substitute(room.factor, rest, room.shared, t)
        for a in range(rest):
            value = 0.0
            for b in range(rest):
                value += room.product[a + (a >= k), b + (b >= k)] * room.shared[b, t]
            room.near[a, t] = value
        for a in range(p + 1):
            column, value = room.causes[k, a] if a < p else room.columns[k], 0.0
            for b in range(rest):
                value += room.reached[column, b + (b >= k)] * room.shared[b, t]
            room.far[a, t] = value
    return True


@compiled_inside
def _set_equations(scored: Scored, k: Integer, q: Integer) -> None:
    """Write the normal equations of a column, given its causes and the partners' noise."""
    room, second, child = scored.room, scored.correlations, scored.room.columns[k]
    p, s = room.num_causes[k], room.num_partners[k]
    for a in range(p):
        room.right[a, 0] = second[room.causes[k, a], child]
        for b in range(p):
            room.inner[a, b] = second[room.causes[k, a], room.causes[k, b]]
        for t in range(s):
            room.inner[a, p + t] = room.inner[p + t, a] = room.far[a, t]
    for t in range(s):
        room.right[p + t, 0] = room.far[p, t]
        for u in range(s):
            value = 0.0
            for a in range(q - 1):
                value += room.shared[a, t] * room.near[a, u]
            room.inner[p + t, p + u] = value
    for a in range(p + s):
        room.right[a, 1] = room.right[a, 0]


@compiled_inside
def _refit(scored: Scored, k: Integer, q: Integer) -> bool:
    """Fit one column's effects and covariances of noise, the others fixed, in place.

    The column is regressed on its causes and on what the others' noise predicts of its own. False
    if that has no one solution.
    """
    room, child = scored.room, scored.room.columns[k]
    p, s = room.num_causes[k], room.num_partners[k]
    if not _predict(scored, k, q):
        return False
    _set_equations(scored, k, q)
    if not _factorise(room.inner, p + s):
        return False
    _substitute(room.inner, p + s, room.right, np.int64(0))
    left = scored.correlations[child, child]
    for a in range(p + s):
        left -= room.right[a, 0] * room.right[a, 1]
    for a in range(p):
        room.effects[k, a] = room.right[a, 0]
    for b in range(q):
        room.covariance[k, b] = room.covariance[b, k] = 0.0
    for t in range(s):
        partner = room.partners[k, t]
        room.covariance[k, partner] = room.covariance[partner, k] = room.right[p + t, 0]
        for u in range(s):
            place = partner - (partner > k)
            left += room.right[p + t, 0] * room.shared[place, u] * room.right[p + u, 0]
    room.covariance[k, k] = left
    _reach(scored, k)
    _multiply(scored, k, q)
    return True


@compiled_inside
def _begin(scored: Scored, q: Integer) -> bool:
    """Fit a district without covariances of noise; False if a regression has no one solution."""
    for k in range(q):
        if not _regress(scored, k):
            return False
        _reach(scored, k)
    for k in range(q):
        _multiply(scored, k, q)
    room = scored.room
    for k in range(q):
        for b in range(q):
            room.covariance[k, b] = room.product[k, k] if k == b else 0.0
    return True


@compiled_inside
def _is_saturated(room: FitRoom, q: Integer) -> bool:
    """Whether all columns of a district have the same causes, and all pairs a covariance."""
    for k in range(q):
        if room.num_partners[k] != q - 1 or room.num_causes[k] != room.num_causes[0]:
            return False
        for a in range(room.num_causes[k]):
            if room.causes[k, a] != room.causes[0, a]:
                return False
    return True


@compiled_inside
def _deviance(scored: Scored, marks: IntArray, district: BoolArray, worth: float) -> float:
    """Return -2 log likelihood of a district for one row, up to a constant; inf if it has none.

    Iterative conditional fitting: each column is regressed on its causes and on what the noise
    terms of the other columns of its district predict of its own.

    Parameters
    ----------
    scored, marks
    district
        ``(d,)`` its variables.
    worth
        A fit that is far above this value is not continued.
    """
    room, q = scored.room, _lay_out(scored, marks, district)
    if not _begin(scored, q):
        return np.inf
    # Where all have the same causes and no covariance is 0, regression is the maximum.
    if _is_saturated(room, q):
        return _value(room, q, room.product)
    before = np.inf
    for _ in range(MOST_SWEEPS):
        for k in range(q):
            if not _refit(scored, k, q):
                return np.inf
        now = _value(room, q, room.covariance)
        if before - now < TOLERANCE or now - worth > HOPELESS * (before - now):
            return now
        before = now
    return before


@compiled_inside
def _find_districts(marks: IntArray, least: IntArray, waiting: IntArray) -> None:
    """Write for each variable the least one of its district, which edges i <-> j connect."""
    d = len(marks)
    least[:] = -1
    for start in range(d):
        if least[start] >= 0:
            continue
        least[start], waiting[0], left = start, start, 1
        while left:
            left -= 1
            v = waiting[left]
            for w in range(d):
                if least[w] < 0 and marks[v, w] == ARROW and marks[w, v] == ARROW:
                    least[w], waiting[left] = start, w
                    left += 1


@compiled_inside
def _deviance_of(
    scored: Scored, marks: IntArray, least: IntArray, first: Integer, worth: float
) -> float:
    """Return the deviance of the district whose least variable is ``first``."""
    for v in range(len(marks)):
        scored.room.district[v] = least[v] == first
    return _deviance(scored, marks, scored.room.district, worth)


@compiled_in_place
def total(scored: Scored, marks: IntArray, parts: FloatArray) -> float:
    """Return the score of a graph, and write each district's deviance to its least variable.

    Parameters
    ----------
    scored
    marks
        ``(d, d)``.
    parts
        ``(d,)``; changed in place.
    """
    least = scored.room.other
    _find_districts(marks, least, scored.room.waiting)
    found = 0.0
    for v in range(len(marks)):
        parts[v] = _deviance_of(scored, marks, least, v, np.inf) if least[v] == v else 0.0
        found += 0.5 * scored.rows * parts[v]
        for w in range(v):
            if marks[v, w]:
                found += scored.costs[v, w]
    return found


@compiled_inside
def _touch(
    scored: Scored, marks: IntArray, parts: FloatArray, changed: IntArray, least: IntArray
) -> float:
    """Mark the districts of a graph that a change touches; return their share of the score.

    The costs of the edges that the other graph has not are added, of those that it alone has taken.
    """
    touched, found = scored.room.touched, 0.0
    touched[:] = False
    for v in range(len(marks)):
        for w in range(len(marks)):
            if marks[v, w] != changed[v, w]:
                touched[least[v]] = touched[least[w]] = True
            if w < v:
                found += scored.costs[v, w] * (int(marks[v, w] > 0) - int(changed[v, w] > 0))
    for v in range(len(marks)):
        if touched[v]:
            found += 0.5 * scored.rows * parts[v]
    return found


@compiled_inside
def _changed_size(room: FitRoom, least: IntArray, first: Integer) -> int:
    """Return the size of the other graph's district whose least variable this is.

    It is 0 for another variable, and where the change touches none of the district's variables.
    """
    size, again = 0, False
    for v in range(len(least)):
        if room.other[v] == first:
            size += 1
            again |= room.touched[least[v]]
    return size if again else 0


@compiled_inside
def _gain(
    scored: Scored, marks: IntArray, parts: FloatArray, changed: IntArray, least: IntArray
) -> float:
    """Return by how much a changed graph's score is better; not exactly where it is worse.

    Parameters
    ----------
    scored
    marks, changed
        ``(d, d)`` the graph, and the other one.
    parts
        ``(d,)`` of the graph, see :func:`total`.
    least
        ``(d,)`` of the graph, see :func:`_find_districts`.
    """
    room, half = scored.room, 0.5 * scored.rows
    now: Integer
    last: Integer = np.int64(-1)
    found = _touch(scored, marks, parts, changed, least)
    _find_districts(changed, room.other, room.waiting)
    # The last district of several variables is left to the end: what it may have is known then.
    for v in range(len(marks)):
        size = _changed_size(room, least, v)
        now = last if size > 1 else np.int64(v if size == 1 else -1)
        last = np.int64(v) if size > 1 else last
        if now >= 0:
            found -= half * _deviance_of(scored, changed, room.other, now, np.inf)
    if last >= 0:
        found -= half * _deviance_of(scored, changed, room.other, last, found / half)
    return found


@compiled_inside
def _copy(source: IntArray, target: IntArray) -> None:
    for i in range(len(source)):
        for j in range(len(source)):
            target[i, j] = source[i, j]


@compiled_inside
def _put(marks: IntArray, i: int, j: int, kind: int) -> None:
    """Make the edge of i and j i -> j (0), i <- j (1), i <-> j (2) or none (3)."""
    marks[i, j] = NONE if kind == 3 else TAIL if kind == 1 else ARROW
    marks[j, i] = NONE if kind == 3 else TAIL if kind == 0 else ARROW


@compiled_inside
def _same(marks: IntArray, other: IntArray, i: int, j: int) -> bool:
    """Whether two graphs have the same edge of i and j."""
    return bool(marks[i, j] == other[i, j]) and bool(marks[j, i] == other[j, i])


@compiled_inside
def _take(
    scored: Scored, bounds: AncestralBounds, marks: IntArray, changed: IntArray, parts: FloatArray
) -> float:
    """Replace a graph, in place, by one that is possible and better; return the gain, or 0."""
    if not fits(changed, bounds.no_causes, bounds.required, scored.room.above):
        return 0.0
    gain = _gain(scored, marks, parts, changed, scored.room.least)
    if not gain > FIT_TIE * scored.rows:
        return 0.0
    _copy(changed, marks)
    total(scored, marks, parts)
    return gain


@compiled_in_place
def other_edge(
    scored: Scored, bounds: AncestralBounds, marks: IntArray, changed: IntArray, parts: FloatArray
) -> float:
    """Change the first edge whose change improves the score, in place; return the gain, or 0.

    Pairs without an edge are left, but for those that are ``apart``.

    Parameters
    ----------
    scored, bounds
    marks
        ``(d, d)``; changed in place.
    changed
        ``(d, d)`` room for another graph.
    parts
        ``(d,)``, see :func:`total`.
    """
    _copy(marks, changed)
    _find_districts(marks, scored.room.least, scored.room.waiting)
    for i in range(len(marks)):
        for j in range(i + 1, len(marks)):
            kinds = 4 if marks[i, j] != NONE or bounds.apart[i, j] else 0
            for kind in range(kinds):
                _put(changed, i, j, kind)
                if not _same(changed, marks, i, j):
                    gain = _take(scored, bounds, marks, changed, parts)
                    if gain > 0:
                        return gain
            changed[i, j], changed[j, i] = marks[i, j], marks[j, i]
    return 0.0


@compiled_in_place
def other_meeting_edges(
    scored: Scored, bounds: AncestralBounds, marks: IntArray, changed: IntArray, parts: FloatArray
) -> float:
    """Change the first two edges that meet whose change improves the score; as `other_edge`."""
    _copy(marks, changed)
    _find_districts(marks, scored.room.least, scored.room.waiting)
    d = len(marks)
    for b in range(d):
        for a in range(d):
            for c in range(a + 1, d):
                if marks[a, b] == NONE or marks[c, b] == NONE:
                    continue
                for kind in range(9):
                    _put(changed, a, b, kind // 3)
                    _put(changed, c, b, kind % 3)
                    if not (_same(changed, marks, a, b) or _same(changed, marks, c, b)):
                        gain = _take(scored, bounds, marks, changed, parts)
                        if gain > 0:
                            return gain
                for v in (a, c):
                    changed[v, b], changed[b, v] = marks[v, b], marks[b, v]
    return 0.0

"""Compiled parts of the search for ancestral graphs: the likelihood, and changes of edges.

The likelihood is that of :mod:`~flwr_causal.core.ges.ancestral_fit`. Marks are those of
:mod:`~flwr_causal.core.graphs.pag.marks`, without circles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.compiled import compiled
from flwr_causal.core.ges.ancestral_fit import FIT_TIE, MOST_SWEEPS, TOLERANCE
from flwr_causal.core.graphs.pag.marks import ARROW, NONE, TAIL

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray

# A pivot below this share of its diagonal element is 0: the columns are collinear.
LEAST_PIVOT = 1e-13


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
    """

    correlations: FloatArray
    owner: IntArray
    rows: float
    costs: FloatArray


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


@compiled
def solve_in_place(matrix: FloatArray, right: FloatArray) -> bool:
    """Solve ``matrix @ x = right`` in place, by Cholesky's method; False if it is singular.

    Parameters
    ----------
    matrix : ndarray of shape (k, k)
        Symmetric, positive definite; overwritten by its factor.
    right : ndarray of shape (k, r)
        Overwritten by x.
    """
    size, columns = right.shape
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
    for c in range(columns):
        for i in range(size):
            left = right[i, c]
            for k in range(i):
                left -= matrix[i, k] * right[k, c]
            right[i, c] = left / matrix[i, i]
        for i in range(size - 1, -1, -1):
            left = right[i, c]
            for k in range(i + 1, size):
                left -= matrix[k, i] * right[k, c]
            right[i, c] = left / matrix[i, i]
    return True


@compiled
def _regressed(second: FloatArray, parents: IntArray, child: int) -> tuple[bool, FloatArray]:
    """Return whether a regression of a column has one solution, and the coefficients."""
    size = len(parents)
    inner, right = np.empty((size, size)), np.empty((size, 1))
    for a in range(size):
        right[a, 0] = second[parents[a], child]
        for b in range(size):
            inner[a, b] = second[parents[a], parents[b]]
    return solve_in_place(inner, right), right[:, 0]


@compiled
def _value(second: FloatArray, noise: FloatArray, covariance: FloatArray) -> float:
    """Return the deviance of noise terms that are combinations of the columns, inf if singular."""
    factor, product = covariance.copy(), noise.T @ second @ noise
    if not solve_in_place(factor, product):
        return np.inf
    total = 0.0
    for k in range(len(factor)):
        total += 2 * np.log(factor[k, k]) + product[k, k]
    return total


@compiled
def _refitted(
    second: FloatArray,
    noise: FloatArray,
    covariance: FloatArray,
    k: int,
    child: int,
    parents: IntArray,
    partners: IntArray,
) -> bool:
    """Fit one column's effects and covariances of noise, the others fixed, in place.

    Parameters
    ----------
    second, noise, covariance
        Correlations; the noise terms as combinations of the columns, one a column; their
        covariance.
    k, child : int
        The column among those of the district, and among all.
    parents, partners : ndarray of int
        Its causes among all columns, and those of the district with a covariance.
    """
    q, p, s = len(covariance), len(parents), len(partners)
    others = np.delete(np.arange(q), k)
    inner, inverse = np.empty((q - 1, q - 1)), np.eye(q - 1)
    for a in range(q - 1):
        inner[a] = covariance[others[a]][others]
    if not solve_in_place(inner, inverse):
        return False
    places = partners - (partners > k)
    shared = inverse[:, places]
    design = np.zeros((len(second), p + s))
    for a in range(p):
        design[parents[a], a] = 1
    design[:, p:] = np.ascontiguousarray(noise[:, others]) @ shared
    reached = second @ design
    inner, right = design.T @ reached, reached[child].copy().reshape(-1, 1)
    if not solve_in_place(inner, right):
        return False
    found = right[:, 0].copy()
    effects, own = found[:p], np.zeros(q - 1)
    own[places] = found[p:]
    for a in range(p):
        noise[parents[a], k] = -effects[a]
    for a in range(q - 1):
        covariance[k, others[a]] = covariance[others[a], k] = own[a]
    covariance[k, k] = second[child, child] - reached[child] @ found + own @ (inverse @ own)
    return True


@compiled
def _causes(owner: IntArray, marks: IntArray, column: int) -> IntArray:
    """Return the columns of the causes of a column's variable."""
    child = owner[column]
    return np.flatnonzero(((marks[:, child] == ARROW) & (marks[child] == TAIL))[owner])


@compiled
def _partners(owner: IntArray, marks: IntArray, columns: IntArray, k: int) -> IntArray:
    """Return which of some columns have a covariance with the noise of the k-th of them."""
    one, linked = owner[columns[k]], np.zeros(len(columns), dtype=np.bool_)
    for b in range(len(columns)):
        other = owner[columns[b]]
        both = marks[one, other] == ARROW and marks[other, one] == ARROW
        linked[b] = b != k and (one == other or both)
    return np.flatnonzero(linked)


@compiled
def deviance(scored: Scored, marks: IntArray, district: BoolArray) -> float:
    """Return -2 log likelihood of a district for one row, up to a constant; inf if it has none.

    Iterative conditional fitting: each column is regressed on its causes and on what the noise
    terms of the other columns of its district predict of its own.

    Parameters
    ----------
    scored : Scored
    marks : ndarray of int, shape (d, d)
    district : ndarray of bool, shape (d,)
    """
    second, columns = scored.correlations, np.flatnonzero(district[scored.owner])
    q = len(columns)
    noise, covariance = np.zeros((len(second), q)), np.zeros((q, q))
    causes = [_causes(scored.owner, marks, int(columns[k])) for k in range(q)]
    partners = [_partners(scored.owner, marks, columns, k) for k in range(q)]
    saturated = True
    for k in range(q):
        alone, coefficients = _regressed(second, causes[k], columns[k])
        if not alone:
            return np.inf
        noise[columns[k], k] = 1
        for a in range(len(causes[k])):
            noise[causes[k][a], k] = -coefficients[a]
        alike = len(causes[k]) == len(causes[0]) and (causes[k] == causes[0]).all()
        saturated &= alike and len(partners[k]) == q - 1
    first = noise.T @ second @ noise
    # Where all have the same causes and no covariance is 0, regression is the maximum.
    if saturated:
        return _value(second, noise, first)
    for k in range(q):
        covariance[k, k] = first[k, k]
    before = np.inf
    for _ in range(MOST_SWEEPS):
        for k in range(q):
            if not _refitted(second, noise, covariance, k, columns[k], causes[k], partners[k]):
                return np.inf
        now = _value(second, noise, covariance)
        if before - now < TOLERANCE:
            return now
        before = now
    return before


@compiled
def districts(marks: IntArray) -> IntArray:
    """Return for each variable the least one of its district, which edges i <-> j connect."""
    d = len(marks)
    least, waiting = np.full(d, -1), np.empty(d, dtype=np.int64)
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
    return least


@compiled
def total(scored: Scored, marks: IntArray, parts: FloatArray) -> float:
    """Return the score of a graph, and write each district's deviance to its least variable."""
    least = districts(marks)
    found = 0.0
    for v in range(len(marks)):
        parts[v] = deviance(scored, marks, least == v) if least[v] == v else 0.0
        found += 0.5 * scored.rows * parts[v]
        for w in range(v):
            if marks[v, w]:
                found += scored.costs[v, w]
    return found


@compiled
def _gain(scored: Scored, marks: IntArray, parts: FloatArray, changed: IntArray) -> float:
    """Return by how much a changed graph's score is better.

    Parameters
    ----------
    scored : Scored
    marks, changed : ndarray of int, shape (d, d)
        The graph, and the other one.
    parts : ndarray of shape (d,)
        Of the graph, see :func:`total`.
    """
    d, least = len(marks), districts(marks)
    touched = np.zeros(d, dtype=np.bool_)
    found = 0.0
    for v in range(d):
        for w in range(d):
            if marks[v, w] != changed[v, w]:
                touched[least[v]] = touched[least[w]] = True
            if w < v:
                found += scored.costs[v, w] * (int(marks[v, w] > 0) - int(changed[v, w] > 0))
    other, again = districts(changed), np.zeros(d, dtype=np.bool_)
    for v in range(d):
        if touched[least[v]]:
            again[other[v]] = True
            if least[v] == v:
                found += 0.5 * scored.rows * parts[v]
    for v in range(d):
        if again[v]:
            found -= 0.5 * scored.rows * deviance(scored, changed, other == v)
    return found


@compiled
def fits(marks: IntArray, bounds: AncestralBounds) -> bool:
    """Whether a graph is ancestral and agrees with the bounds."""
    d = len(marks)
    above = np.zeros((d, d), dtype=np.bool_)
    for i in range(d):
        for j in range(d):
            above[i, j] = marks[i, j] == ARROW and marks[j, i] == TAIL
            if bounds.required[i, j] and not above[i, j]:
                return False
    for k in range(d):
        for i in range(d):
            if above[i, k]:
                for j in range(d):
                    above[i, j] |= above[k, j]
    for i in range(d):
        if above[i, i]:
            return False
        for j in range(d):
            spouses = marks[i, j] == ARROW and marks[j, i] == ARROW
            if above[i, j] and (spouses or bounds.no_causes[i, j]):
                return False
    return True


@compiled
def _put(marks: IntArray, i: int, j: int, kind: int) -> None:
    """Make the edge of i and j i -> j (0), i <- j (1), i <-> j (2) or none (3)."""
    marks[i, j] = (ARROW, TAIL, ARROW, NONE)[kind]
    marks[j, i] = (TAIL, ARROW, ARROW, NONE)[kind]


@compiled
def _same(marks: IntArray, other: IntArray, i: int, j: int) -> bool:
    """Whether two graphs have the same edge of i and j."""
    return bool(marks[i, j] == other[i, j]) and bool(marks[j, i] == other[j, i])


@compiled
def _taken(
    scored: Scored, bounds: AncestralBounds, marks: IntArray, changed: IntArray, parts: FloatArray
) -> float:
    """Replace a graph, in place, by one that is possible and better; return the gain, or 0."""
    if not fits(changed, bounds):
        return 0.0
    gain = _gain(scored, marks, parts, changed)
    if not gain > FIT_TIE * scored.rows:
        return 0.0
    marks[:] = changed
    total(scored, marks, parts)
    return gain


@compiled
def other_edge(
    scored: Scored, bounds: AncestralBounds, marks: IntArray, parts: FloatArray
) -> float:
    """Change the first edge whose change improves the score, in place; return the gain, or 0.

    Pairs without an edge are left, but for those that are ``apart``.

    Parameters
    ----------
    scored : Scored
    bounds : AncestralBounds
    marks : ndarray of int, shape (d, d)
    parts : ndarray of shape (d,)
        See :func:`total`.
    """
    changed = marks.copy()
    for i in range(len(marks)):
        for j in range(i + 1, len(marks)):
            kinds = 4 if marks[i, j] != NONE or bounds.apart[i, j] else 0
            for kind in range(kinds):
                _put(changed, i, j, kind)
                if not _same(changed, marks, i, j):
                    gain = _taken(scored, bounds, marks, changed, parts)
                    if gain > 0:
                        return gain
            changed[i, j], changed[j, i] = marks[i, j], marks[j, i]
    return 0.0


@compiled
def other_meeting_edges(
    scored: Scored, bounds: AncestralBounds, marks: IntArray, parts: FloatArray
) -> float:
    """Change the first two edges that meet whose change improves the score; as `other_edge`."""
    changed = marks.copy()
    for b in range(len(marks)):
        near = np.flatnonzero(marks[b])
        for place in range(len(near) * len(near)):
            a, c = near[place // len(near)], near[place % len(near)]
            for kind in range(9 if a < c else 0):
                _put(changed, a, b, kind // 3)
                _put(changed, c, b, kind % 3)
                if not (_same(changed, marks, a, b) or _same(changed, marks, c, b)):
                    gain = _taken(scored, bounds, marks, changed, parts)
                    if gain > 0:
                        return gain
            for v in (a, c):
                changed[v, b], changed[b, v] = marks[v, b], marks[b, v]
    return 0.0

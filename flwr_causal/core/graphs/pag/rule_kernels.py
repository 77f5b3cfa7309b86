"""Compiled rules R1 to R4 of Zhang (2008), which find arrowheads, his theorem 2, a check of a MAG.

See :mod:`~flwr_causal.core.graphs.pag.rules`, which calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.core.compiled import compiled_in_place, compiled_inside
from flwr_causal.core.graphs.pag.marks import ARROW, CIRCLE, NONE, TAIL

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, IntArray, Integer


@compiled_inside
def _direct(marks: IntArray, i: Integer, j: Integer) -> bool:
    """Put a tail at i, and what it implies at j, on the edge between them."""
    if marks[j, i] == CIRCLE and (marks[i, j] == CIRCLE or marks[i, j] == ARROW):
        marks[j, i], marks[i, j] = TAIL, ARROW
        return True
    return False


@compiled_inside
def _point(marks: IntArray, i: Integer, j: Integer) -> bool:
    """Put an arrowhead at j on the edge of i and j, if there is a circle."""
    if marks[i, j] == CIRCLE:
        marks[i, j] = ARROW
        return True
    return False


@compiled_inside
def _is_unshielded(marks: IntArray, b: Integer, c: Integer) -> bool:
    """Whether some a *-> b is not adjacent to c."""
    found = False
    for a in range(len(marks)):
        found |= marks[a, b] == ARROW and marks[a, c] == NONE
    return found


@compiled_inside
def _is_on_the_way(marks: IntArray, a: Integer, c: Integer) -> bool:
    """Whether some b has a -> b *-> c or a *-> b -> c."""
    for b in range(len(marks)):
        both = marks[a, b] == ARROW and marks[b, c] == ARROW
        if both and (marks[b, a] == TAIL or marks[c, b] == TAIL):
            return True
    return False


@compiled_inside
def _is_in_two_triangles(marks: IntArray, e: Integer, b: Integer) -> bool:
    """Whether a *-> b <-* c and a *-o e o-* c for some a and c that are not adjacent."""
    for a in range(len(marks)):
        if marks[a, b] != ARROW or marks[a, e] != CIRCLE:
            continue
        for c in range(a):
            if marks[c, b] == ARROW and marks[c, e] == CIRCLE and marks[a, c] == NONE:
                return True
    return False


@compiled_inside
def _path_end(
    marks: IntArray, a: Integer, b: Integer, c: Integer, waiting: IntArray, seen: BoolArray
) -> Integer:
    """Return the end e of a path e, ..., a, b, c that discriminates b, -1 if there is none.

    e and c are not adjacent, and every vertex between e and b is a collider and a parent of c.
    """
    seen[:] = False
    seen[a] = seen[b] = seen[c] = True
    waiting[0] = a
    first, last = 0, 1
    while first < last:
        v = waiting[first]
        first += 1
        for w in range(len(marks)):
            if marks[w, v] != ARROW or seen[w]:
                continue
            if marks[w, c] == NONE:
                return w
            if marks[w, c] == ARROW and marks[c, w] == TAIL and marks[v, w] == ARROW:
                seen[w] = True
                waiting[last] = w
                last += 1
    return -1


@compiled_inside
def _discriminate(
    marks: IntArray,
    separators: BoolArray,
    b: Integer,
    c: Integer,
    waiting: IntArray,
    seen: BoolArray,
) -> bool:
    """Apply R4 to b o-* c; return whether a mark was changed."""
    for a in range(len(marks)):
        if marks[a, c] != ARROW or marks[c, a] != TAIL or marks[b, a] != ARROW:
            continue
        end = _path_end(marks, a, b, c, waiting, seen)
        if end < 0:
            continue
        if separators[end, c, b]:
            return _direct(marks, b, c)
        if not _point(marks, c, b):
            return False
        _point(marks, b, c)
        _point(marks, a, b)
        return True
    return False


@compiled_inside
def _away_from_colliders(marks: IntArray) -> bool:
    """R1: a *-> b o-* c, a and c not adjacent: b -> c; return whether a mark was changed."""
    changed = False
    for b in range(len(marks)):
        for c in range(len(marks)):
            if marks[c, b] == CIRCLE and _is_unshielded(marks, b, c):
                changed |= _direct(marks, b, c)
    return changed


@compiled_inside
def _away_from_cycles(marks: IntArray) -> bool:
    """R2: a -> b *-> c or a *-> b -> c, and a *-o c: a *-> c."""
    changed = False
    for a in range(len(marks)):
        for c in range(len(marks)):
            if marks[a, c] == CIRCLE and _is_on_the_way(marks, a, c):
                changed |= _point(marks, a, c)
    return changed


@compiled_inside
def _double_triangle(marks: IntArray) -> bool:
    """R3: a *-> b <-* c, a *-o e o-* c, a and c not adjacent, e *-o b: e *-> b."""
    changed = False
    for e in range(len(marks)):
        for b in range(len(marks)):
            if marks[e, b] == CIRCLE and _is_in_two_triangles(marks, e, b):
                changed |= _point(marks, e, b)
    return changed


@compiled_inside
def _discriminating_paths(
    marks: IntArray, separators: BoolArray, waiting: IntArray, seen: BoolArray
) -> bool:
    """R4: a path that discriminates b from e to c, b o-* c: b -> c if b separates, else b <-> c."""
    changed = False
    for b in range(len(marks)):
        for c in range(len(marks)):
            if marks[c, b] == CIRCLE:
                changed |= _discriminate(marks, separators, b, c, waiting, seen)
    return changed


@compiled_in_place
def close_arrowheads(
    marks: IntArray, separators: BoolArray, waiting: IntArray, seen: BoolArray
) -> None:
    """Replace every circle that R1 to R4 decide, in place.

    Parameters
    ----------
    marks
        ``(d, d)`` with the arrowheads of the unshielded colliders.
    separators
        ``(d, d, d)`` as of :func:`~flwr_causal.core.graphs.pag.rules.oriented`.
    waiting, seen
        ``(d,)`` room for the vertices of a path.
    """
    changed = True
    while changed:  # each time a circle is replaced, and none is put
        changed = _away_from_colliders(marks)
        changed |= _away_from_cycles(marks)
        changed |= _double_triangle(marks)
        if not changed:
            changed = _discriminating_paths(marks, separators, waiting, seen)


@compiled_in_place
def begin_marks(
    adjacent: BoolArray,
    separators: BoolArray,
    causes: BoolArray,
    no_causes: BoolArray,
    marks: IntArray,
) -> None:
    """Write circles, the marks of background knowledge, and the arrowheads of unshielded colliders.

    Parameters
    ----------
    adjacent
        ``(d, d)`` symmetric.
    separators
        ``(d, d, d)`` as of :func:`~flwr_causal.core.graphs.pag.rules.oriented`.
    causes, no_causes
        ``(d, d)`` background knowledge, as of :class:`~flwr_causal.core.graphs.pag.rules.Ancestry`.
    marks
        ``(d, d)``; overwritten.
    """
    d = len(adjacent)
    for i in range(d):
        for j in range(d):
            marks[i, j] = NONE
            if adjacent[i, j]:
                marks[i, j] = TAIL if causes[j, i] else ARROW if no_causes[j, i] else CIRCLE
    for i in range(d):
        for j in range(d):
            if i == j or adjacent[i, j]:
                continue
            for k in range(d):
                if adjacent[i, k] and adjacent[j, k] and not separators[i, j, k]:
                    _point(marks, i, k)


@compiled_inside
def _is_sink(marks: IntArray, node: Integer, left: BoolArray) -> bool:
    """Whether the neighbours of a node by edges o-o, among those that are left, are all joined."""
    for i in range(len(marks)):
        if not left[i] or i == node or marks[node, i] != CIRCLE or marks[i, node] != CIRCLE:
            continue
        for j in range(i):
            near = left[j] and j != node and marks[node, j] == CIRCLE and marks[j, node] == CIRCLE
            if near and (marks[i, j] != CIRCLE or marks[j, i] != CIRCLE):
                return False
    return True


@compiled_in_place
def direct_circles(marks: IntArray, found: IntArray, left: BoolArray) -> bool:
    """Write the MAG of a PAG with the fewest arrowheads; return whether it has no circle left.

    The edges o-o become a DAG without a v-structure (Dor & Tarsi), which exists in a PAG: one after
    the other, the variable with the largest index of those whose neighbours are all adjacent
    becomes the effect of its neighbours.

    Parameters
    ----------
    marks
        ``(d, d)`` those of the PAG.
    found
        ``(d, d)`` overwritten by those of the MAG.
    left
        ``(d,)`` room for the variables that are no effects yet.
    """
    d = len(marks)
    for i in range(d):
        left[i] = True
        for j in range(d):
            tail = marks[i, j] == CIRCLE and marks[j, i] == ARROW
            found[i, j] = TAIL if tail else marks[i, j]
    for _ in range(d):
        sink = d - 1
        while sink >= 0 and not (left[sink] and _is_sink(marks, sink, left)):
            sink -= 1
        if sink < 0:
            return False
        left[sink] = False
        for i in range(d):
            if left[i] and marks[sink, i] == CIRCLE and marks[i, sink] == CIRCLE:
                found[i, sink], found[sink, i] = ARROW, TAIL
    for i in range(d):
        for j in range(d):
            if found[i, j] == CIRCLE or (found[i, j] == TAIL and found[j, i] == TAIL):
                return False
    return True


@compiled_in_place
def mag_of_separators(
    adjacent: BoolArray,
    separators: BoolArray,
    causes: BoolArray,
    no_causes: BoolArray,
    marks: IntArray,
    found: IntArray,
    waiting: IntArray,
    seen: BoolArray,
) -> bool:
    """Write the MAG of the PAG of a skeleton and of its separators; False if it is none.

    The MAG need not be ancestral where the skeleton and the separators are not those of a MAG.

    Parameters
    ----------
    adjacent, separators, causes, no_causes
        As of :func:`begin_marks`.
    marks, found
        ``(d, d)``, overwritten by the marks that R1 to R4 decide and by those of the MAG.
    waiting, seen
        ``(d,)`` room.
    """
    begin_marks(adjacent, separators, causes, no_causes, marks)
    close_arrowheads(marks, separators, waiting, seen)
    return direct_circles(marks, found, seen)


@compiled_in_place
def fits(marks: IntArray, no_causes: BoolArray, required: BoolArray, above: BoolArray) -> bool:
    """Whether a graph is ancestral and agrees with background knowledge.

    Parameters
    ----------
    marks
        ``(d, d)``, without circles.
    no_causes, required
        ``(d, d)`` ``[i, j]``: i is no ancestor of j; i -> j is an edge.
    above
        ``(d, d)`` room for the ancestors.
    """
    d = len(marks)
    for i in range(d):
        for j in range(d):
            above[i, j] = marks[i, j] == ARROW and marks[j, i] == TAIL
            if required[i, j] and not above[i, j]:
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
            if above[i, j] and (spouses or no_causes[i, j]):
                return False
    return True

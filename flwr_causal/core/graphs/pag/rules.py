"""Partial ancestral graphs (PAGs): the classes of maximal ancestral graphs, by Zhang's rules.

A PAG has the edges of the MAGs that agree with the same independences, and a circle where their
marks differ; see :mod:`~flwr_causal.core.graphs.pag.marks` for the matrix of marks.

Of Zhang's rules R5 to R7 are left out: they need undirected edges, which selection bias alone
brings about. The others, R1 to R4 and R8 to R10, find every mark that the independences decide.
Background knowledge is complied with, and what follows from it by the rules is found; with it the
rules may leave circles that a longer argument would decide.

References
----------
Zhang, J. (2008). On the completeness of orientation rules for causal discovery in the presence of
latent confounders and selection bias. Artificial Intelligence 172.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
from flwr_causal.core.graphs.pag.marks import (
    ARROW,
    CIRCLE,
    NONE,
    TAIL,
    ancestral_separators,
    directed_edges,
    is_ancestral,
)
from flwr_causal.core.limits import check_deadline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray, IntArray


class Ancestry(NamedTuple):
    """Background knowledge of ancestors: who may and who must cause whom.

    Parameters
    ----------
    causes : ndarray of bool, shape (d, d)
        ``[i, j]``: i is a cause of j, directly or through others.
    no_causes : ndarray of bool, shape (d, d)
        ``[i, j]``: i is not.
    required : ndarray of bool, shape (d, d)
        Edges that a graph must have.
    """

    causes: BoolArray
    no_causes: BoolArray
    required: BoolArray

    @classmethod
    def none(cls, size: int) -> Ancestry:
        """Return the ancestry of which nothing is known."""
        nothing = np.zeros((size, size), dtype=np.bool_)
        return cls(nothing, nothing, nothing)

    @classmethod
    def of(cls, knowledge: Knowledge | None, names: Sequence[str]) -> Ancestry:
        """Return what follows from background knowledge over ``names``.

        Tiers are an order in time: a later variable is no cause of an earlier one, through whatever
        others; nor is any variable one of a root. A forbidden edge says that there is no direct
        effect.
        """
        if knowledge is None:
            return cls.none(len(names))
        known = cls.of_masks(knowledge.masks(names))
        order = Knowledge(
            tiers=knowledge.tiers,
            roots=knowledge.roots,
            other_names=knowledge.other_names,
        )
        earlier = ~order.masks(names).allowed
        earlier &= ~np.eye(len(names), dtype=np.bool_)
        return known._replace(no_causes=known.no_causes | earlier)

    @classmethod
    def of_masks(cls, masks: EdgeMasks) -> Ancestry:
        """Return what follows from required and from allowed edges.

        An edge that is not allowed may stand for a path of edges that are; only where there is no
        such path is one variable known to be no cause of another.
        """
        causes = ancestors(masks.required)
        possible = masks.allowed | masks.required
        return cls(causes, causes.T | ~ancestors(possible), masks.required)

    def edges(self) -> EdgeMasks:
        """Return the required and allowed edges of a graph without hidden common causes."""
        possible = ~self.no_causes & ~np.eye(len(self.required), dtype=np.bool_)
        return EdgeMasks(possible | self.required, self.required)

    def agrees(self, marks: IntArray) -> bool:
        """Whether a graph of tails and arrowheads is ancestral, and nothing known is against it."""
        from flwr_causal.core.graphs.pag.rule_kernels import fits

        flat, room = np.ascontiguousarray, np.empty(marks.shape, dtype=np.bool_)
        return fits(flat(marks), flat(self.no_causes), flat(self.required), room)


def oriented(adjacent: BoolArray, separators: BoolArray, known: Ancestry | None = None) -> IntArray:
    """Return the PAG of a skeleton and of the sets that separate its pairs.

    Parameters
    ----------
    adjacent : ndarray of bool, shape (d, d)
        Symmetric.
    separators : ndarray of bool, shape (d, d, d)
        ``[i, j, k]``: k is in the set that separates i and j. Entries of pairs that are not
        adjacent are read.
    known : Ancestry, optional
        Background knowledge. Marks that follow from it stand, also against the separating sets.

    Returns
    -------
    ndarray of int, shape (d, d)
        Marks.
    """
    from flwr_causal.core.graphs.pag.rule_kernels import begin_marks

    known = Ancestry.none(len(adjacent)) if known is None else known
    adjacent, separators, causes, no_causes = map(
        np.ascontiguousarray, (adjacent, separators, known.causes, known.no_causes)
    )
    marks = np.empty(adjacent.shape, dtype=np.int64)
    begin_marks(adjacent, separators, causes, no_causes, marks)
    return closed(marks, separators)


def pag_of_mag(marks: IntArray, known: Ancestry | None = None) -> IntArray:
    """Return the PAG of a MAG: the marks that all MAGs with the same independences share."""
    return oriented(marks != NONE, ancestral_separators(marks), known)


def mag_of(adjacent: BoolArray, separators: BoolArray, known: Ancestry) -> IntArray | None:
    """Return the MAG with the fewest arrowheads of a skeleton and of the sets that separate pairs.

    It is a member of the PAG of :func:`oriented`. R8 to R10, which turn o-> into ->, are left out:
    a member has no circles.

    Parameters
    ----------
    adjacent, separators, known
        As of :func:`oriented`.

    Returns
    -------
    ndarray of int, shape (d, d), or None
        Without circles. None if there is none, or none that agrees with background knowledge.
    """
    from flwr_causal.core.graphs.pag.rule_kernels import mag_of_separators

    d = len(adjacent)
    adjacent, separators, causes, no_causes = map(
        np.ascontiguousarray, (adjacent, separators, known.causes, known.no_causes)
    )
    marks, found = np.empty((2, d, d), dtype=np.int64)
    room = np.empty(d, dtype=np.int64), np.empty(d, dtype=np.bool_)
    exists = mag_of_separators(adjacent, separators, causes, no_causes, marks, found, *room)
    return found if exists and known.agrees(found) else None


def member(marks: IntArray) -> IntArray | None:
    """Return a MAG of a PAG: the one with the fewest arrowheads, see Zhang (2008), theorem 2.

    Returns
    -------
    ndarray of int, shape (d, d), or None
        Without circles. None if the marks are not those of a PAG.
    """
    from flwr_causal.core.graphs.pag.rule_kernels import direct_circles

    marks = np.array(marks, dtype=np.int64, order="C")
    found, left = np.empty_like(marks), np.empty(len(marks), dtype=np.bool_)
    return found if direct_circles(marks, found, left) and is_ancestral(found) else None


def describes_one_class(marks: IntArray) -> bool:
    """Return whether all MAGs with these marks have the same independences.

    Knowledge may have added marks to those of the class. Marks that drawn moments did not confirm
    are circles, which may leave more than one class open.
    """
    one = member(marks)
    if one is None:
        return False
    shared = pag_of_mag(one)
    return bool(((shared == CIRCLE) | (shared == marks)).all())


def closed(marks: IntArray, separators: BoolArray) -> IntArray:
    """Return the marks with every circle replaced that the rules decide.

    Parameters
    ----------
    marks : ndarray of int, shape (d, d)
        With the arrowheads of the unshielded colliders.
    separators : ndarray of bool, shape (d, d, d)
        As of :func:`oriented`.
    """
    from flwr_causal.core.graphs.pag.rule_kernels import close_arrowheads

    marks, d = np.array(marks, dtype=np.int64, order="C"), len(marks)
    separators = np.ascontiguousarray(separators)
    waiting, seen = np.empty(d, dtype=np.int64), np.empty(d, dtype=np.bool_)
    while True:
        check_deadline()
        close_arrowheads(marks, separators, waiting, seen)
        before = marks.copy()
        _tails(marks)
        if np.array_equal(marks, before):
            return marks


def _tails(marks: IntArray) -> None:
    """R8, R9 and R10: a o-> c becomes a -> c."""
    for a, c in np.argwhere((marks == ARROW) & (marks.T == CIRCLE)):
        if _through_one(marks, a, c) or _around(marks, a, c) or _by_two_paths(marks, a, c):
            marks[c, a] = TAIL


def _through_one(marks: IntArray, a: int, c: int) -> bool:
    """R8: a -> b -> c."""
    directed = directed_edges(marks)
    return bool((directed[a] & directed[:, c]).any())


def _around(marks: IntArray, a: int, c: int) -> bool:
    """R9: an uncovered potentially directed path a, b, ..., c, with b and c not adjacent."""
    return any(
        marks[b, c] == NONE and _leads(marks, a, int(b))[c]
        for b in np.flatnonzero(possibly_directed(marks)[a])
        if b != c
    )


def _by_two_paths(marks: IntArray, a: int, c: int) -> bool:
    """R10: b -> c <- e, uncovered potentially directed paths from a to b and from a to e.

    Their vertices next to a differ and are not adjacent.
    """
    parents = directed_edges(marks)[:, c].copy()
    parents[a] = False
    if parents.sum() < 2:
        return False
    first = [int(v) for v in np.flatnonzero(possibly_directed(marks)[a]) if v != c]
    reached = {v: _leads(marks, a, v) & parents for v in first}
    return any(
        marks[v, w] == NONE
        and reached[v].any()
        and reached[w].any()
        and (reached[v] | reached[w]).sum() > 1
        for v, w in combinations(first, 2)
    )


def possibly_directed(marks: IntArray) -> BoolArray:
    """Return the edges on which a potentially directed path may go from i to j."""
    return np.asarray((marks != NONE) & (marks != TAIL) & (marks.T != ARROW))


def _leads(marks: IntArray, a: int, b: int) -> BoolArray:
    """Return where uncovered potentially directed paths a, b, ... lead, shape (d,).

    Uncovered: no vertex of the path is adjacent to the one after the next.
    """
    possible, reached = possibly_directed(marks), np.zeros(len(marks), dtype=np.bool_)
    waiting = [[a, b]]
    while waiting:
        check_deadline()
        path = waiting.pop()
        reached[path[-1]] = True
        following = possible[path[-1]] & (marks[path[-2]] == NONE)
        following[path] = False
        waiting += [[*path, int(v)] for v in np.flatnonzero(following)]
    return reached

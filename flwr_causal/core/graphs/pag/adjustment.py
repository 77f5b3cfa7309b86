"""Adjustment sets in PAGs: the generalised adjustment criterion.

An effect is identified by adjustment if the graph is *amenable*: each possibly directed path from
the cause to the effect starts with an edge out of the cause that is *visible*, which no hidden
common cause of its two ends can accompany. A set then gives the total effect if it contains no
possible descendant of a variable on such a path, and blocks all other paths between the two.

References
----------
Perković, E., Textor, J., Kalisch, M. & Maathuis, M. H. (2018). Complete graphical characterization
and construction of adjustment sets in Markov equivalence classes of ancestral graphs. JMLR 18.
Maathuis, M. H. & Colombo, D. (2015). A generalized back-door criterion. Annals of Statistics 43.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.adjustment import between, forbidden, vertex_cut
from flwr_causal.core.graphs.pag.marks import ARROW, NONE, directed_edges
from flwr_causal.core.graphs.pag.rules import member, possibly_directed

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, IntArray


def is_visible(marks: IntArray, i: int, j: int) -> bool:
    """Whether the edge i -> j excludes a hidden common cause of i and j.

    It does if a variable that is not adjacent to j has an edge into i, or is the start of a path
    into i whose inner variables are colliders and causes of j.

    Parameters
    ----------
    marks : ndarray of int, shape (d, d)
        Of a PAG or a MAG.
    i, j : int
        The edge. False if it is no edge i -> j.
    """
    causes = directed_edges(marks)[:, j]
    if not causes[i]:
        return False
    waiting, seen = [i], {i, j}
    while waiting:
        v = waiting.pop()
        for w in np.flatnonzero(marks[:, v] == ARROW):
            if w in seen:
                continue
            if marks[w, j] == NONE:
                return True
            if causes[w] and marks[v, w] == ARROW:
                seen.add(int(w))
                waiting.append(int(w))
    return False


def invisible_starts(marks: IntArray, cause: int, effect: int) -> list[int]:
    """Return the second variables of possibly directed paths that keep an effect unidentified.

    Parameters
    ----------
    marks : ndarray of int, shape (d, d)
        Of a PAG.
    cause, effect : int
        Two different variables.

    Returns
    -------
    list of int
        Ascending; the edges between the cause and these are no visible edges out of the cause.
        Empty if the effect is identified by adjustment, or if the cause is certainly none.
    """
    possible = possibly_directed(marks)
    first = possible[cause] & between(possible, cause, effect)
    return [int(w) for w in np.flatnonzero(first) if not is_visible(marks, cause, int(w))]


def smallest_set(marks: IntArray, cause: int, effect: int) -> list[int] | None:
    """Return an adjustment set of the least number of variables.

    Parameters
    ----------
    marks : ndarray of int, shape (d, d)
        Of a PAG.
    cause, effect : int
        Two different variables.

    Returns
    -------
    list of int or None
        Ascending. None if there is no adjustment set.

    Raises
    ------
    ValueError
        If the marks are not those of a PAG.
    """
    if invisible_starts(marks, cause, effect):
        return None
    mag = member(marks)
    if mag is None:
        raise ValueError("no ancestral graph has these edges and marks")
    possible = possibly_directed(marks)
    # The paths that are left are those that adjustment has to block.
    for w in np.flatnonzero(possible[cause] & between(possible, cause, effect)):
        mag[cause, w] = mag[w, cause] = NONE
    ends = np.isin(np.arange(len(marks)), (cause, effect))
    relevant = ends | ancestors(directed_edges(mag))[:, ends].any(axis=1)
    linked = augmented(mag, relevant)
    allowed = relevant & ~ends & ~forbidden(possible, cause, effect)
    return vertex_cut(linked, cause, effect, allowed)


def augmented(marks: IntArray, kept: BoolArray) -> BoolArray:
    """Return which variables a path of colliders connects, within some variables, (d, d).

    A set of these variables separates two of them in this undirected graph if and only if it does
    in the ancestral graph, provided that all ancestors of the three are among them.

    Parameters
    ----------
    marks : ndarray of int, shape (d, d)
        Of an ancestral graph, without circles.
    kept : ndarray of bool, shape (d,)
    """
    marks = np.where(np.outer(kept, kept), marks, NONE)
    # Districts: variables that edges <-> connect. Their parents are connected to all of them.
    both = (marks == ARROW) & (marks.T == ARROW)
    district = ancestors(both | np.eye(len(marks), dtype=np.bool_))
    reaching = directed_edges(marks).astype(np.int64) @ district + district > 0
    linked = reaching.astype(np.int64) @ reaching.T > 0
    linked[~kept] = linked[:, ~kept] = False
    np.fill_diagonal(linked, False)
    return np.asarray(linked)

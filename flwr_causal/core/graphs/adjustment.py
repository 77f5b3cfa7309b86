"""Sets of variables whose adjustment gives the total effect of a cause, in DAGs, CPDAGs and PAGs.

A set is an adjustment set if, in every DAG of the class, it contains no descendant of a variable on
a directed path from the cause to the effect (these are *forbidden*) and blocks every other path
between them. A class has such a set only if it is *amenable*: each possibly directed path from the
cause to the effect starts with a directed edge. Then a set without forbidden variables blocks the
paths in all DAGs of the class if it blocks them in one.

Graphs are boolean matrices ``marks`` as in :mod:`core.graphs.equivalence`. Possibly directed paths
are found as walks whose edges do not point backwards. This is exact for DAGs and CPDAGs, also
interventional ones. Where background knowledge directs further edges, it may find too many; then
some effects count as not identified although they are.

A PAG, of matrices ``marks`` as in :mod:`core.graphs.pag.marks`, is amenable if each possibly
directed path from the cause to the effect starts with an edge out of the cause that is *visible*,
which no hidden common cause of its two ends can accompany.

References
----------
Perković, E., Textor, J., Kalisch, M. & Maathuis, M. H. (2018). Complete graphical characterization
and construction of adjustment sets in Markov equivalence classes of ancestral graphs. JMLR 18.
Henckel, L., Perković, E. & Maathuis, M. H. (2022). Graphical criteria for efficient total effect
estimation via adjustment in causal linear models. JRSS B 84.
van der Zander, B., Liśkiewicz, M. & Textor, J. (2019). Separators and adjustment sets in causal
graphs: complete criteria and an algorithmic framework. Artificial Intelligence 270.
Maathuis, M. H., Kalisch, M. & Bühlmann, P. (2009). Estimating high-dimensional intervention effects
from observational data. Annals of Statistics 37.
Maathuis, M. H. & Colombo, D. (2015). A generalized back-door criterion. Annals of Statistics 43.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.pag.marks import ARROW, NONE, directed_edges, marks_of_dag
from flwr_causal.core.graphs.pag.rules import member, possibly_directed
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flwr_causal.core.arrays import BoolArray, IntArray


def descendants(marks: BoolArray, start: BoolArray) -> BoolArray:
    """Return the variables that possibly directed paths reach from ``start``, with these, (d,)."""
    reached = start.copy()
    last = start
    while last.any():
        last = marks[last].any(axis=0) & ~reached
        reached |= last
    return reached


def is_possible_cause(marks: BoolArray, cause: int, effect: int) -> bool:
    """Whether a possibly directed path leads from the cause to the effect."""
    return bool(descendants(marks, _only(marks, cause))[effect])


def is_amenable(marks: BoolArray, cause: int, effect: int) -> bool:
    """Whether every possibly directed path to the effect starts with an edge out of the cause."""
    onward = _without(marks, cause)
    return not descendants(onward, equivalence.undirected_part(marks)[cause])[effect]


def smallest_set(marks: BoolArray, cause: int, effect: int) -> list[int] | None:
    """Return an adjustment set of the least number of variables.

    It is a minimum vertex cut between cause and effect in the moral graph of their ancestors,
    without the edges out of the cause, that contains no forbidden variable.

    Parameters
    ----------
    marks : ndarray of bool, shape (d, d)
        A DAG, or a CPDAG.
    cause, effect : int
        Two different variables.

    Returns
    -------
    list of int or None
        Ascending. None if there is no adjustment set.

    Raises
    ------
    ValueError
        If the graph is not the CPDAG of any DAG.
    """
    if not is_amenable(marks, cause, effect):
        return None
    return _smallest_cut(marks_of_dag(_member(marks)), marks, cause, effect)


def optimal_set(marks: BoolArray, cause: int, effect: int) -> list[int] | None:
    """Return the adjustment set with which linear regression has the least asymptotic variance.

    It consists of the parents of the variables on directed paths from the cause to the effect,
    without the cause and the descendants of these variables (Henckel et al., 2022). Where there is
    no such path, no set is best, and the result is that of `smallest_set`.

    Parameters, results and errors are those of `smallest_set`.
    """
    if not is_amenable(marks, cause, effect):
        return None
    dag = _member(marks)
    if not is_possible_cause(dag, cause, effect):
        return smallest_set(marks, cause, effect)
    on_path = between(dag, cause, effect)
    parents = dag[:, on_path].any(axis=1)
    parents &= ~descendants(dag, on_path)
    parents[cause] = False
    return [int(k) for k in np.flatnonzero(parents)]


def possible_parents(marks: BoolArray, cause: int) -> Iterator[tuple[list[int], BoolArray]]:
    """Return the sets of parents that a variable has in the DAGs of a class.

    Each contains the parents by directed edges, and neighbours by undirected edges that are
    adjacent to each other (local IDA; Maathuis et al., 2009).

    Parameters
    ----------
    marks : ndarray of bool, shape (d, d)
        A CPDAG; further edges may be directed by background knowledge, closed under Meek's rules.
    cause : int
        The variable.

    Yields
    ------
    list of int, ndarray of bool, shape (d, d)
        The parents, ascending, and the class of the DAGs in which the variable has these parents.
        The first has the fewest parents.
    """
    for parents, oriented in local_parents(marks, cause):
        closed = equivalence.meek(oriented)
        if equivalence.consistent_extension(closed) is not None:
            yield parents, closed


def local_parents(marks: BoolArray, cause: int) -> Iterator[tuple[list[int], BoolArray]]:
    """Return the sets of parents of a variable that make no new v-structure there.

    They are those of `possible_parents` in a CPDAG; where background knowledge has directed further
    edges, there may be more. Only the edges of the variable are directed in the marks that are
    returned with each.
    """
    import networkx as nx

    neighbours = np.flatnonzero(equivalence.undirected_part(marks)[cause]).tolist()
    joined = equivalence.skeleton(marks)
    links: nx.Graph[int] = nx.Graph(joined[np.ix_(neighbours, neighbours)])
    for chosen in [[], *nx.enumerate_all_cliques(links)]:
        into = [neighbours[k] for k in chosen]
        out = [k for k in neighbours if k not in into]
        oriented = marks.copy()
        oriented[cause, into] = False
        oriented[out, cause] = False
        parents = np.flatnonzero(equivalence.directed_part(oriented)[:, cause])
        shielded = joined[into][:, parents].sum(axis=1) == len(parents) - 1
        if shielded.all():
            yield [int(k) for k in parents], oriented


def after_intervention(
    marks: BoolArray | None, targets: Sequence[int], names: Sequence[str]
) -> BoolArray | None:
    """Return the class of the DAGs in which nothing causes some variables any more.

    Parameters
    ----------
    marks : ndarray of bool, shape (d, d), or None
        The class; None where the DAG is known, and nothing is open.
    targets : sequence of int
        The variables that are set.
    names : sequence of str
        Of the d variables, for messages.

    Raises
    ------
    ConfigError
        If the class leaves open whether a variable that is set causes another one.
    """
    if marks is None:
        return None
    is_set = np.isin(np.arange(len(marks)), targets)
    either = np.argwhere(equivalence.undirected_part(marks) & np.outer(is_set, ~is_set))
    if len(either):
        one, other = (names[k] for k in either[0])
        raise ConfigError(
            f"the equivalence class leaves open whether {one!r} causes {other!r} or the other way "
            f"round, so that setting {one!r} has several possible results: possible_effects"
            f"({one!r}, ...) lists them, and background knowledge would direct the edge"
        )
    after = marks.copy()
    after[:, is_set] = False
    return after


def with_past(now: BoolArray, lagged: BoolArray) -> BoolArray:
    """Return the graph over the columns ``[x_t, x_{t-1}, ..., x_{t-p}]`` of a graph with lags.

    Nothing is assumed about the lagged columns: those with an edge into the present are all
    adjacent, from the older to the newer. An adjustment set of this graph for two columns of the
    present is one in the graph over all time.

    Parameters
    ----------
    now : ndarray of bool, shape (d, d)
        A DAG or CPDAG.
    lagged : ndarray of bool, shape (p, d, d)

    Returns
    -------
    ndarray of bool, shape (d (1 + p), d (1 + p))
    """
    d, m = len(now), len(now) * (1 + len(lagged))
    result = np.zeros((m, m), dtype=bool)
    result[:d, :d] = now
    result[d:, :d] = lagged.reshape(-1, d)
    active = result[d:, :d].any(axis=1)
    result[d:, d:] = np.tril(np.outer(active, active), -1)
    return result


def _only(marks: BoolArray, variable: int) -> BoolArray:
    return np.asarray(np.arange(len(marks)) == variable)


def _without(marks: BoolArray, variable: int) -> BoolArray:
    """Return the graph without the edges of a variable."""
    result = marks.copy()
    result[variable] = result[:, variable] = False
    return result


def between(marks: BoolArray, cause: int, effect: int) -> BoolArray:
    """Return the variables but the cause on possibly directed paths to the effect, shape (d,)."""
    onward = _without(marks, cause)
    return descendants(onward, marks[cause]) & descendants(onward.T, _only(marks, effect))


def forbidden(marks: BoolArray, cause: int, effect: int) -> BoolArray:
    """Return the variables that no adjustment set contains, shape (d,)."""
    return descendants(marks, between(marks, cause, effect))


def _member(marks: BoolArray) -> BoolArray:
    """Return a DAG of the class as a new array."""
    dag = equivalence.consistent_extension(marks)
    if dag is None:
        raise ValueError("no DAG has these edges and no further v-structure")
    return dag


def vertex_cut(linked: BoolArray, source: int, sink: int, allowed: BoolArray) -> list[int] | None:
    """Return the fewest allowed nodes whose removal separates two nodes; None if there are none.

    Parameters
    ----------
    linked : ndarray of bool, shape (d, d)
        Symmetric.
    source, sink : int
    allowed : ndarray of bool, shape (d,)
    """
    import networkx as nx

    # Each node is an edge from its entrance (k, 0) to its exit (k, 1); edges without a capacity
    # have an infinite one.
    flow: nx.DiGraph[tuple[int, int]] = nx.DiGraph()
    for k in range(len(linked)):
        flow.add_edge((k, 0), (k, 1), **({"capacity": 1} if allowed[k] else {}))
    flow.add_edges_from(((int(i), 1), (int(j), 0)) for i, j in np.argwhere(linked))
    try:
        _, (near, far) = nx.minimum_cut(flow, (source, 1), (sink, 0))
    except nx.NetworkXUnbounded:
        return None
    return sorted(k for k, side in near if side == 0 and (k, 1) in far)


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


def smallest_set_in_pag(marks: IntArray, cause: int, effect: int) -> list[int] | None:
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
    return _smallest_cut(mag, possibly_directed(marks), cause, effect)


def _smallest_cut(mag: IntArray, possible: BoolArray, cause: int, effect: int) -> list[int] | None:
    """Return the fewest variables that block all paths but those that a class may direct.

    Parameters
    ----------
    mag : ndarray of int, shape (d, d)
        Marks of a member of the class; changed in place.
    possible : ndarray of bool, shape (d, d)
        The edges of possibly directed paths of the class.
    cause, effect : int
    """
    # The paths that are left are those that adjustment has to block.
    for w in np.flatnonzero(possible[cause] & between(possible, cause, effect)):
        mag[cause, w] = mag[w, cause] = NONE
    ends = _only(possible, cause) | _only(possible, effect)
    relevant = ends | ancestors(directed_edges(mag))[:, ends].any(axis=1)
    allowed = relevant & ~ends & ~forbidden(possible, cause, effect)
    return vertex_cut(augmented(mag, relevant), cause, effect, allowed)


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

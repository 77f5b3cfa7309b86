"""Whether a graph with hidden common causes explains the rows better than the best without.

The check takes a graph that was found without hidden causes. Edges are taken away whose variables a
test finds independent given some of their neighbours, as long as the BIC of the ancestral graph
improves. If it improves, the same is done with the equivalence class of best BIC, and the best
graphs with and without hidden common causes are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.ges.ancestral_search import AncestralSearch
from flwr_causal.core.graphs.pag.marks import ARROW, NONE, ancestral_separators, marks_of_dag
from flwr_causal.core.graphs.pag.rules import oriented

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.ges.ancestral_search import PagSource
    from flwr_causal.core.graphs.knowledge import Knowledge

# The largest z, the most proposals of a pair, and by how many edges' costs a better score ends it.
CHECK_Z = 2.0
CHECK_PROPOSALS = 2
ENOUGH = 3.0
# Gains, in units of the cost of an edge: above the first the check goes on to the class of best
# BIC, of more variables than SUSPECTED only above the second, from which on it tells of hidden
# causes. docs/how_to/hidden_causes.md has how often it tells of them where there are none. Of more
# variables than SUSPECTED this class is searched from the order of the graph alone. From several
# orders the same 13 of 200 systems of 35 to 50 variables, 80 with hidden causes, were told of,
# three of them with other pairs, in three times the time.
SUSPICIOUS, LEAST_EVIDENCE = 0.3, 1.0
SUSPECTED = 30
# Graphs of more variables are not checked, nor graphs of more than SUSPECTED variables with more
# edges a variable: the check would take up to a minute (45 variables with three edges each 11 s, 60
# with two and a half 1.5 s).
MOST_CHECKED, MOST_EDGES = 60, 2.5


class HiddenCauses(NamedTuple):
    """What a graph with hidden common causes has in place of edges of one without.

    Attributes
    ----------
    gain
        By how much its BIC is better, in units of the cost of the dearest edge that it lacks; 0
        where none is better.
    common
        Pairs that have a hidden common cause and no effect on each other, in all graphs of its
        class; none where the gain is no evidence.
    """

    gain: float
    common: tuple[tuple[str, str], ...]

    @property
    def likely(self) -> bool:
        """Whether the evidence is worth telling; see docs/how_to/hidden_causes.md."""
        return self.gain > LEAST_EVIDENCE and len(self.common) > 0


def hidden_causes(
    source: PagSource,
    names: Sequence[str],
    dag: BoolArray,
    knowledge: Knowledge | None = None,
) -> HiddenCauses:
    """Return what speaks for hidden common causes against a graph that was found without them.

    A gain of less than an edge is no evidence: an edge whose effect other paths nearly cancel is
    lost in the same way.

    Parameters
    ----------
    source : PagSource
        Scores and tests of the d variables.
    names : sequence of str
        The variables in the order of the graph.
    dag : ndarray of bool, shape (d, d)
        The graph, ``[i, j]`` is i -> j.
    knowledge : Knowledge, optional

    Returns
    -------
    HiddenCauses
        Nothing for more than 60 variables, and for more than 30 with more than 2.5 edges each.
    """
    d = len(names)
    dense = d > SUSPECTED and np.count_nonzero(dag) > MOST_EDGES * d
    if d > MOST_CHECKED or dense:
        return HiddenCauses(0.0, ())
    costs = np.broadcast_to(source.score.edge_cost, (d, d))
    apart = costs[~np.eye(d, dtype=np.bool_)] if d > 1 else costs
    order = [list(names).index(name) for name in source.names]
    search = AncestralSearch(source, knowledge, CHECK_Z, CHECK_PROPOSALS, compiled=False)
    given = dag[np.ix_(order, order)]
    start = best = marks_of_dag(given)
    without = search.score(start)
    enough = ENOUGH * float(apart.max())
    mag, score = search.pruned(start, without, without - enough)
    least = SUSPICIOUS if d <= SUSPECTED else LEAST_EVIDENCE
    if without - score > least * float(apart.min()):
        search = AncestralSearch(source, knowledge, compiled=False)
        start = search.without_hidden_causes(near=given if d > SUSPECTED else None)
        begin = search.score(start)
        other, lower = search.pruned(start, begin, begin - enough)
        best, without = (start, begin) if begin < without else (best, without)
        mag, score = (other, lower) if lower < score else (mag, score)
    saved = costs[(best != NONE) & (mag == NONE)]
    unit = float((saved if len(saved) else apart).max())
    gain = float((without - score) / unit)
    if gain <= LEAST_EVIDENCE:
        return HiddenCauses(gain, ())
    marks = oriented(mag != NONE, ancestral_separators(mag), search.known)
    both = np.argwhere(np.triu((marks == ARROW) & (marks.T == ARROW)))
    pairs = sorted(tuple(sorted((order[i], order[j]))) for i, j in both)
    return HiddenCauses(gain, tuple((names[i], names[j]) for i, j in pairs))

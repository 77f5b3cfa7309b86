"""The graph of a linear Gaussian system with hidden common causes, from second moments.

The search begins with the equivalence class of best score without hidden causes
(:mod:`~flwr_causal.core.ges.linear_class`). Where a hidden common cause acts on variables that have
other causes, this class has edges that nothing stands for. Tests propose what is wrong: an edge
whose two variables are independent given a set of their neighbours is taken away, and what follows
for the marks of the others is worked out by FCI's rules. The score of the maximal ancestral graph
decides: a proposal stands if the Gaussian BIC improves. Changes of single edges, and of pairs of
edges that meet, follow as long as the BIC improves.

Tests alone (FCI) lose true edges, since each edge is tested many times, and an edge that is lost
misleads the marks of others; a score alone, without tests, seldom finds its way to the graph from
one without hidden causes.

References
----------
Ogarrio, J. M., Spirtes, P. & Ramsey, J. (2016). A hybrid causal search algorithm for latent
variable models. PGM.

Ramsey, J. et al. (2025). Efficient latent variable causal discovery: combining score search and
targeted testing. arXiv:2510.04263.

Triantafillou, S. & Tsamardinos, I. (2016). Score-based vs constraint-based causal learning in the
presence of confounders. UAI workshop on causation.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.ges.linear_class import GAMMA, linear_class
from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.equivalence import consistent_extension
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.knowledge import EdgeMasks
from flwr_causal.core.graphs.pag.marks import (
    ARROW,
    NONE,
    TAIL,
    ancestral_separators,
    directed_edges,
    is_ancestral,
    marks_of_dag,
)
from flwr_causal.core.graphs.pag.rules import Ancestry, member, oriented
from flwr_causal.core.limits import check_deadline
from flwr_causal.core.linear.ancestral_fit import AncestralScore
from flwr_causal.core.linear.gaussian_scores import edge_cost
from flwr_causal.core.linear.moments import as_moments
from flwr_causal.core.linear.solution import edge_masks
from flwr_causal.core.words import by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.core.linear.moments import Moments

# A test proposes to take an edge away if Fisher's z is below this. The score decides: a larger
# value costs time only.
MOST_Z = 4.0
# Largest set that a test conditions on, and the most sets of one size for each pair.
MOST_GIVEN = 4
MOST_SETS = 2000
# Proposals for each pair, with different neighbours of both in the set.
MOST_PROPOSALS = 9
# The same of the check of a graph that was found without hidden causes, and the most proposals that
# it tries; it ends once the score has improved by so many edges' costs.
CHECK_Z = 2.0
CHECK_PROPOSALS = 2
MOST_TRIED = 150
ENOUGH = 3.0
# Gains, in units of the cost of an edge: from the first on the check goes on to the class of best
# BIC, above the second it tells of hidden causes. See docs/how_to/hidden_causes.md.
SUSPICIOUS, LEAST_EVIDENCE = 0.5, 0.9
# Graphs of more variables are not checked: the check would take longer than the search.
MOST_CHECKED = 60
# Less is no improvement of a score: the likelihood is found by iteration.
LEAST_GAIN = 1e-4

_KINDS = ((ARROW, TAIL), (TAIL, ARROW), (ARROW, ARROW))


class HiddenCauses(NamedTuple):
    """What a graph with hidden common causes has in place of edges of one without.

    Attributes
    ----------
    gain
        By how much its BIC is better, in units of the cost of an edge; 0 where none is better.
    common
        Pairs that have a hidden common cause and no effect on each other, in all graphs of its
        class.
    """

    gain: float
    common: tuple[tuple[str, str], ...]

    @property
    def likely(self) -> bool:
        """Whether the evidence is worth telling; see docs/how_to/hidden_causes.md."""
        return self.gain > LEAST_EVIDENCE and len(self.common) > 0


def pag_search(moments_or_data: Any, *, knowledge: Knowledge | None = None) -> CausalGraph:
    """Learn the partial ancestral graph of a linear system with hidden common causes.

    Parameters
    ----------
    moments_or_data
        ``Moments``, an ``(n, d)`` array or a data frame.
    knowledge
        Background knowledge. Tiers say that a later variable is no cause of an earlier one, and a
        forbidden edge that there is no effect but through other variables that are seen; a hidden
        common cause of both remains possible. A required edge is a cause.

    Returns
    -------
    CausalGraph
        Of kind "pag".

    Raises
    ------
    DataError
        If a value is missing, or a variable is constant.
    ConfigError
        If the knowledge names a variable that the data do not have.
    """
    moments = as_moments(moments_or_data)
    return linear_pag(moments, knowledge)


def linear_pag(moments: Moments, knowledge: Knowledge | None) -> CausalGraph:
    """Find the PAG of best extended BIC that the search reaches, as :func:`pag_search`.

    The weights are the partial correlations of the two variables of an edge, given the other
    ancestors of both in one graph of the class.
    """
    order = by_name(moments.names)  # by which ties are broken
    search = _AncestralSearch(moments.subset(order), knowledge)
    mag = search.run()
    marks = oriented(mag != NONE, ancestral_separators(mag), search.known)
    back = np.ix_(np.argsort(order), np.argsort(order))
    return CausalGraph(
        moments.names,
        search.weights(mag)[back],
        kind="pag",
        marks=marks[back],
        required=search.required[back] if search.required.any() else None,
    )


def hidden_causes(
    moments: Moments, dag: BoolArray, knowledge: Knowledge | None = None
) -> HiddenCauses:
    """Return what speaks for hidden common causes against a graph that was found without them.

    Edges are taken away whose variables a test finds independent given some of their neighbours,
    as long as the BIC of the ancestral graph improves. If it improves, the same is done with the
    equivalence class of best BIC, and the best graphs with and without hidden common causes are
    compared. A gain of less than an edge is no evidence: an edge whose effect other paths nearly
    cancel is lost in the same way.

    Parameters
    ----------
    moments : Moments
    dag : ndarray of bool, shape (d, d)
        The graph, ``[i, j]`` is i -> j.
    knowledge : Knowledge, optional

    Returns
    -------
    HiddenCauses
        Nothing for more than 60 variables.
    """
    if moments.d > MOST_CHECKED:
        return HiddenCauses(0.0, ())
    order = by_name(moments.names)  # by which ties are broken
    search = _AncestralSearch(moments.subset(order), knowledge, CHECK_Z, CHECK_PROPOSALS)
    start = marks_of_dag(dag[np.ix_(order, order)])
    without = search.score(start)
    mag, score = search.pruned(start, without)
    if without - score > SUSPICIOUS * search.score.edge_cost:
        start = search.without_hidden_causes()
        other, lower = search.pruned(start, search.score(start))
        without = min(without, search.score(start))
        mag, score = (other, lower) if lower < score else (mag, score)
    return search.in_favour(mag, without - score)


class _AncestralSearch:
    """One search over maximal ancestral graphs."""

    def __init__(
        self,
        moments: Moments,
        knowledge: Knowledge | None,
        most_z: float = MOST_Z,
        most_proposals: int = MOST_PROPOSALS,
    ) -> None:
        self.moments, self.most_z, self.most_proposals = moments, most_z, most_proposals
        self.required = edge_masks(knowledge, moments.names).required
        self.known = Ancestry.of(knowledge, moments.names)
        cost = edge_cost(moments.n, moments.d, GAMMA)
        self.score = AncestralScore(moments.correlations, moments.n, cost)

    def run(self) -> IntArray:
        """Return the graph of best score that the search reaches."""
        mag = self.without_hidden_causes()
        score = self.score(mag)
        while True:
            before = score
            for changes in (self._separated, self._single_edges, self._meeting_edges):
                mag, score = self._improved(mag, score, changes)
            if score > before - LEAST_GAIN:
                return mag

    def without_hidden_causes(self) -> IntArray:
        d = self.moments.d
        possible = ~self.known.no_causes & ~np.eye(d, dtype=np.bool_)
        found = linear_class(
            [self.moments] * d,
            EdgeMasks(possible | self.required, self.required),
            distinguished=np.zeros((d, d), dtype=np.bool_),
            by_orders=True,
        )
        dag = consistent_extension(found.marks)
        assert dag is not None
        return marks_of_dag(dag)

    def _improved(
        self, mag: IntArray, score: float, changes: Callable[[IntArray], Iterator[IntArray]]
    ) -> tuple[IntArray, float]:
        """Take the first change that improves the score, until none does."""
        while True:
            check_deadline()
            for changed in changes(mag):
                if self._fits(changed) and (new := self.score(changed)) < score - LEAST_GAIN:
                    mag, score = changed, new
                    break
            else:
                return mag, score

    def _fits(self, mag: IntArray) -> bool:
        """Whether a graph is ancestral and agrees with background knowledge."""
        directed = directed_edges(mag)
        against = ancestors(directed) & self.known.no_causes
        return is_ancestral(mag) and not against.any() and bool(directed[self.required].all())

    def in_favour(self, mag: IntArray, gain: float) -> HiddenCauses:
        """Return what a graph has in place of edges of one whose score is worse by so much."""
        marks = oriented(mag != NONE, ancestral_separators(mag), self.known)
        names = self.moments.names
        both = np.argwhere(np.triu((marks == ARROW) & (marks.T == ARROW)))
        pairs = tuple((names[i], names[j]) for i, j in both)
        return HiddenCauses(float(gain / self.score.edge_cost), pairs)

    def pruned(self, mag: IntArray, score: float) -> tuple[IntArray, float]:
        """Take edges away by one proposal after the other, each once, until enough is known."""
        enough = score - ENOUGH * self.score.edge_cost
        for _, i, j, given in self._proposals(mag != NONE)[:MOST_TRIED]:
            check_deadline()
            found = self._without_edge(mag, i, j, given) if mag[i, j] != NONE else None
            if found is not None and self._fits(found):
                new = self.score(found)
                if new < score - LEAST_GAIN:
                    mag, score = found, new
            if score < enough:
                break
        return mag, score

    def _separated(self, mag: IntArray) -> Iterator[IntArray]:
        """Yield graphs without one edge, whose variables a set of neighbours separates."""
        for _, i, j, given in self._proposals(mag != NONE):
            found = self._without_edge(mag, i, j, given)
            if found is not None:
                yield found

    def _without_edge(
        self, mag: IntArray, i: int, j: int, given: tuple[int, ...]
    ) -> IntArray | None:
        """Return a graph without the edge of i and j, whom a set separates; None if none is."""
        separators, left = ancestral_separators(mag), mag != NONE
        left[i, j] = left[j, i] = False
        for pair in ((i, j), (j, i)):
            separators[pair] = False
            separators[pair][list(given)] = True
        return member(oriented(left, separators, self.known))

    def _proposals(self, adjacent: BoolArray) -> list[tuple[float, int, int, tuple[int, ...]]]:
        """Return z, the two variables and the set of each proposal, least z first."""
        found = []
        for i, j in np.argwhere(np.triu(adjacent)):
            common = np.flatnonzero(adjacent[i] & adjacent[j])
            if not len(common):  # the edge is in no triangle: it is there to stay
                continue
            near = [set(np.flatnonzero(adjacent[a]).tolist()) - {i, j} for a in (i, j)]
            best: dict[tuple[bool, ...], tuple[float, int, int, tuple[int, ...]]] = {}
            for size in range(MOST_GIVEN + 1):
                sets = sorted({s for pool in near for s in combinations(sorted(pool), size)})
                if not sets or len(sets) > MOST_SETS:
                    break
                for z, given in zip(self._z(i, j, sets), sets, strict=True):
                    key = tuple(k in given for k in common)
                    if z < self.most_z and (key not in best or z < best[key][0]):
                        best[key] = (float(z), int(i), int(j), given)
            found += sorted(best.values())[: self.most_proposals]
        return sorted(found)

    def _z(self, i: int, j: int, sets: list[tuple[int, ...]]) -> FloatArray:
        """Return Fisher's z of the partial correlation of i and j given sets of one size."""
        columns = np.array([(i, j, *given) for given in sets])
        inner = self.moments.correlations[columns[:, :, None], columns[:, None, :]]
        try:
            inverse = np.linalg.inv(inner)
        except np.linalg.LinAlgError:  # a set that determines one of them says nothing
            return np.full(len(sets), np.inf)
        partial = inverse[:, 0, 1] / np.sqrt(inverse[:, 0, 0] * inverse[:, 1, 1])
        rows = max(1, self.moments.n - columns.shape[1] - 1)
        return np.asarray(np.arctanh(np.minimum(np.abs(partial), 1 - 1e-12)) * np.sqrt(rows))

    def _single_edges(self, mag: IntArray) -> Iterator[IntArray]:
        """Yield graphs in which one edge is another one or none.

        Pairs that knowledge keeps a graph without hidden causes from joining may be joined.
        """
        apart = self.known.no_causes & self.known.no_causes.T
        for i, j in np.argwhere(np.triu((mag != NONE) | apart, 1)):
            for kind in (*_KINDS, (NONE, NONE)):
                if (mag[i, j], mag[j, i]) != kind:
                    changed = mag.copy()
                    changed[i, j], changed[j, i] = kind
                    yield changed

    def _meeting_edges(self, mag: IntArray) -> Iterator[IntArray]:
        """Yield graphs in which two edges that meet are other ones."""
        for b in range(len(mag)):
            for a, c in combinations(np.flatnonzero(mag[b]), 2):
                for one, two in product(_KINDS, _KINDS):
                    if (mag[a, b], mag[b, a]) != one and (mag[c, b], mag[b, c]) != two:
                        changed = mag.copy()
                        changed[a, b], changed[b, a] = one
                        changed[c, b], changed[b, c] = two
                        yield changed

    def weights(self, mag: IntArray) -> FloatArray:
        """Return the partial correlations of adjacent variables, see :func:`linear_pag`."""
        found = np.zeros(mag.shape)
        separators = ancestral_separators(mag)
        for i, j in np.argwhere(np.triu(mag != NONE)):
            columns = [i, j, *np.flatnonzero(separators[i, j])]
            inverse = np.linalg.pinv(self.moments.correlations[np.ix_(columns, columns)])
            value = -inverse[0, 1] / np.sqrt(inverse[0, 0] * inverse[1, 1])
            found[i, j] = found[j, i] = value if value else np.finfo(np.float64).tiny
        return found

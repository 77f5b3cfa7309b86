"""A search for ancestral graphs, of numbers or of blocks of columns.

The search begins with the equivalence class of best score without hidden causes
(see :meth:`PagSource.class_without`). Where a hidden common cause acts on variables that have
other causes, this class has edges without an effect. Tests propose what is wrong: an edge
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
from typing import TYPE_CHECKING, Protocol

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.pag.marks import (
    ARROW,
    NONE,
    TAIL,
    ancestral_separators,
    marks_of_dag,
)
from flwr_causal.core.graphs.pag.rules import Ancestry, member, oriented
from flwr_causal.core.limits import check_deadline
from flwr_causal.core.linear.solution import edge_masks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from flwr_causal.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
    from flwr_causal.core.linear.ancestral_fit import AncestralScore

# A test proposes to take an edge away if Fisher's z is below this. The score decides: a larger
# value costs time only.
MOST_Z = 4.0
# Largest set that a test conditions on, and the most sets of one size for each pair.
MOST_GIVEN = 4
MOST_SETS = 2000
# Proposals for each pair, with different neighbours of both in the set.
MOST_PROPOSALS = 9
# Proposals that `AncestralSearch.pruned` tries at most.
MOST_TRIED = 300
# Less is no improvement of a score: the likelihood is found by iteration.
LEAST_GAIN = 1e-4

_KINDS = ((ARROW, TAIL), (TAIL, ARROW), (ARROW, ARROW))


class PagSource(Protocol):
    """What a search for a PAG asks of the rows.

    Attributes
    ----------
    names
        The d variables, in the order of names, by which ties are broken.
    score
        Of ancestral graphs.
    """

    names: tuple[str, ...]
    score: AncestralScore

    def z(self, i: int, j: int, sets: list[tuple[int, ...]]) -> FloatArray:
        """Return how clearly i and j depend given each of some sets of one size, as normal z."""

    def class_without(self, masks: EdgeMasks) -> BoolArray:
        """Return a DAG of the class of best score without hidden causes, ``(d, d)``."""

    def strength(self, i: int, j: int, given: IndexArray) -> float:
        """Return the strength of an edge given variables."""


class AncestralSearch:
    """One search over maximal ancestral graphs.

    Parameters
    ----------
    source : PagSource
    knowledge : Knowledge, optional
    most_z, most_proposals
        See ``MOST_Z`` and ``MOST_PROPOSALS``.
    """

    def __init__(
        self,
        source: PagSource,
        knowledge: Knowledge | None,
        most_z: float = MOST_Z,
        most_proposals: int = MOST_PROPOSALS,
    ) -> None:
        self.source, self.score = source, source.score
        self.most_z, self.most_proposals = most_z, most_proposals
        self.required = edge_masks(knowledge, source.names).required
        self.known = Ancestry.of(knowledge, source.names)

    def graph(self, names: tuple[str, ...]) -> CausalGraph:
        """Return the PAG of best score that the search reaches, over the names in their order."""
        mag = self.run()
        marks = oriented(mag != NONE, ancestral_separators(mag), self.known)
        places = [self.source.names.index(name) for name in names]
        back = np.ix_(places, places)
        return CausalGraph(
            names,
            self.weights(mag)[back],
            kind="pag",
            marks=marks[back],
            required=self.required[back] if self.required.any() else None,
        )

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
        """Return the marks of a DAG of the class of best score without hidden causes."""
        return marks_of_dag(self.source.class_without(self.known.edges(self.required)))

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
        return self.known.agrees(mag, self.required)

    def pruned(self, mag: IntArray, score: float, enough: float) -> tuple[IntArray, float]:
        """Take edges away by one proposal after the other until the score is below ``enough``."""
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
                for z, given in zip(self.source.z(i, j, sets), sets, strict=True):
                    key = tuple(k in given for k in common)
                    if z < self.most_z and (key not in best or z < best[key][0]):
                        best[key] = (float(z), int(i), int(j), given)
            found += sorted(best.values())[: self.most_proposals]
        return sorted(found)

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
        """Return the strengths of edges given the other ancestors of their variables."""
        found = np.zeros(mag.shape)
        separators = ancestral_separators(mag)
        for i, j in np.argwhere(np.triu(mag != NONE)):
            value = self.source.strength(i, j, np.flatnonzero(separators[i, j]))
            found[i, j] = found[j, i] = value if value else np.finfo(np.float64).tiny
        return found

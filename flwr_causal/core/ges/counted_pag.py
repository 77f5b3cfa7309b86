"""The graph of categories with hidden common causes, from contingency tables.

The search begins with a graph without hidden causes, which a score has found. Where a hidden common
cause acts on variables that have other causes, it has edges without an effect, and of weak effects
it misses some. Tests of independence decide for each pair of variables, given sets of at most two
neighbours of one of them in that graph:

- an edge is taken away if a p-value is above ``REMOVED``, which is larger for tests given more
  variables, since they find less;
- two variables that the graph does not join are joined if all p-values are small, among so many
  pairs (Benjamini & Hochberg 1995). The parents of each in the graph, which separate the two by the
  score, are among the sets, however many they are; where their table is too large for a test,
  the two are not joined.

The set with the largest p-value separates two variables that are not joined (Ramsey 2016), whatever
their order, and FCI's rules work out the marks. Where no ancestral graph has all these
independences, the clearest tests come first, and what contradicts them stays as the score has it.

A test is the likelihood ratio G, with degrees of freedom without the rows and columns of zeros.

References
----------
Spirtes, P., Glymour, C. & Scheines, R. (2000). Causation, prediction, and search. Chapter 6.
Ogarrio, J. M., Spirtes, P. & Ramsey, J. (2016). A hybrid causal search algorithm for latent
variable models. PGM.
Ramsey, J. (2016). Improving accuracy and scalability of the PC algorithm by maximizing p-value.
arXiv:1610.00378.
Benjamini, Y. & Hochberg, Y. (1995). Controlling the false discovery rate. JRSS B 57.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from flwr_causal.core.discrete.independence import independence
from flwr_causal.core.ges.ancestral_search import pag_graph
from flwr_causal.core.graphs.independence import largest_rejected, p_value
from flwr_causal.core.graphs.pag.marks import ancestral_separators, marks_of_dag
from flwr_causal.core.graphs.pag.rules import Ancestry, mag_of, pag_of_mag
from flwr_causal.core.limits import check_deadline
from flwr_causal.core.ties import as_ranked

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, IntArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import Knowledge

    Pair: TypeAlias = tuple[int, int]
    Given: TypeAlias = tuple[int, ...]

# The constants were chosen on 69 worlds: random networks and those of the bnlearn repository, with
# a fifth of the variables hidden and with none; docs/how_to/hidden_causes.md has results on others.
#: An edge of the graph of the score goes if a p-value is above this: of tests given no variable,
#: one, and more.
REMOVED = (0.1, 0.2, 0.5)
#: Of the pairs that are joined beside those of the score, the share that may be false by chance;
#: and the largest p-value of such a pair, above which no further set is tried.
FALSE_SHARE, JOINED = 0.5, 0.05
#: The sizes of the sets of neighbours, by level: all tests of a level are asked for together.
LEVELS = ((0, 1), (2,))
#: Rows for each cell that a test given other variables needs, and the most cells of its table.
ROWS_A_CELL, MOST_CELLS = 10, 10**6


class SeparationTest(NamedTuple):
    """The test of a pair that speaks most for its independence.

    Attributes
    ----------
    p
        The p-value.
    given
        The variables that are held fixed.
    strength
        Of the dependence, see :class:`~flwr_causal.core.graphs.independence.Independence`.
    """

    p: float
    given: Given
    strength: float

    @property
    def removed(self) -> float:
        """The p-value above which it takes an edge away."""
        return REMOVED[min(len(self.given), len(REMOVED) - 1)]


class SeparationTests:
    """The tests of all pairs of variables, and the PAG that follows.

    Parameters
    ----------
    names : tuple of str
        The d variables.
    dag : ndarray of bool, shape (d, d)
        The graph without hidden causes.
    cardinalities : ndarray of int64, shape (d,)
    num_rows : int
    knowledge : Knowledge, optional
        As of :func:`~flwr_causal.core.blocks.pag.pag_search`.
    drawn : bool, default False
        Whether the rows were drawn from others with replacement. Chance dependences of a sample are
        those of the draws, too, so that G of independent variables is twice as large on average;
        tests take half of it.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        dag: BoolArray,
        cardinalities: IntArray,
        num_rows: int,
        knowledge: Knowledge | None = None,
        *,
        drawn: bool = False,
    ) -> None:
        self.names, self.dag = names, dag
        self._excess = 2.0 if drawn else 1.0
        self.cardinalities, self.num_rows = cardinalities, num_rows
        self.adjacent: BoolArray = dag | dag.T
        self.known = Ancestry.of(knowledge, names)
        self.found: dict[Pair, SeparationTest] = {}
        self._apart: set[Pair] = set()
        self._level = 0
        self._asked: dict[Given, list[tuple[Pair, Given]]] = {}
        self._open: Counter[Pair] = Counter()

    def next_level(self) -> list[Given]:
        """Return the sets of variables whose tables the tests of the next level need, ascending.

        Empty if no tests are left.
        """
        self._asked, self._open = {}, Counter()
        while self._level < len(LEVELS) and not self._asked:
            last = self._level == len(LEVELS) - 1
            for pair in combinations(range(len(self.dag)), 2):
                if pair in self._apart:
                    continue
                sets = self._near(pair)
                if last and not self.adjacent[pair]:
                    sets |= self._parents(pair)
                for given in sorted(sets):
                    self._asked.setdefault(tuple(sorted((*pair, *given))), []).append((pair, given))
                    self._open[pair] += 1
            self._level += 1
        return sorted(self._asked)

    def learn(self, members: Given, table: IntArray) -> None:
        """Take the table of some variables, an axis for each, and make the tests that need it."""
        for pair, given in self._asked[members]:
            axes = [members.index(k) for k in (*given, *pair)]
            test = independence(table.transpose(axes))
            if test is not None:
                p = p_value(test.ratio / self._excess, test.degrees)
                self._keep(pair, SeparationTest(p, given, test.strength))
            self._open[pair] -= 1

    def _keep(self, pair: Pair, test: SeparationTest) -> None:
        """Keep the test with the largest p-value; of equal ones that with the fewest variables."""
        if test.p > (test.removed if self.adjacent[pair] else JOINED):
            self._apart.add(pair)
        order = (-test.p, len(test.given), test.given)
        own = self.found.get(pair)
        if own is None or order < (-own.p, len(own.given), own.given):
            self.found[pair] = test

    def _near(self, pair: Pair) -> set[Given]:
        """Return the sets of neighbours that a pair is tested given, at this level."""
        found: set[Given] = set()
        for end in pair:
            near = [k for k in np.flatnonzero(self.adjacent[end]).tolist() if k not in pair]
            for size in LEVELS[self._level]:
                found |= {
                    given for given in combinations(near, size) if self._testable(pair, given)
                }
        return found

    def _parents(self, pair: Pair) -> set[Given]:
        """Return the parents of each of a pair; where no test is possible they separate it."""
        both = {tuple(np.flatnonzero(self.dag[:, end]).tolist()) for end in pair}
        found = {parents for parents in both if self._testable(pair, parents)}
        for parents in both - found:
            self._keep(pair, SeparationTest(1.0, parents, 0.0))
        return found

    def _testable(self, pair: Pair, given: Given) -> bool:
        """Whether a test has enough rows."""
        cells = np.prod(self.cardinalities[[*pair, *given]], dtype=np.float64)
        return not given or bool(cells <= min(self.num_rows / ROWS_A_CELL, MOST_CELLS))

    def graph(self) -> CausalGraph:
        """Return the PAG of all tests so far.

        A weight is the strength of the edge, from 0 to 1, by the test that speaks most against it.
        """
        marks = pag_of_mag(self._mag(), self.known)

        def strength(i: int, j: int) -> float:
            return self.found[i, j].strength if (i, j) in self.found else 0.0

        return pag_graph(self.names, marks, self.known, strength)

    def _mag(self) -> IntArray:
        """Return an ancestral graph with the independences of the tests, where one has all."""
        mag = marks_of_dag(self.dag)
        before = ancestral_separators(mag)
        joined, separators, clearness = self._tested(before)
        # What decides the graph: an edge, or a collider.
        near = self.adjacent | joined
        colliders = ((separators != before) & near[:, None] & near).any(axis=2) & ~joined
        differ = np.argwhere(np.triu((joined != self.adjacent) | colliders, 1))
        pairs: list[Pair] = [(i, j) for i, j in differ.tolist()]
        kept: list[Pair] = []
        waiting = [sorted(pairs, key=lambda pair: (-clearness[pair], pair))]
        while waiting:
            check_deadline()
            part = waiting.pop()
            tried = np.zeros_like(joined)
            for i, j in (*kept, *part):
                tried[i, j] = tried[j, i] = True
            found = mag_of(
                np.where(tried, joined, self.adjacent),
                np.where(tried[:, :, None], separators, before),
                self.known,
            )
            if found is not None:
                mag, kept = found, [*kept, *part]
            elif len(part) > 1:
                half = len(part) // 2
                waiting += [part[half:], part[:half]]
        return mag

    def _tested(self, before: BoolArray) -> tuple[BoolArray, BoolArray, dict[Pair, float]]:
        """Return the pairs that are joined by the tests, and what separates the others.

        Parameters
        ----------
        before : ndarray of bool, shape (d, d, d)
            ``[i, j, k]``: k separates i and j, among others, in the graph of the score.

        Returns
        -------
        joined, separators, clearness
            As ``adjacent`` and ``before``; and of each pair the distance of the logarithm of the
            p-value from that of its limit.
        """
        joined, separators = self.adjacent.copy(), before.copy()
        most = self._joined()
        clearness, least = {}, np.finfo(np.float64).tiny
        for pair, test in self.found.items():
            if self._open[pair]:  # tests of it are missing
                continue
            i, j = pair
            stays = pair not in self._apart if self.adjacent[pair] else test.p <= most
            forced = self.known.required[i, j] or self.known.required[j, i]
            joined[i, j] = joined[j, i] = forced or stays
            separators[i, j] = separators[j, i] = np.isin(np.arange(len(joined)), test.given)
            limit = test.removed if self.adjacent[pair] else most
            clearness[pair] = abs(float(as_ranked(np.log(max(test.p, least) / max(limit, least)))))
        return joined, separators, clearness

    def _joined(self) -> float:
        """Return the largest p-value of pairs that are joined beside those of the score."""
        apart = [test.p for pair, test in self.found.items() if not self.adjacent[pair]]
        return min(JOINED, largest_rejected(apart, FALSE_SHARE))

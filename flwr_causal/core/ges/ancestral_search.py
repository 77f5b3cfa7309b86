"""The score of ancestral graphs, the search for the best one, and what it says of hidden causes.

In a maximal ancestral graph i -> j is an effect of i on j, and i <-> j a covariance of their noise
terms, which a hidden common cause brings about. The Gaussian likelihood is a product of one factor
for each district, the variables that such covariances connect; each is maximised apart.

The search begins with the equivalence class of best score without hidden causes
(see :meth:`PagSource.class_without`). Where a hidden common cause acts on variables that have
other causes, this class has edges without an effect. Tests propose what is wrong: an edge
whose two variables are independent given a set of their neighbours is taken away, and what follows
for the marks of the others is worked out by FCI's rules. The score of the maximal ancestral graph
decides: a proposal stands if the Gaussian BIC improves. Changes of single edges, and of pairs of
edges that meet, follow as long as the BIC improves.

Graphs that differ in many marks may have nearly the same score, and the sample decides which of
them is found. The search is therefore repeated on moments that are drawn as those of other samples
would be (see :meth:`PagSource.draws`). The graphs that it reaches there are further starts on the
moments of the rows, and a mark that too few of them have becomes a circle.

Tests alone (FCI) lose true edges, since each edge is tested many times, and an edge that is lost
misleads the marks of others; a score alone, without tests, seldom finds its way to the graph from
one without hidden causes.

:func:`hidden_causes` takes a graph that was found without hidden causes, and asks whether one with
them explains the rows better.

References
----------
Drton, M., Eichler, M. & Richardson, T. (2009). Computing maximum likelihood estimates in recursive
linear models with correlated errors. JMLR 10.

Ogarrio, J. M., Spirtes, P. & Ramsey, J. (2016). A hybrid causal search algorithm for latent
variable models. PGM.

Ramsey, J. et al. (2025). Efficient latent variable causal discovery: combining score search and
targeted testing. arXiv:2510.04263.

Friedman, N., Goldszmidt, M. & Wyner, A. (1999). Data analysis with Bayesian networks: a bootstrap
approach. UAI.

Triantafillou, S. & Tsamardinos, I. (2016). Score-based vs constraint-based causal learning in the
presence of confounders. UAI workshop on causation.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache
from itertools import combinations, islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.ges.ancestral_kernels import (
    FIT_TIE,
    MOST_SWEEPS,
    TOLERANCE,
    AncestralBounds,
    Scored,
    other_edge,
    other_meeting_edges,
    total,
)
from flwr_causal.core.graphs.acyclicity import ancestors
from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.core.graphs.independence import IndependenceTests
from flwr_causal.core.graphs.pag.marks import (
    ARROW,
    CIRCLE,
    NONE,
    TAIL,
    ancestral_separators,
    directed_edges,
    marks_of_dag,
)
from flwr_causal.core.graphs.pag.rules import Ancestry, mag_of, pag_of_mag
from flwr_causal.core.limits import MOST_STEPS, each, least_eigenvalue, steps
from flwr_causal.core.ties import LEAST_SHARE, as_ranked, is_lower

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr_causal.core.arrays import BoolArray, FloatArray, IndexArray, IntArray
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge

    # z, the two variables, and the set that may separate them.
    Proposal = tuple[float, int, int, tuple[int, ...]]

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
# Shares of the drawn moments whose graphs have an edge -> that is one in the result; an arrowhead;
# an edge that the graph of best score has; and one that it has not. On 70 systems with hidden
# causes (10 to 20 variables, 1,000 to 10,000 rows; seeds 100000-100023) the first is the least with
# which at most 5 % of the edges -> are wrong (with 0.9 it is 5.3 %); with the last two edges are
# found best of those with which nothing is lost on 16 systems without.
LEAST_CAUSES, LEAST_HEADS, LEAST_KEPT, LEAST_ADDED = 1.0, 0.5, 0.2, 0.4
# Of the check for hidden causes the largest z, the most proposals of a pair, and by how many edges'
# costs a better score ends it.
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


class AncestralScore:
    """The Gaussian BIC of maximal ancestral graphs of the same variables; lower is better.

    It is, up to a constant, the negative log likelihood plus the cost of the edges. Graphs with the
    same independences have the same.

    Parameters
    ----------
    correlations : ndarray of shape (m, m)
        Of all columns. Eigenvalues below :data:`~flwr_causal.core.ties.LEAST_SHARE` are raised to
        it, so that each graph has a score, of columns that others determine too.
    n : int
        Number of rows.
    edge_cost : float, or ndarray of shape (d, d)
        Symmetric where it is an array.
    widths : sequence of int, optional
        Number of columns of each of the d variables, side by side; an edge then joins all columns
        of both. Default: one each.

    Attributes
    ----------
    owner : ndarray of int, shape (m,)
        The variable of each column.
    """

    def __init__(
        self,
        correlations: FloatArray,
        n: int,
        edge_cost: float | FloatArray,
        widths: Sequence[int] | None = None,
    ) -> None:
        if np.linalg.eigvalsh(correlations).min(initial=1.0) < LEAST_SHARE:
            correlations = least_eigenvalue(correlations, LEAST_SHARE)
        self.correlations, self.n, self.edge_cost = correlations, n, edge_cost
        each = np.ones(len(correlations), dtype=np.intp) if widths is None else np.asarray(widths)
        self.owner = np.repeat(np.arange(len(each)), each)
        self._alike = self.owner[:, None] == self.owner
        np.fill_diagonal(self._alike, False)
        self._known: dict[tuple[bytes, ...], float] = {}

    def __call__(self, marks: IntArray) -> float:
        """Return the score of a graph of tails and arrowheads, ``(d, d)``."""
        directed, both = directed_edges(marks), (marks == ARROW) & (marks.T == ARROW)
        places = np.ix_(self.owner, self.owner)
        of_columns = directed[places], both[places] | self._alike
        total = 0.0
        for district in _districts(both):
            key = (district.tobytes(), directed[:, district].tobytes(), both[district].tobytes())
            if key not in self._known:
                columns = np.flatnonzero(np.isin(self.owner, district))
                self._known[key] = _deviance(self.correlations, *of_columns, columns)
            total += self._known[key]
        costs = np.broadcast_to(self.edge_cost, marks.shape)[marks != NONE]
        return 0.5 * self.n * total + 0.5 * float(costs.sum())


def _districts(both: BoolArray) -> list[IndexArray]:
    """Return the sets of variables that edges i <-> j connect."""
    if not both.any():
        return [np.array([k], dtype=np.intp) for k in range(len(both))]
    linked = ancestors(both | np.eye(len(both), dtype=np.bool_))
    return [np.flatnonzero(row) for k, row in enumerate(linked) if not row[:k].any()]


def _deviance(
    correlations: FloatArray, directed: BoolArray, both: BoolArray, district: IndexArray
) -> float:
    """Return -2 log likelihood of a district for one row, up to a constant; inf if it has none.

    Iterative conditional fitting: each variable is regressed on its causes and on what the noise
    terms of the other variables of its district predict of its own.
    """
    if len(district) == 1:
        (column,) = district
        return _deviance_of_one(correlations, np.flatnonzero(directed[:, column]), column)
    used = np.union1d(district, np.flatnonzero(directed[:, district].any(axis=1)))
    own = np.searchsorted(used, district)
    second = correlations[np.ix_(used, used)]
    causes = [np.flatnonzero(column) for column in directed[np.ix_(used, district)].T]
    partners = both[np.ix_(district, district)]
    # The noise terms as combinations of the variables, one a column, and their covariance.
    noise = np.zeros((len(used), len(district)))
    covariance = np.zeros((len(district), len(district)))
    before = np.inf
    try:
        for k, parents in enumerate(causes):
            noise[own[k], k] = 1
            noise[parents, k] = -_solved(second, parents, own[k])
            covariance[k, k] = noise[:, k] @ second @ noise[:, k]
        # Where all have the same causes and no covariance is 0, regression is the maximum.
        alike = all(np.array_equal(parents, causes[0]) for parents in causes)
        saturated = alike and int(partners.sum()) == len(district) * (len(district) - 1)
        if saturated:
            covariance = noise.T @ second @ noise
        for _ in range(0 if saturated else MOST_SWEEPS):
            for k, parents in enumerate(causes):
                _refit(second, noise, covariance, (k, own[k]), parents, partners[k])
            now = _value(second, noise, covariance)
            if before - now < TOLERANCE:
                break
            before = now
        return _value(second, noise, covariance)
    except np.linalg.LinAlgError:
        return np.inf


def _deviance_of_one(second: FloatArray, causes: IndexArray, column: int) -> float:
    """Return the deviance of one column, as :func:`_deviance`: that of a regression."""
    try:
        effects = _solved(second, causes, column)
    except np.linalg.LinAlgError:
        return np.inf
    left = float(second[column, column] - second[causes, column] @ effects)
    return float(np.log(left)) + 1.0 if left > 0 else np.inf


def _solved(second: FloatArray, parents: IndexArray, child: int) -> FloatArray:
    return np.linalg.solve(second[np.ix_(parents, parents)], second[parents, child])


def _refit(
    second: FloatArray,
    noise: FloatArray,
    covariance: FloatArray,
    place: tuple[int, int],
    parents: IndexArray,
    partners: BoolArray,
) -> None:
    """Fit one variable's effects and covariances of noise, the others fixed, in place.

    Parameters
    ----------
    second, noise, covariance
        As in :func:`_deviance`.
    place : (int, int)
        The variable among those of the district, and among those used.
    parents : ndarray of int
        Its causes among those used.
    partners : ndarray of bool
        Those of the district with a covariance.
    """
    k, child = place
    others = np.arange(len(covariance)) != k
    inverse = np.linalg.inv(covariance[np.ix_(others, others)])
    shared = partners[others]
    design = np.concatenate(
        [np.eye(len(second))[:, parents], (noise[:, others] @ inverse)[:, shared]], axis=1
    )
    reached = design.T @ second
    found = np.linalg.solve(reached @ design, reached[:, child])
    noise[parents, k] = -found[: len(parents)]
    own = np.zeros(len(covariance) - 1)
    own[shared] = found[len(parents) :]
    covariance[k, others] = covariance[others, k] = own
    left = second[child, child] - reached[:, child] @ found
    covariance[k, k] = left + own @ inverse @ own


def _value(second: FloatArray, noise: FloatArray, covariance: FloatArray) -> float:
    sign, logarithm = np.linalg.slogdet(covariance)
    if sign <= 0:
        return np.inf
    return float(logarithm + np.trace(np.linalg.solve(covariance, noise.T @ second @ noise)))


class PagSource(IndependenceTests):
    """What a search for a PAG asks of the rows beside tests of independence.

    Attributes
    ----------
    names
        The d variables, in the order of names, by which ties are broken.
    score
        Of ancestral graphs.
    """

    names: tuple[str, ...]
    score: AncestralScore

    @abstractmethod
    def class_without(self, masks: EdgeMasks, near: BoolArray | None = None) -> BoolArray:
        """Return a DAG of the class of best score without hidden causes, ``(d, d)``.

        Parameters
        ----------
        masks : EdgeMasks
        near : ndarray of bool, shape (d, d), optional
            A DAG that a search has found: a shorter search begins with its order.
        """

    def draws(self) -> Sequence[PagSource]:
        """Return what other samples of as many rows might say; nothing if that is not known."""
        return ()


class AncestralSearch:
    """One search over maximal ancestral graphs.

    Parameters
    ----------
    source : PagSource
    knowledge : Knowledge, optional
    most_z, most_proposals
        See ``MOST_Z`` and ``MOST_PROPOSALS``.
    compiled : bool, default True
        Whether scores are computed by compiled functions. A search of a few graphs is over before
        these are compiled.
    """

    def __init__(
        self,
        source: PagSource,
        knowledge: Knowledge | None,
        most_z: float = MOST_Z,
        most_proposals: int = MOST_PROPOSALS,
        *,
        compiled: bool = True,
    ) -> None:
        self.source, self.knowledge = source, knowledge
        score, d = source.score, len(source.names)
        costs = np.broadcast_to(score.edge_cost, (d, d))
        self._scored = Scored.of(score.correlations, score.owner, score.n, costs)
        self.score: Callable[[IntArray], float] = self._total if compiled else score
        self.most_z, self.most_proposals = most_z, most_proposals
        # Of a pair, by it and the neighbours of both.
        self._proposed: dict[tuple[int, int, bytes, bytes], list[Proposal]] = {}
        self.known = Ancestry.of(knowledge, source.names)
        # In one memory layout: for another one the kernels would be compiled again.
        no_causes, required = map(np.ascontiguousarray, (self.known.no_causes, self.known.required))
        # Pairs that knowledge keeps a graph without hidden causes from joining may be joined.
        self._bounds = AncestralBounds(no_causes, required, no_causes & no_causes.T)

    def graph(self, names: tuple[str, ...]) -> CausalGraph:
        """Return the PAG of best score that is found, over the names in their order.

        Marks that other samples might not confirm are circles, see :func:`confirmed`.
        """
        mag, drawn = self.best()
        pags = [pag_of_mag(found, self.known) for found in (mag, *drawn)]
        marks, separators = confirmed(pags[0], pags[1:], self.known), ancestral_separators(mag)

        def strength(i: int, j: int) -> float:
            return self.source.strength(i, j, np.flatnonzero(separators[i, j]))

        return pag_graph(self.source.names, marks, self.known, strength).reordered(names)

    def best(self) -> tuple[IntArray, list[IntArray]]:
        """Return the graph of best score that is found, and those found on drawn moments."""
        mag = self.run()
        score = self.score(mag)
        draws = each("Ancestral graphs of drawn moments", self.source.draws())
        drawn = [AncestralSearch(source, self.knowledge).run() for source in draws]
        for start in drawn:
            found = self._with_other_edges(start)
            if self._is_lower(self.score(found), score):
                mag = self._climbed(found)
                score = self.score(mag)
        return mag, drawn

    def run(self) -> IntArray:
        """Return the graph of best score that one search reaches."""
        return self._climbed(self.without_hidden_causes())

    def _climbed(self, mag: IntArray) -> IntArray:
        """Change a graph until no change improves its score."""
        score = self.score(mag)
        for _ in steps("The search for an ancestral graph", MOST_STEPS):
            found = self._with_other_edges(self.pruned(mag, score)[0])
            reached = self.score(found)
            if not self._is_lower(reached, score):
                break
            mag, score = found, reached
        return mag

    def _is_lower(self, score: float, than: float) -> bool:
        """Whether a score is better by more than the fits' and rounding's errors."""
        return is_lower(score, than, self._scored.rows, FIT_TIE)

    def _total(self, mag: IntArray) -> float:
        return float(total(self._scored, np.ascontiguousarray(mag), np.empty(len(mag))))

    def _with_other_edges(self, mag: IntArray) -> IntArray:
        """Change single edges, then pairs that meet, until none of these improves the score."""
        mag, bounds = np.array(mag, dtype=np.int64, order="C"), self._bounds
        scored, changed, parts = self._scored, np.empty_like(mag), np.zeros(len(mag))
        total(scored, mag, parts)
        for change in (other_edge, other_meeting_edges):
            for _ in steps("The search for an ancestral graph", MOST_STEPS * len(mag)):
                if not change(scored, bounds, mag, changed, parts):
                    break
        return mag

    def without_hidden_causes(self, near: BoolArray | None = None) -> IntArray:
        """Return the marks of a DAG of the class of best score without hidden causes.

        Parameters
        ----------
        near : ndarray of bool, shape (d, d), optional
            As of :meth:`PagSource.class_without`.
        """
        return marks_of_dag(self.source.class_without(self.known.edges(), near))

    def pruned(
        self, mag: IntArray, score: float, enough: float = -np.inf
    ) -> tuple[IntArray, float]:
        """Take edges away by one proposal after the other until the score is below ``enough``."""
        proposals = self._proposals(mag != NONE)[:MOST_TRIED]
        separators = ancestral_separators(mag)
        for _, i, j, given in each("Edges that may be left out", proposals):
            found = self._without(mag, separators, i, j, given) if mag[i, j] != NONE else None
            if found is not None:
                new = self.score(found)
                if self._is_lower(new, score):
                    mag, score, separators = found, new, ancestral_separators(found)
            if score < enough:
                break
        return mag, score

    def _without(
        self, mag: IntArray, separators: BoolArray, i: int, j: int, given: tuple[int, ...]
    ) -> IntArray | None:
        """Return a graph without the edge of i and j, whom a set separates, see :func:`mag_of`."""
        left, own = mag != NONE, separators.copy()
        left[i, j] = left[j, i] = False
        own[i, j] = False
        own[i, j, list(given)] = True
        own[j, i] = own[i, j]
        return mag_of(left, own, self.known)

    def _proposals(self, adjacent: BoolArray) -> list[Proposal]:
        """Return z, the two variables and the set of each proposal, least z first."""
        found = []
        for i, j in np.argwhere(np.triu(adjacent)).tolist():
            key = (i, j, adjacent[i].tobytes(), adjacent[j].tobytes())
            if key not in self._proposed:
                self._proposed[key] = self._proposals_of(adjacent, i, j)
            found += self._proposed[key]
        return sorted(found)

    def _proposals_of(self, adjacent: BoolArray, i: int, j: int) -> list[Proposal]:
        """Return the proposals of two variables, least z first."""
        common = adjacent[i] & adjacent[j]
        if not common.any():  # the edge is in no triangle: it is there to stay
            return []
        rows, values, kinds = [], [], []
        for size in range(MOST_GIVEN + 1):
            sets = _neighbours(adjacent, i, j, size)
            if not 0 < len(sets) <= MOST_SETS:
                break
            z = as_ranked(self.source.z(i, j, sets))
            low = np.flatnonzero(z < self.most_z)
            # By a number for the common neighbours in the set.
            kind = np.zeros(len(low), dtype=np.int64)
            rows += list(sets[low])
            for column in sets[low].T:
                kind = np.where(common[column], kind * (len(common) + 1) + column + 1, kind)
            values.append(z[low])
            kinds.append(kind)
        clearness, kind = np.concatenate(values), np.concatenate(kinds)
        by_kind = np.lexsort((clearness, kind))
        first = np.diff(kind[by_kind], prepend=-1) != 0
        best = [(float(clearness[k]), i, j, tuple(rows[k].tolist())) for k in by_kind[first]]
        return sorted(best)[: self.most_proposals]


def pag_graph(
    names: tuple[str, ...],
    marks: IntArray,
    known: Ancestry,
    strength: Callable[[int, int], float],
) -> CausalGraph:
    """Return a PAG whose weights are the strengths of its edges.

    Parameters
    ----------
    names : tuple of str
        The d variables.
    marks : ndarray of int, shape (d, d)
    known : Ancestry
        Background knowledge.
    strength : callable
        Of the edge between two variables, given by their indices, the smaller one first.
    """
    weights = np.zeros(marks.shape)
    for i, j in np.argwhere(np.triu(marks != NONE)).tolist():
        weights[i, j] = weights[j, i] = strength(i, j) or np.finfo(np.float64).tiny
    needed = known.required if known.required.any() else None
    return CausalGraph(names, weights, kind="pag", marks=marks, required=needed)


def _neighbours(adjacent: BoolArray, i: int, j: int, size: int) -> IntArray:
    """Return the sets of neighbours of i, and those of j that are not, without i and j.

    Returns
    -------
    ndarray of int, shape (sets, size)
        Of more than :data:`MOST_SETS` sets some, but more than that.
    """
    near = [np.flatnonzero(adjacent[a]) for a in (i, j)]
    first, second = near[0][near[0] != j], near[1][near[1] != i]
    own, other = first[_combinations(len(first), size)], second[_combinations(len(second), size)]
    return np.concatenate([own, other[~adjacent[i][other].all(axis=1)]])


@lru_cache(maxsize=256)
def _combinations(count: int, size: int) -> IntArray:
    """Return the first sets of so many of ``count`` things, one more than `MOST_SETS` at most."""
    found = list(islice(combinations(range(count), size), MOST_SETS + 1))
    return np.array(found, dtype=np.int64).reshape(len(found), size)


def confirmed(marks: IntArray, drawn: Sequence[IntArray], known: Ancestry) -> IntArray:
    """Return the marks of a PAG with circles for those that other PAGs contradict too often.

    Parameters
    ----------
    marks : ndarray of int, shape (d, d)
    drawn : sequence of ndarray of int, shape (d, d)
        Marks of the others. Without any, all marks stand.
    known : Ancestry
        Background knowledge. Marks that follow from it stand.

    Returns
    -------
    ndarray of int, shape (d, d)
        A tail stands if :data:`LEAST_CAUSES` of the others have the same edge ->, an arrowhead if
        :data:`LEAST_HEADS` have it, or if its edge keeps a tail. An edge stands if
        :data:`LEAST_KEPT` have it. Pairs without an edge that :data:`LEAST_ADDED` of the others
        join have an edge with circles.
    """
    if not drawn:
        return marks
    causes = np.mean([directed_edges(other) for other in drawn], axis=0)
    heads = np.mean([other == ARROW for other in drawn], axis=0)
    edges = np.mean([other != NONE for other in drawn], axis=0)
    stands = np.where(marks == TAIL, causes.T >= LEAST_CAUSES, heads >= LEAST_HEADS)
    stands |= np.where(marks == TAIL, known.causes.T, known.no_causes.T)
    stands |= stands.T & (marks.T == TAIL)
    joined = edges >= np.where(marks != NONE, LEAST_KEPT, LEAST_ADDED)
    doubtful = np.where(known.no_causes.T, ARROW, CIRCLE)
    return np.where(joined, np.where((marks != NONE) & stands, marks, doubtful), NONE)


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

    Edges are taken away whose variables a test finds independent given some of their neighbours, as
    long as the BIC of the ancestral graph improves. If it improves, the same is done with the
    equivalence class of best BIC, and the best graphs with and without hidden common causes are
    compared.

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
    marks = pag_of_mag(mag, search.known)
    both = np.argwhere(np.triu((marks == ARROW) & (marks.T == ARROW)))
    pairs = sorted(tuple(sorted((order[i], order[j]))) for i, j in both)
    return HiddenCauses(gain, tuple((names[i], names[j]) for i, j in pairs))

"""The graph of a linear Gaussian system with hidden common causes, from second moments.

See :mod:`~flwr_causal.core.ges.ancestral_search` for the search.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.ges.ancestral_search import AncestralSearch
from flwr_causal.core.ges.linear_class import GAMMA, linear_class
from flwr_causal.core.graphs.equivalence import consistent_extension
from flwr_causal.core.graphs.pag.marks import ARROW, NONE, ancestral_separators, marks_of_dag
from flwr_causal.core.graphs.pag.rules import oriented
from flwr_causal.core.linear.ancestral_fit import AncestralScore
from flwr_causal.core.linear.gaussian_scores import edge_cost
from flwr_causal.core.linear.moments import Moments, as_moments
from flwr_causal.core.words import by_name

if TYPE_CHECKING:
    from flwr_causal.core.arrays import BoolArray, FloatArray, IndexArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge

# Draws of the moments on which the search is repeated.
NUM_DRAWS = 10
# Of the check of a graph that was found without hidden causes: the largest z, the most proposals of
# a pair, and by how many edges' costs a better score ends it.
CHECK_Z = 2.0
CHECK_PROPOSALS = 2
ENOUGH = 3.0
# Gains, in units of the cost of an edge: above the first the check goes on to the class of best
# BIC, of more variables than SUSPECTED only above the second, from which on it tells of hidden
# causes. Of systems without hidden causes (10 to 50 variables, up to four edges each, 500 to 20,000
# rows; seeds 20000-23999 and 40000-41199) none of 350 had more than the second, and 4 % more than
# 0.9, with which it finds a tenth more of those with hidden causes.
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


def pag_search(
    moments_or_data: Any, *, knowledge: Knowledge | None = None, draws: int = NUM_DRAWS
) -> CausalGraph:
    """Learn the partial ancestral graph of a linear system with hidden common causes.

    Parameters
    ----------
    moments_or_data
        ``Moments``, an ``(n, d)`` array or a data frame.
    knowledge
        Background knowledge. Tiers say that a later variable is no cause of an earlier one, and a
        forbidden edge that there is no effect but through other variables that are seen; a hidden
        common cause of both remains possible. A required edge is a cause.
    draws
        How often the search is repeated on second moments that are drawn as those of other samples
        would be; marks that these do not confirm are circles. With 0 all marks of the PAG of best
        score stand.

    Returns
    -------
    CausalGraph
        Of kind "pag". With draws its marks need not be those of one equivalence class: a circle
        also says that the rows do not decide.

    Raises
    ------
    DataError
        If a value is missing, or a variable is constant.
    ConfigError
        If the knowledge names a variable that the data do not have.
    """
    moments = as_moments(moments_or_data)
    return linear_pag(moments, knowledge, draws)


def linear_pag(
    moments: Moments, knowledge: Knowledge | None, draws: int = NUM_DRAWS
) -> CausalGraph:
    """Find the PAG of best extended BIC that the search reaches, as :func:`pag_search`.

    The weights are the partial correlations of the two variables of an edge, given the other
    ancestors of both in one graph of the class.
    """
    source = _Numbers(moments.subset(by_name(moments.names)), draws)
    return AncestralSearch(source, knowledge).graph(moments.names)


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
        Nothing for more than 60 variables, and for more than 30 with more than 2.5 edges each.
    """
    dense = moments.d > SUSPECTED and np.count_nonzero(dag) > MOST_EDGES * moments.d
    if moments.d > MOST_CHECKED or dense:
        return HiddenCauses(0.0, ())
    order = by_name(moments.names)  # by which ties are broken
    source = _Numbers(moments.subset(order))
    search = AncestralSearch(source, knowledge, CHECK_Z, CHECK_PROPOSALS)
    start = marks_of_dag(dag[np.ix_(order, order)])
    without = search.score(start)
    enough = ENOUGH * source.edge_cost
    mag, score = search.pruned(start, without, without - enough)
    least = SUSPICIOUS if moments.d <= SUSPECTED else LEAST_EVIDENCE
    if without - score > least * source.edge_cost:
        search = AncestralSearch(source, knowledge)
        start = search.without_hidden_causes()
        begin = search.score(start)
        other, lower = search.pruned(start, begin, begin - enough)
        without = min(without, begin)
        mag, score = (other, lower) if lower < score else (mag, score)
    marks = oriented(mag != NONE, ancestral_separators(mag), search.known)
    both = np.argwhere(np.triu((marks == ARROW) & (marks.T == ARROW)))
    pairs = sorted(tuple(sorted((order[i], order[j]))) for i, j in both)
    named = tuple((moments.names[i], moments.names[j]) for i, j in pairs)
    return HiddenCauses(float((without - score) / source.edge_cost), named)


class _Numbers:
    """Numbers: Fisher's z of partial correlations, and the Gaussian BIC."""

    def __init__(self, moments: Moments, num_draws: int = 0) -> None:
        self.moments, self.names, self.num_draws = moments, moments.names, num_draws
        self.edge_cost = edge_cost(moments.n, moments.d, GAMMA)
        self.score = AncestralScore(moments.correlations, moments.n, self.edge_cost)

    def z(self, i: int, j: int, sets: list[tuple[int, ...]]) -> FloatArray:
        """Return Fisher's z of the partial correlation of i and j given sets of one size."""
        columns = np.array([(i, j, *given) for given in sets])
        inner = self.moments.correlations[columns[:, :, None], columns[:, None, :]]
        try:
            inverse = np.linalg.inv(inner)
        except np.linalg.LinAlgError:  # a set that determines one of them says nothing
            return np.full(len(sets), np.inf)
        squares = inverse[:, 0, 0] * inverse[:, 1, 1]
        # Rounding leaves no variance of what the set determines.
        partial = np.where(
            squares > 0, inverse[:, 0, 1] / np.sqrt(np.where(squares > 0, squares, 1.0)), 1.0
        )
        rows = max(1, self.moments.n - columns.shape[1] - 1)
        return np.asarray(np.arctanh(np.minimum(np.abs(partial), 1 - 1e-12)) * np.sqrt(rows))

    def class_without(self, masks: EdgeMasks) -> BoolArray:
        """Return a DAG of the class of best score without hidden causes, ``(d, d)``."""
        d = self.moments.d
        nothing = np.zeros((d, d), dtype=np.bool_)
        found = linear_class([self.moments] * d, masks, distinguished=nothing, by_orders=True)
        dag = consistent_extension(found.marks)
        assert dag is not None
        return dag

    def strength(self, i: int, j: int, given: IndexArray) -> float:
        """Return the partial correlation of i and j."""
        columns = [i, j, *given]
        inverse = np.linalg.pinv(self.moments.correlations[np.ix_(columns, columns)])
        return float(-inverse[0, 1] / np.sqrt(inverse[0, 0] * inverse[1, 1]))

    def draws(self) -> list[_Numbers]:
        """Return moments of other samples of as many rows, if these were the true ones.

        There are none if rows are too few for moments of full rank.
        """
        rng, d = np.random.default_rng(0), self.moments.d
        found = [
            wishart(self.moments.correlations, self.moments.n, rng)
            for _ in range(self.num_draws if self.moments.n > d + 1 else 0)
        ]
        return [_Numbers(replace(self.moments, mean=np.zeros(d), second=part)) for part in found]


def wishart(second: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw the second moments, about their means, of n normal rows (Bartlett's decomposition).

    Parameters
    ----------
    second : ndarray of shape (d, d)
        The true ones, of any rank.
    n : int
        Number of rows, more than d.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of shape (d, d)
    """
    d = len(second)
    lower = np.tril(rng.normal(size=(d, d)), -1)
    lower[np.diag_indices(d)] = np.sqrt(rng.chisquare(n - 1 - np.arange(d)))
    values, vectors = np.linalg.eigh(second)
    factor = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T @ lower
    return np.asarray(factor @ factor.T / n)

"""The problem of a search of FedGES, and what is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from flwr_causal.core.discrete.scores import KINDS, ScoreTerms, terms_of
from flwr_causal.core.ges.greedy_search import prepared_search
from flwr_causal.core.ges.speculative_search import CountedGains
from flwr_causal.runtime.algorithm import Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.ges.speculative_search import SpeculativeGains
    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.data.check.agreement import Agreement


class Found(NamedTuple):
    """The result of a search.

    Attributes
    ----------
    marks : ndarray of bool, shape (d, d)
        The class.
    dag : ndarray of bool, shape (d, d)
        A member of it.
    reason : str
        Why the search is over, in words.
    support : ndarray of float64, shape (d, d), or None
        The share of the parties whose graph has each edge.
    score : str
        The score of the search, where the server computes it from sums.
    """

    marks: BoolArray
    dag: BoolArray
    reason: str
    support: FloatArray | None = None
    score: str = ""


#: The graphs of a search, one for each score in their order, and the number of its exchanges.
Searched: TypeAlias = tuple[tuple[Found, ...], int]
#: Returns what stands if the run ends with a graph so far.
Standing: TypeAlias = Callable[[Found], Result]


def by_name(names: Sequence[str]) -> list[int]:
    """Return the positions of the names in their sorted order."""
    return sorted(range(len(names)), key=names.__getitem__)


def cardinalities_of(agreement: Agreement) -> IntArray:
    """Return the numbers of states, the variables in the order of their names."""
    order = by_name(agreement.names)
    return np.array([len(agreement.states[k]) for k in order], dtype=np.int64)


USED_UP = "the exchanges were used up before the search had ended"


@dataclass(frozen=True)
class Problem:
    """The variables and options of a search.

    Parameters
    ----------
    names : tuple of str
        The variables, sorted.
    cardinalities : ndarray of int64, shape (d,)
    num_rows, num_parties : int
        Rows of all parties together, and how many parties there are.
    score : str
        The score by which the server searches.
    refined_by : tuple of str
        The scores of the search on counts that follows a search on likelihoods; empty: none.
    equivalent_sample_size : float
    knowledge : Knowledge or None
    max_parents : int or None
    turn : bool
    pooled : bool
        Whether the parties' tables are added up securely.
    withheld : bool, default False
        Whether parties withhold counts, so that tables count different rows.
    """

    names: tuple[str, ...]
    cardinalities: NDArray[np.int64]
    num_rows: int
    num_parties: int
    score: str
    refined_by: tuple[str, ...]
    equivalent_sample_size: float
    knowledge: Knowledge | None = None
    max_parents: int | None = None
    turn: bool = True
    pooled: bool = False
    withheld: bool = False

    def terms(self, score: str) -> ScoreTerms:
        """Return a score of the rows of all parties."""
        return terms_of(KINDS[score], self.equivalent_sample_size, self.num_rows)

    def counted(self, score: str, edge_cost: float = 0.0) -> CountedGains:
        """Return a source of gains from counts, of which none is known."""
        price = 0.5 * float(np.log(max(self.num_rows, 2)))
        terms = self.terms(score)
        return CountedGains(
            self.cardinalities,
            terms,
            price,
            edge_cost,
            own_margins=self.withheld,
        )

    def search(
        self,
        source: SpeculativeGains,
        score: str,
        start: BoolArray | None = None,
        pairs: BoolArray | None = None,
    ) -> Found:
        """Run a search with the known gains, and estimates of the others.

        Parameters
        ----------
        source : SpeculativeGains
        score : str
            The score that the gains are of.
        start : ndarray of bool, shape (d, d), optional
            The DAG from which the search starts. Default: no edges.
        pairs : ndarray of bool, shape (d, d), optional
            The pairs that an edge may join, symmetric. Default: all.
        """
        source.start_again()
        d = len(self.names)
        search = prepared_search(
            source,
            self.names,
            start=np.zeros((d, d), dtype=np.bool_) if start is None else start,
            knowledge=self.knowledge,
            max_parents=self.max_parents,
            pairs=pairs,
        )
        search.families = source.families
        search.run(turn=self.turn)
        source.take_back(search.families)
        reason = "no insertion or deletion improves the score"
        return Found(search.marks, search.dag, reason, score=score)

    def cut_short(
        self,
        source: SpeculativeGains,
        score: str,
        start: BoolArray | None = None,
        pairs: BoolArray | None = None,
    ) -> Found:
        """Return the graph that :meth:`search` reaches with known gains only."""
        source.known_only = True
        found = self.search(source, score, start, pairs)
        source.known_only = False
        return found._replace(reason=USED_UP)

"""What FedGES's searches share: variables, sums of counts, the fusion of graphs, and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from flwr_causal.core.discrete.contingency_tables import ContingencyCounts, num_cells
from flwr_causal.core.discrete.scores import KINDS, ScoreTerms, terms_of
from flwr_causal.core.parts import Part
from flwr_causal.errors import FederationError
from flwr_causal.protocol.fedges import COUNTS, FIT, POOLED_COUNTS, POOLED_FIT
from flwr_causal.runtime.algorithm import Ask

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from flwr_causal.core.arrays import BoolArray, FloatArray, IntArray
    from flwr_causal.core.discrete.contingency_tables import Sets
    from flwr_causal.core.ges.fusion import Fusion
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeMasks, Knowledge
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Result, Step

ENDED = "no insertion or deletion improves the score"
USED_UP = "the exchanges were used up before the search had ended"
#: Largest number of entries of a variable's table of probabilities.
MOST_CELLS = 10**6


class Found(NamedTuple):
    """The result of a search.

    Attributes
    ----------
    marks : ndarray of bool, shape (d, d)
        The class: ``[i, j]`` is i -> j, an undirected edge is True both ways.
    dag : ndarray of bool, shape (d, d)
        A member of it.
    reason : str
        Why the search is over, in words.
    support : ndarray of float64, shape (d, d), or None
        The share of the parties whose graph has each edge, once it is transformed to the order of
        the fusion; None without a fusion.
    score : str
        The score of the search, where the server computes it from sums.
    pag : CausalGraph or None
        The partial ancestral graph, of a search for hidden common causes.
    """

    marks: BoolArray
    dag: BoolArray
    reason: str
    support: FloatArray | None = None
    score: str = ""
    pag: CausalGraph | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """The results of the last exchange.

    Parameters
    ----------
    found : Found
        The graph with the highest held-out log-likelihood.
    tables : mapping of tuple of int to ndarray of int64
        By ascending members, the contingency tables over all rows of each variable with its
        parents.
    support : ndarray of float64, shape (d, d), or None
        The share of the parties whose own score agrees with each edge of the DAG; None where no
        party holds all columns.
    held_out : tuple of float
        The held-out log-likelihood of each graph, in nats a row.
    """

    found: Found
    tables: Mapping[tuple[int, ...], IntArray]
    support: FloatArray | None
    held_out: tuple[float, ...] = ()


#: The graphs of a search, one for each score in their order, and the number of its exchanges.
Searched: TypeAlias = tuple[tuple[Found, ...], int]


#: Largest number of cells that parties send in one secure sum.
MOST_POOLED = 2**24
#: The exchanges in place of others with secure sums.
POOLED = {COUNTS: POOLED_COUNTS, FIT: POOLED_FIT}


class CountedTables:
    """Contingency tables of the parties' rows, added up: the server's side of the source of counts.

    The party's side is :meth:`flwr_causal.clients.fedges.FedGESClient.counts`. Parties count all
    rows, or before there is a network to complete them by, the rows in which the columns of a set
    are seen.

    Parameters
    ----------
    cardinalities : ndarray of int64, shape (d,)
    secure : bool
        Whether parties send all cells, which are added in secure sums.

    Attributes
    ----------
    small : Counter
        By party, how many cells with few rows it has sent or withheld so far.
    """

    def __init__(self, cardinalities: IntArray, *, secure: bool) -> None:
        self.cardinalities, self.secure = cardinalities, secure
        self.small: Counter[str] = Counter()

    def ask(
        self, sets: Sets, so_far: Callable[[], Result], further: dict[str, Any] | None = None
    ) -> Generator[Step, Any, tuple[ContingencyCounts, Replies]]:
        """Ask for the tables of sets of variables.

        Parameters
        ----------
        sets : Sets
        so_far : callable
            As of :class:`~flwr_causal.runtime.algorithm.Ask`.
        further : dict, optional
            The graphs of the exchange ``FIT``. Default: the exchange is ``COUNTS``.

        Returns
        -------
        counts : ContingencyCounts
            Of all parties together.
        replies : Replies

        Raises
        ------
        FederationError
            If secure sums would have too many cells.
        """
        exchange = COUNTS if further is None else FIT
        values = {**sets._asdict(), **(further or {})}
        if self.secure:
            exchange, values["num_cells"] = POOLED[exchange], self._all_cells(sets)
        replies: Replies = yield Ask(exchange, values, so_far=so_far)
        self.small.update({party: int(count) for party, count in replies.of("small").items()})
        return summed_counts(replies, sets, self.cardinalities), replies

    def _all_cells(self, sets: Sets) -> int:
        """Return the number of all cells of some tables, which a secure sum sends."""
        number = num_cells(sets, self.cardinalities).sum()
        if number > MOST_POOLED:
            raise FederationError(
                f"Contingency tables have {number:.3g} cells, and with secure_aggregation parties "
                f"send all of them, empty ones too, at most {MOST_POOLED}: limit the families with "
                "the option 'max_parents', or join rare states."
            )
        return int(number)


def summed_counts(replies: Replies, sets: Sets, cardinalities: IntArray) -> ContingencyCounts:
    """Return the contingency tables of all parties together."""
    if "counts" in replies:
        return ContingencyCounts.of_whole(replies["counts"], sets, cardinalities)
    sparse = ("cells", "values", "lengths")
    parties = [[arrays[name] for name in sparse] for arrays in replies.by_party.values()]
    return ContingencyCounts.summed(replies["dense"], parties)


@dataclass(frozen=True, eq=False)
class Problem(ABC):
    """The variables of a search, its source of counts, and how it fuses graphs.

    Variables are in the order of their names, those of the result in the agreed order.

    Parameters
    ----------
    names : tuple of str
        The variables.
    counts : CountedTables
        The source of contingency tables.
    fuse : callable
        Returns the fusion of the parties' DAGs, given by party.
    num_rows, num_parties : int
        Rows of all parties together; parties.
    knowledge : Knowledge or None
        The background knowledge.
    edge_limits : EdgeMasks or None
        Edges that it requires and allows, in a graph without hidden common causes.
    max_parents : int or None
        Largest number of parents of a variable.
    turns_edges : bool
        Whether searches also turn edges.
    sample_size : float
        Weight of the prior of tables, in rows.
    cuts : mapping of str to ndarray
        Agreed cut points of the columns that were cut into intervals.
    withheld : bool
        Whether parties withhold counts of few rows, so that tables count different rows.
    seen : bool, default False
        Whether parties count the rows in which the columns of a set are seen, instead of all. A
        search on likelihoods is then not refined on counts.
    """

    names: tuple[str, ...]
    counts: CountedTables
    fuse: Callable[[Mapping[str, Any]], Fusion]
    num_rows: int
    num_parties: int
    knowledge: Knowledge | None
    edge_limits: EdgeMasks | None
    max_parents: int | None
    turns_edges: bool
    sample_size: float
    cuts: Mapping[str, FloatArray]
    withheld: bool
    seen: bool = False

    @abstractmethod
    def result(self, found: Found, fitted: Fitted | None = None, *, over: bool = False) -> Result:
        """Return the result of a run with this graph.

        Parameters
        ----------
        found : Found
        fitted : Fitted, optional
            The tables of the graph.
        over : bool, default False
            Whether the training is over.
        """

    @property
    def cardinalities(self) -> IntArray:
        """The numbers of states, shape (d,)."""
        return self.counts.cardinalities

    @property
    def points(self) -> dict[str, Any]:
        """The cut points, which are sent with each request of a search."""
        if not self.cuts:
            return {}
        lengths = np.array([len(own) for own in self.cuts.values()], dtype=np.int64)
        return {"cuts": np.concatenate(list(self.cuts.values())), "num-cuts": lengths}

    def terms(self, score: str) -> ScoreTerms:
        """Return a score of the rows of all parties."""
        return terms_of(KINDS[score], self.sample_size, self.num_rows)


class GraphSearch(Part):
    """Base of the searches: parts that return graphs."""

    def run(self, problem: Problem, most: int) -> Generator[Step, Any, Searched]:
        """Search with at most ``most`` exchanges, and at least one.

        Where all were used before the search had ended, a graph's reason may be left empty.
        """
        raise NotImplementedError

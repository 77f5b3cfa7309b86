"""Algorithm 1 of Torrijos, Gamez & Puerta (2024): rounds of local searches and fusions.

Our own forms of it, in which the parties' scores choose among graphs, are in `scored_rounds`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from flwr_causal.core.ges.fusion import needed
from flwr_causal.core.ges.greedy_search import orient
from flwr_causal.core.graphs.edge_lists import edges_of, matrix_of
from flwr_causal.core.graphs.equivalence import cpdag, meek
from flwr_causal.protocol.fedges import GRAPH
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.strategies.fedges.results import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import BoolArray
    from flwr_causal.core.ges.fusion import Fusion
    from flwr_causal.core.graphs.knowledge import Knowledge
    from flwr_causal.runtime.algorithm import Result, Step
    from flwr_causal.strategies.fedges.results import Standing

    Edges = NDArray[np.integer]

# Largest mean number of edges a variable. Larger graphs grow with every round, because the fusion
# adds more edges than the searches delete, and a search from them takes very long.
RUNAWAY_EDGES = 3
RUN_AWAY = (
    "the parties' graphs grew to more than three edges a variable; a higher share of 'fusion' or "
    "start='driven' keeps them small"
)
REPEATED = "every party's graph is one that it had found before"


def algorithm_1(
    fuser: Fuser,
    start: Literal["fuse", "overwrite"],
    share: str | float,
    *,
    limited: bool,
    most: int,
    standing: Standing,
) -> Generator[Step, Any, tuple[Found, int]]:
    """Fuse the parties' graphs, round after round, until no party finds a new one.

    Parameters
    ----------
    fuser : Fuser
    start : {"fuse", "overwrite"}
        From which graph a party searches: the fused graph fused with its own one, or the fused
        graph (section 3).
    share : str or float
        Of the parties, that keeps an edge (section 3, "Consensus": union, C25, C50).
    limited : bool
        Whether to end where the graphs grow too large, which the paper does not.
    most : int
        The most exchanges.
    standing : callable
        Returns what stands if the run ends with a graph so far.

    Returns
    -------
    found : Found
        The last graph; without a reason if the exchanges were used up.
    taken : int
        How many exchanges it has taken.
    """
    fused, so_far, seen = fuser.first(), None, Seen()
    for taken in itertools.count(1):
        # Each party searches from the fused graph, with a limited number of insertions. It keeps
        # nothing between rounds: the server returns its own last graph.
        replies = yield asked(GRAPH, fused, {"start": start}, so_far)
        graphs = replies.of("edges")
        if limited and fuser.run_away(graphs):
            return fuser.found(fused, RUN_AWAY), taken
        fused = fuser.fused(graphs, share, fused)
        yield Note({"num_edges": int(fused.dag.sum())})
        found = fuser.found(fused, "")
        if seen.repeated(graphs):
            return found._replace(reason=REPEATED), taken
        if taken >= most:
            return found, taken
        so_far = partial(standing, found)
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class Candidate:
    """A fused graph.

    Parameters
    ----------
    dag : ndarray of bool, shape (d, d)
    support : ndarray of float64, shape (d, d)
        The share of the parties' transformed graphs that have each edge.
    own : mapping of str to ndarray
        The parties' graphs that were fused.
    label : str
        Start and share, for the history.
    """

    dag: BoolArray
    support: NDArray[np.float64]
    own: Mapping[str, Edges]
    label: str = ""

    @cached_property
    def edges(self) -> NDArray[np.uint16]:
        """The edges of the DAG as they are sent, shape (m, 2)."""
        return edges_of(self.dag)


@dataclass(frozen=True)
class Fuser:
    """How graphs are fused.

    Parameters
    ----------
    names : tuple of str
        The variables, sorted.
    knowledge : Knowledge or None
        Forbidden edges are removed from the fused graph, required edges are added.
    fuse : callable
        Returns the fusion of the parties' DAGs, given by party.
    most_edges : int or None
        Largest number of edges of a fused graph, before required ones are added.
    """

    names: tuple[str, ...]
    knowledge: Knowledge | None
    fuse: Callable[[Mapping[str, Edges]], Fusion]
    most_edges: int | None = None

    def run_away(self, own: Mapping[str, Edges]) -> bool:
        """Whether the parties' DAGs have too many edges for further rounds."""
        total = sum(len(edges) for edges in own.values())
        return total > RUNAWAY_EDGES * len(self.names) * len(own)

    def candidate(
        self, fusion: Fusion, share: str | float, own: Mapping[str, Edges], label: str = ""
    ) -> Candidate:
        """Return the edges that a share of the DAGs has, of too many those that most DAGs have."""
        d = len(self.names)
        kept = fusion.support >= needed(share, fusion.num_dags)
        # Of edges that equally many DAGs have, those of the first variables are kept.
        order = np.argsort(-fusion.support[kept], kind="stable")
        dag = matrix_of(fusion.edges[kept][order[: self.most_edges]], d)
        if self.knowledge:
            masks = self.knowledge.masks(self.names)
            dag = dag & masks.allowed | masks.required
        support = np.zeros((d, d))
        support[fusion.edges[:, 0], fusion.edges[:, 1]] = fusion.support / fusion.num_dags
        return Candidate(dag, support, own, label)

    def fused(
        self, graphs: Mapping[str, Edges], share: str | float, before: Candidate
    ) -> Candidate:
        """Return the fusion of a round's graphs, given the candidate that the parties were sent.

        A party that failed in this round keeps its graph of the round before.
        """
        return self.candidate(self.fuse(graphs), share, {**before.own, **graphs})

    def found(self, candidate: Candidate, reason: str) -> Found:
        """Return the class of a fused graph."""
        marks = cpdag(candidate.dag)
        if self.knowledge:
            directed = orient(marks, self.knowledge.masks(self.names))
            assert directed is not None
            marks = meek(directed)
        return Found(marks, candidate.dag, reason, candidate.support)

    def first(self, dag: BoolArray | None = None) -> Candidate:
        """Return the graph before the first round: a DAG, or required edges only."""
        d = len(self.names)
        if dag is None:
            dag = np.zeros((d, d), dtype=np.bool_)
            if self.knowledge:
                dag = self.knowledge.masks(self.names).required.copy()
        return Candidate(dag, np.zeros((d, d)), {})


class Seen:
    """The graphs that each party has found so far."""

    def __init__(self) -> None:
        self._graphs: dict[str, set[bytes]] = {}

    def repeated(self, graphs: Mapping[str, Edges]) -> bool:
        """Whether each party's graph is one that it had found before; note those of this round."""
        texts = {party: edges.tobytes() for party, edges in graphs.items()}
        repeated = all(text in self._graphs.get(party, ()) for party, text in texts.items())
        for party, text in texts.items():
            self._graphs.setdefault(party, set()).add(text)
        return repeated


def asked(
    exchange: Exchange,
    current: Candidate,
    values: dict[str, Any],
    so_far: Callable[[], Result] | None,
) -> Ask:
    """Send the fused graph and each party's own last one."""
    # A party without a graph of its own (in the first round, or after failures) gets no edges.
    nothing = np.zeros((0, 2), dtype=np.uint16)
    own = {party: {"own": edges} for party, edges in current.own.items()}
    sent = {"received": current.edges, "own": nothing, **values}
    return Ask(exchange, sent, own, so_far=so_far)

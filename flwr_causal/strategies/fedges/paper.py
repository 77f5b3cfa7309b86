"""Algorithm 1 of Torrijos, Gamez & Puerta (2024): ``variant="paper"``.

The party's part of a round is :meth:`flwr_causal.clients.fedges.FedGESClient.graph`: it fuses the
graph that it receives with its own, searches by GES (:mod:`flwr_causal.core.ges.greedy_search`:
BDeu, at most l insertions) and returns its DAG. The server fuses the DAGs by
:func:`flwr_causal.core.ges.fusion.fuse`. l and the score's sample size, which the paper does not
state, are in :data:`flwr_causal.strategies.fedges.options.OF_PAPER` and among the options.

:class:`PaperRounds` has the paper's search and fusion. :func:`algorithm_1` is the loop, which
:class:`flwr_causal.strategies.fedges.rounds.FixedRounds` shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from flwr_causal.core.graphs.edge_lists import edges_of, matrix_of
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.protocol.fedges import GRAPH
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.strategies.fedges.problem import Found, GraphSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from numpy.typing import NDArray

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.ges.fusion import Fusion
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Result, Step
    from flwr_causal.strategies.fedges.problem import Problem, Searched

    #: By party, the edges of its DAG.
    Graphs = Mapping[str, NDArray[np.integer]]

REPEATED = "every graph of the round is one that its party had found before"


@dataclass(frozen=True)
class FusedGraph:
    """The server's graph G, and each party's graph G_i: the state between two rounds.

    Parameters
    ----------
    dag : ndarray of bool, shape (d, d)
    support : ndarray of float64, shape (d, d)
        The share of the parties' transformed graphs that have each edge.
    own : mapping of str to ndarray
        By party its last graph. That of a party which did not answer in this round is of an
        earlier round, and is not fused again.
    """

    dag: BoolArray
    support: FloatArray
    own: Graphs

    @classmethod
    def of(cls, fusion: Fusion, share: str | float, own: Graphs) -> FusedGraph:
        """Return the graph of the edges that a share of the transformed graphs has."""
        d = len(fusion.order)
        support = np.zeros((d, d))
        support[fusion.edges[:, 0], fusion.edges[:, 1]] = fusion.support / fusion.num_dags
        return cls(matrix_of(fusion.keep(share), d), support, own)

    @cached_property
    def edges(self) -> NDArray[np.uint16]:
        """The edges of the DAG as they are sent, shape (m, 2)."""
        return edges_of(self.dag)

    def request(
        self, exchange: Exchange, so_far: Callable[[], Result] | None, **further: Any
    ) -> Ask:
        """Return the request with G and each party's last graph: parties keep no state."""
        # A party without a graph of its own (in the first round, or after failures) gets no edges.
        nothing = np.zeros((0, 2), dtype=np.uint16)
        own = {party: {"own": edges} for party, edges in self.own.items()}
        sent = {"received": self.edges, "own": nothing, **further}
        return Ask(exchange, sent, own, so_far=so_far)


class Ending(NamedTuple):
    """How the rounds ended.

    Parameters
    ----------
    fused : FusedGraph
        The last one.
    reason : str
        Why they ended, in words; empty if all were used.
    taken : int
        How many there were.
    """

    fused: FusedGraph
    reason: str
    taken: int


def algorithm_1(
    first: FusedGraph,
    search: Callable[[FusedGraph], Generator[Step, Any, Graphs]],
    fuse: Callable[[Graphs, Graphs], FusedGraph],
    most: int,
    stop: Callable[[Graphs], str] = lambda graphs: "",
) -> Generator[Step, Any, Ending]:
    """Fuse the parties' graphs, round after round, until no party finds a new one.

    Algorithm 1 ends when no graph differs from that of the round before. The end of section 3
    compares with all rounds before, as graphs may return in cycles; so it is done here.

    Parameters
    ----------
    first : FusedGraph
        G before the first round. In the paper it is without edges, and so is each G_i.
    search : callable
        A generator of one exchange, given G: the parties search, and it returns their graphs.
    fuse : callable
        Returns the new G, the fusion of the graphs of a round. The last graph of each party, its
        second argument, is kept beside G.
    most : int
        Largest number of rounds, from 1 up.
    stop : callable, optional
        Returns a reason to end before the graphs of a round are fused, or "". In the paper there is
        none.
    """
    fused = first
    before: dict[str, set[bytes]] = {}
    for taken in range(1, max(most, 1) + 1):
        # Each party fuses G with its own graph, or takes G, and searches from there by GES with a
        # limited number of insertions.
        graphs = yield from search(fused)
        if reason := stop(graphs):
            return Ending(fused, reason, taken)
        # The server fuses the parties' graphs to the new G.
        fused = fuse(graphs, {**fused.own, **graphs})
        yield Note({"num_edges": len(fused.edges)})
        # The end: every party that answers returns a graph that it has returned before.
        new = [party for party in graphs if graphs[party].tobytes() not in before.get(party, ())]
        if not new:
            return Ending(fused, REPEATED, taken)
        for party, edges in graphs.items():
            before.setdefault(party, set()).add(edges.tobytes())
    return Ending(fused, "", taken)


@dataclass(frozen=True, kw_only=True)
class PaperRounds(GraphSearch):
    """The rounds of the paper.

    Parameters
    ----------
    start : {"fuse", "overwrite"}
        From which graph a party searches: from the fused graph fused with its own one, or from the
        fused graph (section 3).
    fusion : {"union", "c25", "c50"}
        The share of the parties' graphs that keeps an edge (section 4.1): one graph, or a quarter
        or a half of them, rounded down.
    """

    start: Literal["fuse", "overwrite"]
    fusion: Literal["union", "c25", "c50"]

    def run(self, problem: Problem, most: int) -> Generator[Step, Any, Searched]:
        """Run Algorithm 1 in at most ``most`` rounds; return the last G, and its class."""

        def found(fused: FusedGraph, reason: str = "") -> Found:
            return Found(cpdag(fused.dag), fused.dag, reason, fused.support)

        def search(fused: FusedGraph) -> Generator[Step, Any, Graphs]:
            so_far = partial(problem.result, found(fused)) if fused.own else None
            replies: Replies = yield fused.request(GRAPH, so_far, start=self.start)
            return replies.of("edges")

        def fuse(graphs: Graphs, own: Graphs) -> FusedGraph:
            return FusedGraph.of(problem.fuse(graphs), self.fusion, own)

        d = len(problem.names)
        first = FusedGraph(np.zeros((d, d), dtype=np.bool_), np.zeros((d, d)), {})
        fused, reason, taken = yield from algorithm_1(first, search, fuse, most)
        return (found(fused, reason),), taken

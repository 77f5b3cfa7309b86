"""Algorithm 1 of Torrijos, Gamez & Puerta (2024): rounds of local searches and fusions.

The party's part of a round is :meth:`flwr_causal.clients.fedges.FedGESClient.graph`: it fuses the
graph that it receives with its own, searches by GES (:mod:`flwr_causal.core.ges.greedy_search`) and
returns its DAG. The server fuses the DAGs by :func:`flwr_causal.core.ges.fusion.fuse`. Our own
forms of the loop, in which the parties' scores choose among graphs, are in `scored_rounds`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

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
    from flwr_causal.runtime.algorithm import Result, Step
    from flwr_causal.strategies.fedges.options import FedGESOptions
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
    fuser: Fuser, most: int, standing: Standing
) -> Generator[Step, Any, tuple[Found, int]]:
    """Fuse the parties' graphs, round after round, until no party finds a new one.

    Parameters
    ----------
    fuser : Fuser
        With the options. ``start`` says from which graph a party searches: from the fused graph
        fused with its own one, or from the fused graph (section 3). ``fusion`` is the share of the
        parties' graphs that keeps an edge (section 4.1: union, C25, C50).
    most : int
        Largest number of exchanges.
    standing : callable
        Returns what stands if the run ends with a graph so far.

    Returns
    -------
    found : Found
        The last graph; without a reason if the exchanges were used up.
    taken : int
        How many exchanges it has taken.
    """
    options = fuser.options
    # Only the paper goes on where the graphs grow too large.
    limited = options.variant != "paper"
    # The server's graph G is without edges at first, and so is each party's own.
    fused, so_far, seen = fuser.first(), None, Seen()
    for taken in itertools.count(1):
        # Each party fuses G with its own graph, or takes G, and searches from there by GES with a
        # limited number of insertions. It keeps nothing between rounds: the server returns to it
        # its own last graph.
        replies = yield asked(GRAPH, fused, {"start": options.chosen_start}, so_far)
        graphs = replies.of("edges")
        if limited and fuser.run_away(graphs):
            return fuser.found(fused, RUN_AWAY), taken
        # The server fuses the parties' graphs to the new G.
        fused = fuser.fused(graphs, fused)
        yield Note({"num_edges": int(fused.dag.sum())})
        found = fuser.found(fused, "")
        # Until no party's graph is new in all rounds so far (the end of section 3, against cycles),
        # or the exchanges are used up.
        if seen.repeated(graphs):
            return found._replace(reason=REPEATED), taken
        if taken >= most:
            return found, taken
        so_far = partial(standing, found)
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class Candidate:
    """A fused graph: the server's G, or one of those among which the parties' scores choose.

    Parameters
    ----------
    dag : ndarray of bool, shape (d, d)
    support : ndarray of float64, shape (d, d)
        The share of the parties' transformed graphs that have each edge.
    own : mapping of str to ndarray
        By party its last graph. The graph of a party that failed in this round is an earlier one,
        which was not fused.
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
    num_parties : int
    options : FedGESOptions
        By the background knowledge forbidden edges are removed from the fused graph, and required
        edges are added, after the limit ``max_fused_edges``.
    fuse : callable
        Returns the fusion of the parties' DAGs, given by party.
    begin : ndarray of bool, shape (d, d), optional
        The DAG before the first round. Default: no edges but required ones.
    """

    names: tuple[str, ...]
    num_parties: int
    options: FedGESOptions
    fuse: Callable[[Mapping[str, Edges]], Fusion]
    begin: BoolArray | None = None

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
        strongest = np.argsort(-fusion.support[kept], kind="stable")[: self.options.max_fused_edges]
        dag = matrix_of(fusion.edges[kept][strongest], d)
        if self.options.known:
            masks = self.options.known.masks(self.names)
            dag = dag & masks.allowed | masks.required
        support = np.zeros((d, d))
        support[fusion.edges[:, 0], fusion.edges[:, 1]] = fusion.support / fusion.num_dags
        return Candidate(dag, support, own, label)

    def fused(self, graphs: Mapping[str, Edges], before: Candidate) -> Candidate:
        """Return the fusion of a round's graphs, given the candidate that the parties were sent.

        A party that failed in this round keeps its graph of the round before.
        """
        own = {**before.own, **graphs}
        return self.candidate(self.fuse(graphs), self.options.share, own)

    def found(self, candidate: Candidate, reason: str) -> Found:
        """Return the class of a fused graph."""
        marks = cpdag(candidate.dag)
        if self.options.known:
            directed = orient(marks, self.options.known.masks(self.names))
            assert directed is not None
            marks = meek(directed)
        return Found(marks, candidate.dag, reason, candidate.support)

    def first(self) -> Candidate:
        """Return the graph before the first round."""
        d = len(self.names)
        dag = np.zeros((d, d), dtype=np.bool_) if self.begin is None else self.begin
        if self.begin is None and self.options.known:
            dag = self.options.known.masks(self.names).required.copy()
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

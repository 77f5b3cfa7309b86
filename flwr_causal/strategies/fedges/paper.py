"""Algorithm 1 of Torrijos, Gamez & Puerta (2024): ``variant="paper"``.

The party's part of a round is :meth:`flwr_causal.clients.fedges.FedGESClient.graph`: it fuses the
graph that it receives with its own, searches by GES (:mod:`flwr_causal.core.ges.greedy_search`:
BDeu with a sample size of 1, at most l = 10 insertions, section 4.1) and returns its DAG. The
server fuses the DAGs by :func:`flwr_causal.core.ges.fusion.fuse`.

Algorithm 1 ends when no graph differs from that of the round before. The end of section 3 compares
with all rounds before, as graphs may return in cycles; so it is done here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.graphs.edge_lists import edges_of, matrix_of
from flwr_causal.core.graphs.equivalence import cpdag
from flwr_causal.protocol.fedges import GRAPH
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.strategies.fedges.problem import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.ges.fusion import Fusion
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.fedges.problem import Problem
    from flwr_causal.strategies.fedges.rounds import FusedGraphs


def algorithm_1(
    problem: Problem, options: FusedGraphs, fuse: Callable[[Mapping[str, Any]], Fusion], most: int
) -> Generator[Step, Any, Found]:
    """Fuse the parties' graphs, round after round, until no party finds a new one.

    Parameters
    ----------
    problem : Problem
    options : FusedGraphs
        ``start`` says from which graph a party searches: from the fused graph fused with its own
        one, or from the fused graph (section 3). ``share`` is the share of the parties' graphs that
        keeps an edge (section 4.1: union, C25, C50).
    fuse : callable
        Returns the fusion of the parties' DAGs, given by party.
    most : int
        Largest number of rounds, from 1 up, an exchange each.

    Returns
    -------
    Found
        ``reason`` is empty if the last round found new graphs.
    """
    d = len(problem.names)
    # The server's graph G is without edges at first, and so is each party's graph G_i.
    nothing = np.zeros((0, 2), dtype=np.uint16)
    graph = nothing
    own: dict[str, Any] = {}
    # What the run returns if it is stopped in the next exchange.
    so_far = None
    before: dict[str, set[bytes]] = {}
    for _ in range(max(most, 1)):
        # Each party fuses G with its own graph, or takes G, and searches from there by GES with a
        # limited number of insertions. It keeps nothing between rounds: the server sends it its
        # own last graph.
        to_all = {"received": graph, "own": nothing, "start": options.start}
        to_each = {party: {"own": edges} for party, edges in own.items()}
        replies = yield Ask(GRAPH, to_all, to_each, so_far=so_far)
        graphs = replies.of("edges")
        # The server fuses the parties' graphs to the new G.
        fusion = fuse(graphs)
        dag = matrix_of(fusion.keep(options.share), d)
        graph = edges_of(dag)
        yield Note({"num_edges": len(graph)})
        found = Found(cpdag(dag), dag, "", _support(fusion, d))
        # The end: every party returns a graph that it has returned in an earlier round.
        new = [party for party in graphs if graphs[party].tobytes() not in before.get(party, ())]
        if not new:
            return found._replace(reason="every party's graph is one that it had found before")
        own |= graphs
        for party, edges in graphs.items():
            before.setdefault(party, set()).add(edges.tobytes())
        so_far = partial(problem.result, found)
    return found


def _support(fusion: Fusion, d: int) -> FloatArray:
    """Return the share of the parties' graphs that have each edge, (d, d)."""
    support = np.zeros((d, d))
    support[fusion.edges[:, 0], fusion.edges[:, 1]] = fusion.support / fusion.num_dags
    return support

"""Algorithm 1 of Torrijos, Gamez & Puerta (2024): ``variant="paper"``.

The party's part of a round is :meth:`flwr_causal.clients.fedges.FedGESClient.graph`: it fuses the
graph that it receives with its own, searches by GES (:mod:`flwr_causal.core.ges.greedy_search`) and
returns its DAG. The server fuses the DAGs by :func:`flwr_causal.core.ges.fusion.fuse`.
"""

from __future__ import annotations

import itertools
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

    from flwr_causal.core.ges.fusion import Fusion
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.fedges.problem import Problem
    from flwr_causal.strategies.fedges.rounds import FusedGraphs


def algorithm_1(
    problem: Problem, rounds: FusedGraphs, fuse: Callable[[Mapping[str, Any]], Fusion], most: int
) -> Generator[Step, Any, Found]:
    """Fuse the parties' graphs, round after round, until no party finds a new one.

    Parameters
    ----------
    problem : Problem
    rounds : FusedGraphs
        ``start`` says from which graph a party searches: from the fused graph fused with its own
        one, or from the fused graph (section 3). ``share`` is the share of the parties' graphs that
        keeps an edge (section 4.1: union, C25, C50).
    fuse : callable
        Returns the fusion of the parties' DAGs, given by party.
    most : int
        Largest number of exchanges.

    Returns
    -------
    Found
        Without a reason if the exchanges were used up.
    """
    d = len(problem.names)
    # The server's graph G is without edges at first, and so is each party's own.
    nothing = np.zeros((0, 2), dtype=np.uint16)
    graph, so_far = nothing, None
    own: dict[str, Any] = {}
    before: dict[str, set[bytes]] = {}
    for taken in itertools.count(1):
        # Each party fuses G with its own graph, or takes G, and searches from there by GES with a
        # limited number of insertions. It keeps nothing between rounds: the server returns to it
        # its own last graph.
        sent = {"received": graph, "own": nothing, "start": rounds.start}
        returned = {party: {"own": edges} for party, edges in own.items()}
        replies = yield Ask(GRAPH, sent, returned, so_far=so_far)
        graphs = replies.of("edges")
        # The server fuses the parties' graphs to the new G.
        fusion = fuse(graphs)
        dag = matrix_of(fusion.keep(rounds.share), d)
        graph = edges_of(dag)
        yield Note({"num_edges": len(graph)})
        support = np.zeros((d, d))
        support[fusion.edges[:, 0], fusion.edges[:, 1]] = fusion.support / fusion.num_dags
        found = Found(cpdag(dag), dag, "", support)
        # Until no party's graph is new in all rounds so far (the end of section 3, against cycles),
        # or the exchanges are used up.
        new = [party for party in graphs if graphs[party].tobytes() not in before.get(party, ())]
        if not new:
            return found._replace(reason="every party's graph is one that it had found before")
        if taken >= most:
            return found
        own |= graphs
        for party, edges in graphs.items():
            before.setdefault(party, set()).add(edges.tobytes())
        so_far = partial(problem.result, found)
    raise AssertionError("unreachable")

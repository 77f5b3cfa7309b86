"""Algorithm 1 of Torrijos, Gamez & Puerta (2024): rounds of local searches and fusions.

Our own forms of it, in which the parties' scores choose among graphs, are in `fusion`.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from flwr_causal.protocol.fedges import GRAPH
from flwr_causal.runtime.algorithm import Note
from flwr_causal.strategies.fedges.fusion import REPEATED, RUN_AWAY, Seen, asked

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.fedges.fusion import Fuser
    from flwr_causal.strategies.fedges.problem import Found, Standing


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

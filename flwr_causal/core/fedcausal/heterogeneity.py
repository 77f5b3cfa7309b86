"""Where a party disagrees with the common graph: its own graph, and its evidence for each edge.

Every party runs the search of :mod:`core.fedcausal.evidence_search` on its own rows alone, without
sums over parties, and computes the evidence of its rows for each edge. Evidence is a log density in
nats: a change of 3 means that the rows are exp(3), about 20, times as probable with the edge as
without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.fedcausal import evidence_search
from flwr_causal.core.fedcausal.evidence import client_step, evidence_changes
from flwr_causal.core.nonlinear.basis import partial_shares, strengths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.fedcausal.evidence import Cache, EvidenceProblem
    from flwr_causal.core.fedcausal.evidence_search import SearchProblem, State
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.interventions.targets import TargetRecord


#: Largest number of steps of a party's own search, which takes no exchange; far more than needed.
STEPS = 100
#: Columns of `edge_table`, and their types.
COLUMNS: dict[str, type] = {
    "party": str,
    "cause": str,
    "effect": str,
    "common": bool,
    "own": str,
    "support": float,
    "disagreement": float,
    "strength": float,
}


class OwnGraph(NamedTuple):
    """A party's own graph; row causes column.

    Attributes
    ----------
    graph
        ``(d, d)`` result of the party's search.
    support
        ``(d, d)`` :func:`support`, in nats.
    shares
        ``(d, d)`` :func:`core.nonlinear.basis.partial_shares` in the party's own graph.
    """

    graph: BoolArray
    support: FloatArray
    shares: FloatArray


class Heterogeneity(NamedTuple):
    """How parties differ: their local graphs, and the variables that they act on.

    Attributes
    ----------
    graphs
        Each party's own graph, by the party's name.
    edges
        :func:`edge_table`; None without local graphs.
    targets
        The variables that parties act on; None where nothing is looked for.
    """

    graphs: dict[str, CausalGraph]
    edges: pd.DataFrame | None = None
    targets: tuple[TargetRecord, ...] | None = None


def own_graph(
    problem: EvidenceProblem, common: BoolArray, search: SearchProblem, cache: Cache | None = None
) -> OwnGraph:
    """Search for a party's own graph, and compute its support of that and the common graph's edges.

    There are two searches, from the common graph and from the required edges alone. The result of
    higher evidence is returned, the first one where both are equal. Measured on 36 simulated
    parties: for 30 the result is the graph that the whole method finds on the party's rows alone,
    for five of the others a graph of higher evidence (by up to 27 nats).

    Parameters
    ----------
    problem
        The party's rows.
    common
        ``(d, d)`` common graph, acyclic and in agreement with the knowledge.
    search
        Knowledge and number of candidates; ``max_exchanges`` is the largest number of steps, as
        :data:`STEPS`.
    cache
        See :func:`core.fedcausal.evidence.evidence_changes`.
    """
    cache = {} if cache is None else cache
    starts = (common, np.asarray(search.masks.required, dtype=bool))
    found = evidence_search.more_probable(
        [_searched(problem, start, search, cache) for start in starts], search
    )
    return OwnGraph(
        graph=found.graph,
        support=support(problem, common, found.graph, cache),
        shares=partial_shares(problem.moments, found.graph),
    )


def support(
    problem: EvidenceProblem, common: BoolArray, own: BoolArray, cache: Cache | None = None
) -> FloatArray:
    """Return how much a party's rows support the edges of two graphs, ``(d, d)``, in nats.

    For an edge of the common graph: the decrease of the evidence when the edge is removed from the
    common graph. For an edge of the party's own graph only: the increase when it is added to the
    common graph. All other edges stay as they are in the common graph. 0 for all other pairs.
    """
    changes, _ = evidence_changes(problem, common, common | own, cache)
    # 0.0 - x instead of -x, which would give negative zeros.
    return np.where(common, 0.0 - changes, changes)


def edge_table(
    common: BoolArray, own: Mapping[str, OwnGraph], names: Sequence[str]
) -> pd.DataFrame:
    """List the edges on which each party agrees or disagrees with the common graph.

    Parameters
    ----------
    common
        ``(d, d)`` common graph.
    own
        Each party's own graph, by the party's name.
    names
        Of the d variables.

    Returns
    -------
    DataFrame
        One row for each party and each edge of the common or the party's own graph: parties in the
        order of ``own``, edges by falling disagreement. A reversed edge is listed once, in the
        direction of the common graph. Columns:

        - ``party``, ``cause``, ``effect``;
        - ``common``: whether the edge is in the common graph;
        - ``own``: the edge in the party's own graph: "same", "reversed" or "absent" for edges of
          the common graph, "additional" for others;
        - ``support``: :func:`support`, in nats;
        - ``disagreement``: the increase of the party's evidence, in nats, when in the common graph
          this edge alone is made what it is in the party's own graph (added, removed or reversed);
          for "same" edges, when it is removed. Negative where the party's graph is more probable
          only by several changes together;
        - ``strength``: :func:`core.nonlinear.basis.strengths` in the party's own graph; for edges
          that are absent or reversed there, the strength of the cause when it is added.
    """
    from pandas import DataFrame

    rows = []
    for party, one in own.items():
        sizes, of_party = strengths(one.shares), []
        for i, j in np.argwhere(common | (one.graph & ~common.T)):
            kind, gain = _compared(common, one, i, j)
            values = bool(common[i, j]), kind, float(one.support[i, j]), gain, float(sizes[i, j])
            of_party.append((party, names[i], names[j], *values))
        rows += sorted(of_party, key=lambda row: -row[6])
    return DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _compared(common: BoolArray, one: OwnGraph, i: int, j: int) -> tuple[str, float]:
    """Return the columns ``own`` and ``disagreement`` of edge i -> j for one party."""
    without = 0.0 - float(one.support[i, j])
    if not common[i, j]:
        return "additional", float(one.support[i, j])
    if one.graph[j, i]:
        return "reversed", without + float(one.support[j, i])
    return ("same" if one.graph[i, j] else "absent"), without


def _searched(
    problem: EvidenceProblem, start: BoolArray, search: SearchProblem, cache: Cache
) -> State:
    """Return the final state of a search on one party's rows."""
    state = evidence_search.init(start, partial_shares(problem.moments, start), search)
    reason = None
    while reason is None:
        tables = client_step(problem, state.graph, state.wanted, cache)
        state, info = evidence_search.server_step(state, tables, search)
        reason = evidence_search.finished(state, info, search)
    return state

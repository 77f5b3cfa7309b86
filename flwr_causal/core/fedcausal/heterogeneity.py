"""Where a party disagrees with the common graph: its own graph, and its evidence for each edge.

Without sums over parties, the search of :mod:`core.fedcausal.evidence_search` finds the graph of
one party's rows alone, and their evidence tells how much they support each edge. Evidence is a log
probability in nats: a change of 3 means that the rows are exp(3), about 20, times as probable with
the edge as without it.
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
    from flwr_causal.core.fedcausal.evidence import EvidenceProblem, Known
    from flwr_causal.core.fedcausal.evidence_search import SearchProblem, State
    from flwr_causal.core.graphs.graph import CausalGraph


#: Most steps of a party's own search, which cost no exchange: far more than it needs.
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
        ``(d, d)`` the graph that its search has found.
    support
        ``(d, d)`` :func:`support`, in nats.
    shares
        ``(d, d)`` :func:`core.nonlinear.basis.partial_shares` in its own graph.
    """

    graph: BoolArray
    support: FloatArray
    shares: FloatArray


class Heterogeneity(NamedTuple):
    """The results of a run for each party.

    Attributes
    ----------
    graphs
        The parties' own graphs, by their names.
    edges
        :func:`edge_table`.
    """

    graphs: dict[str, CausalGraph]
    edges: pd.DataFrame


def own_graph(
    problem: EvidenceProblem, common: BoolArray, search: SearchProblem, known: Known | None = None
) -> OwnGraph:
    """Search for a party's own graph, and return its rows' support of the edges of both graphs.

    As in the federation there are two searches, from the common graph and from the required edges
    alone. The more probable result is returned, the first one where they are equal. The common
    graph is a good start: for 30 of 36 simulated parties the result is the graph that the whole
    method finds on their rows alone, and for five of the others a more probable one (by up to
    27 nats).

    Parameters
    ----------
    problem
        The party's rows.
    common
        ``(d, d)`` common graph, acyclic and in accord with the knowledge.
    search
        Knowledge and candidates, with `STEPS` for ``max_exchanges``.
    known
        The cache of :func:`core.fedcausal.evidence.evidence_changes`.
    """
    known = {} if known is None else known
    starts = (common, np.asarray(search.masks.required, dtype=bool))
    found = evidence_search.more_probable(
        [_searched(problem, start, search, known) for start in starts]
    )
    return OwnGraph(
        graph=found.graph,
        support=support(problem, common, found.graph, known),
        shares=partial_shares(problem.moments, found.graph),
    )


def support(
    problem: EvidenceProblem, common: BoolArray, own: BoolArray, known: Known | None = None
) -> FloatArray:
    """Return how much a party's rows support the edges of two graphs, ``(d, d)``, in nats.

    For an edge of the common graph: the decrease of the evidence when it is removed from that
    graph. For an edge of the party's own graph alone: the increase when it is added to the common
    graph. The other parents of the effect stay as they are. 0 for all other pairs.
    """
    changes, _ = evidence_changes(problem, common, common | own, known)
    # 0.0 - x and not -x: no negative zeros
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
        One row for each party and edge of either graph: parties in their order, for each the
        largest disagreement first. A reversed edge is listed once, in the direction of the common
        graph. Columns:

        - ``party``, ``cause``, ``effect``;
        - ``common``: whether the edge is in the common graph;
        - ``own``: the edge in the party's own graph: "same", "reversed" or "absent" for edges of
          the common graph, "additional" for others;
        - ``support``: :func:`support`, in nats;
        - ``disagreement``: the increase of the party's evidence, in nats, when this edge alone is
          changed in the common graph to what it is in the party's own, or, where both agree, when
          it is removed. It can be negative for an edge that the party's graph lacks or reverses
          only together with other changes;
        - ``strength``: :func:`core.nonlinear.basis.strengths` in the party's own graph; for edges
          that are absent or reversed there, the strength that the cause would add.
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
    """Return the entries ``own`` and ``disagreement`` of edge i -> j for one party."""
    without = 0.0 - float(one.support[i, j])
    if not common[i, j]:
        return "additional", float(one.support[i, j])
    if one.graph[j, i]:
        return "reversed", without + float(one.support[j, i])
    return ("same" if one.graph[i, j] else "absent"), without


def _searched(
    problem: EvidenceProblem, start: BoolArray, search: SearchProblem, known: Known
) -> State:
    """Return the end of a search over one party's rows."""
    state = evidence_search.init(start, partial_shares(problem.moments, start), search)
    reason = None
    while reason is None:
        tables = client_step(problem, state.graph, state.wanted, known)
        state, info = evidence_search.server_step(state, tables, search)
        reason = evidence_search.finished(state, info, search)
    return state

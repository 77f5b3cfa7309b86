"""Parties' own graphs beside the common one: the table of their differences.

Evidence is a log density in nats: a change of 3 means that the rows are exp(3), about 20, times as
probable with the edge as without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.nonlinear.basis import strengths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.interventions.targets import TargetEntry

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
        ``(d, d)`` how much the rows support the edges of this and the common graph, in nats; see
        :func:`core.fedcausal.evidence_search.own_support`.
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
    targets: tuple[TargetEntry, ...] | None = None


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
        - ``support``: as of :class:`OwnGraph`;
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

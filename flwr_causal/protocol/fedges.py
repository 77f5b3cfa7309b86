"""The exchanges of FedGES (Torrijos, Gamez & Puerta 2024), in its three modes.

Variables are numbered in the order of their names, the same at every party.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.discrete import contingency_tables
from flwr_causal.core.graphs.acyclicity import is_acyclic
from flwr_causal.protocol.cuts import CUTS
from flwr_causal.protocol.exchange import Contract, Disclosure, Exchange, Sent

if TYPE_CHECKING:
    from flwr_causal.core.arrays import Arrays
    from flwr_causal.protocol.exchange import Known


def _cyclic(arrays: Arrays, known: Known) -> str:
    """Return whether a party's edges are those of no DAG."""
    for name in ("edges", "overwritten", "fused"):
        if name in arrays:
            adjacency = np.zeros((known.sizes["d"],) * 2, dtype=np.bool_)
            parents, children = arrays[name].astype(np.int64).T
            adjacency[parents, children] = True
            if not is_acyclic(adjacency):
                return f"'{name}' are the edges of a graph with a cycle"
    return ""


def _other_rows(arrays: Arrays, known: Known) -> str:
    """Return whether contingency tables count other rows than those of the party."""
    setup, sent = known.setup, known.sent
    sizes = {name: len(states) for name, states in zip(setup.names, setup.states, strict=True)}
    if "num-cuts" in sent:
        sizes |= dict(zip(setup.continuous, sent["num-cuts"].astype(int) + 1, strict=True))
    cardinalities = np.array([sizes[name] for name in sorted(sizes)], dtype=np.int64)
    sets = contingency_tables.Sets(sent["sizes"], sent["members"])
    counts = contingency_tables.Counts(
        *(arrays[name] for name in contingency_tables.Counts._fields)
    )
    return contingency_tables.contradiction(counts, sets, cardinalities, known.sizes["n"])


_EDGES = ("*", 2)
_CUT_POINTS = (
    Sent("cuts", "agreed cut points, column after column", ("*",), optional=True, exact=True),
    Sent("num-cuts", "how many belong to each column", ("*",), optional=True),
)
_STARTS = (
    Sent("received", "edges of the fused graph", _EDGES),
    Sent("own", "edges of the party's last graph", _EDGES),
)
_SETS = (
    Sent("sizes", "how many variables each set has", ("sets",)),
    Sent("members", "the variables of each set", ("*",)),
)
_TABLES = (
    Disclosure(
        "dense", "counts of all cells of the small contingency tables", ("*",), "count", "sum"
    ),
    Disclosure("cells", "numbers of the filled cells of the large ones", ("filled",), "index"),
    Disclosure("values", "counts of these cells", ("filled",), "count"),
    Disclosure("lengths", "how many of them belong to each large table", ("*",), "index"),
    Disclosure("small", "number of cells with fewer than minimum_count rows", (), "index"),
)

GRAPH = Exchange(
    "graph",
    "one round of Algorithm 1: each party searches on from a graph, the server fuses the results",
    sends=(
        *_STARTS,
        Sent("start", "whether to start from the fused graph, or from it fused with the own one"),
        *_CUT_POINTS,
    ),
    returns=(
        Disclosure("edges", "edges of the DAG that the party found", _EDGES, "index", below="d"),
    ),
    when="in each round, mode='fusion' with keep='last'",
    contradiction=_cyclic,
)

JUDGED_GRAPH = Exchange(
    "judged graph",
    "the same, and the parties' scores of the graph that they receive",
    sends=GRAPH.sends,
    returns=(
        *GRAPH.returns,
        Disclosure("score", "the party's score of the received graph", ()),
    ),
    when="in each round, mode='fusion' with keep='best' and a fixed start",
    contradiction=_cyclic,
)

GRAPHS = Exchange(
    "graphs",
    "each party searches on from the fused graph, and from it fused with its own one",
    sends=(*_STARTS, *_CUT_POINTS),
    returns=(
        Disclosure(
            "overwritten",
            "edges of the DAG found from the fused graph",
            _EDGES,
            "index",
            below="d",
        ),
        Disclosure("fused", "edges of the DAG found from both fused", _EDGES, "index", below="d"),
    ),
    when="in each round, mode='fusion' with start='driven'",
    contradiction=_cyclic,
)

JUDGE = Exchange(
    "judge",
    "the parties' scores of proposed graphs, by which the best is chosen",
    sends=(
        Sent("edges", "edges of the proposed graphs", _EDGES),
        Sent("lengths", "how many belong to each graph", ("graphs",)),
        *_CUT_POINTS,
    ),
    returns=(Disclosure("scores", "the party's score of each graph", ("graphs",)),),
    when="after each round, mode='fusion' with start='driven'; in the end with keep='best'",
)

SCORES = Exchange(
    "scores",
    "gains of the parties' own scores, on whose sums the server searches",
    sends=(
        Sent("owners", "y of each family (y, S)", ("families",)),
        Sent("sizes", "size of S", ("families",)),
        Sent("members", "the variables of S", ("*",)),
        Sent("num_others", "how many x are asked for", ("families",)),
        Sent("others", "the x", ("gains",)),
        *_CUT_POINTS,
    ),
    returns=(
        Disclosure(
            "gains",
            "s(y | S + x) - s(y | S), by the party's own score. Those of the first exchange are "
            "the mutual information of all pairs, up to a known constant",
            ("gains",),
            combine="sum",
        ),
    ),
    when="in each exchange, mode='scores'",
    same_parties=True,
)

COUNTS = Exchange(
    "counts",
    "contingency tables, on whose sums the server searches as on the pooled rows",
    sends=(*_SETS, *_CUT_POINTS),
    returns=_TABLES,
    when="in each exchange, mode='exact'",
    same_parties=True,
    contradiction=_other_rows,
)

FIT = Exchange(
    "fit",
    "the tables of probabilities of the final graph, and which parties agree with its edges",
    sends=(*_SETS, Sent("edges", "edges of the final graph", ("edges", 2)), *_CUT_POINTS),
    returns=(
        *_TABLES,
        Disclosure(
            "votes",
            "whether the party's own score agrees with each edge",
            ("edges",),
            "mark",
            "sum",
        ),
    ),
    when="in the last exchange, parameters=True",
    contradiction=_other_rows,
)

CONTRACT = Contract(
    "fedges",
    (CUTS, GRAPH, JUDGED_GRAPH, GRAPHS, JUDGE, SCORES, COUNTS, FIT),
    reports=("sums", "states"),
)

"""The edges of a graph as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flwr_causal.core.graphs.graph import CausalGraph

# A graph with more edges than this is not printed edge by edge.
MOST_EDGES = 60


def describe_graph(
    graph: CausalGraph,
    most: int = MOST_EDGES,
    rest: str = "see edges.csv in output-dir",
    *,
    signed: bool = True,
) -> list[str]:
    """Return one line for each edge, strongest first; an undirected edge has one line.

    Edges with a lag come after those without one.

    Parameters
    ----------
    graph : CausalGraph
    most : int, default 60
        How many edges without a lag are listed, and how many with one.
    rest : str
        Where the reader finds the others.
    signed : bool, default True
        Whether weights have a sign.
    """
    number = "+.3f" if signed else ".3f"
    lagged = "" if graph.lagged is None else f" within a step and {graph.num_lagged_edges} lagged"
    lines = [f"{graph.num_edges} edges{lagged} over {len(graph.names)} variables"]
    sure = graph.marked_confidences()
    if graph.adjacency_confidence is None:  # without replicates not all methods have one
        sure = [None] * len(sure)
    edges = list(zip(graph.marked_edges(), sure, strict=True))
    now, past = edges[: graph.num_edges], edges[graph.num_edges :]
    if graph.kind == "cpdag":
        lines[0] += " (-- where either direction explains the data equally well)"
    for listed in (now, past):
        width = max((len(cause) for (cause, *_), _ in listed), default=0)
        if graph.kind != "cpdag":
            listed.sort(key=lambda pair: -abs(pair[0][3]))
        shown = [
            f"  {cause:>{width}} {mark} {effect}"
            + ("" if graph.kind == "cpdag" else f"  {weight:{number}}")
            + ("" if value is None else f"  confidence {value:.2f}")
            for (cause, mark, effect, weight), value in listed
        ]
        more = len(shown) - most
        lines += shown[:most] + ([f"  ... and {more} more; {rest}"] if more > 0 else [])
    return lines

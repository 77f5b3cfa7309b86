"""The edges of a graph as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flwr_causal.core.graphs.graph import CausalGraph

# A graph with more edges than this is not printed edge by edge.
MOST_EDGES = 60


def describe_graph(
    graph: CausalGraph, most: int = MOST_EDGES, rest: str = "see edges.csv in output-dir"
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
    """
    lagged = "" if graph.lagged is None else f" within a step and {graph.num_lagged_edges} lagged"
    lines = [f"{graph.num_edges} edges{lagged} over {len(graph.names)} variables"]
    edges = graph.marked_edges()
    now, past = edges[: graph.num_edges], edges[graph.num_edges :]
    if graph.kind == "cpdag":
        lines[0] += " (-- where either direction explains the data equally well)"
    for listed in (now, past):
        width = max((len(cause) for cause, *_ in listed), default=0)
        texts = [
            (f"  {cause:>{width}} {mark} {effect}", weight)
            for cause, mark, effect, weight in listed
        ]
        if graph.kind == "cpdag":
            shown = [text for text, _ in texts]
        else:
            ranked = sorted(texts, key=lambda pair: -abs(pair[1]))
            shown = [f"{text}  {weight:+.3f}" for text, weight in ranked]
        more = len(shown) - most
        lines += shown[:most] + ([f"  ... and {more} more; {rest}"] if more > 0 else [])
    return lines

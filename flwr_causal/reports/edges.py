"""The edges of a graph as lines of text, and which edges differ between several graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.graphs.graph import CausalGraph

# What the marks of a class of graphs mean.
LEGENDS = {
    "cpdag": "-- where either direction explains the data equally well",
    "pag": "-> a cause, <-> a hidden common cause, o an open end: perhaps a cause, perhaps not",
}
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
    shares, strengths = graph.marked_confidences(), graph.marked_strengths()
    edges = list(zip(graph.marked_edges(), shares, strengths, strict=True))
    now, past = edges[: graph.num_edges], edges[graph.num_edges :]
    if graph.kind in LEGENDS:
        lines[0] += f" ({LEGENDS[graph.kind]})"
    for listed in (now, past):
        width = max((len(cause) for (cause, *_), *_ in listed), default=0)
        if graph.kind not in LEGENDS:
            listed.sort(key=lambda one: -one[2])
        shown = [
            f"  {cause:>{width}} {mark} {effect}"
            + ("" if graph.kind in LEGENDS else f"  {weight:{number}}")
            + ("" if value is None else f"  confidence {value:.2f}")
            for (cause, mark, effect, weight), value, _ in listed
        ]
        more = len(shown) - most
        lines += shown[:most] + ([f"  ... and {more} more; {rest}"] if more > 0 else [])
    return lines


class GraphPair(NamedTuple):
    """Two variables that some of the graphs connect.

    Parameters
    ----------
    edges : tuple of str
        By graph, the edge as text, such as ``"a -> b"``, ``"b -> a"``, ``"a -- b"`` or
        ``"a[t-1] -> b"``; empty where the graph does not connect the two.
    weights : tuple of (float or None)
        By graph, the weight of the edge; None where there is none.
    confidences : tuple of (float or None)
        By graph, the confidence in the edge, see `CausalGraph.confidence_of`; None
        where there is none.
    """

    edges: tuple[str, ...]
    weights: tuple[float | None, ...]
    confidences: tuple[float | None, ...]

    @property
    def differs(self) -> bool:
        """Whether the graphs do not all have the same edge."""
        return len(set(self.edges)) > 1


def compared(graphs: Sequence[CausalGraph]) -> list[GraphPair]:
    """Return all pairs of variables that some graph connects, the strongest edges first.

    Raises
    ------
    DataError
        If the graphs have different variables.
    """
    found: dict[frozenset[str], list[tuple[str, float | None, float | None]]] = {}
    strongest: dict[frozenset[str], float] = {}
    for k, graph in enumerate(graphs):
        ordered = graph.reordered(graphs[0].names)
        edges = zip(
            ordered.marked_edges(),
            ordered.marked_confidences(),
            ordered.marked_strengths(),
            strict=True,
        )
        for (cause, mark, effect, weight), confidence, strength in edges:
            pair = frozenset((cause, effect))
            row = found.setdefault(pair, [("", None, None)] * len(graphs))
            row[k] = (f"{cause} {mark} {effect}", weight, confidence)
            strongest[pair] = max(strength, strongest.get(pair, 0.0))
    pairs = sorted(found, key=lambda pair: -strongest[pair])
    return [GraphPair(*map(tuple, zip(*found[pair], strict=True))) for pair in pairs]

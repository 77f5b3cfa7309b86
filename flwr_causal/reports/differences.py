"""Which edges differ between several graphs over the same variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.graphs.graph import CausalGraph


class Pair(NamedTuple):
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


def compared(graphs: Sequence[CausalGraph]) -> list[Pair]:
    """Return all pairs of variables that some graph connects, the strongest edges first.

    Raises
    ------
    DataError
        If the graphs have different variables.
    """
    found: dict[frozenset[str], list[tuple[str, float | None, float | None]]] = {}
    for k, graph in enumerate(graphs):
        ordered = graph.reordered(graphs[0].names)
        edges = zip(ordered.marked_edges(), ordered.marked_confidences(), strict=True)
        for (cause, mark, effect, weight), confidence in edges:
            row = found.setdefault(frozenset((cause, effect)), [("", None, None)] * len(graphs))
            row[k] = (f"{cause} {mark} {effect}", weight, confidence)
    pairs = [Pair(*map(tuple, zip(*row, strict=True))) for row in found.values()]
    return sorted(pairs, key=lambda pair: -max(abs(weight or 0.0) for weight in pair.weights))

"""A causal graph as files for other tools: GraphML, DOT, a table of edges, and its own JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd

from flwr_causal.core.graphs import graph_formats
from flwr_causal.reports.read_graph import read_edges

if TYPE_CHECKING:
    from flwr_causal.core.graphs.graph import CausalGraph

__all__ = ["read_edges", "write_all", "write_dot", "write_edge_csv", "write_graphml"]

POSITIVE, NEGATIVE, NEUTRAL = "#2b6cb0", "#c2571a", "#4a5568"


def write_all(graph: CausalGraph, directory: str | Path) -> list[Path]:
    """Write ``graph.json``, ``graph.graphml``, ``graph.dot`` and ``edges.csv``; return the paths.

    The directory is made if it is not there.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / name for name in ("graph.json", "graph.graphml", "graph.dot", "edges.csv")]
    graph.save(paths[0])
    write_graphml(graph, paths[1])
    write_dot(graph, paths[2])
    write_edge_csv(graph, paths[3])
    return paths


def write_graphml(graph: CausalGraph, path: str | Path) -> None:
    """Write GraphML as networkx, Gephi, Cytoscape and yEd read it.

    Edges carry ``weight`` and ``lag`` and, where known, ``raw_weight``, ``confidence`` and
    ``required``. An undirected edge of a CPDAG stands in both directions. A graph with lags is
    unrolled: one node per variable and time slice, ``x0[t-1]`` and ``x0[t]``, and the edges into
    the last slice; ``CausalGraph.from_networkx(networkx.read_graphml(path))`` folds it again.
    """
    nx.write_graphml(graph_formats.unrolled(graph), path, named_key_ids=True)


def write_dot(graph: CausalGraph, path: str | Path) -> None:
    """Write Graphviz DOT: edges labelled with their weights, coloured by sign.

    An undirected edge of a CPDAG is one edge with ``dir=none``; the edges of a CPDAG are labelled
    with their confidence, where it is known. Graphs with lags are unrolled as
    in `write_graphml`, a column per time slice.
    """
    unrolled = graph_formats.unrolled(graph)
    lines = ["digraph causal_graph {", "  node [shape=box, style=rounded];"]
    if graph.lagged is not None:
        lines.append("  rankdir=LR;")
    lines += [f"  {_quoted(node)} [label={_label(node)}];" for node in unrolled]
    position = {node: place for place, node in enumerate(unrolled)}
    if graph.lagged is not None:
        for lag in range(len(graph.lagged) + 1):
            nodes = [graph_formats.at_lag(name, lag) for name in graph.names]
            members = " ".join(f"{_quoted(node)};" for node in nodes)
            lines.append(f"  {{ rank=same; {members} }}")
    edge: dict[str, Any]
    for start, end, edge in unrolled.edges(data=True):
        if graph.kind != "cpdag":
            attributes = _attributes(edge["weight"])
        elif (opposite := unrolled.get_edge_data(end, start)) is None:
            attributes = _marks(edge)
        elif position[start] < position[end]:
            attributes = _marks(edge, opposite)
        else:
            continue
        lines.append(f"  {_quoted(start)} -> {_quoted(end)}{attributes};")
    Path(path).write_text("\n".join([*lines, "}"]) + "\n", encoding="utf-8")


def _attributes(weight: float) -> str:
    """Return the attributes in DOT of an edge with a weight."""
    colour = POSITIVE if weight > 0 else NEGATIVE if weight < 0 else NEUTRAL
    return f' [label="{weight:.3g}", color="{colour}"]'


def _marks(edge: dict[str, Any], opposite: dict[str, Any] | None = None) -> str:
    """Return the attributes in DOT of a CPDAG's edge, undirected if there is an opposite one."""
    parts = [] if opposite is None else ["dir=none"]
    if "confidence" in edge:
        both = (edge, {} if opposite is None else opposite)
        parts.append(f'label="{max(one.get("confidence", 0.0) for one in both):.3g}"')
    return f" [{', '.join(parts)}]" if parts else ""


def _quoted(name: str) -> str:
    """Return a DOT identifier; inside quotes only the quote needs a backslash to the lexer.

    Backslashes are doubled nevertheless, since one at the end would escape the closing quote.
    """
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _label(name: str) -> str:
    """Return a DOT label, in which a doubled backslash prints as one."""
    return _quoted(name).replace("\n", "\\n")


def write_edge_csv(graph: CausalGraph, path: str | Path) -> None:
    """Write one row per edge: source, target, lag, weight, raw_weight, confidence, required.

    ``lag`` is 0 for instantaneous edges; what is not known is empty. A CPDAG has one more column,
    ``undirected``, and its undirected edges stand in both directions. `read_edges` reads it back.
    """
    lagged_rows = [
        {
            "source": graph.names[i],
            "target": graph.names[j],
            "lag": int(lag) + 1,
            "weight": graph.lagged[lag, i, j],
            "raw_weight": None if graph.raw_lagged is None else graph.raw_lagged[lag, i, j],
        }
        for lag, i, j in (() if graph.lagged is None else np.argwhere(graph.lagged != 0))
        if graph.lagged is not None
    ]
    rows = [
        {
            "source": graph.names[i],
            "target": graph.names[j],
            "lag": 0,
            "weight": graph.weights[i, j],
            "raw_weight": None if graph.raw_weights is None else graph.raw_weights[i, j],
            "confidence": None if graph.confidence is None else graph.confidence[i, j],
            "required": graph.required is not None and bool(graph.required[i, j]),
            "undirected": bool(graph.adjacency[j, i]),
        }
        for i, j in np.argwhere(graph.adjacency)
    ]
    columns = ["source", "target", "lag", "weight", "raw_weight", "confidence", "required"]
    if graph.kind == "cpdag":
        columns.append("undirected")
    table = pd.DataFrame(rows + lagged_rows, columns=columns)
    table["required"] = table["required"].eq(True)
    table.to_csv(path, index=False)

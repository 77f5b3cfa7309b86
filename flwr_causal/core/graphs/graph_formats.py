"""What a causal graph looks like as JSON and as a networkx graph.

The functions speak of the constructor's fields of ``CausalGraph``, as plain dictionaries, so that
the formats know nothing of the class and the class nothing of the formats.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.graphs.graph import CausalGraph

FORMAT = "flwr-causal-graph"
VERSION = 1
_ARRAYS = ("weights", "lagged", "raw_weights", "raw_lagged", "confidence", "required")


def to_plain(graph: CausalGraph) -> dict[str, Any]:
    """Return all fields as lists, floats and strings; floats survive JSON to the last bit."""
    arrays = {name: getattr(graph, name) for name in _ARRAYS}
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": graph.kind,
        "names": list(graph.names),
        **{name: None if array is None else array.tolist() for name, array in arrays.items()},
    }


def from_plain(record: Mapping[str, Any], origin: str = "the record") -> dict[str, Any]:
    """Return the constructor's fields of what `to_plain` made.

    Raises
    ------
    DataError
        If it is not a record of this format, of a later version, or lacks a field.
    """
    if record.get("format") != FORMAT:
        raise DataError(
            f"{origin} is not a graph saved by CausalGraph.save (no 'format': '{FORMAT}')"
        )
    if record.get("version") != VERSION:
        raise DataError(
            f"{origin} has format version {record.get('version')}, this release reads {VERSION}: "
            "upgrade flwr-causal"
        )
    missing = [name for name in ("names", "weights", "kind") if name not in record]
    if missing:
        raise DataError(f"{origin} lacks {', '.join(missing)}: save the graph again")
    fields: dict[str, Any] = {"names": tuple(record["names"]), "kind": record["kind"]}
    for name in _ARRAYS:
        if record.get(name) is not None:
            fields[name] = np.array(record[name], dtype=bool if name == "required" else np.float64)
    return fields


def write_json(graph: CausalGraph, path: str | Path) -> None:
    """Write the graph as JSON; the folder is made if it is not there."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(to_plain(graph), allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: str | Path) -> dict[str, Any]:
    """Return the constructor's fields from a file that `write_json` made.

    Raises
    ------
    DataError
        If the file is not there, is not JSON, or is not such a graph.
    """
    path = Path(path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"no graph at {path}: check the path") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(f"{path} is not JSON ({error}): give a file made by save()") from None
    if not isinstance(record, dict):
        raise DataError(f"{path} is JSON but not a graph: give a file made by CausalGraph.save")
    try:
        return from_plain(record, str(path))
    except (TypeError, ValueError) as error:
        raise DataError(f"{path} holds a damaged graph ({error}): save it again") from None


def to_networkx(graph: CausalGraph) -> nx.DiGraph[str]:
    """Return a ``DiGraph``, or a ``MultiDiGraph`` where the graph has lags.

    Each edge carries ``weight`` and ``lag`` (0: instantaneous) and, where the graph has them,
    ``raw_weight``, ``confidence`` and ``required``. An undirected edge stands in both directions.
    """
    result: nx.DiGraph[str] = nx.DiGraph() if graph.lagged is None else nx.MultiDiGraph()
    num_lags = 0 if graph.lagged is None else len(graph.lagged)
    result.graph.update(kind=graph.kind, lags=num_lags)
    result.add_nodes_from(graph.names)
    for i, j in np.argwhere(graph.adjacency):
        attributes: dict[str, Any] = {"weight": float(graph.weights[i, j]), "lag": 0}
        if graph.raw_weights is not None:
            attributes["raw_weight"] = float(graph.raw_weights[i, j])
        if graph.confidence is not None:
            attributes["confidence"] = float(graph.confidence[i, j])
        if graph.required is not None:
            attributes["required"] = bool(graph.required[i, j])
        result.add_edge(graph.names[i], graph.names[j], **attributes)
    if graph.lagged is not None:
        for lag, i, j in np.argwhere(graph.lagged != 0):
            attributes = {"weight": float(graph.lagged[lag, i, j]), "lag": int(lag) + 1}
            if graph.raw_lagged is not None:
                attributes["raw_weight"] = float(graph.raw_lagged[lag, i, j])
            result.add_edge(graph.names[i], graph.names[j], **attributes)
    return result


def from_networkx(graph: nx.Graph[Any], weight: str = "weight") -> dict[str, Any]:
    """Return the constructor's fields of a networkx graph of any class.

    Nodes keep their order and become strings. An edge without the attribute ``weight`` weighs 1.
    An undirected ``Graph`` becomes a CPDAG with undirected edges. Restores what `to_networkx`
    wrote but for raw weights, which a graph of edges cannot hold in full; also what `unrolled`
    made of it.

    Raises
    ------
    DataError
        If an edge weighs zero (unless it is required), stands twice with the same lag, or has a
        lag that is not a whole number from 0 up; if an unrolled graph has an edge that does not
        lead into the present slice.
    """
    if len(graph) and all(data.keys() >= {"variable", "lag"} for _, data in graph.nodes(data=True)):
        graph = _folded(graph)
    labels = {node: str(node) for node in graph.nodes}
    index = {node: k for k, node in enumerate(graph.nodes)}
    size = len(index)
    directed = graph.to_directed().edges(data=True)
    edges = [(index[u], index[v], data) for u, v, data in directed]
    lags = [_lag(data, labels[u], labels[v]) for u, v, data in directed]
    num_lags = max([int(graph.graph.get("lags", 0)), *lags])

    slices = np.zeros((num_lags + 1, size, size))
    required = np.zeros((size, size), dtype=bool)
    confidence = np.zeros((size, size))
    seen: set[tuple[int, int, int]] = set()
    names = tuple(labels.values())
    for lag, (i, j, data) in zip(lags, edges, strict=True):
        value = float(data.get(weight, 1.0))
        if (lag, i, j) in seen:
            raise DataError(f"the edge {names[i]} -> {names[j]} stands twice at lag {lag}")
        if value == 0 and not data.get("required", False):
            raise DataError(
                f"the edge {names[i]} -> {names[j]} has weight 0, which means no edge: remove it "
                "or give it a weight"
            )
        seen.add((lag, i, j))
        slices[lag, i, j] = value
        if lag == 0:
            required[i, j] = bool(data.get("required", False))
            confidence[i, j] = float(data.get("confidence", 0.0))
    kind = graph.graph.get("kind", "dag" if graph.is_directed() else "cpdag")
    fields: dict[str, Any] = {"names": names, "weights": slices[0], "kind": kind}
    if num_lags:
        fields["lagged"] = slices[1:]
    if any("required" in data for _, _, data in edges):
        fields["required"] = required
    if any("confidence" in data for _, _, data in edges):
        fields["confidence"] = confidence
    return fields


def unrolled(graph: CausalGraph) -> nx.DiGraph[str]:
    """Return the graph as networkx holds it, with a node per slice where there are lags.

    The nodes ``x0[t-1]`` and ``x0[t]`` of the variable ``x0`` have the attributes ``variable`` and
    ``lag``; slices come from the oldest to the present one. Edges lead into the present slice: they
    repeat in every other one.
    """
    plain = to_networkx(graph)
    if graph.lagged is None:
        return plain
    result: nx.DiGraph[str] = nx.DiGraph(kind=graph.kind, lags=len(graph.lagged))
    for lag in range(len(graph.lagged), -1, -1):
        for name in graph.names:
            result.add_node(at_lag(name, lag), variable=name, lag=lag)
    edge: dict[str, Any]
    for cause, effect, edge in plain.edges(data=True):
        result.add_edge(at_lag(cause, edge["lag"]), at_lag(effect, 0), **edge)
    return result


def at_lag(name: str, lag: int) -> str:
    """Return the name of a variable in the slice of a lag."""
    return f"{name}[t-{lag}]" if lag else f"{name}[t]"


def _folded(graph: nx.Graph[Any]) -> nx.MultiDiGraph[str]:
    """Return a graph over variables of one over variables in slices."""
    result: nx.MultiDiGraph[str] = nx.MultiDiGraph(**graph.graph)
    data: dict[str, Any]
    for _, data in graph.nodes(data=True):
        result.add_node(str(data["variable"]))
    for start, end, edge in graph.edges(data=True):
        if _lag(graph.nodes[end], start, end) != 0:
            raise DataError(
                f"the edge {start} -> {end} leads into the past: an unrolled graph has the edges "
                "into the present slice alone, those of lag 0"
            )
        cause, effect = graph.nodes[start]["variable"], graph.nodes[end]["variable"]
        result.add_edge(str(cause), str(effect), **{**edge, "lag": graph.nodes[start]["lag"]})
    return result


def _lag(data: Mapping[str, Any], cause: str, effect: str) -> int:
    """Return an edge's lag, checked."""
    lag = data.get("lag", 0)
    if int(lag) != lag or lag < 0:
        raise DataError(f"the edge {cause} -> {effect} has lag {lag}: expected 0, 1, 2, ...")
    return int(lag)

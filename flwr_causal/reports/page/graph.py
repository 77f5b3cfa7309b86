"""The graph of a run as plain values: edges with everything that is known of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.graphs import equivalence
from flwr_causal.core.graphs.knowledge import Knowledge
from flwr_causal.core.graphs.metrics import verdict
from flwr_causal.core.graphs.pag.marks import NONE, forward

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.arrays import BoolArray, FloatArray
    from flwr_causal.core.graphs.graph import CausalGraph
    from flwr_causal.core.graphs.knowledge import EdgeBlocks

#: Of the pairs without an edge, so many of largest raw weight are on the page.
MOST_LEFT_OUT = 1000
#: What an edge may have between 0 and 1, and how the page calls it; the graph shows the first one.
SHARES = {"confidence": "confidence", "party_agreement": "share of the parties that agree"}
#: More forbidden edges than this (tiers forbid many) are counted, not listed.
MOST_FORBIDDEN = 200


def graph_payload(
    graph: CausalGraph, truth: CausalGraph | None, knowledge: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return a graph, its differences from the truth, and its background knowledge.

    Returns
    -------
    dict
        ``names``, ``kind``, ``lags``; ``edges``, a list of dicts with ``cause`` and ``effect``
        (indices), ``lag``, ``weight``, ``mark`` (as of
        :meth:`CausalGraph.marked_edges`), ``found`` (False: left out by the
        threshold, or missing), and, as far as they are known, ``raw`` (the weight before the
        threshold), ``strength`` (the absolute weight in standard deviations), ``confidence``,
        ``party_agreement``, ``required`` and ``truth`` ("right", "open", "reversed", "extra",
        "missing"); ``counts`` of the values of ``truth``; ``forbidden`` edges as lists of cause,
        effect and lag; ``share``, where edges have one: the ``key`` of an edge's share between 0
        and 1, its ``name``, and the ``least`` one that is shown at first.
    """
    lags = 0 if graph.lagged is None else len(graph.lagged)
    known = Knowledge.from_dict(knowledge or {}).blocks(graph.names, lags)
    edges = _edges_at(graph, 0, graph.weights, graph.adjacency, graph.raw_weights, graph.required)
    for k in range(lags):
        assert graph.lagged is not None
        raw = None if graph.raw_lagged is None else graph.raw_lagged[k]
        weights, required = graph.lagged[k], known.required_lagged[k]
        edges += _edges_at(graph, k + 1, weights, weights != 0, raw, required)
    left_out = sorted((e for e in edges if not e["found"]), key=strength_of, reverse=True)
    edges = [edge for edge in edges if edge["found"]] + left_out[:MOST_LEFT_OUT]
    counts: dict[str, int] = {}
    if truth is not None and graph.marks is not None:
        truth = truth.to_pag(graph.names)
    if truth is not None and set(truth.names) == set(graph.names):
        judge = _judged if graph.marks is None else _judged_marks
        edges = judge(edges, graph, truth.reordered(graph.names))
        for edge in edges:
            if "truth" in edge:
                counts[edge["truth"]] = counts.get(edge["truth"], 0) + 1
    found: dict[str, Any] = {
        "names": list(graph.names),
        "kind": graph.kind,
        "lags": lags,
        "edges": edges,
        "counts": counts,
    }
    for key, name in SHARES.items():
        if any(key in edge for edge in edges):
            found.setdefault("share", {"key": key, "name": name, "least": 0})
    if knowledge:
        forbidden = _forbidden(known)
        found["num_forbidden"] = len(forbidden)
        found["forbidden"] = forbidden if len(forbidden) <= MOST_FORBIDDEN else []
    return found


def strength_of(edge: Mapping[str, Any]) -> float:
    """Return the strength of an edge of :func:`graph_payload`, or else its weight."""
    value = edge["weight"] if edge["found"] else edge.get("raw", 0.0)
    return float(edge.get("strength", abs(value)))


def _edges_at(
    graph: CausalGraph,
    lag: int,
    weights: FloatArray,
    present: BoolArray,
    raw: FloatArray | None,
    required: BoolArray | None,
) -> list[dict[str, Any]]:
    """Return the edges of one lag, and the pairs that only have a raw weight."""
    both = np.zeros_like(present)
    if lag == 0 and graph.kind == "cpdag":
        both = equivalence.undirected_part(present)
    if graph.marks is not None:
        present = forward(graph.marks)
    candidates = present if raw is None else present | (raw != 0)
    if lag == 0:
        # Of a pair with an edge, the opposite direction is no further edge.
        candidates = candidates & ~(present.T & ~present) & ~np.tril(both)
    edges = []
    for i, j in np.argwhere(candidates):
        edge: dict[str, Any] = {
            "cause": int(i),
            "effect": int(j),
            "lag": lag,
            "found": bool(present[i, j]),
            "mark": "->" if lag else graph.symbol(i, j),
            "weight": float(weights[i, j]),
        }
        if raw is not None:
            edge["raw"] = float(raw[i, j])
        if graph.deviations is not None:
            value = edge["weight"] if edge["found"] else edge["raw"]
            edge["strength"] = abs(value) * float(graph.deviations[i] / graph.deviations[j])
        if present[i, j] and (sure := graph.confidence_of(i, j, lag)) is not None:
            edge["confidence"] = sure
        if present[i, j] and lag == 0 and graph.party_agreement is not None:
            edge["party_agreement"] = float(graph.party_agreement[i, j])
        if required is not None and required[i, j]:
            edge["required"] = True
        edges.append(edge)
    return edges


def _judged(
    edges: list[dict[str, Any]], graph: CausalGraph, truth: CausalGraph
) -> list[dict[str, Any]]:
    """Return the edges with their verdicts, and the true edges that are missing.

    A truth without lags says of no edge at which lag it is: then all lags count as one.
    """
    by_lag = graph.lagged is None or truth.lagged is not None
    true = {0: truth.adjacency}
    if truth.lagged is not None:
        true |= {k + 1: lagged != 0 for k, lagged in enumerate(truth.lagged)}
    seen: set[tuple[int, int, int]] = set()
    none = np.zeros_like(truth.adjacency)
    judged = []
    for edge in edges:
        i, j, lag = edge["cause"], edge["effect"], edge["lag"] if by_lag else 0
        marks = true.get(lag, none)
        same, opposite = bool(marks[i, j]), bool(marks[j, i]) and lag == 0 and by_lag
        unknown = not by_lag and i == j  # such truths say nothing of a variable's own past
        if unknown or not (edge["found"] or (same and (i, j, lag) not in seen)):
            judged.append(edge)
            continue
        if not edge["found"]:
            verdict = "missing"
        elif not (same or opposite):
            verdict = "extra"
        elif edge["mark"] == "--":
            verdict = "right" if same and opposite else "open"
        else:
            verdict = "right" if same else "reversed"
        seen.add((i, j, lag))
        if lag == 0 and (by_lag and edge["found"]):
            seen.add((j, i, 0))
        judged.append({**edge, "truth": verdict})
    for lag, marks in true.items():
        for i, j in np.argwhere(marks):
            if (int(i), int(j), lag) not in seen and not (i == j and not by_lag):
                seen.add((int(i), int(j), lag))
                undirected = lag == 0 and marks[j, i] and truth.kind == "cpdag"
                if undirected:
                    seen.add((int(j), int(i), lag))
                judged.append(
                    {
                        "cause": int(i),
                        "effect": int(j),
                        "lag": lag,
                        "found": False,
                        "mark": "--" if undirected else "->",
                        "weight": 0.0,
                        "truth": "missing",
                    }
                )
    return judged


def _judged_marks(
    edges: list[dict[str, Any]], graph: CausalGraph, truth: CausalGraph
) -> list[dict[str, Any]]:
    """Return the edges of a PAG with their verdicts, and the true edges that are missing."""
    true, found = truth.marks, graph.marks
    assert true is not None
    assert found is not None
    judged = [
        {**edge, "truth": verdict(true, found, edge["cause"], edge["effect"])} for edge in edges
    ]
    for i, j in np.argwhere(forward(true) & (found == NONE)):
        missing = {"cause": int(i), "effect": int(j), "lag": 0, "found": False, "weight": 0.0}
        judged.append({**missing, "mark": truth.symbol(i, j), "truth": "missing"})
    return judged


def _forbidden(known: EdgeBlocks) -> list[list[int]]:
    """Return the edges (cause, effect, lag) that background knowledge forbids."""
    now = known.allowed_now | np.eye(len(known.allowed_now), dtype=bool)
    forbidden = ~np.concatenate([now[None], known.allowed_lagged])
    return [[int(i), int(j), int(lag)] for lag, i, j in np.argwhere(forbidden)]

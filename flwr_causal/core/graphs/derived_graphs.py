"""Graphs that follow from a graph: cut at another threshold, or summarised over its lags.

As in ``graph_formats``, the functions return the constructor's fields of ``CausalGraph``, so that
they know nothing of the class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.graphs import acyclicity
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.graphs.graph import CausalGraph

    FloatArray = NDArray[np.float64]


def cut(graph: CausalGraph, value: float, lagged_value: float | None = None) -> dict[str, Any]:
    """Return the fields that change when a graph is cut again, see ``CausalGraph.threshold``.

    Raises
    ------
    ConfigError
        If a threshold is negative or not finite.
    """
    lagged_value = value if lagged_value is None else lagged_value
    for threshold in (value, lagged_value):
        if not (np.isfinite(threshold) and threshold >= 0):
            raise ConfigError(f"threshold is {threshold}: expected a number from 0 up")
    raw = graph.weights if graph.raw_weights is None else graph.raw_weights
    required = np.zeros_like(graph.adjacency) if graph.required is None else graph.required
    # A required edge takes part in cycles even when its own weight is zero.
    strength = np.where(required & (raw == 0), 1.0, raw)
    strength = np.where(required | (np.abs(raw) > value), strength, 0.0)
    if graph.kind == "dag":
        strength = acyclicity.break_cycles(strength, required)
    weights = np.where(graph.adjacency, graph.weights, raw)
    changed: dict[str, Any] = {"weights": np.where(strength != 0, weights, 0.0)}
    if graph.lagged is not None:
        raw_lagged = graph.lagged if graph.raw_lagged is None else graph.raw_lagged
        lagged = np.where(graph.lagged != 0, graph.lagged, raw_lagged)
        changed["lagged"] = np.where(np.abs(raw_lagged) > lagged_value, lagged, 0.0)
    return changed


def summarize(graph: CausalGraph, *, self_loops: bool) -> dict[str, Any]:
    """Return the fields of the summary graph but for the names, see ``CausalGraph.summary``.

    Raises
    ------
    DataError
        If the graph is a CPDAG.
    """
    if graph.kind == "cpdag":
        raise DataError("a CPDAG has no summary graph: call to_dag() first")
    kept = self_loops | ~np.eye(len(graph.names), dtype=bool)
    fields: dict[str, Any] = {"kind": "summary", "required": graph.required}
    fields["weights"] = kept * _strongest(graph.weights, graph.lagged)
    if graph.raw_weights is not None or graph.raw_lagged is not None:
        raw = graph.weights if graph.raw_weights is None else graph.raw_weights
        raw_lagged = graph.lagged if graph.raw_lagged is None else graph.raw_lagged
        fields["raw_weights"] = kept * _strongest(raw, raw_lagged)
    return fields


def _strongest(now: FloatArray, lagged: FloatArray | None) -> FloatArray:
    """Return the entry of largest absolute value over all slices; the latest among equals."""
    slices = now[None] if lagged is None else np.concatenate([now[None], lagged])
    latest = np.abs(slices).argmax(axis=0)[None]
    return np.asarray(np.take_along_axis(slices, latest, axis=0)[0])

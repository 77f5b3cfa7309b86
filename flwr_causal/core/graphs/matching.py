"""Bringing two graphs to the same variables in the same order before they are compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from flwr_causal.core.graphs.graph import CausalGraph
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    GraphLike: TypeAlias = CausalGraph | ArrayLike


def aligned(truth: GraphLike, estimate: GraphLike) -> tuple[CausalGraph, CausalGraph]:
    """Return both graphs over the variables of the truth, in its order.

    Two `CausalGraph` are matched by name; a plain matrix has no names and is taken to be in the
    order of the other graph.

    Raises
    ------
    DataError
        If the graphs have different variables.
    """
    if isinstance(truth, CausalGraph):
        if isinstance(estimate, CausalGraph):
            return truth, reordered(estimate, truth.names)
        return truth, _named(estimate, truth.names)
    if isinstance(estimate, CausalGraph):
        return _named(truth, estimate.names), estimate
    first = CausalGraph.from_array(truth)
    return first, _named(estimate, first.names)


def reordered(graph: CausalGraph, names: Sequence[str]) -> CausalGraph:
    """Return the graph with its variables in the order of ``names``.

    Raises
    ------
    DataError
        If ``names`` are not the graph's variables.
    """
    if tuple(names) == graph.names:
        return graph
    if set(names) != set(graph.names):
        only_one = ", ".join(name for name in names if name not in graph.names) or "none"
        only_two = ", ".join(name for name in graph.names if name not in names) or "none"
        raise DataError(
            f"the graphs have different variables: only one has {only_one}, the other {only_two}"
            "; rename or drop variables, or give a plain matrix to match by position"
        )
    order = [graph.names.index(name) for name in names]
    arrays = ("weights", "lagged", "raw_weights", "raw_lagged", "confidence", "required")
    changed = {
        name: array[..., order, :][..., order]
        for name in arrays
        if (array := getattr(graph, name)) is not None
    }
    return replace(graph, names=tuple(names), **changed)


def _named(array: ArrayLike, names: Sequence[str]) -> CausalGraph:
    """Return a plain matrix as a graph over ``names``."""
    shape = np.shape(array)
    if shape != (len(names), len(names)):
        raise DataError(
            f"a graph's matrix has shape {shape}, the other graph has {len(names)} variables"
        )
    return CausalGraph.from_array(array, names)

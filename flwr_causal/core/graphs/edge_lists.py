"""Conversion of DAGs between edge lists (used in messages) and boolean matrices (in searches)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import BoolArray

    EdgeList = NDArray[np.integer]


def edges_of(dag: BoolArray) -> NDArray[np.uint16]:
    """Return the edges (cause, effect) of a DAG, shape (m, 2), in ascending order."""
    return np.argwhere(dag).astype(np.uint16)


def matrix_of(edges: EdgeList, num_variables: int) -> BoolArray:
    """Return the adjacency matrix of an edge list, shape (d, d)."""
    dag = np.zeros((num_variables, num_variables), dtype=np.bool_)
    dag[edges[:, 0], edges[:, 1]] = True
    return dag


def families_of(dag: BoolArray) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield each variable of a DAG with its parents, both in ascending order."""
    for y in range(len(dag)):
        yield y, tuple(np.flatnonzero(dag[:, y]).tolist())


def parents_of(edges: EdgeList, num_variables: int) -> list[tuple[int, ...]]:
    """Return the parents of each variable, in the order of the edges."""
    parents: list[list[int]] = [[] for _ in range(num_variables)]
    for cause, effect in edges.tolist():
        parents[effect].append(cause)
    return [tuple(own) for own in parents]

"""Circuits made from circuits: marginals, conditionals, other columns. All are exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.circuits.nodes import Leaf, Product, Sum, ascending

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.circuits.layers import Layers
    from flwr_causal.core.circuits.nodes import Node


def restricted(root: Node, scope: Collection[int]) -> Node:
    """Return the marginal of a circuit over some of its columns.

    Parameters
    ----------
    root : Node
    scope : collection of int
        At least one column of the root's scope.
    """
    kept = set(scope)
    made: dict[int, Node | None] = {}
    for node in ascending(root):
        own = [column for column in node.scope if column in kept]
        if not own:
            made[id(node)] = None
        elif len(own) == len(node.scope):
            made[id(node)] = node
        elif isinstance(node, Leaf):
            made[id(node)] = node.restrict(own)
        else:
            children = [made[id(child)] for child in node.children]
            made[id(node)] = _combined(children, getattr(node, "weights", None))
    result = made[id(root)]
    assert result is not None  # the caller keeps a column
    return result


def conditioned(layers: Layers, values: FloatArray) -> tuple[Node | None, float]:
    """Return a circuit given evidence, over the columns without any.

    The children of a sum get the weights that they have after the evidence; what it excludes is
    dropped.

    Parameters
    ----------
    layers : Layers
        Of the circuit.
    values : ndarray of float64, shape (d,)
        NaN where there is no evidence.

    Returns
    -------
    root : Node or None
        None where nothing is left, or the evidence is impossible.
    log_density : float
        Of the evidence.
    """
    known = ~np.isnan(values)
    parts: list[tuple[Node | None, float]] = [
        leaf.condition(values[list(leaf.scope)]) if known[list(leaf.scope)].any() else (leaf, 0.0)
        for leaf in layers.leaves
    ]
    densities = layers.upward(np.array([[density] for _, density in parts]))[:, 0]
    made = [leaf for leaf, _ in parts]
    for number, node in enumerate(layers.nodes[len(parts) :], start=len(parts)):
        places = [layers.number[id(child)] for child in node.children]
        if not known[list(node.scope)].any():
            made.append(node)
        elif isinstance(node, Sum):
            own = densities[places]
            possible = np.flatnonzero((node.weights > 0) & (own > -np.inf))
            weights = node.weights[possible] * np.exp(own[possible] - densities[number])
            children = [made[places[k]] for k in possible]
            made.append(_combined(children, weights / weights.sum()))
        else:
            made.append(_combined([made[place] for place in places], None))
    density = float(densities[-1])
    return (None if np.isneginf(density) else made[-1]), density


def _combined(children: list[Node | None], weights: FloatArray | None) -> Node | None:
    """Return a sum or product of what is left of its children; the child itself if it is one."""
    left = [child for child in children if child is not None]
    if len(left) < 2:
        return left[0] if left else None
    return Product(left) if weights is None else Sum(left, weights)


def moved(root: Node, columns: Mapping[int, int]) -> Node:
    """Return the same circuit over other columns, such as those of a larger domain.

    Parameters
    ----------
    root : Node
    columns : mapping of int to int
        The new column of each of the root's.
    """
    made: dict[int, Node] = {}
    for node in ascending(root):
        if isinstance(node, Leaf):
            made[id(node)] = node.moved([columns[column] for column in node.scope])
            continue
        children = [made[id(child)] for child in node.children]
        made[id(node)] = Sum(children, node.weights) if isinstance(node, Sum) else Product(children)
    return made[id(root)]

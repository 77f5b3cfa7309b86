"""Circuits made from circuits: marginals, conditionals, other columns. All are exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.circuits.nodes import Leaf, Product, Sum, ascending

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from flwr_causal.core.arrays import FloatArray
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
            made[id(node)] = _combined(node, children, getattr(node, "weights", None))
    result = made[id(root)]
    assert result is not None  # the caller keeps a column
    return result


def conditioned(root: Node, values: FloatArray) -> tuple[Node | None, float]:
    """Return a circuit given evidence, over the columns without any.

    The children of a sum get the weights that they have after the evidence; what it excludes is
    dropped.

    Parameters
    ----------
    root : Node
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
    made: dict[int, tuple[Node | None, float]] = {}
    for node in ascending(root):
        scope = list(node.scope)
        if not known[scope].any():
            made[id(node)] = node, 0.0
        elif isinstance(node, Leaf):
            made[id(node)] = node.condition(values[scope])
        elif isinstance(node, Sum):
            made[id(node)] = _conditioned_sum(node, made)
        else:
            parts = [made[id(child)] for child in node.children]
            density = sum(part[1] for part in parts)
            made[id(node)] = _combined(node, [part[0] for part in parts], None), density
    result, density = made[id(root)]
    return (None if np.isneginf(density) else result), density


def _conditioned_sum(
    node: Sum, made: Mapping[int, tuple[Node | None, float]]
) -> tuple[Node | None, float]:
    """Return a sum given evidence from its children given it."""
    parts = [made[id(child)] for child in node.children]
    with np.errstate(divide="ignore"):
        terms = np.log(node.weights) + np.array([part[1] for part in parts])
    possible = np.flatnonzero(terms > -np.inf)
    if len(possible) == 0:
        return parts[0][0], -np.inf
    peak = terms.max()
    weights = np.exp(terms[possible] - peak)
    density = float(peak + np.log(weights.sum()))
    children = [parts[k][0] for k in possible]
    return _combined(node, children, weights / weights.sum()), density


def _combined(node: Node, children: list[Node | None], weights: FloatArray | None) -> Node | None:
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

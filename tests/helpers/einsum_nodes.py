"""An Einsum network written as nodes, each product of a pair one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.core.circuits.tensors.leaf import plain_arrays

if TYPE_CHECKING:
    from flwr_causal.core.circuits.nodes import Node
    from flwr_causal.core.circuits.tensors.leaf import TensorLeaf


def nodes_of(circuit: Circuit) -> Circuit:
    """Return the distribution of a circuit whose root is an Einsum network over all columns."""
    leaf: TensorLeaf = circuit.root
    layout, parameters = leaf.layout, leaf.parameters
    arrays = plain_arrays(parameters._asdict())
    k = parameters.layers[0].shape[3]
    layers = layout.layers(arrays["layers"], k)
    tops = []
    for r in range(layout.replicas):
        level = [[_unit(layout, arrays, g, r, u) for u in range(k)] for g in range(2**layout.depth)]
        for layer in layers:
            weights = layer[:, r]
            half = len(weights)
            level = [_sums(weights[b], level[b], level[b + half]) for b in range(half)]
        tops.append(level[0])
    children: list[Node] = []
    shares: list[float] = []
    for c, row in enumerate(arrays["root"]):
        for r, weight in enumerate(row):
            node = tops[r][c]
            assert node is not None  # a root's scope is never empty
            if layout.target is not None:
                states = np.eye(layout.num_classes)[c]
                node = Product([Categorical(layout.target, states), node])
            children.append(node)
            shares.append(weight)
    return Circuit(circuit.domain, Sum(children, _normalised(np.array(shares))))


def _unit(layout, arrays: dict[str, Any], g: int, r: int, u: int) -> Node | None:
    """Return sum u of leaf region g of replica r; None where the region has no column."""
    factors: list[Node] = []
    for column in layout.regions[g, r].tolist():
        if column < 0:
            continue
        if layout.num_states[column]:
            states = layout.states_of[layout.categories.tolist().index(column)]
            probabilities = arrays["probabilities"][states, r, u]
            factors.append(Categorical(column, _normalised(probabilities)))
        else:
            place = layout.numbers.tolist().index(column)
            scale = layout.scale[column]
            mean = arrays["means"][place, r, u] * scale + layout.shift[column]
            deviation = np.sqrt(arrays["variances"][place, r, u]) * scale
            factors.append(Gaussian(column, mean, deviation))
    return _product(factors)


def _sums(weights: Any, left: list[Node | None], right: list[Node | None]) -> list[Node | None]:
    """Return the sums of a region over the pairs of its children's; weights (O, K, K)."""
    pairs = [_product([one for one in (a, b) if one is not None]) for a in left for b in right]
    children = [pair for pair in pairs if pair is not None]
    return [Sum(children, _normalised(own.ravel())) if children else None for own in weights]


def _product(factors: list[Node]) -> Node | None:
    if len(factors) < 2:
        return factors[0] if factors else None
    return Product(factors)


def _normalised(weights: Any) -> Any:
    """Return weights without the rounding of float32."""
    return weights / weights.sum()

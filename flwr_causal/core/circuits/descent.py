"""Rows filled from the root down: draws, and the most probable explanation.

Every row starts at the root, takes one child of a sum and all children of a product, and so comes
to leaves whose scopes are disjoint and cover the root's. All rows that meet in a node go on
together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.nodes import Leaf, Sum
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr_causal.core.circuits.layers import Layers
    from flwr_causal.core.circuits.nodes import FloatArray

IntArray = NDArray[np.int64]

#: Node values that are kept at once, in numbers (64 MB): each node costs a step for every chunk of
#: rows, which are therefore larger than in the evaluation.
CHUNK = 2**23


def sampled(layers: Layers, values: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Fill missing values by draws given the rest of each row.

    Parameters
    ----------
    layers : Layers
    values : ndarray of float64, shape (n, d)

    Raises
    ------
    DataError
        If a row's evidence is impossible.
    """

    def choose(terms: FloatArray) -> IntArray:
        shares = np.cumsum(np.exp(terms - terms.max(axis=0)), axis=0)
        drawn = rng.random(terms.shape[1]) * shares[-1]
        return np.asarray(np.minimum((drawn >= shares).sum(axis=0), len(terms) - 1))

    if len(values) and np.isnan(values).all():
        # Without evidence every node has the log density 0 in every row.
        nothing = np.zeros((len(layers.nodes), 1))
        everywhere = np.broadcast_to(nothing, (len(layers.nodes), len(values)))
        return _filled(layers, values, everywhere, choose, lambda leaf, own: leaf.sample(own, rng))
    result = np.empty(values.shape)
    for rows in layers.chunks(len(values), CHUNK):
        node_values = layers.upward(layers.leaf_values(values[rows]))
        _check(node_values[-1], rows.start)
        result[rows] = _filled(
            layers, values[rows], node_values, choose, lambda leaf, own: leaf.sample(own, rng)
        )
    return result


def most_probable(layers: Layers, values: FloatArray) -> FloatArray:
    """Fill missing values by the most probable explanation, as max-product finds it.

    Every sum is replaced by its largest weighted child and every leaf by its highest density given
    what is known, and the children that attain the root's value are followed down.

    Parameters
    ----------
    layers : Layers
    values : ndarray of float64, shape (n, d)

    Raises
    ------
    DataError
        If a row's evidence is impossible.
    """
    result = np.empty(values.shape)
    for rows in layers.chunks(len(values), CHUNK):
        node_values = layers.upward(peak_values(layers, values[rows]), maximise=True)
        _check(node_values[-1], rows.start)
        result[rows] = _filled(
            layers,
            values[rows],
            node_values,
            lambda terms: terms.argmax(axis=0),
            lambda leaf, own: leaf.mode(own),
        )
    return result


def peak_values(layers: Layers, values: FloatArray) -> FloatArray:
    """Log density of each leaf at its mode given what is known, shape (L, n)."""
    result = layers.leaf_values(values)
    missing = np.isnan(values)
    for row, leaf in zip(result, layers.leaves, strict=True):
        scope = np.array(leaf.scope)
        holes = np.flatnonzero(missing[:, scope].any(axis=1))
        if len(holes):
            row[holes] = leaf.log_density(leaf.mode(values[np.ix_(holes, scope)]))
    return result


def _filled(
    layers: Layers,
    values: FloatArray,
    node_values: FloatArray,
    choose: Callable[[FloatArray], IntArray],
    fill: Callable[[Leaf, FloatArray], FloatArray],
) -> FloatArray:
    """Return the rows with what the leaves fill in that they come to."""
    result = values.copy()
    arriving: list[list[IntArray]] = [[] for _ in layers.nodes]
    arriving[-1] = [np.arange(len(values))]
    for number in range(len(layers.nodes) - 1, -1, -1):
        node = layers.nodes[number]
        parts = [part for part in arriving[number] if len(part)]
        if not parts:
            continue
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if isinstance(node, Leaf):
            place = np.ix_(rows, np.array(node.scope))
            if np.isnan(values[place]).any():
                result[place] = fill(node, values[place])
            continue
        children = np.array([layers.number[id(child)] for child in node.children])
        if isinstance(node, Sum):
            with np.errstate(divide="ignore"):
                terms = np.log(node.weights)[:, None] + node_values[np.ix_(children, rows)]
            chosen = choose(terms)
            for k, child in enumerate(children):
                arriving[child].append(rows[chosen == k])
        else:
            for child in children:
                arriving[child].append(rows)
    return result


def _check(root_values: FloatArray, start: int) -> None:
    """Raise a DataError for the first row of probability 0."""
    bad = np.flatnonzero(~np.isfinite(root_values))
    if len(bad):
        raise DataError(
            f"row {start + bad[0]}: what it holds is impossible under the circuit, so the rest of "
            "it cannot be filled; leave the row out, or the value that was never seen"
        )

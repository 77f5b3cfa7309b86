"""A circuit as a few operations on large arrays.

The nodes are numbered once: the leaves first, those of one kind side by side, then the inner nodes
in layers, each behind all its children; the root is the last. A layer holds sums or products and is
evaluated as one, for a chunk of rows that fits the cache: no step is made in Python for a single
node or row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.nodes import Leaf, Product, Sum, ascending

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from flwr_causal.core.circuits.nodes import FloatArray, LeafBatch, Node

IntArray = NDArray[np.int64]

#: Node values that are kept at once, in numbers: with what is computed from them they fit a cache.
CHUNK = 2**18
#: No log density is below it but minus infinity, which minus itself would be no number.
LOWEST = float(np.finfo(np.float64).min)


class Layer(NamedTuple):
    """Sums, or products, none of which is below another.

    Parameters
    ----------
    first, stop : int
        Their numbers, ``stop`` excluded.
    starts : ndarray of int64, shape (stop - first + 1,)
        Where each node's children begin.
    children : ndarray of int64, shape (E,)
        Numbers of the children.
    log_weights : ndarray of float64, shape (E,), or None
        Of sums; None for products.
    """

    first: int
    stop: int
    starts: IntArray
    children: IntArray
    log_weights: FloatArray | None


class Layers:
    """A compiled circuit.

    Attributes
    ----------
    nodes : tuple of Node
        By their numbers.
    leaves : tuple of Leaf
        The first of them.
    sums : tuple of Sum
        By their numbers.
    layers : tuple of Layer
    """

    def __init__(self, nodes: Sequence[Node], num_leaves: int, layers: Iterable[Layer]) -> None:
        self.nodes = tuple(nodes)
        self.leaves = tuple(node for node in self.nodes[:num_leaves] if isinstance(node, Leaf))
        self.sums = tuple(node for node in self.nodes if isinstance(node, Sum))
        self.layers = tuple(layers)
        self.number = {id(node): k for k, node in enumerate(self.nodes)}
        self._batches = _batches(self.leaves, np.arange(num_leaves))

    @classmethod
    def of(cls, root: Node) -> Self:
        """Return the layers of the circuit below a root."""
        order = ascending(root)
        leaves = [node for node in order if isinstance(node, Leaf)]
        leaves.sort(key=lambda leaf: leaf.kind)
        height: dict[int, int] = {id(leaf): 0 for leaf in leaves}
        groups: dict[tuple[int, bool], list[Node]] = {}
        for node in order:
            if not isinstance(node, Leaf):
                height[id(node)] = 1 + max(height[id(child)] for child in node.children)
                groups.setdefault((height[id(node)], isinstance(node, Sum)), []).append(node)
        nodes: list[Node] = list(leaves)
        number = {id(node): k for k, node in enumerate(nodes)}
        layers = []
        for key in sorted(groups):
            layers.append(_layer(groups[key], len(nodes), number))
            for node in groups[key]:
                number[id(node)] = len(nodes)
                nodes.append(node)
        return cls(nodes, len(leaves), layers)

    def chunks(self, num_rows: int, numbers: int = CHUNK) -> Iterator[slice]:
        """Return slices of rows of which the values of all nodes are about so many numbers."""
        size = max(32, min(4096, numbers // len(self.nodes)))
        for start in range(0, num_rows, size):
            yield slice(start, min(start + size, num_rows))

    def leaf_values(self, values: FloatArray) -> FloatArray:
        """Return the log densities of all leaves.

        Parameters
        ----------
        values : ndarray of float64, shape (n, d)
            NaN is a missing value.

        Returns
        -------
        ndarray of float64, shape (L, n)
        """
        result = np.empty((len(self.leaves), len(values)))
        for place, batch in self._batches:
            result[place] = batch.log_density(values)
        return result

    def batches(self, leaves: Sequence[int]) -> list[tuple[IntArray, LeafBatch]]:
        """Return some of the leaves, ready to be evaluated together.

        Parameters
        ----------
        leaves : sequence of int
            Their numbers, ascending.

        Returns
        -------
        list of (numbers, batch)
            One for each kind.
        """
        return _batches([self.leaves[k] for k in leaves], np.array(leaves, dtype=np.int64))

    def upward(self, leaf_values: FloatArray, *, maximise: bool = False) -> FloatArray:
        """Return the log density of every node.

        Parameters
        ----------
        leaf_values : ndarray of float64, shape (L, n)
            Of the leaves, wherever they were computed.
        maximise : bool, default False
            Sums are replaced by the largest of their weighted children.

        Returns
        -------
        ndarray of float64, shape (number of nodes, n)
            The root is the last.
        """
        result = np.empty((len(self.nodes), leaf_values.shape[1]))
        result[: len(self.leaves)] = leaf_values
        self._climb(result, maximise)
        return result

    def root_values(self, values: FloatArray) -> FloatArray:
        """Return the log density of the root for each row of values, shape (n,)."""
        result = np.empty(len(values))
        chunks = list(self.chunks(len(values)))
        # One array for all chunks: fresh memory costs more than what is computed in it.
        memory = np.empty(len(self.nodes) * (chunks[0].stop if chunks else 0))
        for rows in chunks:
            count = rows.stop - rows.start
            nodes = memory[: len(self.nodes) * count].reshape(len(self.nodes), count)
            for place, batch in self._batches:
                nodes[place] = batch.log_density(values[rows])
            self._climb(nodes, maximise=False)
            result[rows] = nodes[-1]
        return result

    def _climb(self, nodes: FloatArray, maximise: bool) -> None:
        """Fill the rows of the inner nodes, those of the leaves being there."""
        if not self.layers:
            return
        from flwr_causal.core.circuits import layer_kernels

        with np.errstate(divide="ignore"):  # the logarithm of an impossible row
            for first, stop, starts, children, log_weights in self.layers:
                if log_weights is None:
                    layer_kernels.multiply(nodes, first, starts, children)
                    continue
                terms = np.empty((len(children), nodes.shape[1]))
                layer_kernels.compare(nodes, first, starts, children, log_weights, LOWEST, terms)
                own = nodes[first:stop]
                if maximise:
                    own[own == LOWEST] = -np.inf
                    continue
                np.exp(terms, out=terms)
                totals = np.empty(own.shape)
                layer_kernels.total(starts, terms, totals)
                own += np.log(totals, out=totals)

    def flows(
        self, node_values: FloatArray, row_weights: FloatArray | None = None
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return the probability of each node, and how often each child of a sum is taken.

        The flow of a node is the posterior probability that the row came by it, from the root
        down: what the expectation step of EM needs.

        Parameters
        ----------
        node_values : ndarray of float64, shape (number of nodes, n)
            As `upward` returned them.
        row_weights : ndarray of float64, shape (n,), optional
            How often each row counts. Default 1.

        Returns
        -------
        flows : ndarray of float64, shape (number of nodes, n)
            Rows of weight w have w times their probability, impossible rows 0.
        taken : list of ndarray of float64, shape (children,)
            For each of `sums`, the flow into each child, summed over the rows.
        """
        from flwr_causal.core.circuits import layer_kernels

        result = np.zeros(node_values.shape)
        result[-1] = np.isfinite(node_values[-1])
        if row_weights is not None:
            result[-1] *= row_weights
        taken: list[FloatArray] = []
        for first, _, starts, children, log_weights in reversed(self.layers):
            terms = np.empty((0, 0))
            if log_weights is not None:
                terms = np.empty((len(children), node_values.shape[1]))
                layer_kernels.shares(
                    node_values, first, starts, children, log_weights, LOWEST, terms
                )
                np.exp(terms, out=terms)
            layer_kernels.spread(result, first, starts, children, terms)
            if log_weights is not None:
                taken[:0] = np.split(terms.sum(axis=1), starts[1:-1])
        return result, taken

    def rebuilt(
        self, leaves: Sequence[Leaf] | None = None, weights: Sequence[FloatArray] | None = None
    ) -> Node:
        """Return the root of the same circuit with other leaves, or other weights of its sums.

        Parameters
        ----------
        leaves : sequence of Leaf, optional
            One for each of `leaves`, of the same scopes.
        weights : sequence of ndarray, optional
            One for each of `sums`.
        """
        made: list[Node] = list(self.leaves if leaves is None else leaves)
        changed = iter([node.weights for node in self.sums] if weights is None else weights)
        for node in self.nodes[len(self.leaves) :]:
            children = [made[self.number[id(child)]] for child in node.children]
            made.append(
                Sum(children, next(changed)) if isinstance(node, Sum) else Product(children)
            )
        return made[-1]


def _layer(group: Sequence[Node], first: int, number: dict[int, int]) -> Layer:
    """Return the layer of nodes, the first of which gets a number."""
    children = np.array([number[id(child)] for node in group for child in node.children])
    starts = np.cumsum([0, *(len(node.children) for node in group)])
    weights = [node.weights for node in group if isinstance(node, Sum)]
    log_weights = None
    if weights:
        with np.errstate(divide="ignore"):
            log_weights = np.log(np.concatenate(weights))
    return Layer(first, first + len(group), starts, children, log_weights)


def _batches(leaves: Sequence[Leaf], numbers: IntArray) -> list[tuple[IntArray, LeafBatch]]:
    """Return each kind's numbers and batch; leaves of a kind stand side by side."""
    result: list[tuple[IntArray, LeafBatch]] = []
    start = 0
    while start < len(leaves):
        stop = start
        while stop < len(leaves) and type(leaves[stop]) is type(leaves[start]):
            stop += 1
        result.append((numbers[start:stop], type(leaves[start]).batch(leaves[start:stop])))
        start = stop
    return result

"""The circuit engine: every circuit is evaluated, differentiated, sampled and maximised here.

**Order.** The nodes are numbered once: first the leaves, ordered by kind, then the inner nodes in
layers, each node after all its children; the root is the last. A layer consists of sums or of
products and is evaluated at once, for a chunk of rows that fits the cache.

**Upward pass** (`Layers.upward`). The log densities of the leaves give those of all nodes: a
product adds the log densities of its children, a sum takes the log of their weighted sum. With
maxima in place of sums the result is the log density of the best explanation (max-product).

**Downward pass.** From the root down, a row is divided among the children of each sum in proportion
to their posterior probabilities (`Layers.flows`: the derivatives of the row's log density with
respect to the nodes'), or takes one child of each sum (`Layers.descent`: drawn, or the best one).

**Queries.** Densities and probabilities of states need the upward pass. Moments, samples and mpe
need both passes, and then moments or values of the leaves for their columns.

`LeafLayer` is the interface between the engine and the leaves. `LocalLeaves` implements it for
`Leaf` nodes of the circuit; `composed.federated_circuit.PartyLeaves` for circuits that stay with
parties.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np

from flwr_causal.core.circuits.nodes import Leaf, Product, Sum, ascending
from flwr_causal.core.ties import first_largest
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.nodes import LeafBatch, Node

    #: Numbers of some leaves of one kind, and the leaves ready to be evaluated together.
    Batches = list[tuple[IntArray | slice, LeafBatch]]

#: Node values of a chunk of rows in the upward pass; with intermediate results they fit the cache.
CHUNK = 2**18
#: The same for the descent, larger (64 MB) as it executes Python code for every node and chunk.
DESCENT_CHUNK = 2**23
#: Values of nodes up to which a query is computed with numpy, in .2 s. Compiled functions are three
#: times as fast, but their first call in an environment takes seconds, in a process some tenths.
FEW = 2**22
#: Replaces minus infinity, which cannot be subtracted from itself.
LOWEST = float(np.finfo(np.float64).min)
#: Smaller sums lose digits.
SMALLEST = float(np.finfo(np.float64).tiny)


class LeafLayer(ABC):
    """The leaves of a circuit, as the engine uses them.

    In all methods ``values`` has the shape (n, d), with all columns of the domain; NaN is a missing
    value. The leaves are numbered from 0 on, as in `Layers`.

    Attributes
    ----------
    chunked : bool, default True
        Whether rows may be evaluated in chunks. False if each call is costly.
    """

    chunked: ClassVar[bool] = True

    @abstractmethod
    def log_densities(self, values: FloatArray, result: FloatArray) -> None:
        """Write the log density of each leaf and row into ``result``, shape (L, n)."""

    @abstractmethod
    def state_log_densities(
        self, values: FloatArray, column: int, num_states: int
    ) -> Iterator[FloatArray]:
        """Yield log densities (L, n) with each state of a category in turn.

        The same array may be yielded and overwritten each time.
        """

    @abstractmethod
    def peaks(self, values: FloatArray) -> FloatArray:
        """Log density of each leaf at its mode given the values of the row, shape (L, n)."""

    @abstractmethod
    def moments(
        self, values: FloatArray, column: int, holders: Sequence[int], flows: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of a number, both of shape (n,).

        ``holders`` are the leaves with the number in their scope; ``flows`` (holders, n) their
        posterior probabilities.
        """

    @abstractmethod
    def fill(
        self,
        values: FloatArray,
        arriving: Sequence[IntArray],
        rng: np.random.Generator | None,
    ) -> FloatArray:
        """Return the rows with missing values filled by the leaves that each row reaches.

        ``arriving`` holds the rows that reach each leaf. Values are draws, or modes without
        ``rng``.
        """


class LocalLeaves(LeafLayer):
    """Leaves that are nodes of the circuit.

    Parameters
    ----------
    leaves : sequence of Leaf
        Ordered by kind.
    """

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.leaves = tuple(leaves)
        self._batches = _batches(self.leaves, range(len(self.leaves)))
        # Cache of the last query of states: its column, batches with and without this column.
        self._split: tuple[int, tuple[Batches, Batches]] | None = None

    def log_densities(self, values: FloatArray, result: FloatArray) -> None:
        """Write the log density of each leaf and row into ``result``, shape (L, n)."""
        for place, batch in self._batches:
            result[place] = batch.log_density(values)

    def state_log_densities(
        self, values: FloatArray, column: int, num_states: int
    ) -> Iterator[FloatArray]:
        """Yield log densities (L, n) with each state of a category in turn."""
        if self._split is None or self._split[0] != column:
            numbers = range(len(self.leaves))
            with_column = [k for k in numbers if column in self.leaves[k].scope]
            rest = [k for k in numbers if column not in self.leaves[k].scope]
            self._split = column, (_batches(self.leaves, with_column), _batches(self.leaves, rest))
        seeing, others = self._split[1]
        result = np.empty((len(self.leaves), len(values)))
        for place, batch in others:
            result[place] = batch.log_density(values)
        # Only the densities of leaves over the column differ between states.
        given = values.copy()
        for state in range(num_states):
            given[:, column] = state
            for place, batch in seeing:
                result[place] = batch.log_density(given)
            yield result

    def peaks(self, values: FloatArray) -> FloatArray:
        """Log density of each leaf at its mode given the values of the row, shape (L, n)."""
        result = np.empty((len(self.leaves), len(values)))
        self.log_densities(values, result)
        missing = np.isnan(values)
        for row, leaf in zip(result, self.leaves, strict=True):
            scope = np.array(leaf.scope)
            holes = np.flatnonzero(missing[:, scope].any(axis=1))
            if len(holes):
                row[holes] = leaf.log_density(leaf.mode(values[np.ix_(holes, scope)]))
        return result

    def moments(
        self, values: FloatArray, column: int, holders: Sequence[int], flows: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of a number, both of shape (n,)."""
        first, second = np.zeros(flows.shape), np.zeros(flows.shape)
        for k, number in enumerate(holders):
            leaf = self.leaves[number]
            taken = np.flatnonzero(flows[k] > 0)
            if len(taken):
                position = leaf.scope.index(column)
                parts = leaf.moments(values[np.ix_(taken, np.array(leaf.scope))])
                first[k, taken], second[k, taken] = (part[:, position] for part in parts)
        mean = (flows * first).sum(axis=0)
        within = np.maximum(second - first**2, 0.0)
        return mean, (flows * (within + (first - mean) ** 2)).sum(axis=0)

    def fill(
        self,
        values: FloatArray,
        arriving: Sequence[IntArray],
        rng: np.random.Generator | None,
    ) -> FloatArray:
        """Return the rows, missing values filled by the leaves that each row reaches."""
        result = values.copy()
        for leaf, rows in zip(reversed(self.leaves), reversed(arriving), strict=True):
            place = np.ix_(rows, np.array(leaf.scope))
            part = values[place]
            if np.isnan(part).any():
                result[place] = leaf.mode(part) if rng is None else leaf.sample(part, rng)
        return result


class TiltedLeaves(LocalLeaves):
    """Leaves whose probabilities of states count times heights where the largest is sought.

    Parameters
    ----------
    leaves : sequence of Leaf
        Ordered by kind.
    heights : mapping of int to ndarray, shape (states,)
        Of the columns of intervals: densities of numbers within them.
    """

    def __init__(self, leaves: Sequence[Leaf], heights: Mapping[int, FloatArray]) -> None:
        tilted = [leaf.tilted(heights) for leaf in leaves]
        super().__init__([leaf for leaf, _ in tilted])
        self._log_totals = np.array([total for _, total in tilted])[:, None]

    def peaks(self, values: FloatArray) -> FloatArray:
        """Log density of each leaf at its mode given the values of the row, shape (L, n)."""
        return np.asarray(super().peaks(values) + self._log_totals)


class Siblings(NamedTuple):
    """The nodes of a layer that have the same number of children, which are evaluated together.

    Parameters
    ----------
    nodes : ndarray of int64, shape (k,), or slice
        Their numbers.
    children : ndarray of int64, shape (k, c)
    log_weights : ndarray of float64, shape (k, c, 1), or None
        Of sums; None for products.
    """

    nodes: IntArray | slice
    children: IntArray
    log_weights: FloatArray | None


class Shared(NamedTuple):
    """The sums of a layer, in groups of sums over the same children: a matrix product a group.

    Parameters
    ----------
    nodes : ndarray of int64, shape (g, o)
        Their numbers.
    children : ndarray of int64, shape (g, c)
    weights : ndarray of float64, shape (g, o, c)
    left, right : ndarray of int64, shapes (g, a) and (g, b), or None
        Where the children of a group are the products of each of a nodes with each of b others, and
        children of nothing else: the numbers of these nodes. Child ``i * b + j`` is the product of
        left i and right j.
    """

    nodes: IntArray
    children: IntArray
    weights: FloatArray
    left: IntArray | None = None
    right: IntArray | None = None


class Layer(NamedTuple):
    """Sums, or products, none of which is a descendant of another.

    Parameters
    ----------
    first, stop : int
        The numbers of the nodes, ``stop`` excluded.
    starts : ndarray of int64, shape (stop - first + 1,)
        Node k has the children from ``starts[k]`` up to ``starts[k + 1]``, excluded.
    children : ndarray of int64, shape (E,)
        Numbers of the children.
    log_weights : ndarray of float64, shape (E,), or None
        Log weights of sums; None for products.
    siblings : tuple of Siblings
        The same nodes, by their number of children.
    shared : Shared or None
        Of sums of which several have the same children, as in Einsum networks.
    factored : bool
        Whether the nodes are products that only sums with a ``left`` and a ``right`` have.
    """

    first: int
    stop: int
    starts: IntArray
    children: IntArray
    log_weights: FloatArray | None
    siblings: tuple[Siblings, ...]
    shared: Shared | None
    factored: bool = False


class Layers:
    """A compiled circuit.

    Attributes
    ----------
    nodes : tuple of Node
        Ordered by number.
    num_leaves : int
        Number of leaves, which are the first nodes.
    source : LeafLayer
        Evaluates the leaves.
    sums : tuple of Sum
        Ordered by number.
    layers : tuple of Layer
    number : dict of int to int
        Number of a node by its ``id``.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        num_leaves: int,
        layers: Iterable[Layer],
        source: LeafLayer | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        self.num_leaves = num_leaves
        self.sums = tuple(node for node in self.nodes if isinstance(node, Sum))
        self.layers = tuple(layers)
        self.number = {id(node): k for k, node in enumerate(self.nodes)}
        self.source = LocalLeaves(self.leaves) if source is None else source

    @classmethod
    def of(cls, root: Node, source: Callable[[Sequence[Node]], LeafLayer] | None = None) -> Self:
        """Return the layers of the circuit below a root.

        Parameters
        ----------
        root : Node
        source : callable, optional
            Takes the leaves, ordered by number, and returns their `LeafLayer`. Default:
            `LocalLeaves`.
        """
        order = ascending(root)
        leaves = [node for node in order if not node.children]
        leaves.sort(key=lambda leaf: leaf.kind)
        height: dict[int, int] = {id(leaf): 0 for leaf in leaves}
        groups: dict[tuple[int, bool], list[Node]] = {}
        for node in order:
            if node.children:
                height[id(node)] = 1 + max(height[id(child)] for child in node.children)
                groups.setdefault((height[id(node)], isinstance(node, Sum)), []).append(node)
        nodes = list(leaves)
        number = {id(node): k for k, node in enumerate(nodes)}
        layers = []
        for key in sorted(groups):
            layers.append(_layer(groups[key], len(nodes), number))
            for node in groups[key]:
                number[id(node)] = len(nodes)
                nodes.append(node)
        layers = _with_factors(layers)
        return cls(nodes, len(leaves), layers, None if source is None else source(leaves))

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves that are nodes of the circuit, ordered by number."""
        return tuple(node for node in self.nodes[: self.num_leaves] if isinstance(node, Leaf))

    # -- the passes -------------------------------------------------------------------------------

    def upward(self, leaf_values: FloatArray, *, maximise: bool = False) -> FloatArray:
        """Return the log density of every node.

        Parameters
        ----------
        leaf_values : ndarray of float64, shape (L, n)
            Log densities of the leaves.
        maximise : bool, default False
            Whether a sum is replaced by its largest weighted child.

        Returns
        -------
        ndarray of float64, shape (number of nodes, n)
            The root is the last.
        """
        n = leaf_values.shape[1]
        result = np.empty((len(self.nodes), n))
        result[: self.num_leaves] = leaf_values
        self._climb(result, self._pays(n), maximise=maximise)
        return result

    def _pays(self, num_rows: int) -> bool:
        """Whether compiled functions are faster for so many rows, their compilation included."""
        return num_rows * len(self.nodes) > FEW

    def _climb(
        self,
        nodes: FloatArray,
        compiled: bool,
        *,
        maximise: bool = False,
        only_root: bool = False,
    ) -> None:
        """Compute the rows of the inner nodes from the rows of the leaves, in place.

        With ``only_root``, which is not for maxima, the rows of `Layer.factored` are not written.
        """
        step = partial(_climb_compiled if compiled else _climb_few, nodes=nodes, maximise=maximise)
        skipped: Layer | None = None
        with np.errstate(divide="ignore"):  # the logarithm of an impossible row
            for layer in self.layers:
                if only_root and layer.factored:
                    skipped = layer
                    continue
                if skipped is None or not _climb_factors(layer, nodes):
                    if skipped is not None:
                        step(skipped)
                    if maximise or layer.shared is None or not _climb_shared(layer.shared, nodes):
                        step(layer)
                skipped = None

    def flows(
        self, node_values: FloatArray, row_weights: FloatArray | None = None
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Return the flow of each node, and the total flow from each sum to each child.

        The flow of a node is the posterior probability that the row passes through it in the
        downward pass. Flows are the expectation step of EM.

        Parameters
        ----------
        node_values : ndarray of float64, shape (number of nodes, n)
            As `upward` returned them.
        row_weights : ndarray of float64, shape (n,), optional
            How often each row counts. Default 1.

        Returns
        -------
        flows : ndarray of float64, shape (number of nodes, n)
            Multiplied by the rows' weights; 0 for impossible rows.
        taken : list of ndarray of float64, shape (children,)
            For each of `sums`, the flow into each child, summed over the rows.
        """
        from flwr_causal.core.circuits import kernels

        result = np.zeros(node_values.shape)
        result[-1] = np.isfinite(node_values[-1])
        if row_weights is not None:
            result[-1] *= row_weights
        taken: list[FloatArray] = []
        for first, _, starts, children, log_weights, *_ in reversed(self.layers):
            terms = np.empty((0, 0))
            if log_weights is not None:
                terms = np.empty((len(children), node_values.shape[1]))
                kernels.shares(node_values, first, starts, children, log_weights, LOWEST, terms)
                np.exp(terms, out=terms)
            kernels.spread(result, first, starts, children, terms)
            if log_weights is not None:
                taken[:0] = np.split(terms.sum(axis=1), starts[1:-1])
        return result, taken

    def descent(
        self, node_values: FloatArray, choose: Callable[[FloatArray], IntArray]
    ) -> list[IntArray]:
        """Send each row down from the root: to one child of a sum, to all children of a product.

        Parameters
        ----------
        node_values : ndarray of float64, shape (number of nodes, n)
            As `upward` returned them.
        choose : callable
            Takes the log densities (children, rows) of a sum's children, with their weights, and
            returns the child of each row.

        Returns
        -------
        list of ndarray of int64
            The rows that reach each leaf. The scopes of the leaves that a row reaches are disjoint
            and cover the root's.
        """
        nothing: IntArray = np.zeros(0, dtype=np.int64)
        arriving: list[list[IntArray]] = [[] for _ in self.nodes]
        arriving[-1] = [np.arange(node_values.shape[1])]
        for number in range(len(self.nodes) - 1, self.num_leaves - 1, -1):
            node = self.nodes[number]
            parts = [part for part in arriving[number] if len(part)]
            if not parts:
                continue
            rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
            children = np.array([self.number[id(child)] for child in node.children])
            if isinstance(node, Sum):
                with np.errstate(divide="ignore"):
                    terms = np.log(node.weights)[:, None] + node_values[np.ix_(children, rows)]
                chosen = choose(terms)
                for k, child in enumerate(children):
                    arriving[child].append(rows[chosen == k])
            else:
                for child in children:
                    arriving[child].append(rows)
        return [np.concatenate([nothing, *parts]) for parts in arriving[: self.num_leaves]]

    # -- queries ----------------------------------------------------------------------------------
    # ``values`` have the shape (n, d), NaN where a value is missing. A row that is impossible
    # under the circuit is a DataError, but has a density: minus infinity.

    def leaf_values(self, values: FloatArray) -> FloatArray:
        """Return the log densities of all leaves, shape (L, n)."""
        result = np.empty((self.num_leaves, len(values)))
        self.source.log_densities(values, result)
        return result

    def log_densities(self, values: FloatArray) -> FloatArray:
        """Return the log density of each row, missing values integrated out, shape (n,)."""
        result = np.empty(len(values))
        for rows, nodes in self._climbing(len(values)):
            self.source.log_densities(values[rows], nodes[: self.num_leaves])
            self._climb(nodes, self._pays(len(values)), only_root=True)
            result[rows] = nodes[-1]
        return result

    def _climbing(self, num_rows: int) -> Iterator[tuple[slice, FloatArray]]:
        """Yield slices of rows, and an array of the values of all nodes to be filled for them."""
        factored = sum(layer.stop - layer.first for layer in self.layers if layer.factored)
        chunks = list(self.chunks(num_rows, used=len(self.nodes) - factored))
        # One array for all chunks: allocating memory costs more than the computation.
        memory = np.empty(len(self.nodes) * (chunks[0].stop if chunks else 0))
        for rows in chunks:
            shape = len(self.nodes), rows.stop - rows.start
            yield rows, memory[: math.prod(shape)].reshape(shape)

    def peak_densities(self, values: FloatArray) -> FloatArray:
        """Return the log density of each row's best explanation (max-product), shape (n,)."""
        result = np.empty(len(values))
        for rows in self.chunks(len(values)):
            result[rows] = self.upward(self.source.peaks(values[rows]), maximise=True)[-1]
        return result

    def state_log_densities(self, values: FloatArray, column: int, num_states: int) -> FloatArray:
        """Return the log density of each row with each state of a category, shape (n, states).

        The column itself is not read.
        """
        result = np.empty((len(values), num_states))
        for rows, nodes in self._climbing(len(values)):
            states = self.source.state_log_densities(values[rows], column, num_states)
            for state, leaf_values in enumerate(states):
                nodes[: self.num_leaves] = leaf_values
                self._climb(nodes, self._pays(len(values)), only_root=True)
                result[rows, state] = nodes[-1]
        return result

    def state_probabilities(self, values: FloatArray, column: int, num_states: int) -> FloatArray:
        """Return the probability of each state of a category given the rest of the row.

        Parameters
        ----------
        values : ndarray of float64, shape (n, d)
            The column itself is not read.
        column, num_states : int

        Returns
        -------
        ndarray of float64, shape (n, states)
        """
        joint = self.state_log_densities(values, column, num_states)
        peaks = joint.max(axis=1, keepdims=True)
        _check(peaks[:, 0], 0)
        joint = np.exp(joint - peaks)
        return np.asarray(joint / joint.sum(axis=1, keepdims=True))

    def column_moments(self, values: FloatArray, column: int) -> tuple[FloatArray, FloatArray]:
        """Return mean and variance of a number given the row, both of shape (n,).

        A given value of the column is its own mean, with variance 0.
        """
        leaves = self.nodes[: self.num_leaves]
        holders = [k for k, leaf in enumerate(leaves) if column in leaf.scope]
        means, variances = np.empty(len(values)), np.empty(len(values))
        for rows in self.chunks(len(values)):
            given = values[rows]
            node_values = self.upward(self.leaf_values(given))
            _check(node_values[-1], rows.start)
            flows = self.flows(node_values)[0][holders]
            mean, variance = self.source.moments(given, column, holders, flows)
            present = ~np.isnan(values[rows, column])
            means[rows] = np.where(present, values[rows, column], mean)
            variances[rows] = np.where(present, 0.0, variance)
        return means, variances

    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return rows with missing values drawn given the rest of the row, shape (n, d).

        Raises
        ------
        DataError
            If a row's evidence is impossible.
        """

        def choose(terms: FloatArray) -> IntArray:
            shares = np.cumsum(np.exp(terms - terms.max(axis=0)), axis=0)
            drawn = rng.random(terms.shape[1]) * shares[-1]
            return np.asarray(np.minimum((drawn >= shares).sum(axis=0), len(terms) - 1))

        if self.source.chunked and len(values) and np.isnan(values).all():
            # Without evidence every node has the log density 0 in every row.
            nothing = np.broadcast_to(
                np.zeros((len(self.nodes), 1)), (len(self.nodes), len(values))
            )
            return self.source.fill(values, self.descent(nothing, choose), rng)
        result = np.empty(values.shape)
        for rows in self.chunks(len(values), DESCENT_CHUNK):
            node_values = self.upward(self.leaf_values(values[rows]))
            _check(node_values[-1], rows.start)
            result[rows] = self.source.fill(values[rows], self.descent(node_values, choose), rng)
        return result

    def mpe(self, values: FloatArray) -> FloatArray:
        """Return rows with missing values filled by the most probable explanation, (n, d).

        It is found by max-product: every sum is replaced by its largest weighted child and every
        leaf by its mode given the known values; then the children with the largest values are
        followed down from the root.

        Raises
        ------
        DataError
            If a row's evidence is impossible.
        """
        result = np.empty(values.shape)
        for rows in self.chunks(len(values), DESCENT_CHUNK):
            node_values = self.upward(self.source.peaks(values[rows]), maximise=True)
            _check(node_values[-1], rows.start)
            arriving = self.descent(node_values, lambda terms: first_largest(terms, axis=0))
            result[rows] = self.source.fill(values[rows], arriving, None)
        return result

    def chunks(self, num_rows: int, numbers: int = CHUNK, used: int = 0) -> Iterator[slice]:
        """Yield slices of rows, for which the used nodes have about ``numbers`` values together.

        By default all nodes are used.
        """
        size = max(32, min(4096, numbers // (used or len(self.nodes))))
        if not self.source.chunked:
            size = max(1, num_rows)
        for start in range(0, num_rows, size):
            yield slice(start, min(start + size, num_rows))

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
        made = list(self.nodes[: self.num_leaves] if leaves is None else leaves)
        changed = iter([node.weights for node in self.sums] if weights is None else weights)
        for node in self.nodes[self.num_leaves :]:
            children = [made[self.number[id(child)]] for child in node.children]
            made.append(
                Sum(children, next(changed)) if isinstance(node, Sum) else Product(children)
            )
        return made[-1]


def _climb_few(layer: Layer, nodes: FloatArray, maximise: bool) -> None:
    """Compute the rows of a layer from the rows below it, with numpy."""
    for numbers, children, log_weights in layer.siblings:
        terms = nodes[children]
        if log_weights is None:
            nodes[numbers] = terms.sum(axis=1)
            continue
        terms += log_weights
        peaks = terms.max(axis=1)
        if maximise:
            nodes[numbers] = peaks
            continue
        np.maximum(peaks, LOWEST, out=peaks)
        terms -= peaks[:, None]
        np.exp(terms, out=terms)
        nodes[numbers] = peaks + np.log(terms.sum(axis=1))


def _climb_shared(shared: Shared, nodes: FloatArray) -> bool:
    """Compute the rows of sums over shared children; False, and nothing, if a sum underflows."""
    terms = nodes[shared.children]
    peaks = np.maximum(terms.max(axis=1, keepdims=True), LOWEST)
    terms -= peaks
    np.exp(terms, out=terms)
    sums = shared.weights @ terms
    if sums.min() < SMALLEST:
        return False
    nodes[shared.nodes] = peaks + np.log(sums)
    return True


def _climb_factors(layer: Layer, nodes: FloatArray) -> bool:
    """Compute the rows of sums over products of pairs from their factors, as `_climb_shared`."""
    shared = layer.shared
    assert shared is not None
    left, right = nodes[shared.left], nodes[shared.right]
    peaks = [np.maximum(one.max(axis=1, keepdims=True), LOWEST) for one in (left, right)]
    for one, peak in zip((left, right), peaks, strict=True):
        one -= peak
        np.exp(one, out=one)
    groups, a, n = left.shape
    by_left = shared.weights.reshape(groups, -1, right.shape[1]) @ right
    sums = np.einsum("goan,gan->gon", by_left.reshape(groups, -1, a, n), left)
    if sums.min() < SMALLEST:
        return False
    nodes[shared.nodes] = np.log(sums, out=sums) + peaks[0] + peaks[1]
    return True


def _climb_compiled(layer: Layer, nodes: FloatArray, maximise: bool) -> None:
    """Compute the rows of a layer from the rows below it, with compiled functions."""
    from flwr_causal.core.circuits import kernels

    first, stop, starts, children, log_weights, *_ = layer
    if log_weights is None:
        kernels.multiply(nodes, first, starts, children)
        return
    terms = np.empty((len(children), nodes.shape[1]))
    kernels.compare(nodes, first, starts, children, log_weights, LOWEST, terms)
    values = nodes[first:stop]
    if maximise:
        values[values == LOWEST] = -np.inf
        return
    np.exp(terms, out=terms)
    totals = np.empty(values.shape)
    kernels.total(starts, terms, totals)
    values += np.log(totals, out=totals)


def _layer(group: Sequence[Node], first: int, number: dict[int, int]) -> Layer:
    """Return the layer of nodes, which are numbered from ``first`` on."""
    children = np.array([number[id(child)] for node in group for child in node.children])
    starts = np.cumsum([0, *(len(node.children) for node in group)])
    weights = [node.weights for node in group if isinstance(node, Sum)]
    log_weights = None
    if weights:
        with np.errstate(divide="ignore"):
            log_weights = np.log(np.concatenate(weights))
    sizes = np.diff(starts)
    siblings = []
    for size in np.unique(sizes):
        places = np.flatnonzero(sizes == size)
        edges = starts[places, None] + np.arange(size)
        siblings.append(
            Siblings(
                slice(first, first + len(group)) if len(places) == len(group) else first + places,
                children[edges],
                None if log_weights is None else log_weights[edges][:, :, None],
            )
        )
    shared = None
    if weights and len(siblings) == 1:
        shared = _shared(first, siblings[0].children, np.stack(weights))
    stop = first + len(group)
    return Layer(first, stop, starts, children, log_weights, tuple(siblings), shared)


def _shared(first: int, children: IntArray, weights: FloatArray) -> Shared | None:
    """Return sums, all over c children, in equal groups with the same children; None if alone."""
    distinct, group = np.unique(children, axis=0, return_inverse=True)
    size = len(children) // len(distinct)
    if size < 2 or (np.bincount(group.ravel()) != size).any():
        return None
    order = np.argsort(group.ravel(), kind="stable").reshape(-1, size)
    return Shared(first + order, distinct, weights[order])


def _with_factors(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers, where sums over products of all pairs of two groups have their factors."""
    result = list(layers)
    for k, (below, layer) in enumerate(pairwise(layers)):
        factors = None if layer.shared is None else _factors(layer.shared, below)
        if layer.shared is None or factors is None:
            continue
        others = (one.children for one in layers if one is not layer)
        if not any(((one >= below.first) & (one < below.stop)).any() for one in others):
            result[k] = below._replace(factored=True)
            shared = layer.shared._replace(left=factors[0], right=factors[1])
            result[k + 1] = layer._replace(shared=shared)
    return result


def _factors(shared: Shared, below: Layer) -> tuple[IntArray, IntArray] | None:
    """Return the factors of products of pairs, (g, a) and (g, b); None if they are others."""
    children, numbers = shared.children, np.arange(below.first, below.stop)
    pairs_alone = below.log_weights is None and (np.diff(below.starts) == 2).all()
    if not pairs_alone or not np.array_equal(np.sort(children, axis=None), numbers):
        return None
    pairs = below.children.reshape(-1, 2)[children - below.first]
    b = int((pairs[0, :, 0] == pairs[0, 0, 0]).sum())
    if children.shape[1] % b:
        return None
    left, right = pairs.reshape(len(pairs), -1, b, 2).transpose(3, 0, 1, 2)
    if (left != left[:, :, :1]).any() or (right != right[:, :1]).any():
        return None
    return left[:, :, 0], right[:, 0]


def _batches(leaves: Sequence[Leaf], numbers: Sequence[int]) -> Batches:
    """Return the numbers and the batch of each kind, for ascending numbers of leaves."""
    result: Batches = []
    start = 0
    while start < len(numbers):
        stop, kind = start, type(leaves[numbers[start]])
        while stop < len(numbers) and type(leaves[numbers[stop]]) is kind:
            stop += 1
        part = numbers[start:stop]
        whole = slice(part[0], part[-1] + 1)
        place = whole if isinstance(part, range) else np.array(part, dtype=np.int64)
        result.append((place, kind.batch([leaves[k] for k in part])))
        start = stop
    return result


def _check(root_values: FloatArray, start: int) -> None:
    """Raise a DataError that names the first row of probability 0."""
    bad = np.flatnonzero(~np.isfinite(root_values))
    if len(bad):
        raise DataError(
            f"row {start + bad[0]}: its values are impossible under the circuit, nothing follows "
            "from them; leave out the row, or the value that never occurred in training with others"
        )

"""Sums, products and leaves: the nodes of a circuit.

A node is a distribution over the columns of its scope. A sum mixes distributions over the same
columns (smoothness), a product joins independent ones over disjoint columns (decomposability).
Marginals and conditionals are therefore exact, at the cost of one evaluation. A node may have
several parents. Parameters of nodes are checked, read-only float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import Arrays, FloatArray

#: Largest deviation of the sum of given probabilities from 1; they are divided by their sum.
TOLERANCE = 1e-9
#: Deviation by rounding, up to which probabilities are not divided: files are read exactly.
ROUNDING = 1e-14


def numbers(what: str, given: ArrayLike, ndim: int | None = None) -> FloatArray:
    """Return a read-only copy of an array; a ConfigError unless all entries are finite numbers."""
    try:
        array = np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what} must be numbers ({error})") from error
    if ndim is not None and array.ndim != ndim:
        raise ConfigError(f"{what} must have {ndim} axes, got the shape {array.shape}")
    if not np.isfinite(array).all():
        raise ConfigError(f"{what} must be finite, got {array[~np.isfinite(array)][0]}")
    array.setflags(write=False)
    return array


def positive(what: str, given: ArrayLike) -> FloatArray:
    """Return a read-only copy of an array; a ConfigError unless all entries are above 0."""
    array = numbers(what, given)
    if (array <= 0).any():
        raise ConfigError(f"{what} must be above 0, got {array[array <= 0][0]}")
    return array


def probabilities(what: str, given: ArrayLike, ndim: int = 1) -> FloatArray:
    """Return a read-only copy whose last axis sums to 1; a ConfigError unless it is so given."""
    array = numbers(what, given, ndim)
    if array.size == 0:
        raise ConfigError(f"{what} are empty")
    if (array < 0).any():
        raise ConfigError(f"{what} must not be negative, got {array.min()}")
    totals = array.sum(axis=-1, keepdims=True)
    error = np.abs(totals - 1.0).max()
    if error > TOLERANCE:
        raise ConfigError(f"{what} must sum to 1, got {totals.flat[np.abs(totals - 1).argmax()]}")
    if error > ROUNDING * array.shape[-1]:
        array = array / totals
        array.setflags(write=False)
    return array


def scope_of(given: Iterable[int]) -> tuple[int, ...]:
    """Return columns as a tuple; a ConfigError unless they ascend and there is one."""
    scope = tuple(int(column) for column in given)
    if not scope or scope[0] < 0 or any(a >= b for a, b in pairwise(scope)):
        raise ConfigError(f"a scope holds ascending columns, at least one, got {scope}")
    return scope


class Node:
    """A node of a circuit; immutable, compared by identity.

    Attributes
    ----------
    scope : tuple of int
        The columns of the distribution, ascending.
    children : tuple of Node
        Empty for a leaf.
    kind : str
        Kind of a leaf: leaves of one kind are evaluated together.
    """

    kind: ClassVar[str] = ""
    scope: tuple[int, ...]
    children: tuple[Node, ...] = ()


class LeafBatch:
    """Leaves of one kind, evaluated one after the other.

    Parameters
    ----------
    leaves : sequence of Leaf
    """

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self.leaves = tuple(leaves)
        self._columns = [list(leaf.scope) for leaf in self.leaves]

    def log_density(self, values: FloatArray) -> FloatArray:
        """Return the log density of each leaf and row.

        Parameters
        ----------
        values : ndarray of float64, shape (n, d)
            All columns of the domain.

        Returns
        -------
        ndarray of float64, shape (number of leaves, n)
        """
        result = np.empty((len(self.leaves), len(values)))
        for row, leaf, columns in zip(result, self.leaves, self._columns, strict=True):
            row[:] = leaf.log_density(values[:, columns])
        return result


class Leaf(Node, ABC):
    """A distribution over a few columns, given by its parameters.

    In all methods ``values`` has the shape (n, k), with the columns of the scope in order; NaN is a
    missing value. A new kind of leaf implements the abstract methods, and names a ``batch`` of its
    own if many leaves are evaluated faster together than one after the other.
    """

    kind: ClassVar[str]
    #: Makes leaves of this kind ready to be evaluated together.
    batch: ClassVar[type[LeafBatch]] = LeafBatch

    @abstractmethod
    def log_density(self, values: FloatArray) -> FloatArray:
        """Log density of each row, missing values integrated out, shape (n,)."""

    @abstractmethod
    def sample(self, values: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Fill missing values by draws given the others, shape (n, k)."""

    @abstractmethod
    def mode(self, values: FloatArray) -> FloatArray:
        """Fill missing values by the most probable ones given the others, shape (n, k)."""

    def tilted(self, heights: Mapping[int, FloatArray]) -> tuple[Leaf, float]:
        """Return the leaf whose probabilities of states are proportional to these times heights.

        Parameters
        ----------
        heights : mapping of int to ndarray, shape (states,)
            Of some columns, positive.

        Returns
        -------
        leaf : Leaf
        log_total : float
            Logarithm of the sum by which the products are divided; 0 for numbers, which have no
            states.
        """
        return self, 0.0

    def moments(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return E[x] and E[x^2] of each number given the values of the row, both (n, k).

        A given value is its own mean. Leaves of categories alone have none.
        """
        raise NotImplementedError(f"a leaf of kind {self.kind!r} has no numbers")

    @abstractmethod
    def restrict(self, scope: Sequence[int]) -> Leaf:
        """Return the marginal over some of the columns."""

    @abstractmethod
    def condition(self, values: FloatArray) -> tuple[Leaf | None, float]:
        """Return the leaf given evidence, and the log density of the evidence.

        Parameters
        ----------
        values : ndarray of float64, shape (k,)
            NaN for the columns without evidence.

        Returns
        -------
        leaf : Leaf or None
            Over the columns without evidence; None if there are none.
        log_density : float
        """

    @abstractmethod
    def moved(self, columns: Sequence[int]) -> Leaf:
        """Return the same distribution over other columns: ``columns[k]`` for ``scope[k]``."""

    @property
    def num_states(self) -> tuple[int, ...]:
        """Number of states of each column, 0 for a number."""
        return (0,) * len(self.scope)

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """Number of free parameters."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """Return the parameters as `from_arrays` takes them."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, scope: Sequence[int], arrays: Arrays) -> Leaf:
        """Return the leaf of given parameters."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Sum(Node):
    """A mixture of distributions over the same columns.

    Parameters
    ----------
    children : sequence of Node
        At least one, all of the same scope.
    weights : array_like, shape (number of children,)
        Non-negative, of sum 1 (up to 1e-9).

    Raises
    ------
    ConfigError
        If the scopes differ, or the weights are no distribution.
    """

    children: tuple[Node, ...]
    weights: FloatArray
    scope: tuple[int, ...]

    def __init__(self, children: Sequence[Node], weights: ArrayLike) -> None:
        nodes = tuple(children)
        checked = probabilities("the weights of a sum", weights)
        if len(checked) != len(nodes):
            raise ConfigError(f"a sum of {len(nodes)} children has {len(checked)} weights")
        for child in nodes:
            if child.scope != nodes[0].scope:
                raise ConfigError(
                    f"a sum mixes nodes of one scope, got {nodes[0].scope} and {child.scope}"
                )
        object.__setattr__(self, "children", nodes)
        object.__setattr__(self, "weights", checked)
        object.__setattr__(self, "scope", nodes[0].scope)

    def __repr__(self) -> str:
        return f"<Sum of {len(self.children)} over {len(self.scope)} columns>"


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Product(Node):
    """Independent distributions over different columns.

    Parameters
    ----------
    children : sequence of Node
        At least one; no two share a column.

    Raises
    ------
    ConfigError
        If scopes overlap.
    """

    children: tuple[Node, ...]
    scope: tuple[int, ...]

    def __init__(self, children: Sequence[Node]) -> None:
        factors = tuple(children)
        if not factors:
            raise ConfigError("a product needs a child")
        columns = sorted(column for child in factors for column in child.scope)
        if len(set(columns)) < len(columns):
            twice = next(a for a, b in pairwise(columns) if a == b)
            raise ConfigError(
                f"the factors of a product have no column in common, got {twice} twice"
            )
        object.__setattr__(self, "children", factors)
        object.__setattr__(self, "scope", tuple(columns))

    def __repr__(self) -> str:
        return f"<Product of {len(self.children)} over {len(self.scope)} columns>"


def mixed(children: Sequence[Node], weights: ArrayLike) -> Node:
    """Return a sum with weights in proportion to those given; a single child itself."""
    shares = np.asarray(weights, dtype=np.float64)
    return children[0] if len(children) == 1 else Sum(children, shares / shares.sum())


def joined(children: Sequence[Node]) -> Node:
    """Return a product; a single child itself."""
    return children[0] if len(children) == 1 else Product(children)


def ascending(root: Node) -> list[Node]:
    """Return the root and all nodes below it, each once, children before their parents."""
    order: list[Node] = []
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:  # no recursion: a circuit may be deeper than Python's stack
        node, expanded = stack.pop()
        if expanded:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(node.children))
    return order


def with_leaves(root: Node, change: Callable[[Any], Node | None]) -> Node | None:
    """Return the circuit below a root with other leaves; None if no leaf is left.

    Parameters
    ----------
    root : Node
    change : callable
        Takes a leaf and returns the node that replaces it, or None to leave it out of all products.
        If a child of a sum is left out, all children must be.
    """
    made: dict[int, Node | None] = {}
    for node in ascending(root):
        children = [made[id(child)] for child in node.children]
        if not children:
            made[id(node)] = change(node)
        elif all(new is old for new, old in zip(children, node.children, strict=True)):
            made[id(node)] = node
        else:
            made[id(node)] = combined(children, getattr(node, "weights", None))
    return made[id(root)]


def combined(children: Sequence[Node | None], weights: FloatArray | None) -> Node | None:
    """Return the sum of the children that are not None, without weights their product.

    A single child is returned itself; None if there is none.
    """
    left = [child for child in children if child is not None]
    if len(left) < 2:
        return left[0] if left else None
    return Product(left) if weights is None else Sum(left, weights)

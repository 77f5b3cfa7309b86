"""Circuits as arrays and files: structure and parameters, with all digits.

Nodes are numbered as in `layers`, so that children come before their parents and the root is last.
For each kind of leaf the scopes and each parameter are concatenated, with their sizes or shapes (a
single one if all are the same). For the inner nodes the arrays hold whether they are sums, their
numbers of children, the children and the weights.
"""

from __future__ import annotations

import json
import math
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.leaves.chow_liu_tree import ChowLiuTree
from flwr_causal.core.circuits.leaves.elliptical import Elliptical
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian, Histogram
from flwr_causal.core.circuits.nodes import Product, Sum
from flwr_causal.core.files import new_directory, write
from flwr_causal.core.saved import DAMAGE
from flwr_causal.errors import CausalError, ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.core.circuits.layers import Layers
    from flwr_causal.core.circuits.nodes import Leaf, Node


#: The kinds of leaves that a file may hold, in the order of its arrays.
KINDS: dict[str, type[Leaf]] = {
    leaf.kind: leaf for leaf in (Categorical, ChowLiuTree, Elliptical, Gaussian, Histogram)
}
#: The most columns that the scopes of all nodes of a circuit have together.
MOST_COLUMNS = 2**25


def to_arrays(layers: Layers) -> Arrays:
    """Return structure and parameters of a circuit as `from_arrays` takes them.

    Raises
    ------
    ConfigError
        For leaves of another kind than `KINDS`.
    """
    arrays: Arrays = {}
    for leaf in layers.leaves:
        if type(leaf) is not KINDS.get(leaf.kind):
            raise ConfigError(f"a leaf of kind {leaf.kind!r} cannot be written: none of {[*KINDS]}")
    groups = {kind: [leaf for leaf in layers.leaves if leaf.kind == kind] for kind in KINDS}
    arrays["leaf_counts"] = np.array([len(of_kind) for of_kind in groups.values()], dtype=np.int64)
    for kind, of_kind in groups.items():
        if not of_kind:
            continue
        arrays[f"{kind}.scope"] = _indices([column for leaf in of_kind for column in leaf.scope])
        arrays[f"{kind}.scope_sizes"] = _without_repeats([len(leaf.scope) for leaf in of_kind])
        parameters = [leaf.arrays() for leaf in of_kind]
        for name in parameters[0]:
            parts = [np.asarray(one[name]) for one in parameters]
            arrays[f"{kind}.{name}"] = np.concatenate([part.ravel() for part in parts])
            arrays[f"{kind}.{name}.shapes"] = _without_repeats([part.shape for part in parts])
    inner = layers.nodes[len(layers.leaves) :]
    arrays["inner.is_sum"] = np.array([isinstance(node, Sum) for node in inner], dtype=np.uint8)
    arrays["inner.sizes"] = _indices([len(node.children) for node in inner])
    arrays["inner.children"] = _indices(
        [layers.number[id(child)] for node in inner for child in node.children]
    )
    arrays["inner.weights"] = np.concatenate([np.zeros(0), *(node.weights for node in layers.sums)])
    return arrays


def _indices(numbers: Sequence[int]) -> NDArray[Any]:
    """Return whole numbers, not negative, in the smallest type that holds them."""
    return np.array(numbers, dtype=np.min_scalar_type(max(numbers, default=0)))


def _without_repeats(rows: Sequence[Any]) -> NDArray[Any]:
    """Return sizes or shapes as an array; only the first one if all are the same."""
    every = np.array(rows, dtype=np.int32)
    return every[:1] if (every == every[0]).all() else every


def from_arrays(arrays: Arrays) -> Node:
    """Return the root of the circuit that `to_arrays` wrote.

    Raises
    ------
    DataError
        If the arrays are damaged, or the columns of all nodes' scopes together are too many.
    """
    try:
        nodes: list[Node] = []
        counts = arrays["leaf_counts"]
        if counts[len(KINDS) :].any():
            raise DataError("its Einsum network is in an earlier version's form")
        for kind, count in zip(KINDS, counts[: len(KINDS)].tolist(), strict=True):
            if count:
                nodes.extend(_read_leaves(kind, count, arrays))
        weights = _split(
            arrays["inner.weights"],
            arrays["inner.sizes"][arrays["inner.is_sum"].astype(bool)].tolist(),
        )
        below = _split(arrays["inner.children"], arrays["inner.sizes"].tolist())
        columns = sum(len(node.scope) for node in nodes)
        for is_sum, numbers in zip(arrays["inner.is_sum"].tolist(), below, strict=True):
            if ((numbers < 0) | (numbers >= len(nodes))).any():
                raise DataError("a node's child does not come before it")
            children = [nodes[k] for k in numbers.tolist()]
            columns += sum(len(child.scope) for child in (children[:1] if is_sum else children))
            if columns > MOST_COLUMNS:
                raise DataError(f"the scopes of its nodes have more than {MOST_COLUMNS} columns")
            nodes.append(Sum(children, next(weights)) if is_sum else Product(children))
        return nodes[-1]
    except (KeyError, IndexError, TypeError, ValueError, StopIteration, CausalError) as error:
        raise DataError(f"this is no circuit ({error}): write it again") from error


def _read_leaves(kind: str, count: int, arrays: Arrays) -> Iterator[Leaf]:
    """Return the leaves of one kind."""
    # Each has a column: before sizes and shapes are repeated for so many.
    if not 0 <= count <= len(arrays[f"{kind}.scope"]):
        raise DataError(f"{len(arrays[f'{kind}.scope'])} columns are not of {count} leaves")
    sizes = np.broadcast_to(arrays[f"{kind}.scope_sizes"], count)
    scopes = _split(arrays[f"{kind}.scope"], sizes.tolist())
    parameters: dict[str, Iterator[NDArray[Any]]] = {}
    for key in arrays:
        if key.startswith(f"{kind}.") and key.endswith(".shapes"):
            name = key.removeprefix(f"{kind}.").removesuffix(".shapes")
            shapes = np.broadcast_to(arrays[key], (count, arrays[key].shape[1]))
            parameters[name] = _reshaped(arrays[f"{kind}.{name}"], shapes.tolist())
    for scope, _ in zip(scopes, range(count), strict=True):
        values = {name: next(parts) for name, parts in parameters.items()}
        yield KINDS[kind].from_arrays(scope.tolist(), values)


def _split(flat: NDArray[Any], sizes: Sequence[int]) -> Iterator[NDArray[Any]]:
    """Return the parts of a flat array."""
    if len(flat) != sum(sizes) or any(size < 0 for size in sizes):
        raise DataError(f"{len(flat)} entries cannot be {sum(sizes)}")
    start = 0
    for size in sizes:
        yield flat[start : start + size]
        start += size


def _reshaped(flat: NDArray[Any], shapes: Sequence[Sequence[int]]) -> Iterator[NDArray[Any]]:
    # Whole numbers of Python's do not overflow.
    sizes = [math.prod(shape) for shape in shapes]
    for part, shape in zip(_split(flat, sizes), shapes, strict=True):
        yield part.reshape(shape)


def write_pair(
    directory: str | Path, name: str, plain: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write ``name.json`` (plain values) and ``name.npz`` (arrays); numbers survive exactly.

    Only their owner can read them: the parts of some circuits are of single parties.
    """
    place, stream = Path(directory), BytesIO()
    np.savez_compressed(stream, **arrays)
    new_directory(place)
    write(place / f"{name}.json", json.dumps(plain))
    write(place / f"{name}.npz", stream.getvalue())


def read_pair(directory: str | Path, name: str, form: str) -> tuple[dict[str, Any], Arrays]:
    """Return the plain values and the arrays that :func:`write_pair` wrote.

    Parameters
    ----------
    directory : str or Path
    name : str
    form : str
        The expected entry ``format`` of the values.

    Raises
    ------
    DataError
        If the files hold something else.
    """
    place = Path(directory)
    try:
        plain = json.loads((place / f"{name}.json").read_text(encoding="utf-8"))
        if not isinstance(plain, dict) or plain.get("format") != form:
            raise DataError(f"{place} does not hold a {name} of this version ({form})")
        with np.load(place / f"{name}.npz") as file:
            return plain, dict(file)
    except DAMAGE as error:
        raise DataError(f"{place} does not hold a {name} ({error})") from error

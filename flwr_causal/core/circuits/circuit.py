"""A distribution made of sums, products and leaves, with exact marginals and conditionals.

Marginals and conditionals of circuits are circuits again.
"""

from __future__ import annotations

import io
import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits import storage
from flwr_causal.core.circuits.distribution import Distribution
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.layers import Layers, TiltedLeaves
from flwr_causal.core.circuits.nodes import Sum, combined, with_leaves
from flwr_causal.core.received import arrays_of, json_of
from flwr_causal.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays, FloatArray
    from flwr_causal.core.circuits.nodes import Leaf, Node


def restricted(root: Node, scope: Collection[int]) -> Node:
    """Return the marginal of a circuit over some of its columns.

    Parameters
    ----------
    root : Node
    scope : collection of int
        At least one column of the root's scope.
    """
    kept = set(scope)

    def part(leaf: Leaf) -> Leaf | None:
        columns = [column for column in leaf.scope if column in kept]
        if len(columns) == len(leaf.scope):
            return leaf
        return leaf.restrict(columns) if columns else None

    result = with_leaves(root, part)
    assert result is not None  # the caller keeps a column
    return result


def conditioned(layers: Layers, values: FloatArray) -> tuple[Node | None, float]:
    """Return a circuit given evidence, over the columns without any.

    The weights of a sum become posterior ones; children that the evidence excludes are dropped.

    Parameters
    ----------
    layers : Layers
        Of the circuit.
    values : ndarray of float64, shape (d,)
        NaN where there is no evidence.

    Returns
    -------
    root : Node or None
        None if no column is left, or the evidence is impossible.
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
            below = densities[places]
            possible = np.flatnonzero((node.weights > 0) & (below > -np.inf))
            weights = node.weights[possible] * np.exp(below[possible] - densities[number])
            children = [made[places[k]] for k in possible]
            made.append(combined(children, weights / weights.sum()))
        else:
            made.append(combined([made[place] for place in places], None))
    density = float(densities[-1])
    return (None if np.isneginf(density) else made[-1]), density


def moved(root: Node, columns: Mapping[int, int]) -> Node:
    """Return the same circuit over other columns, for example those of a larger domain.

    Parameters
    ----------
    root : Node
    columns : mapping of int to int
        The new column of each of the root's.
    """
    result = with_leaves(root, lambda leaf: leaf.moved([columns[column] for column in leaf.scope]))
    assert result is not None  # no leaf is left out
    return result


FORMAT = "flwr-causal circuit 1"
#: The most bytes that packed circuits may take once unpacked: in all, and `MOST_SMALL` and so many
#: by packed byte. Those of learners take up to 7 bytes by packed byte.
MOST_BYTES, MOST_RATIO, MOST_SMALL = 2**31, 20, 2**20
#: So many entries of scopes and inner nodes may circuits have beside one by packed byte: an entry
#: becomes an object.
MOST_ENTRIES = 10_000


class Circuit(Distribution):
    """A joint distribution of the variables in a circuit's scope.

    Data and answers are described at `Distribution`.

    Parameters
    ----------
    domain : Domain
        The variables of the columns; the root's scope may contain only some of them.
    root : Node

    Raises
    ------
    ConfigError
        If a leaf does not fit its variables.
    """

    def __init__(self, domain: Domain, root: Node) -> None:
        self.domain = domain
        self.root = root
        if root.scope[-1] >= len(domain.variables):
            raise ConfigError(f"column {root.scope[-1]} is not in the domain: {domain!r}")
        expected = domain.num_states
        for leaf in self.layers.leaves:
            for column, states in zip(leaf.scope, leaf.num_states, strict=True):
                if states != expected[column]:
                    raise ConfigError(
                        f"a leaf of kind {leaf.kind!r} has {states} states for the variable "
                        f"{domain.names[column]!r} of {expected[column]} (0: a number)"
                    )

    def __repr__(self) -> str:
        return (
            f"<Circuit over {len(self.scope)} variables: {self.num_nodes} nodes, "
            f"{self.num_parameters} parameters>"
        )

    @cached_property
    def layers(self) -> Layers:
        """The circuit as it is evaluated."""
        return Layers.of(self.root)

    @cached_property
    def peak_layers(self) -> Layers:
        """The circuit as the engine finds most probable explanations: by densities of numbers."""
        heights = {
            column: np.exp(self.domain.variables[column].log_heights)
            for column in self.scope
            if self.domain.variables[column].edges is not None
        }
        if not heights:
            return self.layers
        leaves = self.layers.leaves
        return Layers.of(self.root, lambda _: TiltedLeaves(leaves, heights))

    @property
    def scope(self) -> tuple[int, ...]:
        """The columns of the distribution, ascending."""
        return self.root.scope

    @property
    def num_nodes(self) -> int:
        """Number of nodes; a node with several parents counts once."""
        return len(self.layers.nodes)

    @property
    def num_parameters(self) -> int:
        """Free parameters of the leaves, and the weights of each sum less 1."""
        leaves = sum(leaf.num_parameters for leaf in self.layers.leaves)
        return leaves + sum(len(node.children) - 1 for node in self.layers.sums)

    def marginal(self, names: Iterable[str]) -> Circuit:
        """Return the distribution of some of the variables.

        Raises
        ------
        DataError
            If a name is not in the scope.
        ConfigError
            If there is none.
        """
        columns = [self._column(name) for name in names]
        if not columns:
            raise ConfigError("a marginal keeps at least one variable")
        return Circuit(self.domain, restricted(self.root, columns))

    def conditional(self, evidence: Mapping[str, Any]) -> Circuit:
        """Return the distribution of the other variables given evidence.

        Parameters
        ----------
        evidence : mapping of str to object
            The known values, in the form that they have in data.

        Raises
        ------
        DataError
            If the evidence is impossible, or a name or value unknown.
        ConfigError
            If it leaves no variable.
        """
        row = self._encoded_row(evidence)
        root, density = conditioned(self.layers, row)
        if np.isneginf(density):
            raise DataError(f"the evidence {dict(evidence)} is impossible under the circuit")
        if root is None:
            raise ConfigError("the evidence names every variable: leave one for the answer")
        return Circuit(self.domain, root)

    def root_in(self, domain: Domain) -> Node:
        """Return the root over the columns of another domain that has the same variables.

        Raises
        ------
        ConfigError
            If a variable has other states there.
        """
        if domain == self.domain:
            return self.root
        columns = {}
        for column in self.scope:
            variable = self.domain.variables[column]
            columns[column] = domain.index(variable.name)
            if domain.variables[columns[column]] != variable:
                raise ConfigError(f"variable {variable.name!r} has other states in the new domain")
        return moved(self.root, columns)

    def to_arrays(self) -> Arrays:
        """Return structure and parameters as arrays, without the domain."""
        return storage.to_arrays(self.layers)

    @classmethod
    def from_arrays(cls, domain: Domain, arrays: Arrays) -> Circuit:
        """Return the circuit that `to_arrays` wrote; a DataError if it is damaged."""
        return cls(domain, storage.from_arrays(arrays))

    def save(self, directory: str | Path) -> None:
        """Write ``circuit.json`` and ``circuit.npz`` into a directory; numbers survive exactly."""
        plain = {"format": FORMAT, "domain": self.domain.to_plain()}
        storage.write_pair(directory, "circuit", plain, self.to_arrays())

    @classmethod
    def load(cls, directory: str | Path) -> Circuit:
        """Return the circuit that `save` wrote; a DataError if the files hold something else."""
        plain, arrays = storage.read_pair(directory, "circuit", FORMAT)
        return cls.from_arrays(Domain.from_plain(plain["domain"]), arrays)


def packed(circuits: Sequence[Circuit], domain: Domain) -> NDArray[np.uint8]:
    """Return circuits over a domain as the bytes of a compressed NPZ file, shape (m,)."""
    arrays = {
        f"{k}/{name}": array
        for k, circuit in enumerate(circuits)
        for name, array in circuit.to_arrays().items()
    }
    plain = {"format": FORMAT, "num": len(circuits), "domain": domain.to_plain()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, head=np.array(json.dumps(plain)), **arrays)  # type: ignore[arg-type]
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def unpacked(data: NDArray[np.uint8]) -> list[Circuit]:
    """Return the circuits that :func:`packed` wrote.

    Raises
    ------
    DataError
        If the bytes are not those of circuits of this version, or are too many once unpacked.
    """
    try:
        most = min(MOST_BYTES, MOST_SMALL + MOST_RATIO * data.nbytes)
        arrays = arrays_of(data.tobytes(), most)
        objects = [one.size for key, one in arrays.items() if key.endswith((".scope", ".is_sum"))]
        if sum(objects) > MOST_ENTRIES + data.nbytes:
            raise DataError(f"{sum(objects)} nodes and columns in {data.nbytes} bytes")
        plain = json_of(str(arrays.pop("head")))
        if plain["format"] != FORMAT:
            raise DataError(f"of the format {plain['format']!r} instead of {FORMAT!r}")
        parts: dict[str, Arrays] = {}
        for key, array in arrays.items():
            k, _, name = key.partition("/")
            parts.setdefault(k, {})[name] = array
        # The number of circuits is only stated; that of their arrays is known.
        if type(plain["num"]) is not int or plain["num"] != len(parts):
            raise DataError(f"{plain['num']!r} circuits, but there are arrays of {len(parts)}")
        domain = Domain.from_plain(plain["domain"])
        return [Circuit.from_arrays(domain, parts[str(k)]) for k in range(len(parts))]
    except Exception as error:  # damaged bytes fail anywhere
        raise DataError(
            f"these are no circuits of this version of flwr-causal ({error}): train them again"
        ) from error

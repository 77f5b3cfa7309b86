"""A circuit over the circuits of several parties: sums and products whose leaves are outputs.

An output stands for one circuit of one party. The composed circuit is evaluated from what the
parties answer for their outputs (`federated_circuit`), or, where parties hand their circuits over,
as one circuit into which these are grafted (`Composition.circuit`): both are the same distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.nodes import Node, Product, Sum, ascending
from flwr_causal.core.circuits.parameters import scope_of
from flwr_causal.errors import CausalError, ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, eq=False)
class Output(Node):
    """A leaf that stands for a circuit of a party.

    Parameters
    ----------
    scope : sequence of int
        Its columns in the joint domain.
    party : int
    index : int
        Which of the party's outputs it is.
    rows : int
        That it was trained on, above 0.
    """

    kind: ClassVar[str] = "output"

    scope: tuple[int, ...]
    party: int
    index: int
    rows: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", scope_of(self.scope))
        if self.rows < 1:
            raise ConfigError(
                f"output {self.index} of party {self.party} was trained on {self.rows} rows: "
                "take fewer clusters"
            )


@dataclass(frozen=True, eq=False)
class Composition:
    """A circuit over the outputs of parties.

    Parameters
    ----------
    domain : Domain
        The joint one.
    root : Node
        Its leaves are outputs.
    num_outputs : tuple of int
        Of each party.

    Raises
    ------
    ConfigError
        If its leaves are not all of the parties' outputs, each once (as a node; it may be the child
        of several).
    """

    domain: Domain
    root: Node
    num_outputs: tuple[int, ...]

    def __post_init__(self) -> None:
        found = [node for node in ascending(self.root) if not isinstance(node, Sum | Product)]
        expected = {(p, k) for p, count in enumerate(self.num_outputs) for k in range(count)}
        if not all(isinstance(node, Output) for node in found):
            raise ConfigError("the leaves of a composition are outputs of parties")
        places = [(node.party, node.index) for node in found if isinstance(node, Output)]
        if set(places) != expected or len(places) > len(expected):
            raise ConfigError(
                f"a composition has each output of the parties once, {len(expected)} in all, got "
                f"{len(places)}: {sorted(places)}"
            )

    def circuit(self, circuits: Sequence[Sequence[Circuit]]) -> Circuit:
        """Return the composed circuit with the parties' circuits in it.

        Parameters
        ----------
        circuits : sequence of sequence of Circuit
            Of each party, one an output, over its own domain: columns are found by name.

        Raises
        ------
        ConfigError
            If a circuit's variables are not those of its output.
        """
        made: dict[int, Node] = {}
        for node in ascending(self.root):
            if isinstance(node, Output):
                grafted = circuits[node.party][node.index].root_in(self.domain)
                if grafted.scope != node.scope:
                    raise ConfigError(
                        f"circuit {node.index} of party {node.party} is over the columns "
                        f"{grafted.scope}, its place is over {node.scope}"
                    )
                made[id(node)] = grafted
                continue
            children = [made[id(child)] for child in node.children]
            made[id(node)] = (
                Sum(children, node.weights) if isinstance(node, Sum) else Product(children)
            )
        return Circuit(self.domain, made[id(self.root)])


def mixture(children: Iterable[Node], weights: Iterable[float]) -> Node:
    """Return a sum, or the child itself if it is the only one; weights in proportion."""
    nodes, shares = list(children), np.array(list(weights), dtype=np.float64)
    return nodes[0] if len(nodes) == 1 else Sum(nodes, shares / shares.sum())


def joined(children: Iterable[Node]) -> Node:
    """Return a product, or the child itself if it is the only one."""
    nodes = list(children)
    return nodes[0] if len(nodes) == 1 else Product(nodes)


def trained_rows(node: Node) -> int:
    """Sum the rows of the outputs below a node, each as often as a path leads to it."""
    if isinstance(node, Output):
        return node.rows
    return sum(trained_rows(child) for child in node.children)


def to_plain(composition: Composition) -> dict[str, Any]:
    """Return lists and numbers, which JSON keeps exactly.

    Returns
    -------
    dict
        ``domain``, ``num_outputs`` and ``nodes``, children before parents: of an output its scope,
        party, index and rows, of the others the numbers of the children, of a sum also the weights.
    """
    nodes: list[dict[str, Any]] = []
    number: dict[int, int] = {}
    for node in ascending(composition.root):
        if isinstance(node, Output):
            plain = {"output": [list(node.scope), node.party, node.index, node.rows]}
        else:
            plain = {"children": [number[id(child)] for child in node.children]}
            if isinstance(node, Sum):
                plain["weights"] = node.weights.tolist()
        number[id(node)] = len(nodes)
        nodes.append(plain)
    return {
        "domain": composition.domain.to_plain(),
        "num_outputs": list(composition.num_outputs),
        "nodes": nodes,
    }


def from_plain(plain: Mapping[str, Any]) -> Composition:
    """Return what `to_plain` wrote; a DataError if it is something else."""
    try:
        nodes: list[Node] = []
        for one in plain["nodes"]:
            if "output" in one:
                scope, party, index, rows = one["output"]
                nodes.append(Output(tuple(scope), party, index, rows))
                continue
            children = [nodes[k] for k in one["children"]]
            weights = one.get("weights")
            nodes.append(Product(children) if weights is None else Sum(children, weights))
        return Composition(
            Domain.from_plain(plain["domain"]), nodes[-1], tuple(plain["num_outputs"])
        )
    except (KeyError, IndexError, TypeError, ValueError, CausalError) as error:
        raise DataError(f"this is no composition ({error!r}): write it again") from error


def num_weights(composition: Composition) -> int:
    """Return the free parameters of the sums: the weights of each less 1."""
    sums = [node for node in ascending(composition.root) if isinstance(node, Sum)]
    return sum(len(node.children) - 1 for node in sums)

"""A composition as what JSON can hold: its structure, without any party's circuit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.circuits.composed.composition import Composition, Output
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.nodes import Node, Product, Sum, ascending
from flwr_causal.errors import CausalError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping


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

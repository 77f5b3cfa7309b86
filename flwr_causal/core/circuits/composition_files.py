"""A composition as plain values, for files: its nodes in order, children by number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.circuits.composition import Composition, Output
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.nodes import Product, Sum, ascending
from flwr_causal.errors import CausalError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.circuits.nodes import Node


def to_plain(composition: Composition) -> dict[str, Any]:
    """Return a composition as values that JSON can hold; numbers survive exactly."""
    number: dict[int, int] = {}
    nodes: list[dict[str, Any]] = []
    for node in ascending(composition.root):
        if isinstance(node, Output):
            own = {"party": node.party, "index": node.index, "rows": node.rows}
            nodes.append({"scope": list(node.scope), **own})
        else:
            children = [number[id(child)] for child in node.children]
            weights = {"weights": node.weights.tolist()} if isinstance(node, Sum) else {}
            nodes.append({"children": children, **weights})
        number[id(node)] = len(nodes) - 1
    return {
        "domain": composition.domain.to_plain(),
        "num_outputs": list(composition.num_outputs),
        "nodes": nodes,
    }


def from_plain(plain: Mapping[str, Any]) -> Composition:
    """Return the composition that :func:`to_plain` wrote.

    Raises
    ------
    DataError
        If the values are something else.
    """
    try:
        nodes: list[Node] = []
        for one in plain["nodes"]:
            if "party" in one:
                nodes.append(Output(tuple(one["scope"]), one["party"], one["index"], one["rows"]))
                continue
            children = [nodes[k] for k in one["children"]]
            weights = one.get("weights")
            nodes.append(Product(children) if weights is None else Sum(children, weights))
        domain = Domain.from_plain(plain["domain"])
        return Composition(domain, nodes[-1], tuple(plain["num_outputs"]))
    except (KeyError, IndexError, TypeError, ValueError, CausalError) as error:
        raise DataError(f"this is no composition ({error!r}): write it again") from error


def num_weights(composition: Composition) -> int:
    """Return the free parameters of the sums: the weights of each less 1."""
    sums = [node for node in ascending(composition.root) if isinstance(node, Sum)]
    return sum(len(node.children) - 1 for node in sums)

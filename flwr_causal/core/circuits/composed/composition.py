"""Composition of the parties' circuits to one: Algorithm 1 of Seng et al. (2025).

Each party trains circuits on its own rows and sends only the numbers of these rows. The steps are:

- Lines 3-7: columns that the same parties hold make a group (`column_groups`).
- Lines 9-12: a group that several parties hold becomes a sum over their circuits.
- Line 14: a group that one party holds is clustered by this party, with a circuit for each cluster.
- Lines 15-20: a product joins all shared groups and one cluster of each other group; the root is a
  sum over products.
- Lines 21-22: the weight of child i of a sum is rho(i) / sum rho, where rho of a node is the sum of
  the numbers of rows of the circuits below it.

All products have the same scope, as a sum requires. A shared group is below every product and adds
the same number to the rho of each, which makes the weights of the root more equal. The paper
defines rho as a sum over children that are leaves; here it is the sum over all leaves below.

A composition is a circuit whose leaves are `Output` nodes; each stands for one circuit of one
party. It is evaluated from the parties' replies (`federated_circuit`), or, if the parties send
their circuits, as one circuit in which these replace the outputs (`Composition.circuit`). Both are
the same distribution.

Weights by counts ignore the dependence between groups. `tied_clusters` models it, if rows can be
aligned or all parties know the class.

References
----------
Seng, Busch, Prasad, Dhami, Mundt, Kersting: Scaling Probabilistic Circuits via Data Partitioning,
2025, Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.nodes import (
    Node,
    Product,
    Sum,
    ascending,
    joined,
    mixed,
    scope_of,
    with_leaves,
)
from flwr_causal.core.circuits.presence import column_groups
from flwr_causal.core.limits import check_deadline
from flwr_causal.errors import CausalError, ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import IntArray


# -- the tasks of each party (lines 3-14) ----------------------------------------------------------


class TrainingTask(NamedTuple):
    """The training of a party for one of its groups of columns.

    Parameters
    ----------
    columns : tuple of int
    clustered : bool
        Whether there is one circuit for each cluster of the party's rows. Else there is one for
        all rows: other parties have circuits of these columns too, or there is no other party.
    """

    columns: tuple[int, ...]
    clustered: bool


def tasks_of(presence: ArrayLike, *, tied: bool = False) -> list[list[TrainingTask]]:
    """Return each party's tasks; its outputs have the same order.

    Parameters
    ----------
    presence : array_like of bool, shape (parties, columns)
    tied : bool, default False
        Whether groups that several parties hold are clustered too, for weights that depend on the
        clusters of all groups (see `tied_clusters`). In the paper they are not.
    """
    num_parties = len(np.asarray(presence))
    tasks: list[list[TrainingTask]] = [[] for _ in range(num_parties)]
    for group in column_groups(presence):
        clustered = tied or len(group.parties) == 1 < num_parties
        for party in group.parties:
            tasks[party].append(TrainingTask(group.columns, clustered))
    return tasks


@dataclass(frozen=True, eq=False)
class Output(Node):
    """A leaf that stands for a circuit of a party.

    Parameters
    ----------
    scope : sequence of int
        Its columns in the joint domain.
    party : int
    index : int
        Number of the output among those of the party.
    rows : int
        Number of rows that the circuit was trained on, above 0.
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


class Factors(NamedTuple):
    """The factors of all products.

    Parameters
    ----------
    shared : tuple of Node
        Sums over parties, each for a group of columns that is not clustered.
    clusters : tuple of tuple of Output
        Of each other group, the clusters of all parties that hold it, in the order of the parties.
    num_outputs : tuple of int
        Number of outputs of each party.
    """

    shared: tuple[Node, ...]
    clusters: tuple[tuple[Output, ...], ...]
    num_outputs: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of clusters of each clustered group."""
        return tuple(len(group) for group in self.clusters)


def factors_of(
    presence: ArrayLike, rows: Sequence[Sequence[Sequence[int]]], *, tied: bool = False
) -> Factors:
    """Return the factors of all products.

    Parameters
    ----------
    presence : array_like of bool, shape (parties, columns)
    rows : sequence of sequence of sequence of int
        For each party and each of its tasks, the numbers of rows that its outputs were trained on.
    tied : bool, default False
        As in `tasks_of`.

    Raises
    ------
    ConfigError
        If the numbers of outputs do not fit the tasks.
    """
    tasks = tasks_of(presence, tied=tied)
    if [len(one) for one in rows] != [len(one) for one in tasks]:
        raise ConfigError(
            f"the parties have {[len(one) for one in tasks]} tasks, got rows of "
            f"{[len(one) for one in rows]}"
        )
    groups: dict[TrainingTask, list[Output]] = {}
    counts = []
    for party, (party_tasks, own_rows) in enumerate(zip(tasks, rows, strict=True)):
        index = 0
        for task, trained in zip(party_tasks, own_rows, strict=True):
            if len(trained) == 0 or (len(trained) > 1 and not task.clustered):
                expected = "at least one" if task.clustered else "one: other parties hold them too"
                raise ConfigError(
                    f"party {party} has {len(trained)} outputs for columns {task.columns}, "
                    f"expected {expected}"
                )
            for number in trained:
                groups.setdefault(task, []).append(Output(task.columns, party, index, int(number)))
                index += 1
        counts.append(index)
    ordered = sorted(groups.items(), key=lambda item: item[0].columns)
    sums = tuple(
        mixed(outputs, [one.rows for one in outputs])
        for task, outputs in ordered
        if not task.clustered
    )
    clusters = tuple(tuple(outputs) for task, outputs in ordered if task.clustered)
    return Factors(sums, clusters, tuple(counts))


# -- the composed circuit (lines 15-22) -----------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Composition:
    """A circuit over the outputs of parties.

    Parameters
    ----------
    domain : Domain
        The joint one.
    root : Node
        All its leaves are outputs.
    num_outputs : tuple of int
        Number of outputs of each party.

    Raises
    ------
    ConfigError
        Unless the leaves are all outputs of the parties, each one node (which may have several
        parents).
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
            For each party and each of its outputs, a circuit over the party's domain. Columns are
            found by name.

        Raises
        ------
        ConfigError
            If a circuit's variables are not those of its output.
        """

        def grafted(output: Output) -> Node:
            root = circuits[output.party][output.index].root_in(self.domain)
            if root.scope != output.scope:
                raise ConfigError(
                    f"circuit {output.index} of party {output.party} is over the columns "
                    f"{root.scope}, its place is over {output.scope}"
                )
            return root

        root = with_leaves(self.root, grafted)
        assert root is not None  # no output is left out
        return Circuit(self.domain, root)


def from_products(domain: Domain, factors: Factors, products: IntArray) -> Composition:
    """Compose given combinations of clusters, weighted by rows.

    Parameters
    ----------
    domain : Domain
    factors : Factors
    products : ndarray of int, shape (P, clustered groups)
        Cluster of each group in each product.
    """
    children = []
    for chosen in products.tolist():
        combined = [group[k] for group, k in zip(factors.clusters, chosen, strict=True)]
        children.append(joined([*factors.shared, *combined]))
    return Composition(
        domain, mixed(children, [trained_rows(child) for child in children]), factors.num_outputs
    )


def cluster_products(
    sizes: Sequence[int], num_products: int | None = None, seed: int = 0
) -> IntArray:
    """Combine clusters at random, so that every cluster is in at least one combination.

    Parameters
    ----------
    sizes : sequence of int
        Number of clusters of each group.
    num_products : int, optional
        Number of different combinations; if there are fewer, all of them. Default: the largest
        size.
    seed : int, default 0

    Returns
    -------
    ndarray of int64, shape (P, groups)

    Raises
    ------
    ConfigError
        If that many products cannot hold every cluster.
    """
    least = max(sizes, default=1)
    wanted = least if num_products is None else num_products
    if wanted < least:
        raise ConfigError(f"{wanted} products cannot hold {least} clusters: take {least} or more")
    if wanted >= math.prod(sizes):
        return np.array(list(product(*map(range, sizes))), dtype=np.int64)
    rng = np.random.default_rng(seed)
    columns = [
        np.concatenate([rng.permutation(size), rng.integers(0, size, least - size)])
        for size in sizes
    ]
    # A dict keeps the order. The first ``least`` rows differ: the longest column is a permutation.
    chosen = dict.fromkeys(zip(*(column.tolist() for column in columns), strict=True))
    while len(chosen) < wanted:
        check_deadline()
        chosen[tuple(rng.integers(0, sizes).tolist())] = None
    return np.array(list(chosen), dtype=np.int64)


def trained_rows(node: Node) -> int:
    """Return rho of a node: the sum of the outputs' rows over all paths down from it."""
    if isinstance(node, Output):
        return node.rows
    return sum(trained_rows(child) for child in node.children)


# -- as plain values ------------------------------------------------------------------------------


def to_plain(composition: Composition) -> dict[str, Any]:
    """Return a composition as lists and numbers, which JSON keeps exactly.

    Returns
    -------
    dict
        ``domain``, ``num_outputs`` and ``nodes``, children before parents. An output has its scope,
        party, index and rows; a product the numbers of its children; a sum also its weights.
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
    """Return the composition that `to_plain` wrote; a DataError if the values are invalid."""
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

"""Composition of the parties' circuits to one: Algorithm 1 of Seng et al. (2025).

Parties train alone and send only numbers of rows. Columns that the same parties hold make a group
(lines 3-7, `column_groups`). A group that several parties hold becomes a sum over their circuits
(lines 9-12); a group that one party holds is clustered there, with a circuit for each cluster
(line 14); products join all shared groups and one cluster of each other group, and the root mixes
the products (lines 15-20). The weight of child i of a sum is rho(i) / sum rho, where rho of a node
is the sum of the rows that the circuits below it were trained on (lines 21-22). All products cover
all columns, so the children of a sum never differ in scope; but a shared group is below every
product and adds the same to the rho of each, which makes the root's weights more equal. That is
taken from the paper as it stands.

A composition is a circuit whose leaves are `Output` nodes, each of which stands for one circuit of
one party. It is evaluated from the parties' answers (`federated_circuit`), or, where parties send
their circuits, as one circuit in which these replace the outputs (`Composition.circuit`): both are
the same distribution.

Weights by counts ignore the dependence between parties: where rows can be aligned, see
`tied_clusters`.

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
from flwr_causal.errors import CausalError, ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import IntArray


# -- the tasks of each party (lines 3-14) ----------------------------------------------------------


class Task(NamedTuple):
    """The training of a party for one of its groups of columns.

    Parameters
    ----------
    columns : tuple of int
    clustered : bool
        One circuit for each cluster of the party's rows; else one for all rows, since other parties
        have circuits of these columns too.
    """

    columns: tuple[int, ...]
    clustered: bool


def tasks_of(presence: ArrayLike, *, tied: bool = False) -> list[list[Task]]:
    """Return each party's tasks; its outputs stand in their order.

    Parameters
    ----------
    presence : array_like of bool, shape (parties, columns)
    tied : bool, default False
        Groups that several parties hold are clustered too, for weights that tie the clusters of all
        groups to each other (see `tied_clusters`). Default: as in the paper.
    """
    num_parties = len(np.asarray(presence))
    tasks: list[list[Task]] = [[] for _ in range(num_parties)]
    for group in column_groups(presence):
        clustered = tied or len(group.parties) == 1 < num_parties
        for party in group.parties:
            tasks[party].append(Task(group.columns, clustered))
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


class Factors(NamedTuple):
    """The factors of all products.

    Parameters
    ----------
    shared : tuple of Node
        Sums over parties, each for a group of columns that is not clustered.
    clusters : tuple of tuple of Output
        Of each other group, the clusters of all its holders, in the order of the parties.
    num_outputs : tuple of int
        Of each party.
    """

    shared: tuple[Node, ...]
    clusters: tuple[tuple[Output, ...], ...]
    num_outputs: tuple[int, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of clusters of each clustered group."""
        return tuple(len(own) for own in self.clusters)


def factors_of(
    presence: ArrayLike, rows: Sequence[Sequence[Sequence[int]]], *, tied: bool = False
) -> Factors:
    """Return the factors of all products.

    Parameters
    ----------
    presence : array_like of bool, shape (parties, columns)
    rows : sequence of sequence of sequence of int
        Of each party, of each of its tasks, the rows that each output was trained on.
    tied : bool, default False
        As in `tasks_of`.

    Raises
    ------
    ConfigError
        If the numbers of outputs are not those of the tasks.
    """
    tasks = tasks_of(presence, tied=tied)
    if [len(one) for one in rows] != [len(one) for one in tasks]:
        raise ConfigError(
            f"the parties have {[len(one) for one in tasks]} tasks, got rows of "
            f"{[len(one) for one in rows]}"
        )
    groups: dict[Task, list[Output]] = {}
    counts = []
    for party, (own, own_rows) in enumerate(zip(tasks, rows, strict=True)):
        index = 0
        for task, trained in zip(own, own_rows, strict=True):
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
        mixed(own, [one.rows for one in own]) for task, own in ordered if not task.clustered
    )
    clusters = tuple(tuple(own) for task, own in ordered if task.clustered)
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


def one_pass(
    domain: Domain,
    presence: ArrayLike,
    rows: Sequence[Sequence[Sequence[int]]],
    num_products: int | None = None,
    seed: int = 0,
) -> Composition:
    """Compose by Algorithm 1, lines 15-22.

    Parameters
    ----------
    domain : Domain
        The joint one.
    presence : array_like of bool, shape (parties, columns)
    rows : sequence of sequence of sequence of int
        Of each party, of each of its tasks (`tasks_of`), the rows that each output was trained on.
    num_products : int, optional
        Default: as few as hold every cluster, which is the largest number of clusters.
    seed : int, default 0
        Of the combinations of clusters.
    """
    factors = factors_of(presence, rows)
    products = cluster_products(factors.sizes, num_products, seed)
    return from_products(domain, factors, products)


def from_products(domain: Domain, factors: Factors, products: IntArray) -> Composition:
    """Compose given combinations of clusters, weighted by rows.

    Parameters
    ----------
    domain : Domain
    factors : Factors
    products : ndarray of int, shape (P, clustered groups)
        Which cluster of each group a product holds.
    """
    children = []
    for chosen in products.tolist():
        own = [group[k] for group, k in zip(factors.clusters, chosen, strict=True)]
        children.append(joined([*factors.shared, *own]))
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
        Different combinations; all of them where there are no more. Default: the largest size.
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
    # A dict keeps the order. The first rows differ, as the longest column does not repeat.
    chosen = dict.fromkeys(zip(*(column.tolist() for column in columns), strict=True))
    while len(chosen) < wanted:
        chosen[tuple(rng.integers(0, sizes).tolist())] = None
    return np.array(list(chosen), dtype=np.int64)


def trained_rows(node: Node) -> int:
    """Sum the rows of the outputs below a node, each as often as a path leads to it."""
    if isinstance(node, Output):
        return node.rows
    return sum(trained_rows(child) for child in node.children)


# -- as plain values ------------------------------------------------------------------------------


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
    """Return the composition of `to_plain`; a DataError if the values are something else."""
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

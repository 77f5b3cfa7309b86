"""The composition of Algorithm 1: parties train alone, and only numbers of rows are exchanged.

A group of columns that several parties hold becomes a sum over their circuits; a group that one
party holds is clustered there, with a circuit a cluster; products join all shared groups and one
cluster of each other group; the root mixes the products. The weight of child i of a sum is
rho(i) / sum rho, where rho of a node is the sum of the rows that the circuits below it were trained
on. All products cover all columns, so the children of a sum never differ in scope; but a shared
group is below every product and adds the same to the rho of each, which draws the root's weights
together. That is taken from the paper as it stands.

Count weights know nothing of the dependence between parties: where rows can be aligned, see
`tied_clusters`.

References
----------
Seng, Busch, Prasad, Dhami, Mundt, Kersting: Scaling Probabilistic Circuits via Data Partitioning,
2025, Algorithm 1.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.composed.composition import (
    Composition,
    Output,
    joined,
    mixture,
    trained_rows,
)
from flwr_causal.core.circuits.composed.presence import column_groups
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from flwr_causal.core.arrays import IntArray
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.nodes import Node


class Task(NamedTuple):
    """What a party trains for one of its groups of columns.

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


class Factors(NamedTuple):
    """What every product joins.

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
        mixture(own, [one.rows for one in own]) for task, own in ordered if not task.clustered
    )
    clusters = tuple(tuple(own) for task, own in ordered if task.clustered)
    return Factors(sums, clusters, tuple(counts))


def one_pass(
    domain: Domain,
    presence: ArrayLike,
    rows: Sequence[Sequence[Sequence[int]]],
    num_products: int | None = None,
    seed: int = 0,
) -> Composition:
    """Compose by Algorithm 1.

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
    """Compose given combinations of clusters, weighed by rows.

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
    return Composition(domain, mixture(children, map(trained_rows, children)), factors.num_outputs)


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

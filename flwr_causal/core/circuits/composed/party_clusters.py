"""Clusters of one party's rows and a circuit for each, the party's part of a composition.

For the composition the server needs the number of rows of each cluster (`PartyCircuits.rows`, or by
class `PartyCircuits.class_rows`). For weights that are learned from aligned rows it also needs the
log density of each of these rows in each cluster (`party_answers.log_densities`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain, Variable
from flwr_causal.core.circuits.learners.class_conditional.learner import ClassConditional
from flwr_causal.core.circuits.learners.spn.learn_spn import LearnSPN
from flwr_causal.core.circuits.learners.spn.leaves import location_and_spread
from flwr_causal.core.circuits.learners.spn.splits import cluster_rows, indicators
from flwr_causal.core.circuits.leaves.univariate import Categorical, Gaussian
from flwr_causal.core.circuits.nodes import joined, mixed
from flwr_causal.core.linear.moments import CONSTANT_TOLERANCE
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.composed.composition import TrainingTask
    from flwr_causal.core.circuits.learners.by_name import Learner
    from flwr_causal.core.circuits.nodes import Node


#: Clusters of a group of columns; 4 did well on breast cancer (450 rows, 15 columns).
NUM_CLUSTERS = 4
#: Fewest rows of a cluster: one for each of five folds.
MINIMUM_COUNT = 5
#: Bins of a number when rows are compared.
BINS = 6
#: Pseudo rows of each state of a category in a cluster.
STATE_SMOOTHING = 0.1


class PartyCircuits(NamedTuple):
    """A party's trained circuits.

    Parameters
    ----------
    circuits : tuple of Circuit
        The party's outputs, task by task, over the given domain.
    labels : ndarray of int64, shape (n, tasks)
        Cluster of each of the party's rows in each task, from 0 on.
    sizes : tuple of int
        Number of clusters, and circuits, of each task.
    """

    circuits: tuple[Circuit, ...]
    labels: IntArray
    sizes: tuple[int, ...]

    @property
    def rows(self) -> list[list[int]]:
        """Rows that each circuit of each task was trained on, as `composition.factors_of` asks."""
        return [
            np.bincount(clusters, minlength=size).tolist()
            for clusters, size in zip(self.labels.T, self.sizes, strict=True)
        ]

    def class_rows(self, classes: IntArray, num_classes: int) -> IntArray:
        """Return the rows of each class and circuit, shape (classes, number of circuits)."""
        tables = []
        for clusters, size in zip(self.labels.T, self.sizes, strict=True):
            table = np.zeros((num_classes, size), dtype=np.int64)
            np.add.at(table, (classes, clusters), 1)
            tables.append(table)
        return np.concatenate(tables, axis=1)


def train_party(
    domain: Domain,
    values: FloatArray,
    tasks: Sequence[TrainingTask],
    *,
    num_clusters: int = NUM_CLUSTERS,
    learner: Learner | None = None,
    target: int | None = None,
    minimum_count: int = MINIMUM_COUNT,
    seed: int = 0,
) -> PartyCircuits:
    """Train a party's circuits for all its tasks.

    Parameters
    ----------
    domain : Domain
        Of the party, or the joint one.
    values : ndarray of float64, shape (n, d)
        The party's rows as ``domain.encode`` makes them. Columns that it does not hold are missing.
    tasks : sequence of TrainingTask
        Of this party, from `composition.tasks_of`; columns are those of ``domain``.
    num_clusters : int, default 4
        Clusters of a clustered task, before they are split by class.
    learner : Learner, optional
        Learns the circuit of each cluster; the paper uses ``LearnSPN``. Default: one elliptical
        leaf for each cluster if all columns of a task but the target are numbers, else
        ``LearnSPN``.
    target : int, optional
        Column of the class, known in all rows: all clusters are split by it. Default: clusters are
        not split, as in the paper.
    minimum_count : int, default 5
        A cluster of fewer rows is merged with the largest cluster of its class, or of all.
    seed : int, default 0

    Raises
    ------
    DataError
        If there are fewer rows than clusters or than the minimum count, a column of a task is
        missing in all rows, or the class of a row is missing.
    """
    if len(values) < minimum_count:
        raise DataError(
            f"{len(values)} rows are fewer than the minimum count of {minimum_count}: lower it, or "
            "leave the party out"
        )
    for task in tasks:
        empty = np.isnan(values[:, task.columns]).all(axis=0)
        if empty.any():
            name = domain.names[np.array(task.columns)[empty][0]]
            raise DataError(f"column {name!r} is missing in all rows: leave it out")
    classes = None
    if target is not None:
        if np.isnan(values[:, target]).any():
            raise DataError(
                f"the class {domain.names[target]!r} is missing in some rows: drop these rows"
            )
        classes = values[:, target].astype(np.int64)
    circuits: list[Circuit] = []
    labels = np.zeros((len(values), len(tasks)), dtype=np.int64)
    sizes = []
    for t, task in enumerate(tasks):
        columns = list(task.columns)
        part = Domain(tuple(domain.variables[j] for j in columns))
        rows = values[:, columns]
        number = num_clusters if task.clustered else 1
        split = cluster_labels(
            part, rows, number, seed=seed, classes=classes, minimum_count=minimum_count
        )
        place = columns.index(target) if target in columns else None
        if task.clustered or learner is None:
            made = _circuits_of_clusters(part, rows, split, learner, place, seed)
        else:
            made = [learner.learn(part, rows, seed)]
        roots = [circuit.root_in(domain) for circuit in made]
        if task.clustered:
            labels[:, t] = split
        else:
            roots = [mixed(roots, np.bincount(split))]
        circuits += [Circuit(domain, root) for root in roots]
        sizes.append(len(roots))
    return PartyCircuits(tuple(circuits), labels, tuple(sizes))


def cluster_labels(
    domain: Domain,
    values: FloatArray,
    num_clusters: int,
    *,
    seed: int = 0,
    classes: IntArray | None = None,
    minimum_count: int = 1,
) -> IntArray:
    """Cluster rows by their similarity.

    Parameters
    ----------
    domain : Domain
    values : ndarray of float64, shape (n, d)
    num_clusters : int
        At most; empty clusters are left out.
    seed : int, default 0
    classes : ndarray of int, shape (n,), optional
        Splits every cluster by the class, as a party that holds the class should do: the columns
        of the other parties depend on the class only through the clusters.
    minimum_count : int, default 1
        A cluster of fewer rows is merged with the largest other one of its class; if there is
        none, with the largest of all.

    Returns
    -------
    ndarray of int64, shape (n,)
        From 0 on, without gaps.

    Raises
    ------
    DataError
        If there are more clusters than rows.
    """
    if not 1 <= num_clusters <= len(values):
        raise DataError(
            f"{len(values)} rows cannot be put into {num_clusters} clusters: take from 1 to "
            f"{len(values)}"
        )
    labels = np.zeros(len(values), dtype=np.int64)
    if num_clusters > 1:
        ones = np.ones(len(values))
        coded = indicators(values, domain.num_states, ones, BINS)
        labels = cluster_rows(coded, ones, num_clusters, np.random.default_rng(seed))
    if classes is not None:
        labels = labels * (int(classes.max()) + 1) + classes
    labels = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return _without_small_clusters(
        labels, np.zeros_like(labels) if classes is None else classes, minimum_count
    )


def _without_small_clusters(labels: IntArray, classes: IntArray, minimum_count: int) -> IntArray:
    """Return the labels with clusters of too few rows merged into others, without gaps."""
    labels = labels.copy()
    while True:
        counts = np.bincount(labels)
        present = np.flatnonzero(counts)
        smallest = present[counts[present].argmin()]
        if counts[smallest] >= minimum_count or len(present) == 1:
            return np.unique(labels, return_inverse=True)[1].astype(np.int64)
        others = present[present != smallest]
        of_smallest = classes[labels == smallest][0]
        alike = np.intersect1d(others, labels[classes == of_smallest])
        candidates = alike if len(alike) else others
        labels[labels == smallest] = candidates[counts[candidates].argmax()]


def _circuits_of_clusters(
    domain: Domain,
    values: FloatArray,
    labels: IntArray,
    learner: Learner | None,
    target: int | None,
    seed: int,
) -> list[Circuit]:
    """Return a circuit for each cluster by the learner, or by the default for the columns."""
    if learner is not None:
        return cluster_circuits(domain, values, labels, learner, seed)
    numbers = np.delete(domain.num_states, [] if target is None else [target]) == 0
    if numbers.all() and not np.isnan(values).any():
        return elliptical_circuits(domain, values, labels, seed=seed)
    return cluster_circuits(domain, values, labels, LearnSPN(), seed)


def cluster_circuits(
    domain: Domain, values: FloatArray, labels: IntArray, learner: Learner, seed: int = 0
) -> list[Circuit]:
    """Return a circuit for each cluster, each learned from its own rows.

    A number without a value in a cluster is independent of the rest there, and distributed as in
    all rows.
    """
    return [
        _circuit_of_cluster(domain, values, values[labels == k], learner, seed)
        for k in range(int(labels.max()) + 1)
    ]


def _circuit_of_cluster(
    domain: Domain, values: FloatArray, cluster: FloatArray, learner: Learner, seed: int
) -> Circuit:
    """Return the circuit of a cluster's own rows, of which some numbers may have no value."""
    empty = np.isnan(cluster).all(axis=0) & (domain.num_states == 0)
    if not empty.any():
        return learner.learn(domain, cluster, seed)

    def root(columns: list[int], learner: Learner, rows: FloatArray) -> Node:
        part = Domain(tuple(domain.variables[j] for j in columns))
        return learner.learn(part, rows[:, columns], seed).root_in(domain)

    roots = [root([j], LearnSPN(), values) for j in np.flatnonzero(empty).tolist()]
    known = np.flatnonzero(~empty).tolist()
    return Circuit(domain, joined([*roots, *([root(known, learner, cluster)] if known else [])]))


def elliptical_circuits(
    domain: Domain,
    values: FloatArray,
    labels: IntArray,
    seed: int = 0,
) -> list[Circuit]:
    """Return a circuit for each cluster: one elliptical leaf over all numbers, and categories.

    The clusters are the classes of a class-conditional circuit of the party's rows. They share
    powers and degrees of freedom, and their covariances are shrunk by held-out likelihood, so that
    a cluster may have fewer rows than columns. Categories are independent of the numbers within a
    cluster, and a number that is constant at this party of everything, see `constant_leaves`.

    Parameters
    ----------
    domain : Domain
    values : ndarray of float64, shape (n, d)
        Without missing values.
    labels : ndarray of int64, shape (n,)
        From 0 on, without gaps.
    seed : int, default 0
        Of the folds.
    """
    states = domain.num_states
    constant = constant_leaves(domain, values)
    numbers = np.array([j for j in np.flatnonzero(states == 0) if j not in constant], dtype=int)
    num_clusters = int(labels.max()) + 1
    factors: list[list[Node]] = [list(constant.values()) for _ in range(num_clusters)]
    if len(numbers):
        for nodes, leaf in zip(
            factors, _elliptical_leaves(domain, values, numbers, labels, seed), strict=True
        ):
            nodes.append(leaf)
    for column in np.flatnonzero(states):
        counts = np.full((num_clusters, states[column]), STATE_SMOOTHING)
        np.add.at(counts, (labels, values[:, column].astype(np.int64)), 1.0)
        for nodes, row in zip(factors, counts, strict=True):
            nodes.append(Categorical(int(column), row / row.sum()))
    return [Circuit(domain, joined(nodes)) for nodes in factors]


def constant_leaves(domain: Domain, values: FloatArray) -> dict[int, Gaussian]:
    """Return a leaf for each number that has one value in all rows, or hardly varies.

    A column may vary over the rows of all parties and be constant at one of them, where no
    covariance with it exists.

    Parameters
    ----------
    domain : Domain
    values : ndarray of float64, shape (n, d)
        Without missing values.

    Returns
    -------
    dict of int to Gaussian
        By column.
    """
    found = {}
    for j in map(int, np.flatnonzero(domain.num_states == 0)):
        column = values[:, j]
        if column.std() <= CONSTANT_TOLERANCE * abs(column.mean()):
            found[j] = Gaussian(j, *location_and_spread(column, np.ones(len(column))))
    return found


def _elliptical_leaves(
    domain: Domain,
    values: FloatArray,
    numbers: IntArray,
    labels: IntArray,
    seed: int,
) -> list[Node]:
    """Return the leaf over the numbers of each cluster."""
    name = "cluster" + "_" * max(map(len, domain.names))  # a name that no column has
    extended = Domain(
        (
            *(domain.variables[j] for j in numbers),
            Variable(name, tuple(range(int(labels.max()) + 1))),
        )
    )
    model = ClassConditional(target=name).learn(
        extended, np.column_stack((values[:, numbers], labels)), seed
    )
    return [model.conditional({name: k}).root_in(domain) for k in range(int(labels.max()) + 1)]

"""A party's own circuits: trained, kept for queries, found again in a later run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.circuit import Circuit
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.learners import learner_of
from flwr_causal.core.circuits.party_clusters import (
    cluster_circuits,
    cluster_labels,
    elliptical_circuits,
)
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Own(NamedTuple):
    """What a party has trained.

    Parameters
    ----------
    circuits : list of Circuit
        Over the party's own domain, task by task.
    rows : ndarray of int64, shape (circuits,)
        That each was trained on.
    sizes : ndarray of int64, shape (tasks,)
        How many circuits belong to each task.
    labels : ndarray of int64, shape (n, tasks)
        The cluster of each row in each task.
    """

    circuits: list[Circuit]
    rows: IntArray
    sizes: IntArray
    labels: IntArray


class Recipe(NamedTuple):
    """How a party trains.

    Parameters
    ----------
    learner : str
    target : str or None
    clusters : int
    minimum_count : int
        Fewest rows of a cluster.
    seed : int
    components : int or None
        Of mixtures of trees.
    """

    learner: str
    target: str | None
    clusters: int
    minimum_count: int
    seed: int
    components: int | None = None


def own_domain(domain: Domain, columns: Sequence[str]) -> Domain:
    """Return the variables of a domain that a party holds, or that a task is about."""
    held = set(columns)
    return Domain(tuple(one for one in domain.variables if one.name in held))


def train(
    domain: Domain,
    values: FloatArray,
    tasks: Sequence[Sequence[str]],
    clustered: Sequence[bool],
    recipe: Recipe,
) -> Own:
    """Train a party's circuits.

    Parameters
    ----------
    domain : Domain
        The party's own.
    values : ndarray of float64, shape (n, d)
    tasks : sequence of sequence of str
        The columns of each task.
    clustered : sequence of bool
        Whether a task gets a circuit for each cluster of rows.
    recipe : Recipe
    """
    circuits: list[Circuit] = []
    sizes, rows, labels = [], [], []
    for names, split in zip(tasks, clustered, strict=True):
        part = own_domain(domain, names)
        own = values[:, [domain.index(name) for name in part.names]]
        target = recipe.target if recipe.target in part.names else None
        found = np.zeros(len(own), dtype=np.int64)
        if split:
            found = _clusters(part, own, target, recipe)
        labels.append(found)
        made = _circuits(part, own, found, target, split, recipe)
        circuits += [Circuit(domain, one.root_in(domain)) for one in made]
        sizes.append(len(made))
        rows += np.bincount(found, minlength=len(made)).tolist()
    counts = (np.array(one, dtype=np.int64) for one in (rows, sizes))
    return Own(circuits, *counts, np.stack(labels, axis=1))


def class_rows(domain: Domain, values: FloatArray, own: Own, recipe: Recipe) -> IntArray:
    """Count the rows of each class in each cluster, shape (classes, circuits)."""
    assert recipe.target is not None
    column = domain.index(recipe.target)
    classes = values[:, column].astype(np.int64)
    counts = np.zeros((domain.variables[column].num_states, len(own.circuits)), dtype=np.int64)
    starts = np.cumsum([0, *own.sizes[:-1]])
    for start, labels in zip(starts, own.labels.T, strict=True):
        np.add.at(counts, (classes, start + labels), 1)
    return counts


def _clusters(part: Domain, own: FloatArray, target: str | None, recipe: Recipe) -> IntArray:
    """Cluster a party's rows, each cluster of enough rows, split by the class where it is known."""
    classes = None
    if target is not None:
        classes = own[:, part.index(target)].astype(np.int64)
    clusters = min(recipe.clusters, max(1, len(own) // max(recipe.minimum_count, 1)))
    labels = cluster_labels(part, own, clusters, seed=recipe.seed, classes=classes)
    sizes = np.bincount(labels)
    small = sizes[labels] < recipe.minimum_count
    if small.any():
        labels = np.where(small, int(sizes.argmax()), labels)
        labels = np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return labels


def _circuits(
    part: Domain,
    own: FloatArray,
    labels: IntArray,
    target: str | None,
    split: bool,
    recipe: Recipe,
) -> list[Circuit]:
    if recipe.learner == "class-first" and split:
        return elliptical_circuits(part, own, labels, seed=recipe.seed)
    learner = learner_of(recipe.learner, None if split else target, recipe.components)
    return cluster_circuits(part, own, labels, learner, recipe.seed)


def keep(path: str, fingerprint: str, data: NDArray[np.uint8]) -> None:
    """Write circuits where a later run finds them."""
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("wb") as file:
        np.savez(file, fingerprint=np.array(fingerprint), data=data)


def kept(path: str, fingerprint: str) -> NDArray[np.uint8]:
    """Return the circuits of a training that were kept.

    Raises
    ------
    DataError
        If there are none, or they are of another training.
    """
    place = Path(path)
    if not path or not place.is_file():
        raise DataError(
            f"this party keeps no circuits at {path!r}: name a file with model-path in the node "
            "config before training, or train again"
        )
    with np.load(place) as file:
        found, data = str(file["fingerprint"]), file["data"]
    if found != fingerprint:
        raise DataError(
            f"the circuits at {path!r} are of another training than the one that is asked about: "
            "name the file of that training with model-path, or train again"
        )
    return np.asarray(data, dtype=np.uint8)

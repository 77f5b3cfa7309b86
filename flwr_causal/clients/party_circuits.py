"""A party's own circuits: trained, kept for queries, found again in a later run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from flwr_causal.core.circuits.composed.party_clusters import train_party
from flwr_causal.core.circuits.domain import Domain
from flwr_causal.core.circuits.learners.by_name import learner_of
from flwr_causal.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.core.circuits.composed.composition import Task
    from flwr_causal.core.circuits.composed.party_clusters import PartyCircuits
    from flwr_causal.core.circuits.learners.by_name import Learner
    from flwr_causal.core.circuits.learners.options import LearnerOptions


class Recipe(NamedTuple):
    """How a party trains.

    Parameters
    ----------
    learner : str
        Class-conditional stands for one elliptical leaf over the numbers of a cluster.
    target : str or None
    clusters : int
    minimum_count : int
        Fewest rows of a cluster.
    seed : int
    options : LearnerOptions
        Each learner takes its own.
    """

    learner: str
    target: str | None
    clusters: int
    minimum_count: int
    seed: int
    options: LearnerOptions


class _Named(NamedTuple):
    """The learner of a name for any of the party's groups of columns.

    The class is told apart where it is among the columns and differs between the rows: those of a
    cluster are of one class where the party splits its clusters by it.
    """

    recipe: Recipe

    def learn(self, domain: Domain, values: FloatArray, seed: int = 0) -> Circuit:
        """Return the circuit of rows."""
        name, target = self.recipe.learner, self.recipe.target
        told = target in domain.names
        if told and name != "decision-tree":  # which is made for the class, however few there are
            told = len(np.unique(values[:, domain.index(str(target))])) > 1
        learner = learner_of(name, target if told else None, self.recipe.options)
        return learner.learn(domain, values, seed)


def own_domain(domain: Domain, columns: Sequence[str]) -> Domain:
    """Return the variables of a domain that a party holds."""
    held = set(columns)
    return Domain(tuple(one for one in domain.variables if one.name in held))


def train(
    domain: Domain, values: FloatArray, tasks: Sequence[Task], recipe: Recipe, *, weights: str
) -> PartyCircuits:
    """Train a party's circuits.

    Parameters
    ----------
    domain : Domain
        The party's own.
    values : ndarray of float64, shape (n, d)
    tasks : sequence of Task
        Columns are those of this domain.
    recipe : Recipe
    weights : str
        Of the composition. With "counts" and LearnSPN, the paper's, clusters are not split by the
        class.
    """
    learner: Learner | None = None if recipe.learner == "class-conditional" else _Named(recipe)
    paper = recipe.learner == "spn" and weights == "counts"
    known = recipe.target in domain.names and not paper
    return train_party(
        domain,
        values,
        tasks,
        num_clusters=min(recipe.clusters, max(1, len(values) // recipe.minimum_count)),
        learner=learner,
        target=domain.index(recipe.target) if recipe.target and known else None,
        minimum_count=recipe.minimum_count,
        seed=recipe.seed,
    )


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

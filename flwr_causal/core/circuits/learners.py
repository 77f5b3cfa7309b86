"""The learners of a party's own circuits, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr_causal.core.circuits.settings import Settings, image_shape
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from flwr_causal.core.circuits.composed.party_clusters import Learner

NAMES = ("class-first", "trees", "spn", "einsum", "decision-tree")


def learner_of(name: str, target: str | None, settings: Settings | None = None) -> Learner:
    """Return a learner.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    target : str or None
        The class, where it is among the columns that are learned.
    settings : Settings, optional
        The learner's own options. Default: theirs.

    Raises
    ------
    ConfigError
        For another name, or a package that is not installed.
    """
    chosen = settings or Settings()
    # Imported when asked for: a party has one of them, and some are slow to load.
    if name == "class-first":
        from flwr_causal.core.circuits.class_first.learner import ClassFirstLearner

        return ClassFirstLearner(target)
    if name == "trees":
        from flwr_causal.core.circuits.trees.model import ChowLiuMixture

        return ChowLiuMixture(components=chosen.components, target=target)
    if name == "spn":
        from flwr_causal.core.circuits.spn.learn_spn import LearnSPN

        return LearnSPN(target=target)
    if name == "einsum":
        from flwr_causal.core.circuits.tensors.einsum_network import EinsumNetwork

        return EinsumNetwork(
            target=target,
            depth=chosen.depth,
            replicas=chosen.replicas,
            sums=chosen.sums,
            epochs=chosen.epochs,
            image=image_shape(chosen.image),
        )
    if name == "decision-tree":
        from flwr_causal.core.circuits.decision_trees.learner import DecisionTree

        return DecisionTree(target=target)
    raise ConfigError(f"There is no learner '{name}'; there are {', '.join(NAMES)}.")

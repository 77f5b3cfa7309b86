"""The learners, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from flwr_causal.core.circuits.learners.options import (
    HeadOptions,
    LearnerOptions,
    taken,
)
from flwr_causal.core.circuits.learners.training_by_sums import TrainingBySums
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from flwr_causal.core.arrays import FloatArray
    from flwr_causal.core.circuits.circuit import Circuit
    from flwr_causal.core.circuits.domain import Domain

_ROOM = "flwr_causal.core.circuits.learners"
#: Module and class of each learner, imported on demand as some are slow to import.
_HOMES = {
    "class-conditional": (f"{_ROOM}.class_conditional.learner", "ClassConditional"),
    "trees": (f"{_ROOM}.trees.learner", "ChowLiuMixture"),
    "spn": (f"{_ROOM}.spn.learn_spn", "LearnSPN"),
    "einsum": (f"{_ROOM}.einsum", "EinsumNetwork"),
    "decision-tree": (f"{_ROOM}.decision_tree", "DecisionTree"),
}
NAMES = tuple(_HOMES)
#: The learners that train by sums over rows.
BY_SUMS = ("class-conditional", "trees", "einsum")


class Learner(Protocol):
    """Learner of a circuit from rows."""

    def learn(self, domain: Domain, values: FloatArray, seed: int = 0) -> Circuit:
        """Return the circuit of rows, ``values`` of shape (n, d)."""
        ...


def learner_class(name: str) -> type[Any]:
    """Return the class of a learner; a ConfigError if no learner has this name."""
    if name not in _HOMES:
        raise ConfigError(f"There is no learner '{name}'; there are {', '.join(NAMES)}.")
    module, own = _HOMES[name]
    found: type[Any] = getattr(import_module(module), own)
    return found


def learner_of(name: str, target: str | None, options: LearnerOptions | None = None) -> Learner:
    """Return a learner of a party's own circuits.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    target : str or None
        The class, if it is among the columns that are learned.
    options : LearnerOptions, optional
        Each learner takes its own. Default: the learners' defaults.

    Raises
    ------
    ConfigError
        If no learner has this name, or its package is not installed.
    """
    learner: Learner = taken(learner_class(name), options or LearnerOptions(), target=target)
    return learner


def training_of(
    name: str, target: str | None, options: LearnerOptions | None = None
) -> TrainingBySums:
    """Return a learner that trains by sums over rows; parameters as in `learner_of`.

    Raises
    ------
    ConfigError
        If the learner does not train by sums, or has no head although one is asked for.
    """
    if name not in BY_SUMS:
        raise ConfigError(
            f"learner='{name}' does not train by sums: take training='one-pass', or one of "
            f"{', '.join(BY_SUMS)}"
        )
    chosen = options or LearnerOptions()
    learner = learner_of(name, target, chosen)
    wanted = chosen.head is True or chosen.decision != "most-probable"
    if wanted and not isinstance(learner, HeadOptions):
        raise ConfigError(
            "a head and a threshold are trained with class-conditional circuits and trees: leave "
            f"head and decision out, or take another learner than '{name}'"
        )
    assert isinstance(learner, TrainingBySums)
    return learner

"""The circuits that are trained by sums over rows, by name: one shape for all of them.

The server asks (`request`), every party answers with sums over its rows (`sums`), the server takes
the total in (`step`), until nothing is left to ask; then the circuit is there (`fitted`). What comes
out is the circuit of all rows together, however they are split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits import (
    chow_liu_mixture,
    chow_liu_model,
    chow_liu_rows,
    chow_liu_sums,
    class_first,
    class_first_model,
    class_first_pattern,
    class_first_pattern_sums,
    class_first_rows,
    class_first_sums,
)
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr_causal.core.circuits.domain import Domain

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class Settings(NamedTuple):
    """What a user chooses; plain values, since parties are told.

    Parameters
    ----------
    components : int, optional
        Of a mixture of trees.
    head : bool
        Whether a logistic head tells the class.
    threshold : bool
        Whether the probability is chosen from which on the second of two classes is predicted.
    """

    components: int | None = None
    head: bool = False
    threshold: bool = False


@dataclass(frozen=True)
class Training:
    """One kind of training by sums.

    Parameters
    ----------
    plan_for : callable
        ``(domain, target, seed, min_rows, settings) -> plan``: what parties and server agree on.
    init : callable
        ``(plan, presence, settings) -> state``.
    request : callable
        ``state -> request``, with a phase and arrays; None once all is known.
    sums : callable
        ``(values, plan, request) -> dict of arrays``, at a party.
    step : callable
        ``(state, summed) -> state``.
    fitted : callable
        ``(state, domain) -> CircuitModel``.
    discloses : mapping
        What the sums of each phase are: name to meaning and number of axes.
    """

    plan_for: Callable[[Domain, str | None, int, int, Settings], Any]
    init: Callable[[Any, BoolArray, Settings], Any]
    request: Callable[[Any], Any]
    sums: Callable[[FloatArray, Any, Any], dict[str, FloatArray]]
    step: Callable[[Any, Mapping[str, FloatArray]], Any]
    fitted: Callable[[Any, Domain], CircuitModel]
    discloses: Mapping[str, Mapping[str, tuple[str, int]]]


def _class_first_plan(
    domain: Domain, target: str | None, seed: int, min_rows: int, settings: Settings
) -> class_first_rows.Plan:
    return class_first_rows.plan_for(domain, target, seed=seed, min_rows=min_rows)


def _class_first_options(plan: class_first_rows.Plan, settings: Settings) -> class_first.Options:
    told = plan.target is not None
    two = plan.num_classes == 2
    return class_first.Options(
        head=settings.head and told, threshold=settings.threshold and told and two
    )


def _class_first_init(
    plan: class_first_rows.Plan, presence: BoolArray, settings: Settings
) -> class_first.State:
    return class_first.init(plan, _class_first_options(plan, settings))


def _pattern_init(
    plan: class_first_rows.Plan, presence: BoolArray, settings: Settings
) -> class_first_pattern.PatternState:
    return class_first_pattern.init(plan, presence, _class_first_options(plan, settings))


def _trees_plan(
    domain: Domain, target: str | None, seed: int, min_rows: int, settings: Settings
) -> chow_liu_rows.Plan:
    return chow_liu_rows.plan_for(domain, target, seed=seed, min_rows=min_rows)


def _trees_init(
    plan: chow_liu_rows.Plan, presence: BoolArray, settings: Settings
) -> chow_liu_mixture.State:
    return chow_liu_mixture.init(plan, chow_liu_mixture.Options(components=settings.components))


def _trees_fitted(state: chow_liu_mixture.State, domain: Domain) -> CircuitModel:
    target = None if state.plan.target is None else domain.names[state.plan.target]
    return CircuitModel(chow_liu_model.fitted(state, domain), target)


def _class_first_discloses(more: int) -> dict[str, dict[str, tuple[str, int]]]:
    """Return what class-first sums are; `more` axes where parties hold different columns."""
    return {
        "scale": {
            "counts": ("rows of each class", 1 + more),
            "first": ("sums of each class", 2),
            "second": ("sums of squares of each class", 2),
        },
        "powers": {
            "logs": ("sums of logarithms of each class", 2),
            "powers": ("sums of powers of each class", 4),
        },
        "moments": {
            "counts": ("rows of each fold and class", 2 + more),
            "first": ("sums of each fold and class", 3 + more),
            "second": ("sums of products of each fold and class", 3),
            "tables": ("rows of each state by fold and class", 3),
        },
        "held-out": {
            "likelihoods": ("log-likelihoods under circuits of other rows", 1),
            "log_losses": ("log losses of the class under these", 2),
        },
    }


_HEAD = {
    "head": {
        "count": ("rows", 1),
        "loss": ("log loss of the head", 1),
        "gradient": ("its gradient", 1),
        "hessian": ("its second derivatives", 1),
        "first": ("sums of the log densities of each class", 2),
        "second": ("sums of their squares", 2),
    },
    "threshold": {"log_odds": ("rows by class and log odds", 2)},
}

TRAININGS = {
    "class-first": Training(
        _class_first_plan,
        _class_first_init,
        class_first.request,
        class_first_sums.sums,
        class_first.step,
        class_first_model.fitted,
        _class_first_discloses(0) | _HEAD,
    ),
    "class-first-pattern": Training(
        _class_first_plan,
        _pattern_init,
        class_first_pattern.request,
        class_first_pattern_sums.sums,
        class_first_pattern.step,
        class_first_pattern.fitted,
        _class_first_discloses(1),
    ),
    "trees": Training(
        _trees_plan,
        _trees_init,
        chow_liu_mixture.request,
        chow_liu_sums.sums,
        chow_liu_mixture.step,
        _trees_fitted,
        {
            "pairs": {"counts": ("rows of each pair of states, by class", 2)},
            "products": {"counts": ("weighted rows of each state, by component", 2)},
            "trees": {"counts": ("weighted rows of each pair of states, by component", 2)},
        },
    ),
}


def find(name: str) -> Training:
    """Return the training of a name.

    Raises
    ------
    ConfigError
        If circuits of this kind are not trained by sums.
    """
    if name not in TRAININGS:
        raise ConfigError(
            f"learner='{name}' does not train by sums: take training='one-pass', or one of "
            f"{', '.join(TRAININGS)}"
        )
    return TRAININGS[name]


def trained(
    name: str,
    domain: Domain,
    values: FloatArray,
    target: str | None,
    *,
    settings: Settings | None = None,
    seed: int = 0,
) -> CircuitModel:
    """Return the circuit of one table, the exchanges being those of one party with itself."""
    kind, chosen = find(name), settings or Settings()
    plan = kind.plan_for(domain, target, seed, 1, chosen)
    state = kind.init(plan, np.ones((1, len(domain.variables)), dtype=np.bool_), chosen)
    while (asked := kind.request(state)) is not None:
        state = kind.step(state, kind.sums(values, plan, asked))
    return kind.fitted(state, domain)

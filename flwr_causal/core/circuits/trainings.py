"""The circuits that are trained by sums over rows, by name: one shape for all of them.

The server asks (`request`), every party answers with sums over its rows (`sums`), the server takes
the total in (`step`), until nothing is left to ask; then the circuit is there (`fitted`). What
comes out is the circuit of all rows together, however they are split.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits import training_disclosures
from flwr_causal.core.circuits.class_first import model as class_first_model
from flwr_causal.core.circuits.class_first import pattern as class_first_pattern
from flwr_causal.core.circuits.class_first import pattern_sums as class_first_pattern_sums
from flwr_causal.core.circuits.class_first import rows as class_first_rows
from flwr_causal.core.circuits.class_first import sums as class_first_sums
from flwr_causal.core.circuits.class_first import training as class_first
from flwr_causal.core.circuits.exchanges import exchanged
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.settings import Settings, image_shape
from flwr_causal.core.circuits.tensors import sums as tensor_sums
from flwr_causal.core.circuits.tensors.einsum_network import EinsumNetwork
from flwr_causal.core.circuits.trees import rows as chow_liu_rows
from flwr_causal.core.circuits.trees import training as chow_liu_mixture
from flwr_causal.core.circuits.trees import with_head as tree_training
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from flwr_causal.core.circuits.domain import Domain

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


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
) -> tree_training.State:
    options = chow_liu_mixture.Options(components=settings.components)
    return tree_training.init(plan, options, head=settings.head, threshold=settings.threshold)


def _einsum_plan(
    domain: Domain, target: str | None, seed: int, min_rows: int, settings: Settings
) -> tensor_sums.Plan:
    if settings.head or settings.threshold:
        raise ConfigError(
            "a head and a threshold are trained with class-first circuits and trees: leave head "
            "and decision out, or take another learner than 'einsum'"
        )
    if settings.depth > training_disclosures.MOST_LAYERS:
        raise ConfigError(
            f"depth must be at most {training_disclosures.MOST_LAYERS}, got {settings.depth}"
        )
    options = EinsumNetwork(
        target=target,
        depth=settings.depth,
        replicas=settings.replicas,
        sums=settings.sums,
        epochs=settings.epochs,
        image=image_shape(settings.image),
    )
    return tensor_sums.plan_for(domain, options, seed, settings.batches, min_rows)


def _einsum_init(
    plan: tensor_sums.Plan, presence: BoolArray, settings: Settings
) -> tensor_sums.State:
    return tensor_sums.init(plan)


def _einsum_fitted(state: tensor_sums.State, domain: Domain) -> CircuitModel:
    return CircuitModel(tensor_sums.fitted(state, domain), state.plan.options.target)


TRAININGS = {
    "class-first": Training(
        _class_first_plan,
        _class_first_init,
        class_first.request,
        class_first_sums.sums,
        class_first.step,
        class_first_model.fitted,
        training_disclosures.CLASS_FIRST,
    ),
    "class-first-pattern": Training(
        _class_first_plan,
        _pattern_init,
        class_first_pattern.request,
        class_first_pattern_sums.sums,
        class_first_pattern.step,
        class_first_pattern.fitted,
        training_disclosures.CLASS_FIRST_PATTERN,
    ),
    "trees": Training(
        _trees_plan,
        _trees_init,
        tree_training.request,
        tree_training.sums,
        tree_training.step,
        tree_training.fitted,
        training_disclosures.TREES,
    ),
    "einsum": Training(
        _einsum_plan,
        _einsum_init,
        tensor_sums.request,
        tensor_sums.sums,
        tensor_sums.step,
        _einsum_fitted,
        training_disclosures.EINSUM,
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
    final = exchanged(state, [values], plan, request=kind.request, sums=kind.sums, step=kind.step)
    return kind.fitted(final, domain)

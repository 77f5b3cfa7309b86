"""FedPC by sums over rows: the circuit of the pooled rows, whoever holds which.

The training is the generator ``training`` of the learner, in ``class_conditional/learner.py``,
``trees/learner.py`` or ``einsum.py`` of ``core/circuits/learners``. A party answers with ``sums``
of the class that declares the exchange, in the same place.

Where parties hold different columns, random projections of their common rows measure the dependence
between columns that no party holds together, and add it. Where only some parties know the class,
sums of products of numbers and classes take the place of all but the first sums.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.composed.dependence import with_dependence
from flwr_causal.core.circuits.learners.class_conditional.joined import (
    ClassColumns,
    labelled_numbers,
)
from flwr_causal.core.circuits.learners.class_conditional.learner import (
    ClassConditionalTrained,
    chosen_coordinates,
)
from flwr_causal.core.circuits.learners.class_conditional.pattern import ColumnPatterns
from flwr_causal.core.circuits.learners.head import TrainedWithHead
from flwr_causal.protocol.fedpc import SUMS
from flwr_causal.runtime.algorithm import Ask, Note, relayed
from flwr_causal.strategies.fedpc.losses import lost_by_training
from flwr_causal.strategies.fedpc.plan import settings_of
from flwr_causal.strategies.fedpc.shared import (
    COMPLETE,
    known_dependence,
    note_joined_rows,
    sums_of_products,
    with_cut_points,
    with_variables,
)
from flwr_causal.strategies.fedpc.triples import by_triples

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.core.circuits.learners.training_by_sums import Summing
    from flwr_causal.core.circuits.model import CircuitModel
    from flwr_causal.runtime.algorithm import ReturnT, Step
    from flwr_causal.strategies.fedpc.losses import Remarks
    from flwr_causal.strategies.fedpc.options import FedPCOptions
    from flwr_causal.strategies.fedpc.plan import CircuitPlan
    from flwr_causal.strategies.fedpc.shared import TrainedCircuit


def by_sums(
    options: FedPCOptions, plan: CircuitPlan, remarks: Remarks
) -> Generator[Step, Any, TrainedCircuit]:
    """Train by sums over the parties' rows."""
    dependence = yield from known_dependence(options, plan, remarks)
    if dependence is not None:
        enough = dependence.enough or plan.class_of_some
        left_open = options.training == "auto" and plan.facts.countable
        if enough and left_open and dependence.mostly_nonlinear:
            counted = yield from with_cut_points(options, plan.by_triples())
            return (yield from with_variables(counted, by_triples(options, counted, remarks)))
        remarks.warnings += lost_by_training(plan, dependence)
    if plan.class_of_some:
        return plan, (yield from _with_products(options, plan, remarks)), COMPLETE
    settings = settings_of(options, plan.domain, plan.learner, plan.class_of_all)
    trained = yield from asking_for_sums(
        plan.learner, settings.learner.training(settings, plan.holdings.presence)
    )
    if dependence is not None:
        assert isinstance(trained, ClassConditionalTrained)
        trained = with_dependence(trained, dependence)
    model = trained.model(plan.domain)
    remarks.warnings += trained.warnings(model)
    reason = COMPLETE
    if isinstance(trained, TrainedWithHead) and trained.choice_of_head is not None:
        chosen = trained.choice_of_head
        yield Note(asdict(chosen) | {"pays": int(chosen.pays)})
        reason = f"{reason}; {chosen}"
    return plan, model, reason


def asking_for_sums(learner: str, training: Summing[ReturnT]) -> Generator[Step, Any, ReturnT]:
    """Ask the parties for the sums of a training of this learner."""
    try:
        asked = next(training)
        while True:
            replies = yield Ask(SUMS[learner, asked.exchange.name], asked.arrays)
            yield Note({"numbers": sum(array.size for array in replies.combined.values())})
            asked = training.send(replies.combined)
    except StopIteration as end:
        found: ReturnT = end.value
        return found


def _with_products(
    options: FedPCOptions, plan: CircuitPlan, remarks: Remarks
) -> Generator[Step, Any, CircuitModel]:
    """Return the circuit of products of numbers and classes that only some parties know."""
    presence = plan.holdings.presence
    classes = settings_of(options, plan.domain, plan.learner, plan.target)
    settings = settings_of(options, plan.domain, plan.learner, None)
    scaled = yield from asking_for_sums(
        plan.learner, chosen_coordinates(settings, ColumnPatterns.of(settings, presence))
    )
    coordinates = scaled.coordinates
    columns = ClassColumns(classes, coordinates, labelled_numbers(classes, presence))
    asking = sums_of_products(options, plan, columns)
    joined = yield from relayed(asking, {"coordinates": np.stack(coordinates)})
    products, counts = joined.products[0], joined.counts[0]
    trained_rows = columns.trained(products, joined.sums[0], counts)
    left_out = int(counts[len(counts) - 1, len(counts) - 1] - trained_rows.counts.sum())
    note_joined_rows(options, plan, remarks, joined, left_out)
    return trained_rows.model(plan.domain)

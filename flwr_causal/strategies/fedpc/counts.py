"""FedPC by products: parties with different columns count states, or classes with numbers.

They compute the sums of products of their columns together, from masked tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.learners.class_conditional.joined import (
    ClassColumns,
    labelled_numbers,
)
from flwr_causal.core.circuits.learners.trees.marks import num_left_out, owners, trained
from flwr_causal.core.circuits.learners.trees.triple_tables import Joints
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.errors import DataError
from flwr_causal.protocol.fedpc import columns_of_marks, columns_with_classes
from flwr_causal.runtime.algorithm import Note, relayed
from flwr_causal.sources.joined import Holders, joined_sums
from flwr_causal.strategies.fedpc.plan import plan_of_classes, plan_of_trees

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.core.arrays import FloatArray, IntArray
    from flwr_causal.core.circuits.learners.class_conditional.moments import Coordinates
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingPlan
    from flwr_causal.protocol.products.plan import PlanColumns
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.sources.joined import JoinedMoments
    from flwr_causal.strategies.fedpc.losses import Remarks
    from flwr_causal.strategies.fedpc.options import FedPCOptions
    from flwr_causal.strategies.fedpc.plan import CircuitPlan


def counted_states(
    options: FedPCOptions, plan: CircuitPlan, remarks: Remarks
) -> Generator[Step, Any, CircuitModel]:
    """Return the circuit of counts of pairs and triples of states, over the joined rows."""
    # The parties' marks are those of the setup.
    trees = plan_of_trees(options, plan.domain, plan.class_of_all)
    joints = Joints.of(plan.domain, trees, plan.holders, plan.pair_marks)
    columns = columns_of_marks(plan.domain, trees, joints)
    joined = yield from _joined(options, plan, owners(trees, joints), columns)
    products, counts = joined.products[0], joined.counts[0]
    model = _model_of_marks(plan, trees, joints, products)
    left_out = num_left_out(trees, joints, products, np.diagonal(counts))
    _note_joined_rows(options, plan, remarks, joined, left_out)
    return model


def counted_classes(
    options: FedPCOptions, plan: CircuitPlan, remarks: Remarks, coordinates: Coordinates
) -> Generator[Step, Any, CircuitModel]:
    """Return the circuit of products of numbers and classes that only some parties know."""
    classes = plan_of_classes(options, plan)
    columns = ClassColumns(classes, coordinates, labelled_numbers(classes, plan.holdings.presence))
    meaning = columns_with_classes(plan.domain, columns)
    asking = _joined(options, plan, columns.owners, meaning)
    joined = yield from relayed(asking, {"coordinates": np.stack(coordinates)})
    products, counts = joined.products[0], joined.counts[0]
    trained_rows = columns.trained(products, joined.sums[0], counts)
    model = trained_rows.model(plan.domain)
    left_out = int(counts[len(counts) - 1, len(counts) - 1] - trained_rows.counts.sum())
    _note_joined_rows(options, plan, remarks, joined, left_out)
    return model


def _joined(
    options: FedPCOptions, plan: CircuitPlan, variables: IntArray, columns: PlanColumns
) -> Generator[Step, Any, JoinedMoments]:
    """Return the sums of products of columns, of these variables.

    Raises
    ------
    DataError
        If rows cannot be matched; where this was not asked for, with the training without it.
    """
    holdings = plan.holdings
    holders = Holders(
        holdings.parties,
        tuple(holdings.names[j] for j in variables),
        holdings.presence[:, variables],
        plan.agreement.n,
        options.minimum_count,
        replicates=0,
        seed=options.seed,
        columns=columns,
    )
    try:
        joined = yield from joined_sums(holders)
    except DataError as error:
        if options.training != "auto":
            raise
        raise DataError(
            f"{error}; or set training='one-pass', which may lose how columns of different parties "
            "depend"
        ) from error
    yield Note(joined.info)
    return joined


def _note_joined_rows(
    options: FedPCOptions,
    plan: CircuitPlan,
    remarks: Remarks,
    joined: JoinedMoments,
    left_out: int,
) -> None:
    """Note the number of joined rows, and warnings about them."""
    remarks.num_rows = joined.plan.num_rows
    remarks.warnings += joined.doubts
    if left_out > 0:
        remarks.warnings.append(
            f"{left_out} rows are not counted: fewer than {options.minimum_count} (minimum_count) "
            f"of those that the same parties have are of their class, a value of {plan.target!r}. "
            "Join rare classes to others in all tables, or lower minimum_count"
        )


def _model_of_marks(
    plan: CircuitPlan, trees: TrainingPlan, joints: Joints, products: FloatArray
) -> CircuitModel:
    """Return the circuit of counts of pairs and triples of states, and the one of classes."""
    # Products of whole numbers are exact; those of rounded ones are none.
    density, posterior = trained(plan.domain, trees, joints, products), None
    if plan.target and trees.target is None:
        column = plan.domain.index(plan.target)
        posterior = trained(plan.domain, trees, joints, products, column)
    return CircuitModel(density, plan.target, posterior)

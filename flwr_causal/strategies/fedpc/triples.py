"""FedPC by counts of triples: trees of the joined rows of parties with different columns.

The parties count pairs and triples of states together, as sums of products of marks, from masked
tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.learners.trees.triple_tables import Joints, StateMarks
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.strategies.fedpc.plan import settings_of
from flwr_causal.strategies.fedpc.shared import COMPLETE, note_joined_rows, sums_of_products

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.fedpc.losses import Remarks
    from flwr_causal.strategies.fedpc.options import FedPCOptions
    from flwr_causal.strategies.fedpc.plan import CircuitPlan
    from flwr_causal.strategies.fedpc.shared import TrainedCircuit


def by_triples(
    options: FedPCOptions, plan: CircuitPlan, remarks: Remarks
) -> Generator[Step, Any, TrainedCircuit]:
    """Train trees by counts of pairs and triples of states, over the joined rows."""
    # The parties' marks are those of the setup.
    trees = settings_of(options, plan.domain, "trees", plan.class_of_all)
    marks = StateMarks(trees, Joints.of(plan.domain, trees, plan.holders, plan.pair_marks))
    joined = yield from sums_of_products(options, plan, marks)
    # Products of whole numbers are exact; those of rounded ones are none.
    products, counts = joined.products[0], joined.counts[0]
    density, posterior = marks.trained(plan.domain, products), None
    if plan.target and trees.target is None:
        column = plan.domain.index(plan.target)
        posterior = marks.trained(plan.domain, products, column)
    left_out = marks.num_left_out(products, np.diagonal(counts))
    note_joined_rows(options, plan, remarks, joined, left_out)
    return plan, CircuitModel(density, plan.target, posterior), COMPLETE

"""FedPC in one pass: parties train circuits of their own, which are composed by Algorithm 1.

The weights are the paper's, by numbers of rows (`paper`), or our own: by the classes of all rows,
or by EM on the log densities of the rows that all parties have. These keep more of the dependence
between columns that no party holds together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.circuits.composed.composition import factors_of
from flwr_causal.core.circuits.composed.tied_clusters import by_aligned_rows, by_known_classes
from flwr_causal.sources.own_circuits import trained_locally
from flwr_causal.strategies.fedpc.losses import lost_by_counts, lost_by_training
from flwr_causal.strategies.fedpc.paper import algorithm_1
from flwr_causal.strategies.fedpc.shared import COMPLETE, known_dependence, matched_rows

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.fedpc.losses import Remarks
    from flwr_causal.strategies.fedpc.options import FedPCOptions
    from flwr_causal.strategies.fedpc.paper import Compose
    from flwr_causal.strategies.fedpc.plan import CircuitPlan
    from flwr_causal.strategies.fedpc.shared import Circuit


def in_one_pass(
    options: FedPCOptions, plan: CircuitPlan, remarks: Remarks, compose: Compose
) -> Generator[Step, Any, Circuit]:
    """Train by Algorithm 1, with the paper's weights or ours.

    Raises
    ------
    FederationError
        If a party did not answer.
    """
    parties, presence = plan.holdings.parties, plan.holdings.presence
    central = options.queries == "central"
    common = None
    if plan.weights == "em":
        common = yield from matched_rows(plan, remarks)
    else:
        dependence = yield from known_dependence(options, plan, remarks)
        if dependence is not None:
            remarks.warnings += lost_by_training(plan, dependence)
    if plan.weights == "counts":
        remarks.warnings += lost_by_counts(plan, asked=options.weights == "counts")
        steps = algorithm_1(parties, presence, plan.target, compose, central=central)
        return plan, (yield from steps), COMPLETE
    local = yield from trained_locally(parties, presence, plan.weights, common, central=central)
    factors = factors_of(local.presence, local.rows, tied=True)
    replies = list(local.replies.by_party.values())
    if plan.weights == "classes":
        composition = by_known_classes(plan.domain, factors, [one["classes"] for one in replies])
    else:
        densities = [one["densities"] for one in replies]
        composition = by_aligned_rows(plan.domain, factors, densities, seed=options.seed)
    return plan, local.model(composition, plan.target), COMPLETE

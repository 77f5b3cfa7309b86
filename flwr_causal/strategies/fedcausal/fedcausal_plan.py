"""From the options of FedCausal to its stages."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from flwr_causal.core.fedcausal import evidence_search, group
from flwr_causal.core.fedcausal import linear as fedcausal
from flwr_causal.core.fedcausal import perceptrons as neural_rounds
from flwr_causal.core.fedcausal.linear import PROXIMITY
from flwr_causal.core.nonlinear.perceptrons import Network
from flwr_causal.strategies.fedcausal.fedcausal_stages import (
    EvidenceStage,
    GroupStage,
    LinearStage,
    NeuralStage,
)

if TYPE_CHECKING:
    from flwr_causal.core.graphs.knowledge import EdgeMasks
    from flwr_causal.data.check.agreement import Agreement
    from flwr_causal.strategies.fedcausal.fedcausal import FedCausal
    from flwr_causal.strategies.fedcausal.fedcausal_stages import Stage

#: lambda_1 by model, which the paper does not give: of the group lasso in units of the party's
#: noise, of the linear model in units of the variables' harmonic mean variance, of perceptrons as
#: it is. Measured for the linear model on LG data, 10 x 200 rows, d = 10, 20, 40, five seeds: mean
#: SHD 0.2, 1.2, 0.4 beside 0.2, 1.4, 0.6 of pooled NOTEARS; with 0.02 it is 0.0, 1.2, 0.4, with
#: 0.05 0.2, 1.2, 0.8, with 0.1 0.8, 2.2, 2.4.
AUTOMATIC_SPARSITY = {"group": 0.2, "linear": 0.03, "mlp": 0.01}
#: lambda_2 by model, which the paper does not give either.
AUTOMATIC_PROXIMITY = {"group": 0.0, "linear": PROXIMITY, "mlp": 0.0}
#: Exchanges of each model alone, and of the search after it: measured, see the cores.
ROUNDS = {"group": 20, "linear": 16, "mlp": 16}
BEFORE_SEARCH = {"group": 8, "linear": 16, "mlp": 16}
SEARCH_ROUNDS = 16


def default_rounds(method: FedCausal) -> int:
    """Return how many exchanges the options come to."""
    if method.refine == "evidence":
        return BEFORE_SEARCH[method.kind] + SEARCH_ROUNDS
    return fedcausal.PAPER.max_exchanges if method.schedule == "paper" else ROUNDS[method.kind]


def first_stage(method: FedCausal, agreement: Agreement, masks: EdgeMasks, limit: int) -> Stage:
    """Return the model's stage.

    Parameters
    ----------
    method : FedCausal
        For its options.
    agreement : Agreement
    masks : EdgeMasks
    limit : int
        Exchanges in all; where the search follows, the model has as large a share of them as by
        default.
    """
    rounds, d = limit, len(agreement.names)
    if method.refine == "evidence":
        before = BEFORE_SEARCH[method.kind]
        rounds = max(2, limit * before // (before + SEARCH_ROUNDS))
    if method.kind == "group":
        schedule = group.group_schedule(rounds, sparsity=method.lambda_1)
        problem = group.ServerProblem(schedule, masks, method.threshold)
        return GroupStage(problem, group.init(d))
    if method.kind == "linear":
        settings = fedcausal.PAPER if method.schedule == "paper" else fedcausal.Settings()
        settings = replace(settings, max_exchanges=rounds, acyclic=method.acyclic_server)
        linear = fedcausal.ServerProblem(d, settings, masks.allowed, method.threshold)
        return LinearStage(linear, fedcausal.init(linear), masks, method.threshold)
    neural = neural_rounds.Problem(
        network=Network(d, (method.hidden,)),
        masks=masks,
        averaging=method.averages,
        max_rounds=rounds,
        patience=0 if method.schedule == "paper" else 4,
        threshold=method.threshold,
        acyclic=method.acyclic_server,
        seed=method.seed,
    )
    return NeuralStage(neural, neural_rounds.init(neural))


def search_stage(
    method: FedCausal, agreement: Agreement, masks: EdgeMasks, model: Stage, limit: int
) -> EvidenceStage:
    """Return the searches from a model's graph and from no edges but the required ones.

    Parameters
    ----------
    method, agreement, masks, limit
        As of :func:`first_stage`.
    model : Stage
        The stage before.
    """
    found = model.found
    problem = evidence_search.SearchProblem(
        masks, method.candidates, max(1, limit - model.exchanges)
    )
    starts = (found.graph, np.asarray(masks.required, dtype=bool))
    searches = tuple(evidence_search.init(start, found.scores, problem) for start in starts)
    return EvidenceStage(problem, searches, found.graph, agreement.n)

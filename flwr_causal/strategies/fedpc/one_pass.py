"""FedPC in one pass: parties train circuits of their own, which are composed by Algorithm 1.

The weights are the paper's, by numbers of rows (:mod:`flwr_causal.strategies.fedpc.paper`), or our
own: by the classes of all rows, or by EM on the log densities of the rows that all parties have.
Our weights keep more of the dependence between columns that no party holds together. `recalled`
asks for the circuits of an earlier run instead, which the parties have kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr_causal.core.circuits.composed.composition import factors_of
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.composed.tied_clusters import by_aligned_rows, by_known_classes
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol.fedpc import RECALL
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.sources.own_circuits import trained_locally
from flwr_causal.strategies.fedpc.losses import lost_by_counts, lost_by_groups, lost_by_training
from flwr_causal.strategies.fedpc.paper import algorithm_1
from flwr_causal.strategies.fedpc.shared import COMPLETE, known_dependence, matched_rows

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.fedpc.losses import Remarks
    from flwr_causal.strategies.fedpc.options import FedPCOptions
    from flwr_causal.strategies.fedpc.paper import Compose
    from flwr_causal.strategies.fedpc.plan import CircuitPlan
    from flwr_causal.strategies.fedpc.shared import TrainedCircuit


def in_one_pass(
    options: FedPCOptions, plan: CircuitPlan, remarks: Remarks, compose: Compose
) -> Generator[Step, Any, TrainedCircuit]:
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
        remarks.warnings += lost_by_groups(plan)
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


# -- circuits of an earlier run --------------------------------------------------------------------


def recalled(directory: str, domain: Domain) -> Generator[Step, Any, CircuitModel]:
    """Ask the parties that have kept their circuits of an earlier run whether they still do.

    Raises
    ------
    ConfigError
        As :func:`earlier_circuit`.
    FederationError
        If a party of the circuit has not answered.
    """
    model, density = earlier_circuit(directory, domain)
    replies = yield Ask(RECALL, {"fingerprint": density.fingerprint})
    yield Note({"kept": len(replies.parties)})
    absent = [name for name in density.parties if name not in replies.parties]
    if absent:
        raise FederationError(
            f"{', '.join(absent)} hold a part of the circuit and did not answer: start their "
            "nodes, under these names and with the model-path of that training."
        )
    return model


def earlier_circuit(directory: str, domain: Domain) -> tuple[CircuitModel, FederatedCircuit]:
    """Read the circuit of an earlier run, whose parts the parties have kept.

    Raises
    ------
    ConfigError
        If it is not there, of other columns, or at the server.
    """
    path = Path(directory) / "model.json"
    try:
        there = path.is_file()
    except OSError:  # a name that no file can have
        there = False
    if not there:
        raise ConfigError(
            f"The option 'trained' is {directory!r}, where there is no model.json: give the "
            "output directory of an earlier run."
        )
    model = CircuitModel.load(path)
    if not isinstance(model.density, FederatedCircuit):
        raise ConfigError(
            f"The option 'trained' is {directory!r}, but that circuit is in one piece: load it "
            "with Run.load, no party is needed to ask it."
        )
    if set(model.names) != set(domain.names):
        raise ConfigError(
            f"The option 'trained' is {directory!r}, a circuit over {', '.join(model.names)}, "
            f"but the parties have {', '.join(domain.names)}."
        )
    return model, model.density

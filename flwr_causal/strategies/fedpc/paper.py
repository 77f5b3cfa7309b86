"""FedPC in one pass: parties train circuits of their own, and the server composes them.

Seng et al. (2025), Algorithm 1, and weights of combinations that keep more of the dependence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.circuit import unpacked
from flwr_causal.core.circuits.composed.composition import factors_of, one_pass, tasks_of
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.composed.tied_clusters import (
    by_aligned_rows,
    by_known_classes,
    label_evidence,
)
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.protocol.fedpc import LOCAL
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.strategies.row_ids import check_all

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays, IntArray
    from flwr_causal.core.circuits.composed.composition import Composition
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.fedpc.plan import CircuitPlan, Holdings


@dataclass(frozen=True, eq=False)
class LocalCircuits:
    """The parties' own circuits, and how they are combined.

    Parameters
    ----------
    model : CircuitModel
    replies : Replies
        What the parties have sent of them.
    """

    model: CircuitModel
    replies: Replies


def local_circuits(
    plan: CircuitPlan,
    common: dict[str, IntArray] | None,
    *,
    num_products: int | None,
    central: bool,
    seed: int,
) -> Generator[Step, Any, LocalCircuits]:
    """Let the parties train circuits of their own, and compose them (Algorithm 1).

    Parameters
    ----------
    plan : CircuitPlan
    common : dict of str to ndarray of int64, or None
        Where each party has the common rows.
    num_products : int or None
        Combinations of clusters, with weights "counts".
    central : bool
        Whether the circuits are sent to the server.
    seed : int

    Raises
    ------
    FederationError
        If a party did not answer and parties hold different columns: the others have trained
        for the groups of columns that there are with it.
    """
    holdings, d = plan.holdings, len(plan.domain.variables)
    every = tasks_of(holdings.presence, tied=plan.weights != "counts")
    own: dict[str, Arrays] = {}
    for party, tasks in zip(holdings.parties, every, strict=True):
        columns = np.zeros((len(tasks), d), dtype=np.uint8)
        for mask, task in zip(columns, tasks, strict=True):
            mask[list(task.columns)] = 1
        clustered = np.array([task.clustered for task in tasks], dtype=np.uint8)
        own[party] = {"tasks": columns, "clustered": clustered}
        if common is not None:
            own[party]["common"] = common[party]
    replies = yield Ask(LOCAL[plan.weights, central], own=own)
    yield Note({"circuits": sum(len(rows) for rows in replies.list("rows"))})
    held = np.array([name in replies.parties for name in holdings.parties])
    presence = holdings.presence[held]
    if not presence.all():
        check_answers(holdings, replies)
    returned = list(replies.by_party.values())
    composition = _composed(plan, presence, returned, num_products, seed)
    if central:
        circuits = [unpacked(reply["circuits"]) for reply in returned]
        return LocalCircuits(CircuitModel(composition.circuit(circuits), plan.target), replies)
    density = FederatedCircuit(composition, presence, replies.parties)
    return LocalCircuits(CircuitModel(density, plan.target), replies)


def _composed(
    plan: CircuitPlan,
    presence: NDArray[np.bool_],
    replies: list[Arrays],
    num_products: int | None,
    seed: int,
) -> Composition:
    domain, weights, rows = plan.domain, plan.weights, []
    for reply in replies:
        ends = np.cumsum(reply["sizes"])[:-1]
        rows.append([part.tolist() for part in np.split(reply["rows"], ends)])
    if weights == "counts":
        return one_pass(domain, presence, rows, num_products, seed)
    factors = factors_of(presence, rows, tied=True)
    if weights == "classes":
        return by_known_classes(domain, factors, [one["classes"] for one in replies])
    if weights == "em":
        evidence = [reply["densities"] for reply in replies]
    else:
        evidence = [label_evidence(one["labels"], one["sizes"].tolist()) for one in replies]
    return by_aligned_rows(domain, factors, evidence, seed=seed)


def check_answers(holdings: Holdings, replies: Replies) -> None:
    """Raise a FederationError if a party did not answer, without which there is no circuit."""
    check_all(holdings.parties, replies, lacking="is no circuit")

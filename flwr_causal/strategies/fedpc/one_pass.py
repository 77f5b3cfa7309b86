"""FedPC in one pass: parties train circuits of their own, and the server composes them.

Seng et al. (2025), Algorithm 1, and weights of combinations that keep more of the dependence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.circuits.circuit import unpacked
from flwr_causal.core.circuits.composed.composition import factors_of, one_pass, tasks_of
from flwr_causal.core.circuits.composed.dependence import Projections, measured
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.composed.tied_clusters import (
    by_aligned_rows,
    by_known_classes,
    label_evidence,
)
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.presence import common_rows
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol.fedpc import DEPENDENCE, LOCAL, RECALL
from flwr_causal.protocol.row_ids import ALIGN
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.strategies.row_ids import check_all, hashes_of, problem_of_secret

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays, IntArray
    from flwr_causal.core.circuits.composed.composition import Composition
    from flwr_causal.core.circuits.composed.dependence import Dependence
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.fedpc.choices import CircuitPlan
    from flwr_causal.strategies.fedpc.holdings import Holdings


class Matched(NamedTuple):
    """Which rows of the parties are about the same thing.

    Parameters
    ----------
    common : dict of str to ndarray of int64
        By party, the positions of the rows that all parties have, in one order. Empty with a
        problem.
    num_rows : int or None
        Different ids over all parties; None where ids cannot be compared.
    problem : str, default ""
        Why there are no common rows, and the remedy.
    """

    common: dict[str, IntArray]
    num_rows: int | None
    problem: str = ""


def aligned_rows(holdings: Holdings) -> Generator[Step, Any, Matched]:
    """Return the rows that all parties have, or why there are none.

    Raises
    ------
    FederationError
        If a party did not answer.
    DataError
        If ids repeat.
    """
    replies = yield Ask(ALIGN)
    check_answers(holdings, replies)
    problem = problem_of_secret(holdings.parties, replies)
    if problem:
        return Matched({}, None, problem)
    ids = hashes_of(replies)
    places, num_rows = common_rows(ids), len(set().union(*ids))
    yield Note({"ids": num_rows, "common": len(places[0])})
    if len(places[0]):
        return Matched(dict(zip(holdings.parties, places, strict=True)), num_rows)
    problem = (
        f"{', '.join(holdings.parties)} have no row in common: check that their ids are of one "
        "kind and their row-secret is the same (node config)"
    )
    return Matched({}, num_rows, problem)


def measured_dependence(
    plan: CircuitPlan, common: dict[str, IntArray]
) -> Generator[Step, Any, Dependence]:
    """Return how columns depend that no party holds together, within classes that all know.

    Parameters
    ----------
    plan : CircuitPlan
    common : dict of str to ndarray of int64
        Where each party has the common rows.

    Raises
    ------
    FederationError
        If a party did not answer, or answered for other columns or rows.
    """
    holdings, within = plan.holdings, plan.class_of_all
    own = {party: {"common": rows} for party, rows in common.items()}
    replies = yield Ask(DEPENDENCE, {"within": within or ""}, own)
    check_answers(holdings, replies)
    given = [
        Projections(one["counts"], one["linear"], one["nonlinear"])
        for one in replies.by_party.values()
    ]
    try:
        found = measured(plan.domain, holdings.presence, within, given)
    except DataError as error:
        listed = ", ".join(holdings.parties)
        raise FederationError(f"Of the parties {listed}: {error}") from error
    yield Note({"nats": found.nats, "nonlinear_nats": found.nonlinear_nats})
    return found


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


def check_answers(holdings: Holdings, replies: Replies) -> None:
    """Raise a FederationError if a party did not answer, without which there is no circuit."""
    check_all(holdings.parties, replies, lacking="is no circuit")

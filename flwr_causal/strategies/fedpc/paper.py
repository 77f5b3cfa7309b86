"""Algorithm 1 of Seng et al. (2025), one-pass training: parties train, the server composes.

The lines are those that section 3.3 names:

- Lines 1-7: groups of columns that the same parties hold, from the parties' reports
  (:func:`~flwr_causal.core.circuits.composed.composition.tasks_of`).
- Line 14, and the training of the clients, in one exchange (``LOCAL``): the parties cluster their
  rows for groups that they alone hold, and train circuits
  (:meth:`~flwr_causal.clients.fedpc.FedPCClient.local`, which calls
  :func:`~flwr_causal.core.circuits.composed.party_clusters.train_party` with
  :class:`~flwr_causal.core.circuits.learners.spn.learn_spn.LearnSPN`).
- Lines 9-12 and 15-22: sums, products, the mixture over products, and its weights by numbers of
  rows (:func:`~flwr_causal.core.circuits.composed.composition.one_pass`).

Our own weights, which keep more of the dependence between parties, are in `dependence`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_causal.core.circuits.circuit import unpacked
from flwr_causal.core.circuits.composed.composition import one_pass, tasks_of
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.protocol.fedpc import LOCAL
from flwr_causal.runtime.algorithm import Ask, Note
from flwr_causal.sources.row_ids import check_all

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.core.arrays import Arrays, BoolArray, IntArray
    from flwr_causal.core.circuits.composed.composition import Composition
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.runtime.algorithm import Step
    from flwr_causal.strategies.fedpc.holdings import Holdings
    from flwr_causal.strategies.fedpc.plan import CircuitPlan


def algorithm_1(
    plan: CircuitPlan, *, num_products: int | None, central: bool, seed: int
) -> Generator[Step, Any, CircuitModel]:
    """Train in one pass (Algorithm 1).

    Parameters
    ----------
    plan : CircuitPlan
    num_products : int or None
        Combinations of clusters, the paper's P; None: as few as hold every cluster.
    central : bool
        Whether the circuits are sent to the server.
    seed : int
        Of the combinations.

    Raises
    ------
    FederationError
        As of :func:`trained_locally`.
    """
    # Lines 1-2: the parties have reported their columns; M is `plan.holdings.presence`.
    # Lines 3-7 and 14: groups of columns; the parties cluster and train, each on its own.
    local = yield from trained_locally(plan, central=central)
    # Lines 9-12 and 15-22: sums, products, the mixture at the root, and its weights.
    composition = one_pass(plan.domain, local.presence, local.rows, num_products, seed)
    return local.model(plan, composition)


@dataclass(frozen=True, eq=False)
class LocalCircuits:
    """What the parties have sent of circuits of their own.

    Parameters
    ----------
    presence : ndarray of bool, shape (parties that answered, columns)
    replies : Replies
    central : bool
        Whether the circuits are among the replies.
    """

    presence: BoolArray
    replies: Replies
    central: bool

    @property
    def rows(self) -> list[list[list[int]]]:
        """By party, group of columns and circuit: the number of rows that it was trained on."""
        found = []
        for reply in self.replies.by_party.values():
            ends = np.cumsum(reply["sizes"])[:-1]
            found.append([part.tolist() for part in np.split(reply["rows"], ends)])
        return found

    def model(self, plan: CircuitPlan, composition: Composition) -> CircuitModel:
        """Return the composed circuit, in one piece or asked where its parts live."""
        if self.central:
            circuits = [unpacked(data) for data in self.replies.list("circuits")]
            return CircuitModel(composition.circuit(circuits), plan.target)
        density = FederatedCircuit(composition, self.presence, self.replies.parties)
        return CircuitModel(density, plan.target)


def trained_locally(
    plan: CircuitPlan, common: dict[str, IntArray] | None = None, *, central: bool
) -> Generator[Step, Any, LocalCircuits]:
    """Let the parties train circuits of their own on their groups of columns.

    Parameters
    ----------
    plan : CircuitPlan
        With other weights than "counts", groups that several parties hold are clustered too, and
        the parties return what these weights follow from.
    common : dict of str to ndarray of int64, optional
        Where each party has the common rows.
    central : bool
        Whether the circuits are sent to the server.

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
    return LocalCircuits(presence, replies, central)


def check_answers(holdings: Holdings, replies: Replies) -> None:
    """Raise a FederationError if a party did not answer, without which there is no circuit."""
    check_all(holdings.parties, replies, lacking="is no circuit")

"""Stages of FedPC: sums over rows, circuits of the parties, trees that they train together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from flwr_causal.core.circuits.circuit import unpacked
from flwr_causal.core.circuits.composed import joint_leaves
from flwr_causal.core.circuits.composed.composition import factors_of, one_pass, tasks_of
from flwr_causal.core.circuits.composed.dependence import (
    Projections,
    cluster_information,
    measured,
)
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.composed.joint_trees import (
    PRODUCT_STEPS,
    Shared,
    anchor_rows,
    composed,
    equal_weights,
    responsibilities,
)
from flwr_causal.core.circuits.composed.tied_clusters import (
    by_aligned_rows,
    by_known_classes,
    label_evidence,
)
from flwr_causal.core.circuits.learners.trees.learner import automatic_components
from flwr_causal.core.circuits.learners.trees.pair_sums import UNIT
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.presence import common_rows
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol.fedpc import (
    DEPENDENCE,
    JOINT_PRODUCTS,
    JOINT_START,
    JOINT_TREES,
    LOCAL,
    RECALL,
    SUMS,
)
from flwr_causal.protocol.row_ids import ALIGN
from flwr_causal.runtime.method import Request
from flwr_causal.strategies.row_ids import check_all, hashes_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flwr_causal.core.arrays import Arrays, BoolArray, IntArray
    from flwr_causal.core.circuits.composed.composition import Composition
    from flwr_causal.core.circuits.composed.dependence import Dependence
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.core.circuits.learners.training_by_sums import State, Step
    from flwr_causal.protocol.exchange import Exchange
    from flwr_causal.protocol.replies import Replies
    from flwr_causal.strategies.fedpc.holdings import Holdings


class Matched(NamedTuple):
    """Which rows of the parties are about the same thing.

    Parameters
    ----------
    common : dict of str to ndarray of int64
        By party, where it has the rows that all have, in one order; of length 0 if there are none.
    num_rows : int
        Different ids over all parties.
    problem : str
        Why there are no common rows, and the remedy; empty if there are.
    """

    common: dict[str, IntArray]
    num_rows: int
    problem: str


@dataclass(frozen=True, eq=False)
class AlignStage:
    """Which rows all parties have, by keyed hashes of their ids.

    Parameters
    ----------
    holdings : Holdings
    """

    holdings: Holdings

    def request(self) -> Request:
        """Ask for the hashes."""
        return Request(ALIGN)

    def matched(self, replies: Replies) -> Matched | str:
        """Return the common rows; in words, why rows cannot be matched at all.

        Raises
        ------
        FederationError
            If a party did not answer.
        DataError
            If ids repeat.
        """
        _check_all(self.holdings, replies)
        ids = hashes_of(self.holdings.parties, replies)
        if isinstance(ids, str):
            return ids
        places = common_rows(ids)
        listed = ", ".join(self.holdings.parties)
        problem = (
            f"{listed} have no row in common: check that their ids are of one kind and their "
            "row-secret is the same (node config)"
        )
        return Matched(
            dict(zip(self.holdings.parties, places, strict=True)),
            len(set().union(*ids)),
            "" if len(places[0]) else problem,
        )


@dataclass(frozen=True, eq=False)
class DependenceStage:
    """How columns depend that no party holds together, by projections of the common rows.

    Parameters
    ----------
    domain : Domain
    holdings : Holdings
    common : dict of str to ndarray of int64
        Where each party has the common rows.
    within : str or None
        The class within which columns are scored, which all parties hold; None: there is none.
    """

    domain: Domain
    holdings: Holdings
    common: dict[str, IntArray]
    within: str | None

    def request(self) -> Request:
        """Say which rows are common."""
        own = {party: {"common": rows} for party, rows in self.common.items()}
        return Request(DEPENDENCE, {"within": self.within or ""}, own)

    def dependence(self, replies: Replies) -> Dependence:
        """Return the dependence within classes.

        Raises
        ------
        FederationError
            If a party did not answer, or answered for other columns or rows.
        """
        _check_all(self.holdings, replies)
        given = [
            Projections(one["counts"], one["linear"], one["nonlinear"])
            for one in replies.by_party.values()
        ]
        try:
            return measured(self.domain, self.holdings.presence, self.within, given)
        except DataError as error:
            listed = ", ".join(self.holdings.parties)
            raise FederationError(f"Of the parties {listed}: {error}") from error


@dataclass(frozen=True, eq=False)
class LocalStage:
    """The parties train circuits of their own; the server composes them.

    Parameters
    ----------
    domain : Domain
    holdings : Holdings
    weights : {"counts", "classes", "aligned", "em"}
    common : dict of str to ndarray of int64, or None
        Where each party has the common rows.
    num_products : int or None
    central : bool
        Whether the circuits are sent to the server.
    seed : int
    """

    domain: Domain
    holdings: Holdings
    weights: str
    common: dict[str, IntArray] | None
    num_products: int | None
    central: bool
    seed: int

    def request(self) -> Request:
        """Say what each party is to train, and which of its rows are common."""
        d = len(self.domain.variables)
        every = tasks_of(self.holdings.presence, tied=self.weights != "counts")
        own: dict[str, Arrays] = {}
        for party, tasks in zip(self.holdings.parties, every, strict=True):
            columns = np.zeros((len(tasks), d), dtype=np.uint8)
            for mask, task in zip(columns, tasks, strict=True):
                mask[list(task.columns)] = 1
            clustered = np.array([task.clustered for task in tasks], dtype=np.uint8)
            own[party] = {"tasks": columns, "clustered": clustered}
            if self.common is not None:
                own[party]["common"] = self.common[party]
        return Request(LOCAL[self.weights, self.central], own=own)

    def model(self, replies: Replies, target: str | None) -> CircuitModel:
        """Return the composed circuit.

        Raises
        ------
        FederationError
            If a party did not answer and parties hold different columns: the others have trained
            for the groups of columns that there are with it.
        """
        held = np.array([name in replies.parties for name in self.holdings.parties])
        presence = self.holdings.presence[held]
        if not presence.all():
            _check_all(self.holdings, replies)
        returned = list(replies.by_party.values())
        composition = self._composed(presence, returned)
        if self.central:
            circuits = [unpacked(reply["circuits"]) for reply in returned]
            return CircuitModel(composition.circuit(circuits), target)
        return CircuitModel(FederatedCircuit(composition, presence, replies.parties), target)

    def information(self, replies: Replies) -> float:
        """Return how much the clusters of parties tell of each other, weights "aligned"."""
        return cluster_information(replies.list("labels"))

    def info(self, replies: Replies) -> dict[str, Any]:
        """Return how many circuits the parties have."""
        return {"circuits": sum(len(rows) for rows in replies.list("rows"))}

    def _composed(self, presence: NDArray[np.bool_], replies: list[Arrays]) -> Composition:
        rows = []
        for reply in replies:
            ends = np.cumsum(reply["sizes"])[:-1]
            rows.append([part.tolist() for part in np.split(reply["rows"], ends)])
        if self.weights == "counts":
            return one_pass(self.domain, presence, rows, self.num_products, self.seed)
        factors = factors_of(presence, rows, tied=True)
        if self.weights == "classes":
            return by_known_classes(self.domain, factors, [one["classes"] for one in replies])
        if self.weights == "em":
            evidence = [reply["densities"] for reply in replies]
        else:
            evidence = [label_evidence(one["labels"], one["sizes"].tolist()) for one in replies]
        return by_aligned_rows(self.domain, factors, evidence, seed=self.seed)


@dataclass(frozen=True, eq=False)
class RecallStage:
    """Parties that have kept their circuits of an earlier run are asked whether they still do.

    Parameters
    ----------
    earlier : CircuitModel
    """

    earlier: CircuitModel

    @classmethod
    def of(cls, directory: str, domain: Domain) -> RecallStage:
        """Read the results of an earlier run.

        Raises
        ------
        ConfigError
            If they are not there, of other columns, or have circuits at the server.
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
        return cls(model)

    @property
    def _density(self) -> FederatedCircuit:
        assert isinstance(self.earlier.density, FederatedCircuit)
        return self.earlier.density

    def request(self) -> Request:
        """Ask for circuits of that training."""
        return Request(RECALL, {"fingerprint": self._density.fingerprint})

    def model(self, replies: Replies, target: str | None) -> CircuitModel:
        """Return the earlier circuit.

        Raises
        ------
        FederationError
            If a party of it has not answered.
        """
        absent = [name for name in self._density.parties if name not in replies.parties]
        if absent:
            raise FederationError(
                f"{', '.join(absent)} hold a part of the circuit and did not answer: start their "
                "nodes, under these names and with the model-path of that training."
            )
        return self.earlier

    def info(self, replies: Replies) -> dict[str, Any]:
        """Return how many parties have kept their circuits."""
        return {"kept": len(replies.parties)}


def _check_all(holdings: Holdings, replies: Replies) -> None:
    check_all(holdings.parties, replies, lacking="is no circuit")


@dataclass(frozen=True, eq=False)
class SumsStage:
    """One exchange of a training by sums.

    Parameters
    ----------
    learner : str
    step : Step
        What the server knows before the exchange.
    """

    learner: str
    step: Step

    def request(self) -> Request:
        """Return what every party is sent."""
        return Request(SUMS[self.learner, self.step.name], dict(self.step.arrays()))

    def close(self, replies: Replies) -> tuple[State, dict[str, Any]]:
        """Return the state after the sums; how many numbers each party has sent."""
        numbers = sum(array.size for array in replies.combined.values())
        return self.step.after(replies.combined), {"numbers": numbers}


@dataclass(frozen=True, eq=False)
class JointStage:
    """One exchange of joint EM.

    Parameters
    ----------
    domain : Domain
    holdings : Holdings
        Every column is held by one party.
    common : dict of str to ndarray of int64, shape (n,)
        Where each party has the common rows.
    components : int
        Of each of the mixtures that share the exchanges.
    central : bool
        Whether trees are sent to the server once they are complete.
    seed : int
        Of the rows that components start from.
    exchange : int
        From 0 on.
    shared : Shared, optional
        What followed from the last exchange.
    """

    domain: Domain
    holdings: Holdings
    common: dict[str, IntArray]
    components: int
    central: bool
    seed: int
    exchange: int = 0
    shared: Shared | None = None

    @property
    def last(self) -> bool:
        """Whether the parties complete their trees."""
        return self.exchange > PRODUCT_STEPS

    def request(self) -> Request:
        """Say which rows are common, and which of them start a component or belong to it."""
        rows = len(next(iter(self.common.values())))
        if self.shared is None:
            exchange: Exchange = JOINT_START
            values = {"anchors": anchor_rows(rows, self.components, self.seed)}
        else:
            exchange = JOINT_TREES[self.central] if self.last else JOINT_PRODUCTS
            # Multiples of the unit: exact as small whole numbers.
            values = {"shared": np.rint(self.shared.responsibilities / UNIT).astype(np.uint16)}
        own = {party: {"common": rows.astype(np.int32)} for party, rows in self.common.items()}
        return Request(exchange, values, own)

    def after(self, replies: Replies) -> JointStage:
        """Return the next exchange.

        Raises
        ------
        FederationError
            If a party did not answer.
        """
        _check_all(self.holdings, replies)
        known = self.shared
        weights = equal_weights(self.components) if known is None else known.log_weights
        shared = responsibilities(replies.list("densities"), weights)
        return replace(self, exchange=self.exchange + 1, shared=shared)

    def model(self, replies: Replies, target: str | None) -> CircuitModel:
        """Return the mixture of products of the parties' trees."""
        assert self.shared is not None
        _check_all(self.holdings, replies)
        holdings = self.holdings
        columns = [np.flatnonzero(held).tolist() for held in holdings.presence]
        composition = composed(self.domain, columns, self.shared)
        if self.central:
            circuits = [unpacked(data) for data in replies.list("circuits")]
            return CircuitModel(composition.circuit(circuits), target)
        return CircuitModel(
            FederatedCircuit(composition, holdings.presence, holdings.parties), target
        )

    def info(self, replies: Replies) -> dict[str, Any]:
        """Return how well the components before this exchange explain the rows, nats a row."""
        if self.shared is None:
            return {"components": self.components}
        return {"log_likelihood": float(self.shared.log_likelihood.mean())}


def joint_components(
    domain: Domain,
    presence: BoolArray,
    rows: int,
    target: str | None,
    components: int | None,
    clusters: int,
) -> int:
    """Return how many components there are: as many as asked for, or as the rows give.

    The server sees no rows; it takes every variable for the child of one with a mean number of
    states. There are at least as many components as a party would have clusters: with 700 rows and
    six kinds of them the number that a pooled table would get (2) lost .5 nats.

    Raises
    ------
    ConfigError
        If there are fewer than classes, each of which has components of its own.
    """
    states = domain.num_states
    classes = int(states[domain.index(target)]) if target else 1
    if components is None:
        if (states == 0).any():
            found = joint_leaves.automatic_components(rows, presence[:, states == 0])
        else:
            found = automatic_components(rows, int((states - 1).sum() * states.mean()))
        return min(rows, max(classes, clusters, found))
    if components < classes:
        raise ConfigError(
            f"The option 'components' is {components}, but {target!r} has {classes} classes, and "
            "each has components of its own: give as many or more."
        )
    return components

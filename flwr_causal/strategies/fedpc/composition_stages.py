"""Exchanges of FedPC in which parties train circuits of their own, which are then composed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from flwr_causal.core.circuits.composed.composition import factors_of, one_pass, tasks_of
from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.composed.presence import common_rows
from flwr_causal.core.circuits.composed.tied_clusters import (
    by_aligned_rows,
    by_known_classes,
    label_evidence,
)
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.core.circuits.packing import unpacked
from flwr_causal.errors import ConfigError, DataError, FederationError
from flwr_causal.protocol.wire import unbounded
from flwr_causal.strategies.exchange import Reply, Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.core.circuits.composed.composition import Composition
    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.protocol.wire import Arrays, Value
    from flwr_causal.runtime.federation import Party
    from flwr_causal.strategies.fedpc.circuit_schema import Holdings

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AlignStage:
    """Which rows all parties have, by keyed hashes of their ids.

    Parameters
    ----------
    holdings : Holdings
    hashes : dict of str to ndarray of uint8, shape (n_k, 16)
        By party, so far.
    """

    phase: ClassVar[str] = "align"

    holdings: Holdings
    hashes: dict[str, NDArray[np.uint8]] = field(default_factory=dict)

    def request(self, party: Party) -> Request:
        """Ask for the hashes."""
        return Request({}, {"arrays": []})

    def fold(self, reply: Reply) -> AlignStage:
        """Keep a party's hashes."""
        return replace(self, hashes={**self.hashes, reply.party.name: reply.arrays["hashes"]})

    def common(self) -> dict[str, IntArray]:
        """Return by party where it has the rows that all have, in one order.

        Raises
        ------
        FederationError
            If a party did not answer.
        DataError
            If no row is common.
        """
        check_all(self.holdings, self.hashes)
        ids = [[row.tobytes() for row in self.hashes[name]] for name in self.holdings.parties]
        try:
            places = common_rows(ids)
        except DataError as error:
            listed = ", ".join(self.holdings.parties)
            raise DataError(f"parties {listed}: {error}") from error
        return dict(zip(self.holdings.parties, places, strict=True))

    @property
    def info(self) -> dict[str, Any]:
        """How many rows were looked at."""
        return {"ids": sum(map(len, self.hashes.values()))}


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
    replies : dict of str to dict of arrays
        By party, so far.
    """

    domain: Domain
    holdings: Holdings
    weights: str
    common: dict[str, IntArray] | None
    num_products: int | None
    central: bool
    seed: int
    replies: dict[str, Arrays] = field(default_factory=dict)

    @property
    def phase(self) -> str:
        """What the parties may send: see the client's disclosures."""
        return f"local {self.weights}{' central' if self.central else ''}"

    def request(self, party: Party) -> Request:
        """Say what the party is to train, and which of its rows are common."""
        every = tasks_of(self.holdings.presence, tied=self.weights != "counts")
        tasks = every[self.holdings.parties.index(party.name)]
        names = [[self.domain.names[j] for j in task.columns] for task in tasks]
        plain: dict[str, Value] = {
            "tasks": json.dumps(names),
            "clustered": [int(task.clustered) for task in tasks],
        }
        arrays = {} if self.common is None else {"common": self.common[party.name]}
        return Request(arrays, {**plain, "arrays": list(arrays)})

    def fold(self, reply: Reply) -> LocalStage:
        """Keep what a party sends."""
        return replace(self, replies={**self.replies, reply.party.name: reply.arrays})

    def model(self, target: str | None) -> CircuitModel:
        """Return the composed circuit.

        Raises
        ------
        FederationError
            If a party did not answer and parties hold different columns: the others have trained
            for the groups of columns that there are with it.
        """
        held = np.array([name in self.replies for name in self.holdings.parties])
        presence = self.holdings.presence[held]
        if not presence.all():
            check_all(self.holdings, self.replies)
        names = [name for name in self.holdings.parties if name in self.replies]
        replies = [self.replies[name] for name in names]
        composition = self._composed(presence, replies)
        if self.central:
            circuits = [unpacked(reply["circuits"]) for reply in replies]
            return CircuitModel(composition.circuit(circuits), target)
        return CircuitModel(FederatedCircuit(composition, presence, tuple(names)), target)

    @property
    def info(self) -> dict[str, Any]:
        """How many circuits the parties have."""
        return {"circuits": sum(len(reply["rows"]) for reply in self.replies.values())}

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
            evidence = [unbounded(reply["densities"]) for reply in replies]
        else:
            evidence = [label_evidence(one["labels"], one["sizes"].tolist()) for one in replies]
        return by_aligned_rows(self.domain, factors, evidence, seed=self.seed)


@dataclass(frozen=True, eq=False)
class RecallStage:
    """Parties that have kept their circuits of an earlier run are asked whether they still do.

    Parameters
    ----------
    earlier : CircuitModel
    kept : tuple of str
        The parties that have them, so far.
    """

    phase: ClassVar[str] = "recall"

    earlier: CircuitModel
    kept: tuple[str, ...] = ()

    @classmethod
    def of(cls, directory: str, domain: Domain) -> RecallStage:
        """Read the results of an earlier run.

        Raises
        ------
        ConfigError
            If they are not there, of other columns, or have circuits at the server.
        """
        path = Path(directory) / "model.json"
        if not path.is_file():
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

    def request(self, party: Party) -> Request:
        """Ask for circuits of that training."""
        density = self.earlier.density
        assert isinstance(density, FederatedCircuit)
        return Request({}, {"arrays": [], "fingerprint": density.fingerprint})

    def fold(self, reply: Reply) -> RecallStage:
        """Note a party that has them."""
        return replace(self, kept=(*self.kept, reply.party.name))

    def model(self, target: str | None) -> CircuitModel:
        """Return the earlier circuit.

        Raises
        ------
        FederationError
            If a party of it has not answered.
        """
        density = self.earlier.density
        assert isinstance(density, FederatedCircuit)
        absent = [name for name in density.parties if name not in self.kept]
        if absent:
            raise FederationError(
                f"{', '.join(absent)} hold a part of the circuit and did not answer: start their "
                "nodes, under these names and with the model-path of that training."
            )
        return self.earlier

    @property
    def info(self) -> dict[str, Any]:
        """How many parties have kept their circuits."""
        return {"kept": len(self.kept)}


def check_all(holdings: Holdings, replies: Mapping[str, Any]) -> None:
    """Raise a FederationError if a party has not replied."""
    absent = [name for name in holdings.parties if name not in replies]
    if absent:
        raise FederationError(
            f"{', '.join(absent)} did not answer: without them there is no circuit of the columns "
            "that they alone hold. Start the run again once they are back."
        )

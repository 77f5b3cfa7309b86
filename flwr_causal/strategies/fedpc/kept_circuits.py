"""FedPC with the circuits that the parties have kept of an earlier run: nothing is trained."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr_causal.core.circuits.composed.federated_circuit import FederatedCircuit
from flwr_causal.core.circuits.model import CircuitModel
from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol.fedpc import RECALL
from flwr_causal.runtime.algorithm import Ask, Note

if TYPE_CHECKING:
    from collections.abc import Generator

    from flwr_causal.core.circuits.domain import Domain
    from flwr_causal.runtime.algorithm import Step


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

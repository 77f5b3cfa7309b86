"""Federated runs on one machine."""

from typing import TYPE_CHECKING

from flwr_causal.lazy import lazily

if TYPE_CHECKING:
    from flwr_causal.runtime.local_grid import LocalGrid
    from flwr_causal.simulations.engines import simulate
    from flwr_causal.simulations.relay import Relay
    from flwr_causal.simulations.scenarios.world import LineResult, World

__all__ = ["LineResult", "LocalGrid", "Relay", "World", "simulate"]

_HOMES = {
    "LineResult": "flwr_causal.simulations.scenarios.world",
    "LocalGrid": "flwr_causal.runtime.local_grid",
    "Relay": "flwr_causal.simulations.relay",
    "World": "flwr_causal.simulations.scenarios.world",
    "simulate": "flwr_causal.simulations.engines",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)

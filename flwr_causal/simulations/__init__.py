"""Federated runs on one machine."""

from typing import TYPE_CHECKING

from flwr_causal.lazy import lazily

if TYPE_CHECKING:
    from flwr_causal.runtime.local_grid import LocalGrid
    from flwr_causal.simulations.engines import simulate
    from flwr_causal.simulations.relay import Relay

__all__ = ["LocalGrid", "Relay", "simulate"]

_HOMES = {
    "LocalGrid": "flwr_causal.runtime.local_grid",
    "Relay": "flwr_causal.simulations.relay",
    "simulate": "flwr_causal.simulations.engines",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)

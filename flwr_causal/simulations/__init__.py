"""Federated runs on one machine."""

from flwr_causal.runtime.local_grid import LocalGrid
from flwr_causal.simulations.engines import simulate

__all__ = ["LocalGrid", "simulate"]

"""Federated runs on one machine."""

from flwr_causal.simulations.engines import simulate
from flwr_causal.local_grid import LocalGrid

__all__ = ["LocalGrid", "simulate"]

"""Federated runs on one machine."""

from flwr_causal.simulations.local_grid import LocalGrid
from flwr_causal.simulations.simulate import simulate

__all__ = ["LocalGrid", "simulate"]

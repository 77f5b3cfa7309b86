"""One Flower Strategy for each method, their bases, and the loop that runs them."""

from flwr_causal.strategies.base import CausalStrategy
from flwr_causal.strategies.exchange import ExchangeStrategy, Reply, Request
from flwr_causal.strategies.linear import LinearStrategy
from flwr_causal.strategies.loop import Outcome, run
from flwr_causal.strategies.moments import Moments
from flwr_causal.strategies.notears_admm import NotearsADMM

__all__ = [
    "CausalStrategy",
    "ExchangeStrategy",
    "LinearStrategy",
    "Moments",
    "NotearsADMM",
    "Outcome",
    "Reply",
    "Request",
    "run",
]

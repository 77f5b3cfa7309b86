"""One Flower Strategy for each method, their bases, and the loop that runs them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr_causal.strategies.base import CausalStrategy
    from flwr_causal.strategies.exchange import ExchangeStrategy, Reply, Request
    from flwr_causal.strategies.fedges import FedGES
    from flwr_causal.strategies.linear import LinearStrategy
    from flwr_causal.strategies.loop import Outcome, run
    from flwr_causal.strategies.moments import Moments
    from flwr_causal.strategies.notears_admm import NotearsADMM

__all__ = [
    "CausalStrategy",
    "ExchangeStrategy",
    "FedGES",
    "LinearStrategy",
    "Moments",
    "NotearsADMM",
    "Outcome",
    "Reply",
    "Request",
    "run",
]

# Loaded when first used: a SuperNode starts a process for each message, which needs one method.
_HOMES = {
    "CausalStrategy": "flwr_causal.strategies.base",
    "ExchangeStrategy": "flwr_causal.strategies.exchange",
    "FedGES": "flwr_causal.strategies.fedges",
    "LinearStrategy": "flwr_causal.strategies.linear",
    "Moments": "flwr_causal.strategies.moments",
    "NotearsADMM": "flwr_causal.strategies.notears_admm",
    "Outcome": "flwr_causal.strategies.loop",
    "Reply": "flwr_causal.strategies.exchange",
    "Request": "flwr_causal.strategies.exchange",
    "run": "flwr_causal.strategies.loop",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

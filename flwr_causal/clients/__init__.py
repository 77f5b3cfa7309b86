"""One ``NumPyClient`` for each method, their base, and the bridge from Flower's messages."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flwr_causal.clients.base import CausalClient, Source
    from flwr_causal.clients.bridge import client_app
    from flwr_causal.clients.fedges import FedGESClient
    from flwr_causal.clients.linear import LinearClient
    from flwr_causal.clients.moments import MomentsClient
    from flwr_causal.clients.notears_admm import NotearsADMMClient
    from flwr_causal.wire import Disclosure

__all__ = [
    "CausalClient",
    "Disclosure",
    "FedGESClient",
    "LinearClient",
    "MomentsClient",
    "NotearsADMMClient",
    "Source",
    "client_app",
]

# Loaded when first used: a SuperNode starts a process for each message, which needs one method.
_HOMES = {
    "CausalClient": "flwr_causal.clients.base",
    "Disclosure": "flwr_causal.wire",
    "FedGESClient": "flwr_causal.clients.fedges",
    "LinearClient": "flwr_causal.clients.linear",
    "MomentsClient": "flwr_causal.clients.moments",
    "NotearsADMMClient": "flwr_causal.clients.notears_admm",
    "Source": "flwr_causal.clients.base",
    "client_app": "flwr_causal.clients.bridge",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""One ``NumPyClient`` for each method, their base, and the bridge from Flower's messages."""

from flwr_causal.clients.base import CausalClient, Source
from flwr_causal.clients.bridge import client_app
from flwr_causal.clients.linear import LinearClient
from flwr_causal.clients.moments import MomentsClient
from flwr_causal.clients.notears_admm import NotearsADMMClient
from flwr_causal.wire import Disclosure

__all__ = [
    "CausalClient",
    "Disclosure",
    "LinearClient",
    "MomentsClient",
    "NotearsADMMClient",
    "Source",
    "client_app",
]

"""One ``NumPyClient`` for each method, their base, and the bridge from Flower's messages."""

from typing import TYPE_CHECKING

from flwr_causal.lazy import lazily

if TYPE_CHECKING:
    from flwr_causal.clients.base import CausalClient, Source
    from flwr_causal.clients.bridge import client_app
    from flwr_causal.clients.consensus import NotearsADMMClient, TwoDBNClient
    from flwr_causal.clients.describe import DescribeClient
    from flwr_causal.clients.fedcausal import FedCausalClient
    from flwr_causal.clients.fedges import FedGESClient
    from flwr_causal.clients.fedpc import FedPCClient
    from flwr_causal.clients.linear import LinearClient
    from flwr_causal.clients.lingam import LingamClient
    from flwr_causal.clients.moments import MomentsClient
    from flwr_causal.contract.answers import Asked, answers

__all__ = [
    "Asked",
    "CausalClient",
    "DescribeClient",
    "FedCausalClient",
    "FedGESClient",
    "FedPCClient",
    "LinearClient",
    "LingamClient",
    "MomentsClient",
    "NotearsADMMClient",
    "Source",
    "TwoDBNClient",
    "answers",
    "client_app",
]

_HOMES = {
    "CausalClient": "flwr_causal.clients.base",
    "Asked": "flwr_causal.contract.answers",
    "answers": "flwr_causal.contract.answers",
    "DescribeClient": "flwr_causal.clients.describe",
    "FedCausalClient": "flwr_causal.clients.fedcausal",
    "FedGESClient": "flwr_causal.clients.fedges",
    "FedPCClient": "flwr_causal.clients.fedpc",
    "LinearClient": "flwr_causal.clients.linear",
    "LingamClient": "flwr_causal.clients.lingam",
    "MomentsClient": "flwr_causal.clients.moments",
    "NotearsADMMClient": "flwr_causal.clients.consensus",
    "Source": "flwr_causal.clients.base",
    "TwoDBNClient": "flwr_causal.clients.consensus",
    "client_app": "flwr_causal.clients.bridge",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)

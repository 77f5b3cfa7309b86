"""One Flower Strategy for each method, their bases, and the loop that runs them."""

from typing import TYPE_CHECKING

from flwr_causal.lazy import lazily

if TYPE_CHECKING:
    from flwr_causal.runtime.algorithm import Ask, Choice, Note, Result
    from flwr_causal.runtime.loop import run
    from flwr_causal.runtime.options import CausalOptions
    from flwr_causal.runtime.outcome import Outcome
    from flwr_causal.strategies.base import CausalStrategy
    from flwr_causal.strategies.describe import Describe
    from flwr_causal.strategies.fedcausal import FedCausal
    from flwr_causal.strategies.fedges.fedges import FedGES
    from flwr_causal.strategies.fedpc.fedpc import FedPC
    from flwr_causal.strategies.linear import LinearOptions
    from flwr_causal.strategies.lingam import Lingam
    from flwr_causal.strategies.moments.moments import Moments
    from flwr_causal.strategies.notears_admm import NotearsADMM
    from flwr_causal.strategies.two_dbn import TwoDBN

__all__ = [
    "Ask",
    "CausalOptions",
    "CausalStrategy",
    "Choice",
    "Describe",
    "FedCausal",
    "FedGES",
    "FedPC",
    "LinearOptions",
    "Lingam",
    "Moments",
    "Note",
    "NotearsADMM",
    "Outcome",
    "Result",
    "TwoDBN",
    "run",
]

_HOMES = {
    "Ask": "flwr_causal.runtime.algorithm",
    "Choice": "flwr_causal.runtime.algorithm",
    "Note": "flwr_causal.runtime.algorithm",
    "Result": "flwr_causal.runtime.algorithm",
    "CausalOptions": "flwr_causal.runtime.options",
    "CausalStrategy": "flwr_causal.strategies.base",
    "Describe": "flwr_causal.strategies.describe",
    "FedCausal": "flwr_causal.strategies.fedcausal",
    "FedGES": "flwr_causal.strategies.fedges.fedges",
    "FedPC": "flwr_causal.strategies.fedpc.fedpc",
    "LinearOptions": "flwr_causal.strategies.linear",
    "Lingam": "flwr_causal.strategies.lingam",
    "Moments": "flwr_causal.strategies.moments.moments",
    "NotearsADMM": "flwr_causal.strategies.notears_admm",
    "Outcome": "flwr_causal.runtime.outcome",
    "TwoDBN": "flwr_causal.strategies.two_dbn",
    "run": "flwr_causal.runtime.loop",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)

"""Moments: the server's side."""

from typing import TYPE_CHECKING

from flwr_causal.lazy import lazily

if TYPE_CHECKING:
    from flwr_causal.strategies.moments.moments import Moments
    from flwr_causal.strategies.moments.options import MomentsOptions

__all__ = ["Moments", "MomentsOptions"]

_HOMES = {
    "Moments": "flwr_causal.strategies.moments.moments",
    "MomentsOptions": "flwr_causal.strategies.moments.options",
}

__getattr__, __dir__ = lazily(__name__, _HOMES)

"""Exchanges of FedPC in which sums over rows travel: those over parties are those over all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr_causal.protocol.fedpc import SUMS
from flwr_causal.runtime.method import Request

if TYPE_CHECKING:
    from flwr_causal.core.circuits.learners.training_by_sums import State, Step
    from flwr_causal.protocol.replies import Replies


@dataclass(frozen=True, eq=False)
class SumsStage:
    """One exchange of a training by sums.

    Parameters
    ----------
    learner : str
    step : Step
        What the server knows before the exchange.
    """

    learner: str
    step: Step

    def request(self) -> Request:
        """Return what every party is sent."""
        return Request(SUMS[self.learner, self.step.name], dict(self.step.arrays()))

    def close(self, replies: Replies) -> tuple[State, dict[str, Any]]:
        """Return the state after the sums; how many numbers each party has sent."""
        numbers = sum(array.size for array in replies.combined.values())
        return self.step.after(replies.combined), {"numbers": numbers}

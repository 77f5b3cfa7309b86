"""Exchanges of FedPC in which sums over rows travel: those over parties are those over all rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flwr_causal.protocol.fedpc import SUMS
from flwr_causal.runtime.method import Request

if TYPE_CHECKING:
    from flwr_causal.core.circuits.learners.training_by_sums import State, TrainingBySums
    from flwr_causal.protocol.replies import Replies


@dataclass(frozen=True, eq=False)
class SumsStage:
    """One step of a training by sums.

    Parameters
    ----------
    learner : str
    training : TrainingBySums
    state : Step or Trained
        What the server knows before the exchange.
    """

    learner: str
    training: TrainingBySums
    state: State

    @property
    def complete(self) -> bool:
        """Whether nothing is left to ask."""
        return self.training.request(self.state) is None

    def request(self) -> Request:
        """Return what every party is sent."""
        asked = self.training.request(self.state)
        assert asked is not None
        return Request(SUMS[self.learner, str(asked.step)], dict(asked.arrays))

    def close(self, replies: Replies) -> tuple[SumsStage, dict[str, Any]]:
        """Return the stage after the sums; how many numbers each party has sent."""
        after = replace(self, state=self.training.after(self.state, replies.combined))
        return after, {"numbers": sum(array.size for array in replies.combined.values())}

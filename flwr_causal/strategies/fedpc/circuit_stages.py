"""Exchanges of FedPC in which sums over rows travel.

A stage says what every party is sent, takes the replies in, and is never changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flwr_causal.core.circuits.learners.training_by_sums import add
from flwr_causal.strategies.exchange import Reply, Request

if TYPE_CHECKING:
    from flwr_causal.core.circuits.learners.training_by_sums import TrainingBySums
    from flwr_causal.protocol.wire import Arrays
    from flwr_causal.runtime.federation import Party


@dataclass(frozen=True, eq=False)
class SumsStage:
    """One exchange of sums: those over parties are the sums over all rows.

    Parameters
    ----------
    name : str
        Of the training.
    training : TrainingBySums
    state : object
        What the server knows before it.
    phase : str
        With the training's name.
    arrays : dict of arrays
        What every party is sent.
    total : dict of arrays
        The sums of the replies so far.
    """

    name: str
    training: TrainingBySums
    state: Any
    phase: str
    arrays: Arrays
    total: Arrays = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, training: TrainingBySums, state: Any) -> SumsStage | None:
        """Return the next exchange of a training, None where it is complete."""
        asked = training.request(state)
        if asked is None:
            return None
        return cls(name, training, state, f"{name} {asked.step}", dict(asked.arrays))

    def request(self, party: Party) -> Request:
        """Return what every party is sent."""
        return Request(self.arrays, {"arrays": list(self.arrays)})

    def fold(self, reply: Reply) -> SumsStage:
        """Add a party's sums."""
        return replace(self, total=add((self.total, reply.arrays)))

    def after(self) -> Any:
        """Return what the server knows then."""
        return self.training.after(self.state, self.total)

    @property
    def info(self) -> dict[str, Any]:
        """How many numbers each party has sent."""
        return {"numbers": sum(array.size for array in self.total.values())}

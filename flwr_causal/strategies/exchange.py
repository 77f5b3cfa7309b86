"""The base of the methods whose parties send something else than arrays to be averaged."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.errors import ConfigError, FederationError
from flwr_causal.protocol import wire
from flwr_causal.strategies.base import CausalStrategy, StateT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr.app import Message

    from flwr_causal.protocol.wire import Arrays, Number
    from flwr_causal.runtime.federation import Party


class Reply(NamedTuple):
    """What one party sent in a round.

    Parameters
    ----------
    party : Party
    arrays : dict of str to ndarray
    numbers : dict of str to number
    """

    party: Party
    arrays: Arrays
    numbers: dict[str, Number]


class Request(NamedTuple):
    """What one party is sent in a round.

    Parameters
    ----------
    arrays : dict of str to ndarray
    config : dict of str to plain value
    """

    arrays: Arrays
    config: dict[str, wire.Value]


@dataclass(kw_only=True, eq=False)
class ExchangeStrategy(CausalStrategy[StateT]):
    """Base of the methods that do not average: graphs, counts, circuits.

    Instead of :meth:`broadcast` and :meth:`server_step` a subclass implements :meth:`requests`
    (what each party is sent), :meth:`fold` (one reply into the state, as they come in the parties'
    order) and :meth:`close_round`.
    """

    def broadcast(self, state: StateT) -> Arrays:
        """Return nothing: :meth:`requests` says what each party is sent."""
        return {}

    @abstractmethod
    def requests(self, state: StateT, parties: Sequence[Party]) -> list[Request]:
        """Return what each of the parties is sent."""

    @abstractmethod
    def fold(self, state: StateT, reply: Reply) -> StateT:
        """Return the state with one party's reply taken in."""

    @abstractmethod
    def close_round(self, state: StateT) -> tuple[StateT, dict[str, Any]]:
        """Return the state after the round's last reply, and diagnostics for the history."""

    def server_step(
        self, state: StateT, mean: Arrays, replies: int
    ) -> tuple[StateT, dict[str, Any]]:
        """Refuse: there is no mean."""
        raise FederationError(f"{type(self).__name__} does not average.")

    def absorb(
        self, strategy: Any, server_round: int, messages: Sequence[Message]
    ) -> tuple[StateT, dict[str, Any]]:
        """Fold the replies into the state, one after the other."""
        if strategy is not self:
            raise ConfigError(
                f"{type(strategy).__name__} adds noise to a mean, but {type(self).__name__} "
                "exchanges other things than arrays to be averaged. Run it without the wrapper."
            )
        if self.federation is None:
            raise FederationError(f"{type(self).__name__} has not been started.")
        state = self._running
        for message in messages:
            party = self.federation.party(message.metadata.src_node_id)
            content = message.content
            state = self.fold(
                state, Reply(party, wire.arrays_of(content), wire.numbers_of(content))
            )
        closed: tuple[StateT, dict[str, Any]] = self.close_round(state)
        return closed

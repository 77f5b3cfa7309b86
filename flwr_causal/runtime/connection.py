"""Questions to the parties after training, while their nodes are connected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.errors import FederationError
from flwr_causal.protocol import records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr.serverapp import Grid

    from flwr_causal.core.arrays import Arrays
    from flwr_causal.runtime.federation import Federation


class Connection:
    """A grid whose nodes have finished a method and answer queries.

    Parameters
    ----------
    grid : Grid
    federation : Federation
        The parties that agreed.
    names : sequence of str
        The names of the parties to ask, in this order; each of them must answer.
    timeout : float
        Seconds to wait for the answers.
    """

    def __init__(
        self, grid: Grid, federation: Federation, names: Sequence[str], timeout: float
    ) -> None:
        self._grid = grid
        by_name = {party.name: party for party in federation.parties}
        absent = [name for name in names if name not in by_name]
        if absent:
            raise FederationError(
                f"{', '.join(absent)} hold a part of the circuit, but are not connected: start "
                "their nodes, under these names."
            )
        self._parties = [by_name[name] for name in names]
        self._federation = federation
        self._timeout = timeout
        self._queries = 0
        self.bytes_sent = 0
        self.bytes_received = 0

    def ask(self, name: str, values: Sequence[Mapping[str, Any]]) -> list[Arrays]:
        """Send each party its question and return what each answers, in the parties' order.

        Parameters
        ----------
        name : str
            Of an exchange of the contract.
        values : sequence of mapping
            For each party what it is sent: arrays, numbers and texts by name.

        Raises
        ------
        FederationError
            If a party does not answer.
        """
        self._queries += 1
        exchange = self._federation.contract.find(name)
        messages = [
            self._federation.message(
                party.node_id,
                records.request(
                    exchange.name, self._federation.contract.method, self._queries, own
                ),
                exchange,
                self._queries,
                self._timeout,
            )
            for party, own in zip(self._parties, values, strict=True)
        ]
        collected = self._federation.exchange(
            self._grid,
            exchange,
            messages,
            server_round=self._queries,
            timeout=self._timeout,
        )
        self._federation.check_quorum(collected, len(self._parties), self._queries)
        self.bytes_sent += collected.bytes_sent
        self.bytes_received += collected.bytes_received
        answers = {reply.party.node_id: reply.arrays for reply in collected.replies}
        return [answers[party.node_id] for party in self._parties]

"""Questions to the parties after training, as long as their nodes are in reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr.app import MessageType

from flwr_causal.errors import FederationError
from flwr_causal.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flwr.app import RecordDict
    from flwr.serverapp import Grid

    from flwr_causal.protocol.wire import Arrays
    from flwr_causal.runtime.federation import Federation


class Connection:
    """A grid whose nodes have finished a method and answer queries.

    Parameters
    ----------
    grid : Grid
    federation : Federation
        The parties that agreed.
    names : sequence of str
        Those of them that are asked, in this order; all of them must answer.
    method : str
        Method id.
    timeout : float
        Seconds to wait for the answers.
    """

    def __init__(
        self,
        grid: Grid,
        federation: Federation,
        names: Sequence[str],
        method: str,
        timeout: float,
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
        self._method = method
        self._timeout = timeout
        self._queries = 0
        self.bytes_sent = 0
        self.bytes_received = 0

    def ask(self, phase: str, config: Mapping[str, Any], arrays: Sequence[Arrays]) -> list[Arrays]:
        """Send each party its arrays and return what each answers, in the parties' order.

        Parameters
        ----------
        phase : str
            Which disclosures are due.
        config : mapping
            Plain values, the same for all.
        arrays : sequence of dict of str to ndarray
            For each party.

        Raises
        ------
        FederationError
            If a party does not answer.
        """
        self._queries += 1
        plain = {"phase": phase, "method": self._method, "round": self._queries, **config}
        messages = [
            self._federation.message(
                party.node_id,
                wire.instruction(wire.pack_arrays(own), {**plain, "arrays": list(own)}),
                MessageType.QUERY,
                self._queries,
                self._timeout,
            )
            for party, own in zip(self._parties, arrays, strict=True)
        ]
        exchange = self._federation.exchange(
            self._grid,
            messages,
            server_round=self._queries,
            timeout=self._timeout,
            needed=len(self._parties),
        )
        self.bytes_sent += exchange.bytes_sent - exchange.setup_bytes
        self.bytes_received += exchange.bytes_received
        answers = {reply.metadata.src_node_id: reply.content for reply in exchange.replies}
        return [_read(answers[party.node_id]) for party in self._parties]


def _read(content: RecordDict) -> Arrays:
    """Return the arrays of an answer, log densities with the infinite ones that cannot travel."""
    arrays = wire.arrays_of(content)
    if "densities" in arrays:
        arrays["densities"] = wire.unbounded(arrays["densities"])
    return arrays

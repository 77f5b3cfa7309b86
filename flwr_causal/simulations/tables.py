"""The tables of simulated parties, in this process or in Ray's processes.

Ray's processes import this module and the method's client, and nothing of the server.
"""

from __future__ import annotations

import pickle
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr_causal.clients import Source
from flwr_causal.data.read.pieces import open_table, open_table_cached
from flwr_causal.data.read.reading import AS_THEY_ARE, Reading
from flwr_causal.data.read.tables import read_table
from flwr_causal.party.cache import cached
from flwr_causal.protocol.schema import party_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr.app import Context

    from flwr_causal.data.read.pieces import Table


class PartyTables:
    """The tables of simulated parties; a file is read when its party first needs it.

    Parameters
    ----------
    parties : sequence
        Tables in memory, or paths of files.
    directory : str, optional
        Directory from which the processes of Ray read tables that are in memory, and the paths of
        the others. Otherwise Ray would send those of all parties with each message. Default:
        tables stay in memory.
    maps : sequence of Path or None, default ()
        The parties' maps to the dictionary; empty: none has one.
    """

    def __init__(
        self,
        parties: Sequence[Any],
        directory: str | None = None,
        maps: Sequence[Path | None] = (),
    ) -> None:
        self._directory = directory
        self._maps = {k: own for k, own in enumerate(maps) if own is not None}
        self._opens: list[Callable[..., Table]] = []
        for index, party in enumerate(parties):
            if directory is None:
                self._opens.append(cache(partial(open_table, party)))
                continue
            file = isinstance(party, str | Path)
            kept = Path(party).absolute() if file else read_table(party)
            _stored(directory, index).write_bytes(pickle.dumps(kept))

    def __call__(self, context: Context) -> Source:
        """Return the table of a node's party."""
        index = int(context.node_config["partition-id"])
        if self._directory is None:
            return Source.opening(
                party_name(context), self._opens[index], own_map=self._maps.get(index)
            )
        path = _stored(self._directory, index)

        def opened(*, by_cell: bool = False, reading: Reading = AS_THEY_ARE) -> Table:
            def read() -> Table | Path:
                kept: Table | Path = pickle.loads(path.read_bytes())
                if isinstance(kept, Path):
                    return kept
                return open_table(kept, by_cell=by_cell, reading=reading)

            kept = cached(context, ("table", by_cell, reading), read)
            if isinstance(kept, Path):
                return open_table_cached(kept, by_cell=by_cell, reading=reading)
            return kept

        return Source.opening(party_name(context), opened, own_map=self._maps.get(index))


def _stored(directory: str, index: int) -> Path:
    return Path(directory, f"party-{index}.pickle")

"""The tables of simulated parties, in this process or in those of Ray.

Ray's processes import this module and the method's client, and nothing of the server.
"""

from __future__ import annotations

import pickle
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr_causal.clients import Source
from flwr_causal.data.read.pieces import open_table, open_table_cached
from flwr_causal.data.read.tables import read_table
from flwr_causal.protocol.schema import party_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd
    from flwr.app import Context

    from flwr_causal.data.read.pieces import Table


class Tables:
    """The tables of simulated parties; a file is read when its party first needs it.

    Parameters
    ----------
    parties : sequence
        Tables in memory, or paths of files.
    directory : str, optional
        Directory for tables in memory, which the processes of Ray read from there. Otherwise Ray
        would send all tables with each message. Default: tables stay in memory.
    """

    def __init__(self, parties: Sequence[Any], directory: str | None = None) -> None:
        self._reads = [self._read(index, party, directory) for index, party in enumerate(parties)]

    @staticmethod
    def _read(index: int, party: Any, directory: str | None) -> Callable[[], Table]:
        if directory is None:
            return cache(partial(open_table, party))
        if isinstance(party, str | Path):
            return partial(open_table_cached, Path(party).absolute())
        path = Path(directory, f"party-{index}.pickle")
        path.write_bytes(pickle.dumps(read_table(party)))
        return partial(_unpickled, path)

    def __call__(self, context: Context) -> Source:
        """Return the table of a node's party."""
        index = int(context.node_config["partition-id"])
        return Source(party_name(context), self._reads[index])


@lru_cache(maxsize=64)
def _unpickled(path: Path) -> pd.DataFrame:
    frame: pd.DataFrame = pickle.loads(path.read_bytes())
    return frame

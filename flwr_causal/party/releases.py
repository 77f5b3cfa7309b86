"""What a party keeps of a private run in a file: a node that is restarted draws no second noise.

There is one file for each run, also where the run is resumed under another number of Flower's. Its
name follows from the run's random name and the party's own; only the user of the node may read it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flwr_causal.core.files import alone_in, new_directory, write
from flwr_causal.core.saved import DAMAGE
from flwr_causal.errors import FederationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flwr_causal.party.node_config import NodeConfig


@dataclass(frozen=True)
class ReleaseFile:
    """The file of one run.

    Parameters
    ----------
    path : Path or None
        None where the node keeps no files: nothing is written, and nothing found.
    """

    path: Path | None

    @classmethod
    def of(cls, node: NodeConfig, run: str, party: str) -> ReleaseFile:
        """Return the file of a run: in the directory of the node config, or beside the record."""
        if node.releases is None:
            return cls(None)
        name = hashlib.blake2b(f"{run} {party}".encode(), digest_size=16).hexdigest()
        return cls(node.releases / f"{name}.json")

    def read(self) -> dict[str, dict[str, Any]]:
        """Return what is kept, by name; nothing where there is no file.

        Raises
        ------
        FederationError
            If the file cannot be read: nothing is drawn then.
        """
        try:
            return {} if self.path is None else dict(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return {}
        except DAMAGE as error:
            raise FederationError(
                f"The party's private release of this run cannot be read ({type(error).__name__}), "
                "and it makes no second one: restore the file, at the party, or start another run, "
                "whose epsilon adds to that of this one."
            ) from error

    def add(self, values: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        """Keep further values, and return all that is kept; it is on the disk then.

        What is there stays: of two messages that are answered at once both send what the first one
        has drawn.

        Raises
        ------
        FederationError
            If they cannot be written: nothing may leave then.
        """
        if self.path is None:
            return dict(values)
        try:
            new_directory(self.path.parent)
            with alone_in(self.path.parent):
                kept = {**values, **self.read()}
                write(self.path, json.dumps(kept).encode())
            return kept
        except OSError as error:
            raise FederationError(
                f"The party's private release cannot be written ({error.strerror}), so nothing "
                "leaves the party. Make room or give the node's account access, at the party."
            ) from error

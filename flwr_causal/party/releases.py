"""The file in which a party keeps its release of a run, so that a restart draws no second noise.

There is one file for each run, also where the run is resumed under another number of Flower's. Its
name follows from the run's random name and the party's own; only the user of the node may read it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from flwr_causal.core.files import alone_in, new_directory, write
from flwr_causal.core.saved import DAMAGE
from flwr_causal.errors import DataError, FederationError
from flwr_causal.protocol.release import RELEASE_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flwr_causal.party.node_config import NodeConfig

#: The records in a file: of the run, and what was drawn.
OF_RELEASE = ("private-run", "private-octaves", "private-release")
#: By this name records and lines of the party's record have what a release loses.
RHO = "rho"


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
        """Return the kept values by name; empty where there is no file.

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


def losses_kept(directory: Path | None) -> dict[str, float]:
    """Return the privacy losses of the releases in a directory for which noise was drawn.

    Parameters
    ----------
    directory : Path or None
        Of a party's files. None: it keeps none.

    Returns
    -------
    dict of str to float
        rho, by the random number of the release, as in the lines of a record.

    Raises
    ------
    DataError
        If a file cannot be read.
    """
    found: dict[str, float] = {}
    for path in () if directory is None else sorted(directory.glob("*.json")):
        if not RELEASE_NAME.fullmatch(path.name):
            continue
        try:
            about = path.stat()
            found |= _losses_in(path, about.st_mtime_ns, about.st_size)
        except FileNotFoundError:  # deleted meanwhile
            continue
        except DAMAGE as error:
            raise DataError(
                f"The party's private release {path.name} cannot be read "
                f"({type(error).__name__}), so that what it lost is not known: restore the file, "
                "at the party, or delete it if its run has ended and is in the record."
            ) from error
    return found


# Each reply asks for all of them.
@lru_cache(maxsize=1024)
def _losses_in(path: Path, changed: int, size: int) -> dict[str, float]:
    """Return the privacy loss of a file's release; none where no noise was drawn."""
    kept = json.loads(path.read_bytes())
    run, *drawn = OF_RELEASE
    release = str(kept[run]["id"])
    losses = [float(kept[name][RHO]) for name in drawn if name in kept]
    return {release: max(losses)} if losses else {}

"""The machine: versions and room on its disks."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from flwr_causal.app.doctor.finding import Finding
from flwr_causal.protocol.schema import own_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Flower's releases with which this package was tried, from the first on and below the second.
TRIED = ((1, 41), (1, 43))
#: Bytes that a disk should have left.
ROOM = 200 * 2**20


def check_machine(directories: Iterable[Path]) -> Iterator[Finding]:
    """Report versions, and which disks are full.

    Parameters
    ----------
    directories : iterable of Path
        Where something will be written, beside Flower's own directory and that of temporary files.
    """
    flower = version("flwr")
    text = f"flwr-causal {own_version()}, flwr {flower}, Python {sys.version.split()[0]}"
    numbers = tuple(int(part) for part in flower.split(".")[:2])
    if TRIED[0] <= numbers < TRIED[1]:
        yield Finding("ok", "versions", f"{text}; all machines must have the same flwr-causal")
    else:
        wanted = " and below ".join(".".join(map(str, one)) for one in TRIED)
        yield Finding(
            "problem", "versions", text, f'pip install "flwr[simulation]": from {wanted}.'
        )
    home = Path(os.environ.get("FLWR_HOME", "~/.flwr")).expanduser()
    for directory in dict.fromkeys([*directories, home, Path(tempfile.gettempdir())]):
        there = next(one for one in (directory, *directory.parents) if one.exists())
        free = shutil.disk_usage(there).free
        if free < ROOM:
            text = f"{directory} has {free / 2**20:.0f} MiB left"
            yield Finding("problem", "disk", text, "Make room: runs and records would fail.")
        elif not os.access(there, os.W_OK):
            text = f"{directory} cannot be written by this account"
            yield Finding("problem", "disk", text, "Give the account access.")

"""Which files of a directory a run has written: only these are replaced or deleted.

``run.json`` lists them under ``files``. One without a list, of an earlier version, stands for all
names that a run may write. Everything else in the directory is its user's own.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

RUN_FILE = "run.json"
HISTORY_FILE = "history.jsonl"
EXCHANGES = "exchanges"
SAVING = ".saving"
#: The first file of `EXCHANGES`.
WRITTEN = ".written"
PAGE = "report.html"
#: A page of a run says so.
PAGE_MARK = "Made by flwr-causal."
#: The files of results, of which a run has some; they are written by ``Run.save``.
RESULTS = (
    "graph.json",
    "graph.graphml",
    "graph.dot",
    "edges.csv",
    "scores.csv",
    "model.json",
    "model.bif",
    "model",
    "answers.csv",
    "local_graphs.json",
    "heterogeneity.csv",
    "disagreement.csv",
    "truth.json",
)
NAMES = (RUN_FILE, HISTORY_FILE, EXCHANGES, SAVING, *RESULTS)
#: What every ``run.json`` has, whatever the version that wrote it.
_KEYS = {"status", "rounds", "config", "stop_reason", "bytes_sent", "bytes_received"}
_STATUSES = ("running", "completed", "failed", "stopped")


class CheckpointError(ConfigError):
    """A directory that a run cannot use; its results are not changed."""


def about_run(directory: Path) -> dict[str, Any] | None:
    """Return what a directory's ``run.json`` says; None if there is none, or another program's."""
    file = directory / RUN_FILE
    try:
        found = json.loads(file.read_bytes()) if file.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    own = isinstance(found, dict) and found.keys() >= _KEYS and found["status"] in _STATUSES
    return found if own else None


def keeps_exchanges(directory: Path) -> bool:
    """Return whether a run keeps in a directory what it needs to be resumed."""
    place = directory / EXCHANGES
    return not place.is_symlink() and (place / WRITTEN).is_file()


def own_files(directory: Path) -> frozenset[str]:
    """Return the names, of those that a run may write, that an earlier run has written."""
    about = about_run(directory)
    listed: Any = () if about is None else about.get("files", RESULTS)
    own = {name for name in NAMES if isinstance(listed, list | tuple) and name in listed}
    if about is not None:
        own |= {RUN_FILE, HISTORY_FILE, SAVING}
    if keeps_exchanges(directory):
        own |= {EXCHANGES, HISTORY_FILE, RUN_FILE}
    return frozenset(own)


def check_own(directory: Path, names: Collection[str] = NAMES) -> None:
    """Check that nothing in a directory is in the way of files of these names.

    Raises
    ------
    CheckpointError
        Naming the files that no earlier run has written.
    """
    own = own_files(directory)
    foreign = [name for name in names if name not in own and os.path.lexists(directory / name)]
    if foreign:
        raise CheckpointError(
            f"The directory '{directory}' holds {', '.join(foreign)}, which no run of flwr-causal "
            "has written there, and which its results would replace: give another directory, or "
            "move or rename what is there."
        )


def remove(directory: Path, names: Collection[str]) -> None:
    """Delete the files of a list, or the directories of files, that an earlier run has written."""
    for name in own_files(directory).intersection(names):
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def is_page(path: Path) -> bool:
    """Return whether a file is a page of a run or of a comparison."""
    try:
        return PAGE_MARK.encode() in path.read_bytes()
    except OSError:
        return False


def check_page(path: Path) -> None:
    """Check that a page may be written to a place.

    Raises
    ------
    CheckpointError
        If there is something that is no page.
    """
    if path.exists() and not is_page(path):
        raise CheckpointError(
            f"There is '{path}' already, which is no page of flwr-causal: name another file, or "
            "move or rename that one."
        )

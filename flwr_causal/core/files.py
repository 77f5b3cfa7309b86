"""Files that their owner alone can read, written in one step."""

from __future__ import annotations

import os
from contextlib import contextmanager
from errno import EINVAL, ENOTDIR
from functools import partial
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows: two processes at one node are then not kept apart
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: Of files and directories that others cannot read.
FILE, DIRECTORY = 0o600, 0o700
_BINARY = getattr(os, "O_BINARY", 0)


def new_directory(path: Path) -> None:
    """Make a directory, and those above it, for its owner only; one that is there is left.

    Raises
    ------
    OSError
        If it cannot be made; a NotADirectoryError where a file stands in its path.
    """
    _check_name(path)
    if not path.is_dir():
        if path.parent.is_file():
            raise NotADirectoryError(ENOTDIR, os.strerror(ENOTDIR), str(path))
        new_directory(path.parent)
        path.mkdir(mode=DIRECTORY, exist_ok=True)


def write(path: Path, data: str | bytes, mode: int = FILE) -> None:
    """Write a file in one step: a reader sees the former content or all of the new one.

    Nobody else can read it at any moment, unless ``mode`` says so in the end. Where ``path`` is a
    symbolic link, the link is replaced, and not the file that it names.
    """
    _check_name(path)
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, FILE)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data.encode() if isinstance(data, str) else data)
            stream.flush()
            os.fsync(stream.fileno())
        part.chmod(mode)  # whatever the umask is
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)  # room for others on a full disk
        raise


def _check_name(path: Path) -> None:
    """Raise an OSError for a name that no file has; Python raises a ValueError."""
    if "\0" in str(path):
        raise OSError(EINVAL, "its name holds a zero byte", str(path))


def lock(handle: int) -> None:
    """Wait until nobody else holds the lock of an open file; hold it until the file is closed."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX)


def hold(directory: Path) -> Callable[[], None]:
    """Hold a directory for one owner; return the function that lets it go.

    It is let go, too, when the process ends.

    Raises
    ------
    BlockingIOError
        If somebody else holds it.
    """
    if fcntl is None:
        return lambda: None
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return partial(os.close, handle)


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Work in a directory while nobody else does who asks for it.

    Afterwards the names of its files are on the disk, too: a power failure brings back no former
    file.
    """
    if fcntl is None:
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        lock(handle)
        yield
        os.fsync(handle)
    finally:
        os.close(handle)


def append(path: Path, text: str) -> None:
    """Add text to the end of a file, which is made where it is not there."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _BINARY, FILE)
    with os.fdopen(handle, "ab") as stream:
        stream.write(text.encode())


def protect(directory: Path) -> None:
    """Let the owner alone read the files in a directory and below it, and these directories."""
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            path.chmod(DIRECTORY)
            protect(path)
        elif not path.is_symlink():
            path.chmod(FILE)

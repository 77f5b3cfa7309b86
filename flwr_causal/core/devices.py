"""PyTorch, which few methods need: its import at the time of use, device, precision, threads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

PRECISIONS = ("float64", "float32")


def import_torch(what: str = "the neural methods") -> Any:
    """Import torch, which few methods need.

    Parameters
    ----------
    what
        The subject of the error message: the methods that need it.

    Raises
    ------
    ConfigError
        If it is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise ConfigError(
            f'{what} need PyTorch, which is not installed: run pip install "flwr-causal[torch]"'
        ) from error
    return torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run the block with one torch thread on the CPU, see :func:`threads.single_threaded`."""
    torch = import_torch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def checked_device(torch: Any, device: str) -> Any:
    """Return the torch device, if this machine has it."""
    try:
        found = torch.device(device)
    except RuntimeError:
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise ConfigError(f"device must be 'cpu', 'cuda' or 'cuda:<index>', got {device!r}")
    if found.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (found.index or 0) >= count:
            raise ConfigError(
                f"device {device!r} does not exist: torch finds {count} GPUs here. Use 'cpu', or "
                "install a torch build for your GPU"
            )
    return found

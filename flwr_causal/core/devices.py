"""Import of PyTorch when it is first needed; choice of device; limit on its threads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flwr_causal.core.threads import SharedSetting
from flwr_causal.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

PRECISIONS = ("float64", "float32")


def import_torch(what: str = "the neural methods") -> Any:
    """Import and return the module ``torch``, an optional dependency.

    Parameters
    ----------
    what : str, default "the neural methods"
        The methods that need torch: the subject of the error message.

    Raises
    ------
    ConfigError
        If torch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise ConfigError(
            f'{what} need PyTorch, which is not installed: run pip install "flwr-causal[torch]"'
        ) from error
    return torch


@contextmanager
def _limited() -> Iterator[None]:
    torch = import_torch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_one_thread = SharedSetting(_limited)


def one_thread() -> SharedSetting:
    """Run the block with one torch CPU thread; see `threads.single_threaded` for the reasons."""
    return _one_thread


def checked_device(torch: Any, device: str) -> Any:
    """Return the torch device of this name.

    Parameters
    ----------
    torch : module
        See `import_torch`.
    device : str
        ``"cpu"``, ``"cuda"`` or ``"cuda:<index>"``.

    Raises
    ------
    ConfigError
        If the name has another form, or this machine has no such GPU.
    """
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

"""Names of a package that are imported when they are first used, and imports in less time."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


@contextmanager
def uncollected() -> Iterator[None]:
    """Do not collect garbage inside, where modules are imported.

    Nearly all that an import makes stays. To look for garbage in it, again and again, is a tenth of
    the time of the imports of a node, which starts a process for each message.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def load(module: str, name: str) -> Any:
    """Return what a module defines by a name; the module is imported when first asked for."""
    with uncollected():
        return getattr(import_module(module), name)


def lazily(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return a package's ``__getattr__``, which imports a name from its module, and ``__dir__``.

    A SuperNode starts a process for each message, which needs few of a package's names.

    Parameters
    ----------
    package : str
        Its ``__name__``, for the error.
    homes : mapping of str to str
        Name to the module that defines it.

    References
    ----------
    PEP 562, Module ``__getattr__`` and ``__dir__``.
    """

    def find(name: str) -> Any:
        if name in homes:
            return load(homes[name], name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*homes, *vars(sys.modules[package])})

    return find, names

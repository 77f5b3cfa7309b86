"""Names of a package that are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazily(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__`` (PEP 562) that imports a name from its module.

    A SuperNode starts a process for each message, which needs few of a package's names.

    Parameters
    ----------
    package : str
        Its ``__name__``, for the error.
    homes : mapping of str to str
        Name to the module that defines it.
    """

    def find(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find

"""Simulators, metrics and peers that other packages declare by entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from flwr_causal.app.entry_points import Catalogue, check_own, loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.metadata import EntryPoint

T = TypeVar("T")


def with_declared(
    own: Mapping[str, T], kind: str, of: Callable[[EntryPoint, Any], T] = lambda _, found: found
) -> Catalogue[T]:
    """Return this package's own functions of one kind by name, and those of other packages.

    Parameters
    ----------
    own : mapping of str to object
    kind : str
        Such as "simulator", of the group ``flwr_causal.simulators``.
    of : callable
        Returns what the table has for an entry point and the function that it names.
    """

    def get(name: str) -> T:
        check_own(name, kind, own)
        return own[name] if name in own else of(*loaded(name, kind))

    return Catalogue(own, kind, get)

"""What other packages declare by entry points."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from flwr_causal.errors import ConfigError

T = TypeVar("T")


class Catalogue(Mapping[str, T]):
    """Registry by name: what this package has, then what installed packages declare.

    Parameters
    ----------
    own : collection of str
        Names of this package's entries.
    kind : str
        The kind; the group of entry points is ``flwr_causal.`` and its plural.
    get : callable
        Returns the entry of a name; it is called at each look-up.
    """

    def __init__(self, own: Collection[str], kind: str, get: Callable[[str], T]) -> None:
        self._own, self._kind, self._get = own, kind, get

    def __getitem__(self, name: str) -> T:
        if name not in self:
            raise KeyError(name)
        return self._get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in declared(self._kind)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._own, *declared(self._kind))))

    def __len__(self) -> int:
        return len(list(iter(self)))


@cache
def declared(kind: str) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of other packages by name."""
    points: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=f"flwr_causal.{kind}s"):
        points[point.name] = (*points.get(point.name, ()), point)
    return points


def check_own(name: str, kind: str, own: Collection[str]) -> None:
    """Check that no other package declares a name that this package has itself.

    Raises
    ------
    ConfigError
        If one does, with its name.
    """
    points = declared(kind).get(name, ())
    if name in own and points:
        raise ConfigError(
            f"{packages(points)} declares a {kind} '{name}', which is the name of a {kind} of "
            "flwr-causal: uninstall the package, or have the name changed."
        )


def loaded(name: str, kind: str) -> tuple[EntryPoint, Any]:
    """Return the entry point of a name, and the object that it names.

    Raises
    ------
    ConfigError
        If several packages declare the name, or if the object cannot be imported.
    """
    points = declared(kind)[name]
    if len(points) > 1:
        raise ConfigError(
            f"{packages(points)} all declare a {kind} '{name}': uninstall all but one of them."
        )
    (point,) = points
    try:
        return point, point.load()
    except Exception as error:  # whatever the other package's modules raise
        raise ConfigError(
            f"{packages(points)} declares the {kind} '{name}' as '{point.value}', which cannot be "
            f"imported: {type(error).__name__}: {error}"
        ) from error


def packages(points: tuple[EntryPoint, ...]) -> str:
    """Return the names of the packages of entry points, in words."""
    names = sorted(f"'{point.dist.name if point.dist else point.module}'" for point in points)
    return f"The package{'s' * (len(names) > 1)} {' and '.join(names)}"

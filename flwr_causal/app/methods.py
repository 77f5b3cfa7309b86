"""The methods by id, with their strategies and clients, including methods of other packages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from flwr_causal.errors import ConfigError
from flwr_causal.party.options import METHODS_GROUP as GROUP

if TYPE_CHECKING:
    from flwr_causal.clients import CausalClient
    from flwr_causal.strategies import CausalStrategy

T = TypeVar("T")


# Id -> module and name of the strategy, and the client's. They are imported when first asked for: a
# node starts a process for each message, and numba alone takes a third of a second to import. They
# are no entry points, because an app that runs from Flower's bundle is not an installed package.
_OWN = {
    "notears-admm": ("notears_admm", "NotearsADMM", "consensus"),
    "moments": ("moments", "Moments", "moments"),
    "fedges": ("fedges.fedges", "FedGES", "fedges"),
    "2dbn": ("two_dbn", "TwoDBN", "consensus"),
    "fedcausal": ("fedcausal", "FedCausal", "fedcausal"),
    "fedpc": ("fedpc.fedpc", "FedPC", "fedpc"),
    "lingam": ("lingam", "Lingam", "lingam"),
}
#: The ids of this package's own methods.
OWN_METHODS = tuple(_OWN)


class Method(NamedTuple):
    """A strategy and its client.

    Another package declares a method by an entry point that names such a pair, or any object with
    these two attributes::

        [project.entry-points."flwr_causal.methods"]
        mine = "their_package:METHOD"

    Parameters
    ----------
    strategy : type of CausalStrategy
        Its ``options_type`` is a dataclass of the method's options, with types and defaults. Its
        class attribute ``method`` is the id.
    client : type of CausalClient
    """

    strategy: type[CausalStrategy]
    client: type[CausalClient]


@cache
def find(method: str) -> Method:
    """Return the method of an id.

    Raises
    ------
    ConfigError
        If no method has the id (the message lists all ids), if several packages declare the id, or
        if the package that declares it cannot be imported or declares no method.
    """
    declared = _declared().get(method, ())
    if method in _OWN:
        module, name, _ = _OWN[method]
        client = client_of(method)
        return Method(getattr(import_module(f"flwr_causal.strategies.{module}"), name), client)
    if not declared:
        raise ConfigError(
            f"There is no method '{method}'. The methods are: {', '.join(sorted(METHODS))}."
        )
    if len(declared) > 1:
        raise ConfigError(
            f"{_packages(declared)} all declare a method '{method}': uninstall all but one of them."
        )
    return _loaded(declared[0])


def client_of(method: str) -> type[CausalClient]:
    """Return the client of a method without importing its strategy, which a node does not need.

    Raises
    ------
    ConfigError
        As :func:`find`.
    """
    if method not in _OWN:
        return find(method).client
    if method in _declared():
        raise ConfigError(
            f"{_packages(_declared()[method])} declares a method '{method}', which is the id of a "
            "method of flwr-causal: uninstall the package, or have its id changed."
        )
    _, name, home = _OWN[method]
    client: type[CausalClient] = getattr(
        import_module(f"flwr_causal.clients.{home}"), f"{name}Client"
    )
    return client


@cache
def _declared() -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of other packages by id."""
    points: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=GROUP):
        points[point.name] = (*points.get(point.name, ()), point)
    return points


def _packages(points: tuple[EntryPoint, ...]) -> str:
    names = sorted(f"'{point.dist.name if point.dist else point.module}'" for point in points)
    return f"The package{'s' * (len(names) > 1)} {' and '.join(names)}"


def _loaded(point: EntryPoint) -> Method:
    """Import the method that an entry point names, and check its type and id."""
    from flwr_causal.clients import CausalClient
    from flwr_causal.strategies import CausalStrategy

    where = f"{_packages((point,))} declares the method '{point.name}' as '{point.value}'"
    try:
        found = point.load()
    except Exception as error:  # whatever the other package's modules raise
        raise ConfigError(
            f"{where}, which cannot be imported: {type(error).__name__}: {error}"
        ) from error
    for name, base in (("strategy", CausalStrategy), ("client", CausalClient)):
        part = getattr(found, name, None)
        if not (isinstance(part, type) and issubclass(part, base)):
            raise ConfigError(
                f"{where}, whose attribute '{name}' is {part!r}; it must be a subclass of "
                f"{base.__name__}. Declare a flwr_causal.app.methods.Method(strategy=..., "
                "client=...)."
            )
    method = Method(found.strategy, found.client)
    if method.strategy.method != point.name:
        raise ConfigError(
            f"{where}, but {method.strategy.__name__}.method is '{method.strategy.method}': both "
            "must be the same id."
        )
    return method


class _Table(Mapping[str, T]):
    """All methods by id, or their clients; each is imported when it is first looked up."""

    def __init__(self, get: Callable[[str], T]) -> None:
        self._get = get

    def __getitem__(self, method: str) -> T:
        if method not in self:
            raise KeyError(method)
        return self._get(method)

    def __contains__(self, method: object) -> bool:
        return method in _OWN or method in _declared()

    def __iter__(self) -> Iterator[str]:
        return iter({**_OWN, **_declared()})

    def __len__(self) -> int:
        return len(list(iter(self)))


METHODS: Mapping[str, Method] = _Table(find)
CLIENTS: Mapping[str, type[CausalClient]] = _Table(client_of)


def build(method: str, options: Mapping[str, Any]) -> CausalStrategy:
    """Return the strategy of a method with the given options.

    Raises
    ------
    ConfigError
        If the id or an option is unknown, or an option has a wrong type or value.
    """
    return find(method).strategy(**options)

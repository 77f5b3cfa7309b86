"""The methods by id, with their strategies and clients, including methods of other packages."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.app.entry_points import Catalogue, check_own, declared, loaded, packages
from flwr_causal.errors import ConfigError
from flwr_causal.lazy import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr_causal.clients import CausalClient
    from flwr_causal.strategies import CausalStrategy


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
    "describe": ("describe", "Describe", "describe"),
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
    if method in _OWN:
        module, name, _ = _OWN[method]
        return Method(load(f"flwr_causal.strategies.{module}", name), client_of(method))
    if method not in declared("method"):
        raise ConfigError(
            f"There is no method '{method}'. The methods are: {', '.join(sorted(METHODS))}."
        )
    return _loaded(method)


def client_of(method: str) -> type[CausalClient]:
    """Return the client of a method without importing its strategy, which a node does not need.

    Raises
    ------
    ConfigError
        As :func:`find`.
    """
    if method not in _OWN:
        return find(method).client
    check_own(method, "method", _OWN)
    _, name, home = _OWN[method]
    client: type[CausalClient] = load(f"flwr_causal.clients.{home}", f"{name}Client")
    return client


def _loaded(name: str) -> Method:
    """Return the method that another package declares, having checked its type and id."""
    from flwr_causal.clients import CausalClient
    from flwr_causal.strategies import CausalStrategy
    from flwr_causal.strategies.options import refuse_fields

    point, found = loaded(name, "method")
    where = f"{packages((point,))} declares the method '{name}' as '{point.value}'"
    for part_name, base in (("strategy", CausalStrategy), ("client", CausalClient)):
        part = getattr(found, part_name, None)
        if not (isinstance(part, type) and issubclass(part, base)):
            raise ConfigError(
                f"{where}, whose attribute '{part_name}' is {part!r}; it must be a subclass of "
                f"{base.__name__}. Declare a flwr_causal.app.methods.Method(strategy=..., "
                "client=...)."
            )
    method = Method(found.strategy, found.client)
    try:
        refuse_fields(method.strategy)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    if method.strategy.method != name:
        raise ConfigError(
            f"{where}, but {method.strategy.__name__}.method is '{method.strategy.method}': both "
            "must be the same id."
        )
    return method


METHODS: Mapping[str, Method] = Catalogue(_OWN, "method", find)
CLIENTS: Mapping[str, type[CausalClient]] = Catalogue(_OWN, "method", client_of)


def build(method: str, options: Mapping[str, Any]) -> CausalStrategy:
    """Return the strategy of a method with the given options.

    Raises
    ------
    ConfigError
        If the id or an option is unknown, or an option has a wrong type or value.
    """
    return find(method).strategy(**options)

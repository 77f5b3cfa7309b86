"""The table of methods: which strategy and which client an id stands for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.errors import ConfigError
from flwr_causal.strategies.options import check_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flwr_causal.clients import CausalClient
    from flwr_causal.strategies import CausalStrategy


class Method(NamedTuple):
    """A strategy and the client that speaks its language.

    Parameters
    ----------
    strategy : type of CausalStrategy
        Its dataclass fields are the method's options, with their types and defaults.
    client : type of CausalClient
    """

    strategy: type[CausalStrategy[Any]]
    client: type[CausalClient]


# Id -> module and name of the strategy, and the client's. They are loaded when first asked for: a
# node starts a process for each message, and numba alone takes a third of a second to import.
_HOMES = {
    "notears-admm": ("admm.notears_admm", "NotearsADMM", "notears_admm"),
    "moments": ("moments", "Moments", "moments"),
    "fedges": ("fedges.fedges", "FedGES", "fedges"),
    "2dbn": ("admm.two_dbn", "TwoDBN", "two_dbn"),
    "fedcausal": ("fedcausal.fedcausal", "FedCausal", "fedcausal"),
    "fedpc": ("fedpc.fedpc", "FedPC", "fedpc"),
}


@cache
def find(method: str) -> Method:
    """Return the method of an id.

    Raises
    ------
    ConfigError
        If there is none; the message lists the ids.
    """
    if method not in _HOMES:
        raise ConfigError(
            f"There is no method '{method}'. The methods are: {', '.join(sorted(_HOMES))}."
        )
    module, name, home = _HOMES[method]
    strategies = import_module(f"flwr_causal.strategies.{module}")
    clients = import_module(f"flwr_causal.clients.{home}")
    return Method(getattr(strategies, name), getattr(clients, f"{name}Client"))


class _Methods(Mapping[str, Method]):
    """All methods by id."""

    def __getitem__(self, method: str) -> Method:
        if method not in _HOMES:
            raise KeyError(method)
        return find(method)

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


class _Clients(Mapping[str, "type[CausalClient]"]):
    """All methods' clients by id."""

    def __getitem__(self, method: str) -> type[CausalClient]:
        return METHODS[method].client

    def __iter__(self) -> Iterator[str]:
        return iter(METHODS)

    def __len__(self) -> int:
        return len(METHODS)


METHODS = _Methods()
CLIENTS = _Clients()


def build(method: str, options: Mapping[str, Any]) -> CausalStrategy[Any]:
    """Return the strategy of a method with the given options.

    Raises
    ------
    ConfigError
        If the id or an option is unknown, or an option has a wrong type or value.
    """
    strategy = find(method).strategy
    check_names(strategy, options)
    return strategy(**options)

"""The table of methods: which strategy and which client an id stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from flwr_causal.clients import MomentsClient, NotearsADMMClient
from flwr_causal.errors import ConfigError
from flwr_causal.strategies import Moments, NotearsADMM
from flwr_causal.strategies.options import check_names

if TYPE_CHECKING:
    from collections.abc import Mapping

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


METHODS: dict[str, Method] = {
    method.strategy.method: method
    for method in (
        Method(NotearsADMM, NotearsADMMClient),
        Method(Moments, MomentsClient),
    )
}

CLIENTS: dict[str, type[CausalClient]] = {name: method.client for name, method in METHODS.items()}


def find(method: str) -> Method:
    """Return the method of an id.

    Raises
    ------
    ConfigError
        If there is none; the message lists the ids.
    """
    if method not in METHODS:
        raise ConfigError(
            f"There is no method '{method}'. The methods are: {', '.join(sorted(METHODS))}."
        )
    return METHODS[method]


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

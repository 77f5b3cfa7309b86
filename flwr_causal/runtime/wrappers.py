"""Flower's differential-privacy wrappers around a method: which methods and exchanges they fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr.serverapp.strategy import (
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    Strategy,
)

from flwr_causal.errors import ConfigError
from flwr_causal.runtime.schema import ADAPTIVE_MOD, FIXED_MOD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flwr_causal.contract.exchange import Exchange
    from flwr_causal.runtime.method import CausalMethod

#: The wrappers that leave the clipping to a mod of the parties, and the mod.
CLIENT_SIDE = {
    DifferentialPrivacyClientSideFixedClipping: FIXED_MOD,
    DifferentialPrivacyClientSideAdaptiveClipping: ADAPTIVE_MOD,
}


def check_wrapper(method: CausalMethod, strategy: Strategy) -> None:
    """Refuse a wrapper around another method, or around exchanges that it cannot protect.

    Of a client-side wrapper the method keeps the norm, which the schema exchange then checks.

    Raises
    ------
    ConfigError
        Naming the wrapper and the method.
    """
    inner: object = strategy
    if inner is method:
        return
    while inner is not None and inner is not method:
        if not isinstance(inner, Strategy):
            raise ConfigError(
                f"The strategy {inner!r} is none of flwr.serverapp.strategy, whose wrappers run "
                "around methods: take the wrapper of this name from there."
            )
        _expect_clipping(method, inner)
        inner = getattr(inner, "strategy", None)
    if inner is None:
        raise ConfigError(
            f"The strategy {strategy!r} does not wrap the method {method!r}: build the wrapper "
            "around the very object that is given as 'method'."
        )
    check_wrapped(method, type(strategy).__name__)


def check_wrapped(method: CausalMethod, wrapper: str) -> None:
    """Refuse a method whose options do not fit a wrapper.

    Parameters
    ----------
    method : CausalMethod
    wrapper : str
        Its name, for the message.

    Raises
    ------
    ConfigError
        Naming the option, the wrapper and the method.
    """
    if method.options.leave_one_out:
        raise ConfigError(
            f"{wrapper} adds its noise to one mean in an exchange, but the option "
            f"'leave_one_out' of {type(method).__name__} asks for a mean without each party: leave "
            "the option out, or run without the wrapper."
        )
    if method.options.replicates:
        raise ConfigError(
            f"{wrapper} adds its noise to one mean in an exchange, but the option "
            f"'replicates' of {type(method).__name__} is {method.options.replicates}, and each "
            "replicate sends means of its own: leave the option out, or run without the wrapper."
        )
    if method.options.secure_aggregation:
        raise ConfigError(
            f"{wrapper} clips single replies, which secure_aggregation hides: run "
            "it without one of the two."
        )
    if method.options.aggregation == "median":
        raise ConfigError(
            f"{wrapper} adds noise to a mean, but the option 'aggregation' of "
            f"{type(method).__name__} is 'median': use 'mean', or run it without the wrapper."
        )
    for exchange in method._exchanges:
        sent = [one.name for one in exchange.sends if one.shape is not None and not one.optional]
        check_composes(method, wrapper, exchange, sent)


def _expect_clipping(method: CausalMethod, wrapper: object) -> None:
    """Let the schema exchange check that the parties clip, where the wrapper leaves it to them."""
    for kind, mod in CLIENT_SIDE.items():
        if isinstance(wrapper, kind):
            method._clipping_norm, method._clipping_mod = float(wrapper.clipping_norm), mod


def check_composes(
    method: CausalMethod, wrapper: str, exchange: Exchange, names: Sequence[str]
) -> None:
    """Refuse a privacy wrapper around an exchange to which it cannot add its noise.

    Parameters
    ----------
    method : CausalMethod
    wrapper : str
        Its name, for the message.
    exchange : Exchange
    names : sequence of str
        The arrays that every party is sent, in their order.

    Raises
    ------
    ConfigError
        Naming wrapper, exchange and method.
    """
    name = type(method).__name__
    if not exchange.averaged:
        raise ConfigError(
            f"{wrapper} adds noise to a mean, but the exchange '{exchange.name}' of {name} is not "
            "averaged. Run it without the wrapper, or without the option that needs this exchange."
        )
    clips = f"{wrapper} clips what a party changes in the arrays that it was sent, but"
    if not names:
        raise ConfigError(
            f"{clips} the exchange '{exchange.name}' of {name} sends none. Run it without the "
            "wrapper, or without the option that needs this exchange."
        )
    shapes = {item.name: item.shape for item in exchange.sends}
    sent = [shapes[name] for name in names]
    returned = [item.shape for item in exchange.returns]
    if sent != returned:
        raise ConfigError(
            f"{clips} the exchange '{exchange.name}' of {name} returns other arrays, of the shapes "
            f"{returned} for {sent}. Run it without the wrapper, or without the option that needs "
            "this exchange."
        )
    if method._clipping_norm and exchange.contradiction is not None:
        raise ConfigError(
            f"With {wrapper} the parties clip their replies, which in the exchange "
            f"'{exchange.name}' of {name} would contradict what they reported of their tables: "
            "leave out the option that needs this exchange, such as refit, or use the wrapper with "
            "ServerSide in its name."
        )

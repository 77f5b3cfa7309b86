"""The errors that public calls raise for a problem of the user's, and how they spell options."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_in_run_config: ContextVar[bool] = ContextVar("in_run_config", default=False)


class CausalError(Exception):
    """Base class of all errors of this package.

    Attributes
    ----------
    outcome : object or None
        Where an error ended a run: what had been done by then (history, graph of the last round),
        an ``Outcome`` from ``strategies.run`` and a ``Run`` from ``simulate``. None otherwise.
    """

    outcome: object | None = None


class DataError(CausalError):
    """Something is wrong with a party's data; the message names party, column and remedy."""


class ConfigError(CausalError):
    """An option is unknown, of the wrong type, or contradicts another one."""


class FederationError(CausalError):
    """The federation could not finish: too few parties, failing clients, a lost connection."""


def option(name: str, value: object = None) -> str:
    """Return an option as messages spell it, with its value where one is given.

    ``missing_values='drop'`` in Python; ``missing-values='drop'`` within
    :func:`run_config_spelling`.
    """
    spelt = name.replace("_", "-") if _in_run_config.get() else name
    return spelt if value is None else f"{spelt}={value!r}"


@contextmanager
def run_config_spelling() -> Iterator[None]:
    """Let messages name options as the keys of a run config do, with hyphens."""
    token = _in_run_config.set(True)
    try:
        yield
    finally:
        _in_run_config.reset(token)

"""The errors of every public call of flwr_causal.

Messages name options as Python does (``missing_values='drop'``); where they come from a run config,
``flwr_causal.app.config.in_keys`` turns the names into keys.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class CausalError(Exception):
    """Base class of all errors of this package.

    Attributes
    ----------
    outcome : object or None
        Where an error ended a run, its result up to then (history, graph of the last round): an
        ``Outcome`` from ``strategies.run``, a ``Run`` from ``simulate``. None otherwise.
    settings : mapping of str to object
        Where the parties' tables cannot be used, options under which the method takes them, as far
        as options can mend them. Empty otherwise.
    assumed : tuple of str
        A line for each of these settings, where they mend all and the run's options leave the
        choice to the method; the run then goes on with them. Empty otherwise.

    Examples
    --------
    >>> from flwr_causal import CausalError, simulate
    >>> try:
    ...     simulate("no-such-method", ["north.csv"])
    ... except CausalError as error:
    ...     print(type(error).__name__)
    ConfigError
    """

    outcome: object | None = None
    settings: Mapping[str, object] = MappingProxyType({})
    assumed: tuple[str, ...] = ()


class DataError(CausalError):
    """Something is wrong with a party's data; the message names party, column and remedy.

    Examples
    --------
    >>> import pandas as pd
    >>> from flwr_causal import DataError, simulate
    >>> try:
    ...     simulate("moments", [pd.DataFrame({"x": [1.0, None, 2.0]})], missing_values="fail")
    ... except DataError as error:
    ...     print("x" in str(error), dict(error.settings))
    True {'missing_values': 'em'}
    """


class ConfigError(CausalError):
    """An option is unknown, of the wrong type, or contradicts another one.

    Examples
    --------
    >>> from flwr_causal import ConfigError
    >>> from flwr_causal.strategies import Moments
    >>> try:
    ...     Moments(threshold=-1)
    ... except ConfigError as error:
    ...     print("threshold" in str(error))
    True
    """


class FederationError(CausalError):
    """The federation could not finish: too few parties, failing clients, a lost connection.

    Examples
    --------
    >>> from flwr_causal import CausalError, FederationError
    >>> issubclass(FederationError, CausalError)
    True
    """


class DeadlineError(FederationError):
    """The server's own work between two exchanges took longer than ``server_timeout`` allows.

    Examples
    --------
    >>> from flwr_causal.errors import DeadlineError, FederationError
    >>> issubclass(DeadlineError, FederationError)
    True
    """


# A party's error reaches the server as text that holds the class's name: by these two names the
# server knows what to do.


class TableChangedError(DataError):
    """A party's table is not the one that it has reported on in the schema exchange."""


class IncompleteError(DataError):
    """A party's table has missing values, and no other problem that the party finds itself."""


class ForgottenError(FederationError):
    """A party has no agreement with the others: its node was restarted, and has lost its state."""


class AskedOtherwiseError(FederationError):
    """A party is asked for what the run does not state, or otherwise than it was asked before."""


class PolicyError(ConfigError):
    """A party's policy refuses what a run asks; the text names a rule, and nothing of the party.

    Parameters
    ----------
    rule : str
        The name of the rule.
    details : str
        For the party's own log.

    Examples
    --------
    >>> from flwr_causal.errors import PolicyError
    >>> error = PolicyError("methods", "moments is not in the list")
    >>> error.rule, "moments" in str(error)  # the details are for the party's log alone
    ('methods', False)
    """

    def __init__(self, rule: str, details: str) -> None:
        super().__init__(
            f"The party's policy refuses this run, by its rule '{rule}'. Ask for less, or ask the "
            "party."
        )
        self.rule = rule
        self.details = details

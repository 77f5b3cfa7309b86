"""Grids that send by another grid and see, count or change the messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr_causal.core.arguments import check_argument
from flwr_causal.runtime.loop import GRID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr.app import Message
    from flwr.serverapp import Grid


class Relay:
    """A grid that passes messages and replies on; subclasses look at them or change them.

    An instance is what ``wrap_grid`` of ``simulate`` returns. Overwrite :meth:`before`,
    :meth:`after`, or both.

    Parameters
    ----------
    grid : Grid
        The grid that sends. All attributes but ``send_and_receive`` are its own.

    Examples
    --------
    >>> from flwr_causal import simulate
    >>> from flwr_causal.data.synthetic.linear import federated_linear
    >>> from flwr_causal.simulations import Relay
    >>> class Counting(Relay):
    ...     def before(self, messages):
    ...         print(len(messages))
    ...         return messages
    >>> run = simulate("moments", federated_linear(3, 60, 2)[0], wrap_grid=Counting)
    2
    2
    """

    def __init__(self, grid: Grid) -> None:
        check_argument("Relay", "grid", grid, GRID)
        self.grid = grid

    def __getattr__(self, name: str) -> Any:
        if name == "grid":  # of an object that is being copied
            raise AttributeError(name)
        return getattr(self.grid, name)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send the messages of an exchange, or of a second attempt, and return the replies."""
        sent = self.before(list(messages))
        return self.after(sent, list(self.grid.send_and_receive(sent, timeout=timeout)))

    def before(self, messages: list[Message]) -> list[Message]:
        """Return the messages to send in place of the given ones."""
        return messages

    def after(self, messages: list[Message], replies: list[Message]) -> list[Message]:
        """Return the replies to the messages sent, in place of those that came."""
        return replies


class KilledError(BaseException):
    """Ends a run as nothing in flwr-causal expects it, like the end of the server's process."""


class Killing(Relay):
    """A grid that ends the run in an exchange, before the parties are asked.

    Parameters
    ----------
    grid : Grid
    number : int or str
        Of the exchange; "schema" for the one before the first. None has the number -1.
    """

    def __init__(self, grid: Grid, number: int | str) -> None:
        super().__init__(grid)
        self.number = number

    def before(self, messages: list[Message]) -> list[Message]:
        """Return the messages.

        Raises
        ------
        KilledError
            In the exchange with the number.
        """
        if any(one.metadata.group_id == str(self.number) for one in messages):
            raise KilledError
        return messages
